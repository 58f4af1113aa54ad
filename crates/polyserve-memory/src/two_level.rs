//! `two_level`: a [`RwLock`] around the map, and one around each entity. The store of the published entity servers,
//! with its race mended.
//!
//! Three cases, as published: a read takes the map's read lock and the entry's read lock; a put of a known id takes the
//! map's read lock and the entry's write lock; a put of a new id, and a remove, take the map's write lock.
//!
//! Invariants:
//!
//! * An entry is only touched while the map's lock is held, for reading at least. So a remove, which holds it for
//!   writing, finds nobody inside the entry it takes out, and no put can land in an entry that is no longer in the map.
//!   No `Arc` is cloned: it is there as published, and lets the map grow by moving pointers instead of entities.
//! * Whether an id is new is decided again under the map's write lock. The published code looked under one lock and
//!   inserted under another: of two racing first puts both were "created", and the one that had looked first could win.
//! * Locks are taken map first, then entry, and an entry's holder takes no other: no cycle, no deadlock. A visit runs
//!   under both, reading, so that its panic poisons neither.
//!
//! Cost: a get, and a put of a known id, is two locks, one hash, one probe and a pointer to follow. Puts of known ids
//! overlap with each other and with reads of other ids, yet all of them change the map lock's one word twice. A put of
//! a new id looks twice, and stops everybody while it inserts. `len` is O(1). An entry costs an allocation of its own.
//!
//! *Wins when* known ids are replaced often, from several cores, and visits are long enough for that to overlap: it is ahead of
//! one lock for all at half gets and half puts. *Loses when* ids are mostly new or removed, or operations are short: two
//! locks cost more than they let overlap, and every store in shards is ahead of it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use polyserve_core::sync::{RwLock, read, write};
use polyserve_core::{Answer, Entity, EntityRef, EntityRepo, Lookup, Put, Removed, RepoError};

use crate::hash::IdState;

/// A reader-writer lock around the map, and one around each entity.
#[derive(Default)]
pub struct TwoLevel {
    entries: RwLock<HashMap<i64, Arc<RwLock<Entity>>, IdState>>,
}

impl TwoLevel {
    /// An empty repo. Allocates nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the entity of a known id, under the map's read lock, and hands out the old one, no lock held any more; hands
    /// the new entity back where the id is not known.
    fn replace(&self, entity: Entity) -> Result<Entity, Entity> {
        let entries = read(&self.entries);
        match entries.get(&entity.id) {
            Some(entry) => Ok(std::mem::replace(&mut *write(entry), entity)),
            None => Err(entity),
        }
    }

    /// Puts in the entity of an id that was not known, under the map's write lock. Where another first put came in between,
    /// that one came earlier, so its entity is the one that goes: it is handed out, no lock held any more.
    fn insert(&self, entity: Entity) -> Option<Arc<RwLock<Entity>>> {
        let id = entity.id;
        let fresh = Arc::new(RwLock::new(entity));
        write(&self.entries).insert(id, fresh)
    }

    /// Takes the entry of `id` out, no lock held any more.
    fn take(&self, id: i64) -> Option<Arc<RwLock<Entity>>> {
        write(&self.entries).remove(&id)
    }
}

impl EntityRepo for TwoLevel {
    #[inline]
    fn get(&self, id: i64, visit: &mut dyn FnMut(EntityRef<'_>)) -> Answer<Result<Lookup, RepoError>> {
        let entries = read(&self.entries);
        let Some(entry) = entries.get(&id) else { return Answer::Now(Ok(Lookup::Absent)) };
        visit(read(entry).as_ref());
        Answer::Now(Ok(Lookup::Visited))
    }

    fn put(&self, entity: Entity) -> Answer<Result<Put, RepoError>> {
        let replaced = match self.replace(entity) {
            Ok(_replaced) => return Answer::Now(Ok(Put::Replaced)), // dropped here, after the locks
            Err(entity) => self.insert(entity),
        };
        Answer::Now(Ok(if replaced.is_some() { Put::Replaced } else { Put::Created }))
    }

    fn remove(&self, id: i64) -> Answer<Result<Removed, RepoError>> {
        let removed = self.take(id);
        Answer::Now(Ok(if removed.is_some() { Removed::Removed } else { Removed::Absent }))
    }

    fn len(&self) -> Answer<Result<u64, RepoError>> {
        Answer::Now(Ok(read(&self.entries).len() as u64))
    }
}

impl fmt::Debug for TwoLevel {
    /// Takes no lock, so that it can be printed from anywhere.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TwoLevel").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests {
    use super::*;

    /// What a put replaces, and what a remove takes out, is still whole when no lock is held any more.
    #[test]
    fn an_entity_is_dropped_outside_the_locks() {
        let repo = TwoLevel::new();
        let free = || {
            let entries = repo.entries.try_write();
            entries.is_ok_and(|entries| entries.values().all(|entry| entry.try_write().is_ok()))
        };
        let is = |entry: Option<Arc<RwLock<Entity>>>, value| entry.is_some_and(|entry| read(&entry).value == value);
        let numbered = |value| Entity::new(7, "it", value);
        let unknown = repo.replace(numbered(1.0));
        assert!(free() && unknown == Err(numbered(1.0)));
        assert!(repo.insert(numbered(1.0)).is_none() && free());
        let replaced = repo.replace(numbered(2.0));
        assert!(free() && replaced == Ok(numbered(1.0)));
        let earlier = repo.insert(numbered(3.0)); // as if another first put had come in between
        assert!(free() && is(earlier, 2.0));
        let removed = repo.take(7);
        assert!(free() && is(removed, 3.0));
        assert!(repo.take(7).is_none() && free());
    }
}
