//! `papaya`: the lock-free map of the [`papaya`](https://docs.rs/papaya) crate. Each entity is an allocation, and the
//! table holds pointers that are changed by compare-and-swap.
//!
//! Invariant: no pin leaves an operation. What an operation sees lives until its pin is released. So a slow visit
//! blocks no other operation, but it keeps memory. `Created` and `Replaced` are results of the one compare-and-swap
//! that stores the entity. So of two racing first puts exactly one is `Created`.
//!
//! Cost: a get is one hash, a pin (a store and an exchange in the thread's own memory), a probe of one byte for each
//! entry and two pointers to follow. It writes nothing that other readers read. A put is an allocation and a
//! compare-and-swap. Growing is shared: each put during a growth moves 64 entries, and a get may look into two tables.
//! `len` adds up one counter for each core; it is exact if no other operation runs.
//!
//! Memory: a replaced or removed entity is *retired*. Each thread collects 32 of them, or one for each core if there are
//! more than 32 cores. A batch is freed as soon as no pin is left that is older than the batch, by the thread that releases
//! the last such pin. So up to 31 entities for each thread that ever put or removed wait until that thread retires more, or
//! until the repo is dropped. A pin that stays keeps all entities that are retired meanwhile. The table, 9 bytes for each
//! slot, is halved only by a later put that finds it too empty, so a store that is emptied and not used again keeps it.
//!
//! Source: the `papaya` crate.
//!
//! *Wins when* several cores read and the entities fit the caches: 35.4 M gets a second on two threads, `scc` 31.1
//! (`stores-workers.jsonl`), and most if one id takes all reads: 144 M, stores with locks at most 10.4
//! (`stores-skew.jsonl`). *Loses when* one operation in twenty or more is a put, which allocates, and frees much later:
//! 13.7 M operations a second at 5 % puts, `scc` 24.3; 2.5 M at half puts, `packed` 15.5, and one operation in a
//! hundred then takes 21 us, in `sharded` 1 us. It loses on one thread: 14.7 M gets a second, `std_rwlock` 34.3
//! (`stores-workers.jsonl`). It takes 126 bytes for each entity, a plain map 114 (`stores-memory.jsonl`).
//! Records: `docs/results/2026-11-22`, two cores.

use std::fmt;

use papaya::HashMap;
use polyserve_core::{Answer, Entity, EntityRepo, Identifiable, Lookup, Put, Removed, RepoError};

use crate::hash::IdState;

/// A lock-free map.
pub struct Papaya<E: Identifiable = Entity> {
    entities: HashMap<E::Id, E, IdState>,
}

impl Papaya {
    /// Creates an empty repo of the published entities.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty repo of entities of another type: `Papaya::of::<Account>()`.
    pub fn of<E: Identifiable>() -> Papaya<E> {
        Papaya::default()
    }
}

impl<E: Identifiable> Default for Papaya<E> {
    fn default() -> Self {
        Self { entities: HashMap::default() }
    }
}

impl<E: Identifiable> EntityRepo<E> for Papaya<E> {
    #[allow(clippy::inline_always)] // if the caller knows the type, neither `get` nor the visit is a call
    #[inline(always)]
    fn get(&self, id: &E::Id, visit: &mut dyn FnMut(E::View<'_>)) -> Answer<Result<Lookup<E>, RepoError>> {
        let entities = self.entities.pin(); // released on return, also if the visit panics
        let Some(entity) = entities.get(id) else { return Answer::Now(Ok(Lookup::Absent)) };
        visit(entity.view());
        Answer::Now(Ok(Lookup::Visited))
    }

    fn put(&self, entity: E) -> Answer<Result<Put, RepoError>> {
        // The map's collector drops the replaced entity.
        let replaced = self.entities.pin().insert(entity.id().clone(), entity).is_some();
        Answer::Now(Ok(if replaced { Put::Replaced } else { Put::Created }))
    }

    fn remove(&self, id: &E::Id) -> Answer<Result<Removed, RepoError>> {
        let removed = self.entities.pin().remove(id).is_some();
        Answer::Now(Ok(if removed { Removed::Removed } else { Removed::Absent }))
    }

    fn len(&self) -> Answer<Result<u64, RepoError>> {
        Answer::Now(Ok(self.entities.len() as u64))
    }
}

impl<E: Identifiable> fmt::Debug for Papaya<E> {
    /// Takes no pin, so printing a repo does not delay the freeing of memory.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Papaya").finish_non_exhaustive()
    }
}
