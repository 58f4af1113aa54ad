//! Two plain repos: for the kit's own tests, as a base of the broken repos, and as an example.

use std::collections::HashMap;
use std::fmt;
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use polyserve_core::sync::lock;
use polyserve_core::{Answer, Entity, EntityRef, EntityRepo, Lookup, Put, Removed, RepoError, promise};

type EntityMap = HashMap<i64, Entity>;

/// A map behind a mutex. Answers now.
#[derive(Default)]
pub struct Reference {
    entities: Mutex<EntityMap>,
}

impl Reference {
    /// The map, for repos with a flaw.
    pub(crate) fn map(&self) -> MutexGuard<'_, EntityMap> {
        lock(&self.entities)
    }

    /// The mutex, for repos with a flaw in their locking.
    pub(crate) fn mutex(&self) -> &Mutex<EntityMap> {
        &self.entities
    }
}

impl EntityRepo for Reference {
    fn get(&self, &id: &i64, visit: &mut dyn FnMut(EntityRef<'_>)) -> Answer<Result<Lookup, RepoError>> {
        let entities = self.map();
        let Some(entity) = entities.get(&id) else { return Answer::Now(Ok(Lookup::Absent)) };
        visit(entity.as_ref());
        Answer::Now(Ok(Lookup::Visited))
    }

    fn put(&self, entity: Entity) -> Answer<Result<Put, RepoError>> {
        let replaced = self.map().insert(entity.id, entity);
        Answer::Now(Ok(put_over(replaced.as_ref())))
    }

    fn remove(&self, &id: &i64) -> Answer<Result<Removed, RepoError>> {
        let entity = self.map().remove(&id);
        Answer::Now(Ok(removed_of(entity.as_ref())))
    }

    fn len(&self) -> Answer<Result<u64, RepoError>> {
        Answer::Now(Ok(self.map().len() as u64))
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reference").finish_non_exhaustive()
    }
}

/// A map that one thread owns. Operations queue up for the thread, which completes their promises. Answers later.
pub struct LaterReference {
    operations: Option<Sender<MapOperation>>,
    owner: Option<JoinHandle<()>>,
}

type MapOperation = Box<dyn FnOnce(&mut EntityMap) + Send>;

impl LaterReference {
    fn ask<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&mut EntityMap) -> T + Send + 'static,
    ) -> Answer<Result<T, RepoError>> {
        let (completer, answer) = promise(Err(RepoError::Closed));
        if let Some(operations) = &self.operations {
            // An owner that has gone away drops the operation, and with it the completer, which answers Closed.
            let _ = operations.send(Box::new(move |map| {
                let _ = completer.complete(Ok(operation(map)));
            }));
        }
        answer
    }
}

impl Default for LaterReference {
    fn default() -> Self {
        let (operations, queue) = mpsc::channel::<MapOperation>();
        let owner = thread::spawn(move || {
            let mut map = EntityMap::new();
            queue.into_iter().for_each(|operation| operation(&mut map));
        });
        Self { operations: Some(operations), owner: Some(owner) }
    }
}

impl Drop for LaterReference {
    /// Runs the queued operations, so that every answer comes.
    fn drop(&mut self) {
        drop(self.operations.take());
        if let Some(owner) = self.owner.take() {
            let _ = owner.join();
        }
    }
}

impl EntityRepo for LaterReference {
    fn get(&self, &id: &i64, _visit: &mut dyn FnMut(EntityRef<'_>)) -> Answer<Result<Lookup, RepoError>> {
        self.ask(move |map| map.get(&id).cloned().map_or(Lookup::Absent, Lookup::Fetched))
    }

    fn put(&self, entity: Entity) -> Answer<Result<Put, RepoError>> {
        self.ask(move |map| put_over(map.insert(entity.id, entity).as_ref()))
    }

    fn remove(&self, &id: &i64) -> Answer<Result<Removed, RepoError>> {
        self.ask(move |map| removed_of(map.remove(&id).as_ref()))
    }

    fn len(&self) -> Answer<Result<u64, RepoError>> {
        self.ask(|map| map.len() as u64)
    }
}

impl fmt::Debug for LaterReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaterReference").finish_non_exhaustive()
    }
}

/// Returns the result of a put that replaced `replaced`.
pub(crate) fn put_over(replaced: Option<&Entity>) -> Put {
    if replaced.is_some() { Put::Replaced } else { Put::Created }
}

/// Returns the result of a remove that took `entity` out.
pub(crate) fn removed_of(entity: Option<&Entity>) -> Removed {
    if entity.is_some() { Removed::Removed } else { Removed::Absent }
}
