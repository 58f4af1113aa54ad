//! `copy_on_write`: readers never wait. Entities lie in small immutable chunks. A write copies one chunk and publishes
//! the copy by exchanging one pointer.
//!
//! A persistent tree also publishes by one exchange, but its put copies a path of log n nodes, each of up to 32 shared
//! pointers, and its get follows that path. Here the chunks stand in a table that grows by one chunk at a time (linear
//! hashing). So a write copies about two entries, of ten or of ten million. A put is complete when it answers, so it
//! answers `Now`. It waits for the lock of one shard, which is held for the copies of two chunks, and once in a
//! doubling of the table for allocating the new half.
//!
//! Invariants:
//!
//! * A published chunk never changes. Entities are shared by all chunks that contain them, and no description is
//!   copied.
//! * Readers take no lock. A reader records the chunk that it reads as a debt in its thread's own memory
//!   ([`arc_swap`]). A writer that takes the chunk out of the table pays the debt by counting the reader's reference.
//! * Writers of a shard exclude each other. `shard.rs` argues why no reader misses an entity during a growth.
//!
//! Cost: a get is one hash, two words of the shard, two exchanges in the thread's own memory, a chunk of about two
//! entries, and the entity. It writes nothing that other readers read, and allocates nothing (except arc-swap's record
//! of a thread, at its first get).
//!
//! A put or a remove is a lock, a new chunk of about two entries, and one exchange. The reference count of each entity
//! of the chunk is raised and, with the old chunk, lowered. The debts of all readers are checked: nine
//! compare-and-swaps for each thread that has ever read. Every second put of a new id also splits a chunk. When the
//! table of a shard has doubled, one put allocates as much again: 8 bytes for each two entities, 1 MiB if 32 shards
//! hold 10 million.
//!
//! `len` takes every shard's lock in turn; it is exact if no other operation runs. Dropping the repo checks the debts
//! for every slot of its tables.
//!
//! Memory: 8 bytes for each two entities in the table, 16 bytes for each entity and for each chunk in the chunks, and
//! an allocation with a count for each entity. A replaced or removed entity is dropped at once, outside the lock, or by
//! the last reader that still reads it. The table is kept.
//!
//! Source: linear hashing (Litwin, VLDB 1980); the `arc-swap` crate.
//!
//! *Wins when* almost all operations are reads of one entity, or of a few, and no lock may block them; only `papaya` is
//! faster, which frees removed entities later, and stores with locks are far behind (`stores-skew`). *Loses when* reads
//! are of many ids: `papaya` and `sharded` are ahead (`stores-keys`). It loses when puts are frequent, which allocate
//! twice and check the debts of all readers (`stores-workers`). It loses most in a large store, because table, chunk,
//! entity and description are one pointer more than in other maps (`stores-keys`). Records: `docs/results`,
//! on two cores.

pub(crate) mod shard;
mod sync;

use std::fmt;
use std::hash::BuildHasher;

use crossbeam_utils::CachePadded;
use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, Identifiable, Lookup, Put, Removed, RepoAnswer, Visit, cores,
};
use triomphe::Arc;

use self::shard::Shard;
use crate::hash::IdState;
use crate::published::IsPublished;
use crate::versions::Versions;

/// Number of shards for each core. Two writers of different ids rarely share a shard.
const SHARDS_PER_CORE: usize = 16;
const MAX_SHARDS: usize = 1024;

/// Immutable chunks behind pointers.
///
/// ```
/// use polyserve_core::{Entity, EntityRepo, EntityRepoExt, Put};
/// use polyserve_memory::CopyOnWrite;
///
/// let store = CopyOnWrite::new();
/// assert_eq!(store.put(Entity::new(1, "first", 0.5)).wait()?, Put::Created);
/// assert_eq!(store.fetch(&1).wait()?, Some(Entity::new(1, "first", 0.5)));
///
/// # #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
/// # struct Account { name: String }
/// # polyserve_core::identifiable!(Account, name: String);
/// assert_eq!(CopyOnWrite::of::<Account>().len().wait()?, 0);
/// # Ok::<(), polyserve_core::RepoError>(())
/// ```
pub struct CopyOnWrite<E: Identifiable = Entity> {
    hasher: IdState,
    /// The shards; their number is a power of two. The upper bits of a hash choose the shard, and the lower bits the
    /// bucket.
    shards: Box<[CachePadded<Shard<E>>]>,
    versions: Versions,
}

impl<E: Identifiable> CopyOnWrite<E> {
    /// Creates an empty repo of the published entities, with shards for all cores. A shard takes 1 KiB.
    pub fn new() -> Self
    where
        Entity: IsPublished<E>,
    {
        Self::default()
    }
}

impl CopyOnWrite {
    /// Creates an empty repo of entities of another type: `CopyOnWrite::of::<Account>()`.
    pub fn of<E: Identifiable>() -> CopyOnWrite<E> {
        CopyOnWrite::default()
    }
}

impl<E: Identifiable> Default for CopyOnWrite<E> {
    fn default() -> Self {
        let shards = cores().saturating_mul(SHARDS_PER_CORE).next_power_of_two().min(MAX_SHARDS);
        let shards = (0..shards).map(|_| CachePadded::new(Shard::new())).collect();
        Self { hasher: IdState::default(), shards, versions: Versions::default() }
    }
}

impl<E: Identifiable> CopyOnWrite<E> {
    fn shard(&self, hash: u64) -> &Shard<E> {
        // There are at least two shards, so the shift is less than 64.
        let index = hash >> (u64::BITS - self.shards.len().trailing_zeros());
        &self.shards[index as usize]
    }
}

impl<E: Identifiable> EntityRepo<E> for CopyOnWrite<E> {
    #[inline]
    fn get(&self, id: &E::Id, visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
        let hash = self.hasher.hash_one(id);
        let visited = self.shard(hash).get(hash, id, |entity| visit.show(entity));
        Answer::Now(Ok(visited.unwrap_or(Lookup::Absent)))
    }

    fn put_if(&self, entity: E, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        let _write = self.versions.write(entity.id());
        let hash = self.hasher.hash_one(entity.id());
        let put = self.shard(hash).put(hash, Arc::new(entity), condition, |id| self.hasher.hash_one(id));
        Answer::Now(Ok(put.map(|replaced| if replaced { Put::Replaced } else { Put::Created })))
    }

    fn remove_if(&self, id: &E::Id, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        let _write = self.versions.write(id);
        let hash = self.hasher.hash_one(id);
        let removed = self.shard(hash).remove(hash, id, condition);
        Answer::Now(Ok(removed.map(|removed| if removed { Removed::Removed } else { Removed::Absent })))
    }

    fn len(&self) -> RepoAnswer<u64> {
        Answer::Now(Ok(self.shards.iter().map(|shard| shard.len() as u64).sum()))
    }

    fn version(&self, id: &E::Id) -> Option<u64> {
        self.versions.version(id)
    }
}

impl<E: Identifiable> fmt::Debug for CopyOnWrite<E> {
    /// Takes no lock, so printing a repo cannot deadlock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyOnWrite").finish_non_exhaustive()
    }
}
