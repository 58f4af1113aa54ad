//! `two_level`: a [`RwLock`] around the map, and one around each entity. This is the store of the published entity
//! servers without their race.
//!
//! There are three cases, as published. A get takes the map's read lock and the entry's read lock. A put of a known id
//! takes the map's read lock and the entry's write lock. A put of a new id, and a remove, take the map's write lock.
//!
//! Invariants:
//!
//! * An entry is accessed only while the map's lock is held at least for reading. A remove holds it for writing, so no
//!   other operation is inside the entry that it takes out. A put cannot store into an entry that has left the map. No
//!   `Arc` is cloned: the `Arc` is there as published, and lets the map grow by moving pointers instead of entities.
//! * Whether an id is new is checked again under the map's write lock. The published code checked under one lock and
//!   inserted under another. So of two racing first puts both were "created", and the earlier one could win.
//! * Locks are taken in the order map, entry, and a thread that holds an entry's lock takes no other. So there is no
//!   cycle and no deadlock. A visit runs under two read locks, which its panic does not poison.
//!
//! Cost: a get, and a put of a known id, is two locks, one hash, one probe and one pointer to follow. Puts of known ids
//! overlap with each other and with reads of other ids, but all of them change the word of the map's lock twice. A put
//! of a new id looks up the id twice, and blocks all other operations while it inserts. `len` is O(1). Each entry is an
//! allocation.
//!
//! Source: the published entity servers.
//!
//! *Wins when* descriptions have some KiB and gets and puts of known ids are equally frequent: it is ahead of all other
//! stores here (`stores-payload`). *Loses when* operations are short, because two locks cost more than their overlap
//! saves: it is ahead of the single locks and behind every sharded store (`stores-workers`). It loses when ids are
//! mostly new: `scc` is far ahead (`stores-workers`). Records: `docs/results`, on two cores.

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::Arc;

use polyserve_core::sync::{RwLock, read, write};
use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, Identifiable, Lookup, Put, Removed, RepoAnswer, Visit,
};

use crate::hash::IdState;
use crate::published::IsPublished;
use crate::result::remove_result;
use crate::versions::Versions;

/// The map: an entity behind its own lock for each id.
type EntryMap<E> = HashMap<<E as Identifiable>::Id, Arc<RwLock<E>>, IdState>;

/// A readers-writer lock around the map, and one around each entity.
///
/// ```
/// use polyserve_core::{Entity, EntityRepo, EntityRepoExt, Put};
/// use polyserve_memory::TwoLevel;
///
/// let store = TwoLevel::new();
/// assert_eq!(store.put(Entity::new(1, "first", 0.5)).wait()?, Put::Created);
/// assert_eq!(store.fetch(&1).wait()?, Some(Entity::new(1, "first", 0.5)));
///
/// # #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
/// # struct Account { name: String }
/// # polyserve_core::identifiable!(Account, name: String);
/// assert_eq!(TwoLevel::of::<Account>().len().wait()?, 0);
/// # Ok::<(), polyserve_core::RepoError>(())
/// ```
pub struct TwoLevel<E: Identifiable = Entity> {
    entries: RwLock<EntryMap<E>>,
    versions: Versions,
}

impl<E: Identifiable> TwoLevel<E> {
    /// Creates an empty repo of the published entities. It allocates nothing.
    pub fn new() -> Self
    where
        Entity: IsPublished<E>,
    {
        Self::default()
    }
}

impl TwoLevel {
    /// Creates an empty repo of entities of another type: `TwoLevel::of::<Account>()`.
    pub fn of<E: Identifiable>() -> TwoLevel<E> {
        TwoLevel::default()
    }
}

impl<E: Identifiable> Default for TwoLevel<E> {
    fn default() -> Self {
        Self { entries: RwLock::default(), versions: Versions::default() }
    }
}

