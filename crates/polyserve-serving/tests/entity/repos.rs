//! Repos for these tests.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Mutex;

use polyserve_core::sync::lock;
use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, Lookup, Put, Removed, RepoAnswer, RepoError, Visit,
};

/// A map behind a lock.
#[derive(Debug, Default)]
pub(crate) struct MapRepo {
    entities: Mutex<HashMap<i64, Entity>>,
}

impl EntityRepo for MapRepo {
    fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        let entities = lock(&self.entities);
        let Some(entity) = entities.get(&id) else { return Answer::Now(Ok(Lookup::Absent)) };
        Answer::Now(Ok(visit.show(entity)))
    }

    fn put_if(&self, entity: Entity, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        let mut entities = lock(&self.entities);
        if !condition.allows(entities.get(&entity.id)) {
            return Answer::Now(Ok(Conditional::Refused));
        }
        let old = entities.insert(entity.id, entity);
        Answer::Now(Ok(Conditional::Done(if old.is_some() { Put::Replaced } else { Put::Created })))
    }

    fn remove_if(&self, &id: &i64, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        let mut entities = lock(&self.entities);
        if entities.get(&id).is_some_and(|stored| !condition.allows(Some(stored))) {
            return Answer::Now(Ok(Conditional::Refused));
        }
        let old = entities.remove(&id);
        Answer::Now(Ok(Conditional::Done(if old.is_some() { Removed::Removed } else { Removed::Absent })))
    }

    fn len(&self) -> RepoAnswer<u64> {
        Answer::Now(Ok(lock(&self.entities).len() as u64))
    }
}

/// A repo that fetches its entities and answers later.
#[derive(Debug, Default)]
pub(crate) struct LaterRepo(pub(crate) MapRepo);

impl EntityRepo for LaterRepo {
    fn get(&self, &id: &i64, _visit: Visit<'_>) -> RepoAnswer<Lookup> {
        let found = lock(&self.0.entities).get(&id).cloned();
        Answer::later(async move { Ok(found.map_or(Lookup::Absent, Lookup::Fetched)) })
    }

    fn put_if(&self, entity: Entity, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        let put = self.0.put_if(entity, condition);
        Answer::later(async move { put.await })
    }

    fn remove_if(&self, &id: &i64, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        let removed = self.0.remove_if(&id, condition);
        Answer::later(async move { removed.await })
    }

    fn len(&self) -> RepoAnswer<u64> {
        let len = self.0.len();
        Answer::later(async move { len.await })
    }
}

/// A repo that answers errors only.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FailingRepo {
    Closed,
    Overloaded,
    NotDone,
    Unavailable,
    ReadOnly,
    Failing,
}

/// The reason why a repo takes no more writes.
#[derive(Debug)]
struct DiskIsFull(io::Error);

impl fmt::Display for DiskIsFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the disk is full")
    }
}

impl Error for DiskIsFull {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

impl FailingRepo {
    fn fail<T>(self) -> RepoAnswer<T> {
        Answer::Now(Err(match self {
            Self::Closed => RepoError::Closed,
            Self::Overloaded => RepoError::Overloaded,
            Self::NotDone => RepoError::NotDone("a secret of the engine".into()),
            Self::Unavailable => RepoError::Unavailable("a secret of the engine".into()),
            Self::ReadOnly => RepoError::ReadOnly(Box::new(DiskIsFull(io::Error::other("a secret of the disk")))),
            Self::Failing => RepoError::Other("a secret of the store".into()),
        }))
    }
}

impl EntityRepo for FailingRepo {
    fn get(&self, &_id: &i64, _visit: Visit<'_>) -> RepoAnswer<Lookup> {
        self.fail()
    }

    fn put_if(&self, _entity: Entity, _condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        self.fail()
    }

    fn remove_if(&self, &_id: &i64, _condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        self.fail()
    }

    fn len(&self) -> RepoAnswer<u64> {
        self.fail()
    }
}
