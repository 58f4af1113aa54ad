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

    fn put(&self, entity: Entity) -> Answer<Result<Put, RepoError>> {
        let replaced = self.lock().insert(entity.id, entity);
        Answer::Now(Ok(if replaced.is_some() { Put::Replaced } else { Put::Created }))
    }

    fn remove(&self, id: &i64) -> Answer<Result<Removed, RepoError>> {
        let removed = self.lock().remove(id);
        Answer::Now(Ok(if removed.is_some() { Removed::Removed } else { Removed::Absent }))
    }

    fn len(&self) -> Answer<Result<u64, RepoError>> {
        Answer::Now(Ok(self.lock().len() as u64))
    }
}
