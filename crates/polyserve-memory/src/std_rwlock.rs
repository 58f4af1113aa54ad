//! `std_rwlock`: one [`RwLock`] around one map.
//!
//! Invariant: the map is read under the lock's read half and changed under its write half. A visit runs under the read
//! half, whose guard does not poison; the write half is recovered all the same.
//!
//! Cost: every operation is one lock, one hash and one probe. Reads overlap, but each changes the lock's one word
//! twice, so that the word travels between the cores that read. A put or a remove makes everybody wait, and is waited
//! for: std's lock lets no new reader in while a writer waits. `len` is O(1). Memory of removed entries is kept for
//! later ones.
//!
//! *Wins when* one thread alone reads (nothing here is faster), and when a visit is long against taking a lock (big entities,
//! many cores). *Loses when* puts are frequent, since each stops all readers, and on short visits from several cores, where
//! readers spend their time on the lock's word: two threads that read get a quarter of what one got, and still twice what
//! they get of a mutex.

use std::collections::HashMap;
use std::fmt;

use polyserve_core::sync::{RwLock, read, write};
use polyserve_core::{Answer, Entity, EntityRef, EntityRepo, Lookup, Put, Removed, RepoError};

use crate::hash::IdState;

/// One reader-writer lock around one map.
#[derive(Default)]
pub struct StdRwlock {
    entities: RwLock<HashMap<i64, Entity, IdState>>,
}

impl StdRwlock {
    /// An empty repo. Allocates nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts `entity` in, and hands out what it replaced, no lock held any more.
    fn replace(&self, entity: Entity) -> Option<Entity> {
        write(&self.entities).insert(entity.id, entity)
    }

    /// Takes the entity of `id` out, no lock held any more.
    fn take(&self, id: i64) -> Option<Entity> {
        write(&self.entities).remove(&id)
    }
}

impl EntityRepo for StdRwlock {
    #[allow(clippy::inline_always)] // a caller that knows the type then makes no call, nor does the visit
    #[inline(always)]
    fn get(&self, id: i64, visit: &mut dyn FnMut(EntityRef<'_>)) -> Answer<Result<Lookup, RepoError>> {
        let entities = read(&self.entities);
        let Some(entity) = entities.get(&id) else { return Answer::Now(Ok(Lookup::Absent)) };
        visit(entity.as_ref());
        Answer::Now(Ok(Lookup::Visited))
    }

    fn put(&self, entity: Entity) -> Answer<Result<Put, RepoError>> {
        let replaced = self.replace(entity);
        Answer::Now(Ok(if replaced.is_some() { Put::Replaced } else { Put::Created }))
    }

    fn remove(&self, id: i64) -> Answer<Result<Removed, RepoError>> {
        let removed = self.take(id);
        Answer::Now(Ok(if removed.is_some() { Removed::Removed } else { Removed::Absent }))
    }

    fn len(&self) -> Answer<Result<u64, RepoError>> {
        Answer::Now(Ok(read(&self.entities).len() as u64))
    }
}

impl fmt::Debug for StdRwlock {
    /// Takes no lock, so that it can be printed from anywhere.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdRwlock").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests {
    use super::*;
    use crate::handed_out_whole;

    /// What a put replaces, and what a remove takes out, is still whole when the lock is not held any more.
    #[test]
    fn an_entity_is_dropped_outside_the_lock() {
        let repo = StdRwlock::new();
        let free = || repo.entities.try_write().is_ok();
        handed_out_whole(&|entity| repo.replace(entity), &|id| repo.take(id), &free);
    }
}
