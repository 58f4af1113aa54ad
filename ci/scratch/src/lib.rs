//! A repo of one's own, as a user of polyserve would write it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use polyserve::prelude::*;

#[derive(Debug, Default)]
pub struct Tree {
    entities: Mutex<BTreeMap<i64, Entity>>,
}

impl Tree {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<i64, Entity>> {
        self.entities.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EntityRepo for Tree {
    fn get(&self, id: &i64, visit: &mut dyn FnMut(EntityRef<'_>)) -> Answer<Result<Lookup, RepoError>> {
        Answer::Now(Ok(match self.lock().get(id) {
            Some(entity) => {
                visit(entity.as_ref());
                Lookup::Visited
            }
            None => Lookup::Absent,
        }))
    }

    fn put_if(&self, entity: Entity, condition: &Condition) -> Answer<Result<Conditional<Put>, RepoError>> {
        let mut entities = self.lock();
        if !condition.allows(entities.get(&entity.id)) {
            return Answer::Now(Ok(Conditional::Refused));
        }
        let replaced = entities.insert(entity.id, entity);
        Answer::Now(Ok(Conditional::Done(if replaced.is_some() { Put::Replaced } else { Put::Created })))
    }

    fn remove_if(&self, id: &i64, condition: &Condition) -> Answer<Result<Conditional<Removed>, RepoError>> {
        let mut entities = self.lock();
        if entities.get(id).is_some_and(|stored| !condition.allows(Some(stored))) {
            return Answer::Now(Ok(Conditional::Refused));
        }
        let removed = entities.remove(id);
        Answer::Now(Ok(Conditional::Done(if removed.is_some() { Removed::Removed } else { Removed::Absent })))
    }

    fn len(&self) -> Answer<Result<u64, RepoError>> {
        Answer::Now(Ok(self.lock().len() as u64))
    }
}
