//! `std_mutex`: one [`Mutex`] around one map. The baseline that the others have to beat.
//!
//! Invariant: the map is only touched under the lock, and nothing but a visit that panics unwinds there; a visit cannot
//! change the map, so a poisoned lock holds sound data and is recovered.
//!
//! Cost: every operation is one uncontended lock (two atomic instructions), one hash and one probe. Operations never
//! overlap: a long visit, or the map's growth on a put of a new id (O(n), amortised O(1)), makes everybody wait. `len`
//! is O(1). Memory of removed entries is kept for later ones.
//!
//! *Wins when* one thread, or a few that seldom meet, mostly read: a plain map behind one lock is all that they pay for, and
//! `std_rwlock` is the other. *Loses when* one thread mostly writes, which `packed` does faster, without an allocation; and
//! when several cores read at once: they could, and this makes them queue.

use std::collections::HashMap;
use std::fmt;

use polyserve_core::sync::{Mutex, lock};
use polyserve_core::{Answer, Entity, EntityRef, EntityRepo, Lookup, Put, Removed, RepoError};

use crate::hash::IdState;

/// One mutex around one map.
#[derive(Default)]
pub struct StdMutex {
    entities: Mutex<HashMap<i64, Entity, IdState>>,
}

impl StdMutex {
    /// An empty repo. Allocates nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts `entity` in, and hands out what it replaced, no lock held any more.
    fn replace(&self, entity: Entity) -> Option<Entity> {
        lock(&self.entities).insert(entity.id, entity)
    }

    /// Takes the entity of `id` out, no lock held any more.
    fn take(&self, id: i64) -> Option<Entity> {
        lock(&self.entities).remove(&id)
    }
}

impl EntityRepo for StdMutex {
    #[allow(clippy::inline_always)] // a caller that knows the type then makes no call, nor does the visit
    #[inline(always)]
    fn get(&self, id: i64, visit: &mut dyn FnMut(EntityRef<'_>)) -> Answer<Result<Lookup, RepoError>> {
        let entities = lock(&self.entities);
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
        Answer::Now(Ok(lock(&self.entities).len() as u64))
    }
}

impl fmt::Debug for StdMutex {
    /// Takes no lock, so that it can be printed from anywhere.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdMutex").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests {
    use super::*;
    use crate::handed_out_whole;

    /// What a put replaces, and what a remove takes out, is still whole when the lock is not held any more.
    #[test]
    fn an_entity_is_dropped_outside_the_lock() {
        let repo = StdMutex::new();
        let free = || repo.entities.try_lock().is_ok();
        handed_out_whole(&|entity| repo.replace(entity), &|id| repo.take(id), &free);
    }
}
