//! `std_mutex`: one [`Mutex`] around one map. The baseline of the comparisons.
//!
//! Invariant: the map is accessed only under the lock. Only a visit, the evaluation of a condition and an id's own code can
//! panic there, and the map stays valid. So the lock is recovered if it is poisoned.
//!
//! Cost: every operation is one lock (two atomic instructions if it is free), one hash and one probe. Operations never
//! overlap: a long visit, or the growth of the map at a put of a new id (O(n), amortised O(1)), blocks all others.
//! `len` is O(1). The memory of removed entries is kept for later ones.
//!
//! Source: the textbook design.
//!
//! *Wins when* one thread has it for itself, and entities do not come and go: it is ahead of `sharded` with few puts,
//! and with as many puts as gets. *Loses when* several threads use it: two threads that read do less together than one
//! alone. Record: `stores-workers` in `docs/results`, on two cores.

use std::collections::HashMap;
use std::fmt;

use polyserve_core::sync::{Mutex, lock};
use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, Identifiable, Lookup, Put, Removed, RepoAnswer, Visit,
};

use crate::hash::IdState;
use crate::published::IsPublished;
use crate::result::{put_result, remove_result};
use crate::versions::Versions;

/// One mutex around one map.
///
/// ```
/// use polyserve_core::{Entity, EntityRepo, EntityRepoExt, Put};
/// use polyserve_memory::StdMutex;
///
/// let store = StdMutex::new();
/// assert_eq!(store.put(Entity::new(1, "first", 0.5)).wait()?, Put::Created);
/// assert_eq!(store.fetch(&1).wait()?, Some(Entity::new(1, "first", 0.5)));
///
/// # #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
/// # struct Account { name: String }
/// # polyserve_core::identifiable!(Account, name: String);
/// assert_eq!(StdMutex::of::<Account>().len().wait()?, 0);
/// # Ok::<(), polyserve_core::RepoError>(())
/// ```
pub struct StdMutex<E: Identifiable = Entity> {
    entities: Mutex<HashMap<E::Id, E, IdState>>,
    versions: Versions,
}

impl<E: Identifiable> StdMutex<E> {
    /// Creates an empty repo of the published entities. It allocates nothing.
    pub fn new() -> Self
    where
        Entity: IsPublished<E>,
    {
        Self::default()
    }
}

impl StdMutex {
    /// Creates an empty repo of entities of another type: `StdMutex::of::<Account>()`.
    pub fn of<E: Identifiable>() -> StdMutex<E> {
        StdMutex::default()
    }
}

impl<E: Identifiable> Default for StdMutex<E> {
    fn default() -> Self {
        Self { entities: Mutex::default(), versions: Versions::default() }
    }
}

impl<E: Identifiable> StdMutex<E> {
    /// Stores `entity` and returns the replaced entity, or returns `entity` if it is refused. No lock is held when it
    /// returns.
    fn replace(&self, entity: E, condition: &Condition) -> Result<Option<E>, E> {
        let mut entities = lock(&self.entities);
        if !condition.is_always() && !condition.allows(entities.get(entity.id())) {
            return Err(entity);
        }
        Ok(entities.insert(entity.id().clone(), entity))
    }

    /// Removes the entity of `id` and returns it. No lock is held when it returns.
    fn take(&self, id: &E::Id, condition: &Condition) -> Conditional<Option<E>> {
        let mut entities = lock(&self.entities);
        if !condition.is_always() && entities.get(id).is_some_and(|entity| !condition.allows(Some(entity))) {
            return Conditional::Refused;
        }
        Conditional::Done(entities.remove(id))
    }
}

impl<E: Identifiable> EntityRepo<E> for StdMutex<E> {
    #[allow(clippy::inline_always)] // if the caller knows the type, neither `get` nor the visit is a call
    #[inline(always)]
    fn get(&self, id: &E::Id, visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
        let entities = lock(&self.entities);
        let Some(entity) = entities.get(id) else { return Answer::Now(Ok(Lookup::Absent)) };
        Answer::Now(Ok(visit.show(entity)))
    }

    fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        let _write = self.versions.write(entity.id());
        Answer::Now(Ok(put_result(self.replace(entity, condition))))
    }

    fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        let _write = self.versions.write(id);
        Answer::Now(Ok(remove_result(&self.take(id, condition))))
    }

    fn len(&self) -> RepoAnswer<u64> {
        Answer::Now(Ok(lock(&self.entities).len() as u64))
    }

    fn version(&self, id: &E::Id) -> Option<u64> {
        self.versions.version(id)
    }
}

impl<E: Identifiable> fmt::Debug for StdMutex<E> {
    /// Takes no lock, so printing a repo cannot deadlock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdMutex").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests {
    use super::*;
    use crate::handed_out_whole;

    /// A replaced or removed entity is dropped when the lock is not held.
    #[test]
    fn an_entity_is_dropped_outside_the_lock() {
        let repo = StdMutex::new();
        let free = || repo.entities.try_lock().is_ok();
        handed_out_whole(
            |entity, condition| repo.replace(entity, condition),
            |id, condition| repo.take(&id, condition),
            free,
        );
    }
}
