//! `dashmap`: the map of the [`dashmap`](https://docs.rs/dashmap) crate. It is divided into shards, each behind its own
//! readers-writer lock.
//!
//! Invariant: no guard of the map leaves an operation. This map is known for a deadlock: a guard that is held across
//! another call (dashmap issues 74, 233 and 369). Here only a visit that calls its repo could cause it, which the trait
//! forbids. The locks do not poison. If a visit panics, its shard's read lock is released.
//!
//! Cost: every operation is one hash, one shard's lock and one probe. Operations conflict only if their ids share a
//! shard; there are about four shards for each core. `len` takes every shard's read lock in turn. Each shard grows
//! separately, so a growth blocks a fraction of the operations. The memory of removed entries is kept.
//!
//! Source: the `dashmap` crate.
//!
//! *Wins when* the program uses it already; or, by little, when two threads get and put one id (`stores-skew`). On one
//! thread it is close to `std_rwlock`, and reads faster than `sharded`. *Loses when* two threads share it: `sharded` is
//! ahead with gets, with puts, and most with inserts and removes (`stores-workers`). It loses when one id takes all
//! reads, because one id is one lock: `papaya` is far ahead (`stores-skew`). It keeps most of its memory after all
//! entities were removed, unlike `sharded` (`stores-memory`). Records: `docs/results`, on two cores.

use std::fmt;

use dashmap::{DashMap, Entry};
use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, Identifiable, Lookup, Put, Removed, RepoAnswer, Visit,
};

use crate::hash::IdState;
use crate::published::IsPublished;
use crate::result::put_result;
use crate::versions::Versions;

/// A map in shards, each behind its own lock.
///
/// ```
/// use polyserve_core::{Entity, EntityRepo, EntityRepoExt, Put};
/// use polyserve_memory::Dashmap;
///
/// let store = Dashmap::new();
/// assert_eq!(store.put(Entity::new(1, "first", 0.5)).wait()?, Put::Created);
/// assert_eq!(store.fetch(&1).wait()?, Some(Entity::new(1, "first", 0.5)));
///
/// # #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
/// # struct Account { name: String }
/// # polyserve_core::identifiable!(Account, name: String);
/// assert_eq!(Dashmap::of::<Account>().len().wait()?, 0);
/// # Ok::<(), polyserve_core::RepoError>(())
/// ```
pub struct Dashmap<E: Identifiable = Entity> {
    entities: DashMap<E::Id, E, IdState>,
    versions: Versions,
}

impl<E: Identifiable> Dashmap<E> {
    /// Creates an empty repo of the published entities.
    pub fn new() -> Self
    where
        Entity: IsPublished<E>,
    {
        Self::default()
    }
}

impl Dashmap {
    /// Creates an empty repo of entities of another type: `Dashmap::of::<Account>()`.
    pub fn of<E: Identifiable>() -> Dashmap<E> {
        Dashmap::default()
    }
}

impl<E: Identifiable> Default for Dashmap<E> {
    fn default() -> Self {
        Self { entities: DashMap::default(), versions: Versions::default() }
    }
}

impl<E: Identifiable> Dashmap<E> {
    /// Stores `entity` and returns the replaced entity, or returns `entity` if it is refused. The shard is unlocked when it
    /// returns.
    fn replace(&self, entity: E, condition: &Condition) -> Result<Option<E>, E> {
        match self.entities.entry(entity.id().clone()) {
            Entry::Occupied(stored) if !condition.allows(Some(stored.get())) => Err(entity),
            Entry::Occupied(mut stored) => Ok(Some(stored.insert(entity))),
            Entry::Vacant(_) if !condition.allows::<E>(None) => Err(entity),
            Entry::Vacant(free) => {
                free.insert(entity);
                Ok(None)
            }
        }
    }
}

impl<E: Identifiable> EntityRepo<E> for Dashmap<E> {
    #[allow(clippy::inline_always)] // if the caller knows the type, neither `get` nor the visit is a call
    #[inline(always)]
    fn get(&self, id: &E::Id, visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
        let Some(entity) = self.entities.get(id) else { return Answer::Now(Ok(Lookup::Absent)) };
        Answer::Now(Ok(visit.show(entity.value())))
    }

    fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        let _write = self.versions.write(entity.id());
        Answer::Now(Ok(put_result(self.replace(entity, condition))))
    }

    fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        let _write = self.versions.write(id);
        let mut refused = false;
        let removed = self.entities.remove_if(id, |_, entity| {
            refused = !condition.allows(Some(entity));
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

impl<E: Identifiable> fmt::Debug for Dashmap<E> {
    /// Takes no lock, so printing a repo cannot deadlock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dashmap").finish_non_exhaustive()
    }
}
