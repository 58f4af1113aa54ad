//! `copy_on_write`: readers never wait. Entities lie in small immutable chunks; a write copies one chunk and publishes
//! the copy with one exchange of a pointer.
//!
//! Per-chunk copies, not a persistent tree: both publish by one exchange, but a tree's put copies a path, log n nodes
//! of up to 32 shared pointers each, and its get follows that path. Here the chunks stand in a table that grows by one
//! chunk at a time (linear hashing: Litwin, VLDB 1980), so that a write copies about two entries, of ten or of ten
//! million. An operation is done when it answers, so puts answer `Now`; what they wait for is the lock of one shard, held
//! for the copies of two chunks, and once in a doubling of its table for making that table's new half.
//!
//! Invariants:
//!
//! * A published chunk never changes. Entities are shared by all chunks that name them; no description is copied.
//! * Readers take no lock. What a reader looks at is kept for it by a debt that it writes down in its thread's own
//!   memory ([`arc_swap`]), and that a writer who takes it out of the table pays.
//! * Writers of a shard take turns; how they publish a growth so that no reader misses an entity is told in `shard.rs`.
//!
//! Cost: a get is one hash, two words of the shard, two exchanges in the thread's own memory, a chunk of about two
//! entries, and the entity: nothing that readers share is written, and nothing is allocated (arc-swap's record of a
//! thread, at its first get, is). A put or a remove is a lock, a new chunk of about two entries, each of whose entities is
//! counted up and, with the old chunk, down again; one exchange; and a look through the debts, nine compare-and-swaps for
//! each thread that has ever read. A put of a new id copies a second chunk at every second turn, to split it; where the
//! table of a shard has doubled, one put makes it as large again, empty: 8 bytes for each two entities, 1 MiB where 32
//! shards hold 10 million. `len` takes every shard's lock, one after the other: exact when nothing else runs. Dropping the
//! repo looks through the debts for every place of its tables: a quarter of a microsecond an entity.
//!
//! Memory: 8 bytes for each two entities in the table, 16 an entity and 16 a chunk in the chunks, and an allocation with a
//! count for each entity. What is replaced or removed is dropped at once, outside the lock; where a reader still looks at
//! it, by that reader when it leaves. The table is kept.
//!
//! *Wins when* reads are nearly all of the load and must not wait for anything: not for a writer, a growth, or a thread that
//! lost its core within a lock; and where what is removed must be gone, not an epoch later. *Loses when* puts are frequent:
//! two allocations, and a look at every reader's debts: measured, four to six times a locked map's put. In a large store a
//! get loses too: table, chunk, entity, description is a pointer more than other maps follow, and beyond the caches it takes
//! about twice as long as theirs.

pub(crate) mod shard;
mod sync;

use std::fmt;
use std::hash::BuildHasher;

use crossbeam_utils::CachePadded;
use polyserve_core::config::cores;
use polyserve_core::{Answer, Entity, EntityRef, EntityRepo, Lookup, Put, Removed, RepoError};
use triomphe::Arc;

use self::shard::Shard;
use crate::hash::IdState;

/// Shards for each core: two writers of different ids seldom meet at one.
const SHARDS_PER_CORE: usize = 16;
const MOST_SHARDS: usize = 1024;

/// Immutable chunks behind pointers.
pub struct CopyOnWrite {
    hasher: IdState,
    /// A power of two of them, chosen by the hash's upper bits; the shard goes by the lower ones.
    shards: Box<[CachePadded<Shard>]>,
}

impl CopyOnWrite {
    /// An empty repo, in shards for as many cores as there are. A shard takes 1 KiB.
    pub fn new() -> Self {
        let shards = cores().saturating_mul(SHARDS_PER_CORE).next_power_of_two().min(MOST_SHARDS);
        let shards = (0..shards).map(|_| CachePadded::new(Shard::new())).collect();
        Self { hasher: IdState::default(), shards }
    }

    fn shard(&self, hash: u64) -> &Shard {
        // As many upper bits as tell the shards apart: there are at least two.
        let index = hash >> (u64::BITS - self.shards.len().trailing_zeros());
        &self.shards[index as usize]
    }
}

impl Default for CopyOnWrite {
    fn default() -> Self {
        Self::new()
    }
}

impl EntityRepo for CopyOnWrite {
    #[inline]
    fn get(&self, id: i64, visit: &mut dyn FnMut(EntityRef<'_>)) -> Answer<Result<Lookup, RepoError>> {
        let hash = self.hasher.hash_one(id);
        let visited = self.shard(hash).get(hash, id, |entity| visit(entity.as_ref()));
        Answer::Now(Ok(if visited { Lookup::Visited } else { Lookup::Absent }))
    }

    fn put(&self, entity: Entity) -> Answer<Result<Put, RepoError>> {
        let hash = self.hasher.hash_one(entity.id);
        let replaced = self.shard(hash).put(hash, Arc::new(entity), |id| self.hasher.hash_one(id));
        Answer::Now(Ok(if replaced { Put::Replaced } else { Put::Created }))
    }

    fn remove(&self, id: i64) -> Answer<Result<Removed, RepoError>> {
        let hash = self.hasher.hash_one(id);
        let removed = self.shard(hash).remove(hash, id);
        Answer::Now(Ok(if removed { Removed::Removed } else { Removed::Absent }))
    }

    fn len(&self) -> Answer<Result<u64, RepoError>> {
        Answer::Now(Ok(self.shards.iter().map(|shard| shard.len() as u64).sum()))
    }
}

impl fmt::Debug for CopyOnWrite {
    /// Takes no lock, so that it can be printed from anywhere.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyOnWrite").finish_non_exhaustive()
    }
}
