//! `Shards`, which the sharded repos share: the parts of a store, each behind a readers-writer lock on its own cache
//! lines.
//!
//! Invariant: an id belongs to the same shard for ever. Its shard, its bucket in that shard and its tag are different
//! bits of one hash. `hashbrown`, and the table of `sharded`, take the lowest bits for buckets and the upper seven for
//! tags. The shard is chosen by the bits below those seven.
//!
//! There are sixteen shards for each core, rounded up to a power of two. If one thread of each core is always inside
//! the store, an operation meets another in its shard at most once in sixteen times, and a growing shard blocks a
//! sixteenth of one core's operations. A shard is padded to a pair of cache lines, 128 bytes, for processors that fetch
//! lines in pairs. A shard of `sharded` takes one pair, 2 KiB for each core. A shard of `packed`, which also holds its
//! pages, takes two: 4 KiB for each core.

use std::hash::{BuildHasher, Hash};

use crossbeam_utils::CachePadded;
use parking_lot::RwLock;
use polyserve_core::cores;

use crate::hash::IdState;

/// Number of shards for each core.
const SHARDS_PER_CORE: usize = 16;

/// The maximum number of shards. More would take memory without a benefit, even on the largest machine.
const MAX_SHARDS: usize = 1 << 14;

/// A table with this number of slots or fewer is not shrunk.
pub(crate) const MIN_SLOTS: usize = 64;

/// One `T` for each shard.
pub(crate) struct Shards<T> {
    shards: Box<[CachePadded<RwLock<T>>]>,
    /// The shift that turns a hash without its tag bits into a shard's number.
    shift: u32,
    state: IdState,
}

impl<T: Default> Default for Shards<T> {
    fn default() -> Self {
        let count = (cores() * SHARDS_PER_CORE).next_power_of_two().min(MAX_SHARDS);
        let shards = (0..count).map(|_| CachePadded::default()).collect();
        Self { shards, shift: u64::BITS - count.ilog2(), state: IdState::default() }
    }
}

impl<T> Shards<T> {
    /// The size of a shard in bytes, with its lock and its padding.
    #[cfg(all(test, target_arch = "x86_64"))]
    pub(crate) const SHARD_SIZE: usize = size_of::<CachePadded<RwLock<T>>>();

    /// Returns the hash of `id` and the shard of `id`.
    #[inline]
    pub(crate) fn of(&self, id: &impl Hash) -> (u64, &RwLock<T>) {
        let hash = self.hash(id);
        (hash, self.of_hash(hash))
    }

    /// Returns the shard of a hash.
    #[inline]
    pub(crate) fn of_hash(&self, hash: u64) -> &RwLock<T> {
        &self.shards[self.number(hash)]
    }

    /// Returns the number of the shard of a hash.
    #[inline]
    pub(crate) fn number(&self, hash: u64) -> usize {
        (hash << 7 >> self.shift) as usize
    }

    #[inline]
    pub(crate) fn hash(&self, id: &impl Hash) -> u64 {
        self.state.hash_one(id)
    }

    /// Returns the number of shards.
    pub(crate) fn len(&self) -> usize {
        self.shards.len()
    }

    /// Returns all shards in turn. A caller holds at most one shard's lock at a time.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &RwLock<T>> {
        self.shards.iter().map(|shard| &**shard)
    }
}

/// Returns the new capacity of a table after a removal, or `None` if the table keeps its size. A table shrinks if less
/// than an eighth of its `slots` is in use; the new capacity is one and a half times `len`.
///
/// Cost: rebuilding the table is O(slots), and happens at most once in `slots / 4` removals. So a removal is O(1)
/// amortised.
pub(crate) fn shrunk(len: usize, slots: usize) -> Option<usize> {
    (slots > MIN_SLOTS && len < slots / 8).then_some(len * 3 / 2)
}
