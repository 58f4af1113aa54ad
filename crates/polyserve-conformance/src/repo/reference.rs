//! Two plain repos: for the kit's own tests, as a base of the broken repos, and as an example.

use std::collections::HashMap;
use std::fmt;
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use polyserve_core::sync::lock;
use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, Identifiable, Lookup, Put, Removed, RepoAnswer, RepoError,
    Visit, promise,
};

pub(crate) type EntityMap = HashMap<i64, Entity>;

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
    fn get(&self, &id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        let entities = self.map();
        let Some(entity) = entities.get(&id) else { return Answer::Now(Ok(Lookup::Absent)) };
        Answer::Now(Ok(visit.show(entity)))
    }

    fn put_if(&self, entity: Entity, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        Answer::Now(Ok(put_if(&mut self.map(), entity, condition)))
    }

    fn remove_if(&self, &id: &i64, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        Answer::Now(Ok(remove_if(&mut self.map(), &id, condition)))
    }

    fn len(&self) -> RepoAnswer<u64> {
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
    fn ask<T: Send + 'static>(&self, operation: impl FnOnce(&mut EntityMap) -> T + Send + 'static) -> RepoAnswer<T> {
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
    fn get(&self, &id: &i64, _visit: Visit<'_>) -> RepoAnswer<Lookup> {
        self.ask(move |map| map.get(&id).cloned().map_or(Lookup::Absent, Lookup::Fetched))
    }

    fn put_if(&self, entity: Entity, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        let condition = condition.clone();
        self.ask(move |map| put_if(map, entity, &condition))
    }

    fn remove_if(&self, &id: &i64, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        let condition = condition.clone();
        self.ask(move |map| remove_if(map, &id, &condition))
    }

    fn len(&self) -> RepoAnswer<u64> {
        self.ask(|map| map.len() as u64)
    }
}

impl fmt::Debug for LaterReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaterReference").finish_non_exhaustive()
    }
}

/// Puts `entity` into `map` if `condition` allows it.
pub(crate) fn put_if<E: Identifiable>(
    map: &mut HashMap<E::Id, E>,
    entity: E,
    condition: &Condition,
) -> Conditional<Put> {
    if !condition.allows(map.get(entity.id())) {
        return Conditional::Refused;
    }
    Conditional::Done(put_over(map.insert(entity.id().clone(), entity).as_ref()))
}

/// Removes `id` from `map` if `condition` allows it.
pub(crate) fn remove_if<E: Identifiable>(
    map: &mut HashMap<E::Id, E>,
    id: &E::Id,
    condition: &Condition,
) -> Conditional<Removed> {
    if map.get(id).is_some_and(|stored| !condition.allows(Some(stored))) {
        return Conditional::Refused;
    }
    Conditional::Done(removed_of(map.remove(id).as_ref()))
}

/// Returns the result of a put that replaced `replaced`.
pub(crate) fn put_over<E>(replaced: Option<&E>) -> Put {
    if replaced.is_some() { Put::Replaced } else { Put::Created }
}

/// Returns the result of a remove that took `entity` out.
pub(crate) fn removed_of<E>(entity: Option<&E>) -> Removed {
    if entity.is_some() { Removed::Removed } else { Removed::Absent }
}