impl<E: Identifiable> TwoLevel<E> {
    /// Replaces the entity of a known id, under the map's read lock, and returns the old entity. A refused
    /// entity is dropped when no lock is held. No lock is held when it returns. If the id is not known, it returns `entity` as an error.
    fn replace(&self, mut entity: E, condition: &Condition) -> Result<Conditional<E>, E> {
        let allowed = {
            let entries = read(&self.entries);
            let Some(entry) = entries.get(entity.id()) else { return Err(entity) };
            let mut stored = write(entry);
            let allowed = condition.allows(Some(&*stored));
            if allowed {
                mem::swap(&mut *stored, &mut entity);
            }
            allowed
        };
        Ok(if allowed { Conditional::Done(entity) } else { Conditional::Refused })
    }

    /// Stores the entity of an id that was not known, under the map's write lock. If another first put was faster, its
    /// entity is replaced and returned. No lock is held when it returns.
    fn insert(&self, entity: E, condition: &Condition) -> Conditional<Option<Arc<RwLock<E>>>> {
        let id = entity.id().clone();
        let fresh = Arc::new(RwLock::new(entity));
        let mut entries = write(&self.entries);
        if !condition.is_always() && !condition.allows(entries.get(&id).map(|entry| read(entry)).as_deref()) {
            drop(entries);
            return Conditional::Refused;
        }
        Conditional::Done(entries.insert(id, fresh))
    }

    /// Removes the entry of `id` and returns it. No lock is held when it returns.
    fn take(&self, id: &E::Id, condition: &Condition) -> Conditional<Option<Arc<RwLock<E>>>> {
        let mut entries = write(&self.entries);
        let refuses = |entry: &Arc<RwLock<E>>| !condition.allows(Some(&*read(entry)));
        if !condition.is_always() && entries.get(id).is_some_and(refuses) {
            return Conditional::Refused;
        }
        Conditional::Done(entries.remove(id))
    }
}

impl<E: Identifiable> EntityRepo<E> for TwoLevel<E> {
    #[inline]
    fn get(&self, id: &E::Id, visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
        let entries = read(&self.entries);
        let Some(entry) = entries.get(id) else { return Answer::Now(Ok(Lookup::Absent)) };
        Answer::Now(Ok(visit.show(&*read(entry))))
    }

    fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        let _write = self.versions.write(entity.id());
        let put = match self.replace(entity, condition) {
            Ok(replaced) => replaced.map(|_replaced| Put::Replaced), // dropped here, when no lock is held
            Err(entity) => {
                let inserted = self.insert(entity, condition);
                inserted.map(|replaced| if replaced.is_some() { Put::Replaced } else { Put::Created })
            }
        };
        Answer::Now(Ok(put))
    }

    fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        let _write = self.versions.write(id);
        Answer::Now(Ok(remove_result(&self.take(id, condition))))
    }

    fn len(&self) -> RepoAnswer<u64> {
        Answer::Now(Ok(read(&self.entries).len() as u64))
    }

    fn version(&self, id: &E::Id) -> Option<u64> {
        self.versions.version(id)
    }
}

impl<E: Identifiable> fmt::Debug for TwoLevel<E> {
    /// Takes no lock, so printing a repo cannot deadlock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TwoLevel").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests {
    use super::*;

    /// A replaced or removed entity is dropped when no lock is held.
    #[test]
    fn an_entity_is_dropped_outside_the_locks() {
        let repo = TwoLevel::new();
        let free = || {
            let entries = repo.entries.try_write();
            entries.is_ok_and(|entries| entries.values().all(|entry| entry.try_write().is_ok()))
        };
        let is = |entry: Option<Arc<RwLock<Entity>>>, value| entry.is_some_and(|entry| read(&entry).value == value);
        let numbered = |value| Entity::new(7, "it", value);
        let always = &Condition::ALWAYS;
        let unknown = repo.replace(numbered(1.0), always);
        assert!(free() && unknown == Err(numbered(1.0)));
        assert!(matches!(repo.insert(numbered(1.0), always), Conditional::Done(None)) && free());
        let replaced = repo.replace(numbered(2.0), always);
        assert!(free() && replaced == Ok(Conditional::Done(numbered(1.0))));
        let earlier = repo.insert(numbered(3.0), always); // as if another first put had been faster
        assert!(free() && is(earlier.done().flatten(), 2.0));
        let removed = repo.take(&7, always);
        assert!(free() && is(removed.done().flatten(), 3.0));
        assert!(matches!(repo.take(&7, always), Conditional::Done(None)) && free());
    }
}
