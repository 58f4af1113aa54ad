//! `std_mutex`: one [`Mutex`] around one map. The baseline that the others have to beat.
//!
//! Invariant: the map is only touched under the lock, and nothing but a visit that panics unwinds there; a visit cannot
//! change the map, so a poisoned lock holds sound data and is recovered.
//!
//! Cost: every operation is one uncontended lock (two atomic instructions), one hash and one probe. Operations never
//! overlap: a long visit, or the map's growth on a put of a new id (O(n), amortised O(1)), makes everybody wait. `len`
//! is O(1). Memory of removed entries is kept for later ones.
//!
//! *Wins when* one thread, or a few that seldom meet, use the store: nothing here costs less than one mutex. *Loses
//! when* several cores read at once: they could, and this makes them queue.

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
}

impl EntityRepo for StdMutex {
    fn get(&self, id: i64, visit: &mut dyn FnMut(EntityRef<'_>)) -> Answer<Result<Lookup, RepoError>> {
        let entities = lock(&self.entities);
        let Some(entity) = entities.get(&id) else { return Answer::Now(Ok(Lookup::Absent)) };
        visit(entity.as_ref());
        Answer::Now(Ok(Lookup::Visited))
    }

    fn put(&self, entity: Entity) -> Answer<Result<Put, RepoError>> {
        // The guard ends with the statement; the replaced entity is dropped after it.
        let replaced = lock(&self.entities).insert(entity.id, entity);
        Answer::Now(Ok(if replaced.is_some() { Put::Replaced } else { Put::Created }))
    }

    fn remove(&self, id: i64) -> Answer<Result<Removed, RepoError>> {
        let removed = lock(&self.entities).remove(&id);
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
