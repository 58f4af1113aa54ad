//! `scc`: the map of the [`scc`](https://docs.rs/scc) crate: one array of buckets of 32 entries, each bucket behind its
//! own readers-writer lock.
//!
//! Invariant: no entry and no lock of the map leaves an operation. A visit runs under the read lock of its bucket,
//! which is released if the visit panics, and does not poison. A replaced or removed entity is moved out, and dropped
//! after the bucket is unlocked.
//!
//! Cost: a get is one hash, a pin of the array's epoch, one bucket's lock (two writes to a word that readers of the
//! same 32 entries share) and a search by one byte for each entry. The entity lies in the array, so a put does not
//! allocate, and only the description's pointer is followed. Growing is shared: during a growth each operation, also a
//! get, first moves a few buckets under their locks. `len` reads the count of every bucket: O(n / 32), exact if no
//! other operation runs.
//!
//! Memory: the array doubles when it is 13/16 full, and is halved below 1/8, so an emptied store frees its memory. An
//! outgrown array is freed once no operation can still read it. A removed entity leaves no memory behind.
//!
//! Source: the `scc` crate.
//!
//! *Wins when* ids are mostly new and are spread over the map: a bucket's lock is rarely contended, and nothing is
//! allocated. With two threads no other store here inserts faster (`stores-workers`). *Loses when* one id takes all
//! reads, because its readers write one word: `papaya` is far ahead (`stores-skew`); and when one thread reads:
//! `std_rwlock` is ahead (`stores-workers`). Records: `docs/results`, on two cores.

use std::fmt;

use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, Identifiable, Lookup, Put, Removed, RepoAnswer, Visit,
};
use scc::HashMap;
use scc::hash_map::Entry;

use crate::hash::IdState;
use crate::published::IsPublished;
use crate::result::put_result;
use crate::versions::Versions;

/// A map with a lock for each bucket.
///
/// ```
/// use polyserve_core::{Entity, EntityRepo, EntityRepoExt, Put};
/// use polyserve_memory::Scc;
///
/// let store = Scc::new();
/// assert_eq!(store.put(Entity::new(1, "first", 0.5)).wait()?, Put::Created);
/// assert_eq!(store.fetch(&1).wait()?, Some(Entity::new(1, "first", 0.5)));
///
/// # #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
/// # struct Account { name: String }
/// # polyserve_core::identifiable!(Account, name: String);
/// assert_eq!(Scc::of::<Account>().len().wait()?, 0);
/// # Ok::<(), polyserve_core::RepoError>(())
/// ```
pub struct Scc<E: Identifiable = Entity> {
    entities: HashMap<E::Id, E, IdState>,
    versions: Versions,
}

impl<E: Identifiable> Scc<E> {
    /// Creates an empty repo of the published entities. It allocates nothing.
    pub fn new() -> Self
    where
        Entity: IsPublished<E>,
    {
        Self::default()
    }
}

impl Scc {
    /// Creates an empty repo of entities of another type: `Scc::of::<Account>()`.
    pub fn of<E: Identifiable>() -> Scc<E> {
        Scc::default()
    }
}

impl<E: Identifiable> Default for Scc<E> {
    fn default() -> Self {
        Self { entities: HashMap::default(), versions: Versions::default() }
    }
}

impl<E: Identifiable> Scc<E> {
    /// Stores `entity` and returns the replaced entity, or returns `entity` if it is refused. The bucket is unlocked when it
    /// returns.
    fn replace(&self, entity: E, condition: &Condition) -> Result<Option<E>, E> {
        let id = entity.id().clone();
        if condition.is_always() {
            return Ok(self.entities.upsert_sync(id, entity));
        }
        match self.entities.entry_sync(id) {
            Entry::Occupied(stored) if !condition.allows(Some(stored.get())) => Err(entity),
            Entry::Occupied(mut stored) => Ok(Some(stored.insert(entity))),
            Entry::Vacant(_) if !condition.allows::<E>(None) => Err(entity),
            Entry::Vacant(free) => {
                free.insert_entry(entity);
                Ok(None)
            }
        }
    }
}

impl<E: Identifiable> EntityRepo<E> for Scc<E> {
    #[allow(clippy::inline_always)] // if the caller knows the type, neither `get` nor the visit is a call
    #[inline(always)]
    fn get(&self, id: &E::Id, visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
        let visited = self.entities.read_sync(id, |_, entity| visit.show(entity));
        Answer::Now(Ok(visited.unwrap_or(Lookup::Absent)))
    }

    fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        let _write = self.versions.write(entity.id());
        Answer::Now(Ok(put_result(self.replace(entity, condition))))
    }

    fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        let _write = self.versions.write(id);
        let mut refused = false;
        let removed = self.entities.remove_if_sync(id, |entity| {
            refused = !condition.allows(Some(&*entity));
            !refused
        });
        Answer::Now(Ok(match removed {
            None if refused => Conditional::Refused,
            None => Conditional::Done(Removed::Absent),
            Some(_) => Conditional::Done(Removed::Removed),
        }))
    }

    fn len(&self) -> RepoAnswer<u64> {
        Answer::Now(Ok(self.entities.len() as u64))
    }

    fn version(&self, id: &E::Id) -> Option<u64> {
        self.versions.version(id)
    }
}

impl<E: Identifiable> fmt::Debug for Scc<E> {
    /// Takes no lock, so printing a repo cannot deadlock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scc").finish_non_exhaustive()
    }
}
