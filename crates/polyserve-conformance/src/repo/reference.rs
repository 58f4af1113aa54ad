//! Two plain repos of any entity: for the kit's own services, as a base of the broken repos, and as an example.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use polyserve_core::stack::FOR_ANY_VALUE;
use polyserve_core::sync::lock;
use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, Identifiable, Lookup, MAX_PAGE_BYTES, Put, Removed, RepoAnswer,
    RepoError, ScanPage, ScanVisit, Shown, Visit, promise,
};

pub(crate) type EntityMap<E = Entity> = HashMap<<E as Identifiable>::Id, E>;

/// A map behind a mutex. Answers now.
pub struct Reference<E: Identifiable = Entity> {
    entities: Mutex<EntityMap<E>>,
    /// The number of writes that have begun. All entities have the same version.
    writes: AtomicU64,
}

impl<E: Identifiable> Default for Reference<E> {
    fn default() -> Self {
        Self { entities: Mutex::default(), writes: AtomicU64::default() }
    }
}

impl<E: Identifiable> Reference<E> {
    /// The map, for repos with a flaw.
    pub(crate) fn map(&self) -> MutexGuard<'_, EntityMap<E>> {
        lock(&self.entities)
    }

    /// The mutex, for repos with a flaw in their locking.
    pub(crate) fn mutex(&self) -> &Mutex<EntityMap<E>> {
        &self.entities
    }

    fn write<T>(&self, write: impl FnOnce(&mut EntityMap<E>) -> T) -> RepoAnswer<T> {
        let mut entities = self.map();
        self.writes.fetch_add(1, Ordering::SeqCst);
        Answer::Now(Ok(write(&mut entities)))
    }
}

impl<E: Identifiable> EntityRepo<E> for Reference<E> {
    fn get(&self, id: &E::Id, visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
        Answer::Now(Ok(self.map().get(id).map_or(Lookup::Absent, |entity| visit.show(entity))))
    }

    fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        self.write(|map| put_if(map, entity, condition))
    }

    fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        self.write(|map| remove_if(map, id, condition))
    }

    fn len(&self) -> RepoAnswer<u64> {
        Answer::Now(Ok(self.map().len() as u64))
    }

    fn can_scan(&self) -> bool {
        true
    }

    fn scan(&self, after: Option<&E::Id>, limit: usize, visit: ScanVisit<'_, E>) -> RepoAnswer<ScanPage<E>> {
        let map = self.map();
        let (entities, has_more) = page_of(&map, after, limit);
        let broken = entities.into_iter().find(|entity| visit(entity.id(), Shown::from(*entity)).is_break());
        Answer::Now(Ok(ScanPage { entities: Vec::new(), has_more: has_more || broken.is_some() }))
    }

    fn version(&self, _: &E::Id) -> Option<u64> {
        let _entities = self.map();
        Some(self.writes.load(Ordering::SeqCst))
    }
}

impl<E: Identifiable> fmt::Debug for Reference<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reference").finish_non_exhaustive()
    }
}

/// A map that one thread owns. Operations queue up for the thread, which completes their promises. Answers later.
pub struct LaterReference<E: Identifiable = Entity> {
    operations: Option<Sender<MapOperation<E>>>,
    owner: Option<JoinHandle<()>>,
}

type MapOperation<E> = Box<dyn FnOnce(&mut EntityMap<E>) + Send>;

/// A `get` of this id panics on the thread of a [`LaterReference`]. The thread goes on. The wire corpus asks for it.
const PANICS: &str = "-500";

impl<E: Identifiable> LaterReference<E> {
    fn ask<T: Send + 'static>(&self, operation: impl FnOnce(&mut EntityMap<E>) -> T + Send + 'static) -> RepoAnswer<T> {
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

impl<E: Identifiable> Default for LaterReference<E> {
    fn default() -> Self {
        let (operations, queue) = mpsc::channel::<MapOperation<E>>();
        let owner = thread::Builder::new().stack_size(FOR_ANY_VALUE).spawn(move || {
            let mut map = EntityMap::<E>::new();
            for operation in queue {
                let _ = catch_unwind(AssertUnwindSafe(|| operation(&mut map)));
            }
        });
        Self { operations: Some(operations), owner: Some(owner.expect("a thread can be started")) }
    }
}

impl<E: Identifiable> Drop for LaterReference<E> {
    /// Runs the queued operations, so that every answer comes.
    fn drop(&mut self) {
        drop(self.operations.take());
        if let Some(owner) = self.owner.take() {
            let _ = owner.join();
        }
    }
}

impl<E: Identifiable> EntityRepo<E> for LaterReference<E> {
    fn get(&self, id: &E::Id, _visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
        let id = id.clone();
        self.ask(move |map| {
            assert_ne!(id.to_string(), PANICS, "as the test asked");
            map.get(&id).cloned().map_or(Lookup::Absent, Lookup::Fetched)
        })
    }

    fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        let condition = condition.clone();
        self.ask(move |map| put_if(map, entity, &condition))
    }

    fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        let (id, condition) = (id.clone(), condition.clone());
        self.ask(move |map| remove_if(map, &id, &condition))
    }

    fn len(&self) -> RepoAnswer<u64> {
        self.ask(|map| map.len() as u64)
    }

    fn can_scan(&self) -> bool {
        true
    }

    /// The size of an entity is that of its JSON.
    fn scan(&self, after: Option<&E::Id>, limit: usize, _visit: ScanVisit<'_, E>) -> RepoAnswer<ScanPage<E>> {
        let after = after.cloned();
        self.ask(move |map| {
            let (found, has_more) = page_of(map, after.as_ref(), limit);
            let (mut bytes, mut json) = (0, Vec::new());
            let fits = |entity: &&E| {
                json.clear();
                let _ = entity.write_json(&mut json);
                let is_first = bytes == 0;
                bytes += json.len();
                is_first || bytes <= MAX_PAGE_BYTES
            };
            let number = found.len();
            let entities: Vec<E> = found.into_iter().take_while(fits).cloned().collect();
            ScanPage { has_more: has_more || entities.len() < number, entities }
        })
    }
}

impl<E: Identifiable> fmt::Debug for LaterReference<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaterReference").finish_non_exhaustive()
    }
}

/// Returns at most `limit` of the entities with an id above `after`, in the order of their ids, and whether there are more.
pub(crate) fn page_of<'a, E: Identifiable>(
    map: &'a EntityMap<E>,
    after: Option<&E::Id>,
    limit: usize,
) -> (Vec<&'a E>, bool) {
    let mut entities: Vec<&E> = map.values().filter(|entity| after.is_none_or(|after| entity.id() > after)).collect();
    entities.sort_unstable_by_key(|entity| entity.id());
    let has_more = entities.len() > limit;
    entities.truncate(limit);
    (entities, has_more)
}

/// Puts `entity` into `map` if `condition` allows it.
pub(crate) fn put_if<E: Identifiable>(map: &mut EntityMap<E>, entity: E, condition: &Condition) -> Conditional<Put> {
    if !condition.allows(map.get(entity.id())) {
        return Conditional::Refused;
    }
    Conditional::Done(put_over(map.insert(entity.id().clone(), entity).as_ref()))
}

/// Removes `id` from `map` if `condition` allows it.
pub(crate) fn remove_if<E: Identifiable>(
    map: &mut EntityMap<E>,
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
