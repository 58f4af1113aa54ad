//! `papaya`: the [`papaya`](https://docs.rs/papaya) crate's lock-free map. Each entity lies in an allocation of its own,
//! and the table holds pointers that are changed by compare-and-swap.
//!
//! Invariant: no pin leaves an operation. What an operation sees lives until its pin is gone, so a visit may be slow
//! without keeping anybody waiting; it keeps memory instead. `Created` and `Replaced` are what the one compare-and-swap
//! found that put the entity in, so of two racing first puts exactly one has found nothing.
//!
//! Cost: a get is one hash, a pin (a store and an exchange in the thread's own memory), a probe of one byte an entry
//! and two pointers to follow; nothing that readers share is written. A put is an allocation and a compare-and-swap.
//! Growing is shared out: each put during a growth moves 64 entries, and a get may look into two tables. `len` adds
//! up one counter a core: exact when nothing else runs.
//!
//! Memory: a replaced or removed entity is *retired*. Its thread gathers 32 of them, or as many as there are cores if that
//! is more, and then frees each batch as soon as no pin is left that was there before; whoever lets the last such pin
//! go does it, outside any lock, for there is none. So up to 31 entities for each thread that has ever put or removed
//! wait until that thread retires more or the repo is dropped, and one pin that stays keeps all that is retired while it
//! lasts. The table itself, 9 bytes a slot, is halved only by a later put that finds it too empty: a store that is
//! emptied and left alone keeps it.
//!
//! *Wins when* reads are most of the load and cores many: readers write nothing that another core reads. *Loses when* one
//! operation in twenty or more is a put (an allocation, and a free much later, for each): in throughput, and in the longest
//! operations, of which one in a hundred takes twenty times as long as in a map with locks. And in memory: an allocation with
//! a key and a link for each entity.

use std::fmt;

use papaya::HashMap;
use polyserve_core::{Answer, Entity, EntityRef, EntityRepo, Lookup, Put, Removed, RepoError};

use crate::hash::IdState;

/// A lock-free map.
#[derive(Default)]
pub struct Papaya {
    entities: HashMap<i64, Entity, IdState>,
}

impl Papaya {
    /// An empty repo.
    pub fn new() -> Self {
        Self::default()
    }
}

impl EntityRepo for Papaya {
    #[allow(clippy::inline_always)] // a caller that knows the type then makes no call, nor does the visit
    #[inline(always)]
    fn get(&self, id: i64, visit: &mut dyn FnMut(EntityRef<'_>)) -> Answer<Result<Lookup, RepoError>> {
        let entities = self.entities.pin(); // let go on the way out, by a panic of the visit too
        let Some(entity) = entities.get(&id) else { return Answer::Now(Ok(Lookup::Absent)) };
        visit(entity.as_ref());
        Answer::Now(Ok(Lookup::Visited))
    }

    fn put(&self, entity: Entity) -> Answer<Result<Put, RepoError>> {
        // What was replaced is the collector's to drop.
        let replaced = self.entities.pin().insert(entity.id, entity).is_some();
        Answer::Now(Ok(if replaced { Put::Replaced } else { Put::Created }))
    }

    fn remove(&self, id: i64) -> Answer<Result<Removed, RepoError>> {
        let removed = self.entities.pin().remove(&id).is_some();
        Answer::Now(Ok(if removed { Removed::Removed } else { Removed::Absent }))
    }

    fn len(&self) -> Answer<Result<u64, RepoError>> {
        Answer::Now(Ok(self.entities.len() as u64))
    }
}

impl fmt::Debug for Papaya {
    /// Pins nothing, so that it can be printed from anywhere.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Papaya").finish_non_exhaustive()
    }
}
