//! What the sharded repos share: parts of a store, each behind a readers-writer lock on cache lines of its own.
//!
//! Invariant: an id belongs to one shard for ever. Its shard, its bucket in that shard and its tag there are different
//! bits of one hash: hashbrown, and `sharded`'s own table, take the lowest bits for buckets and the upper seven for tags,
//! so shards go by the bits below those seven.
//!
//! There are sixteen shards for each core, rounded up to a power of two. With a core's thread inside the store all the
//! time, an operation then finds another in its shard once in sixteen times at most, and a shard that grows stops a
//! sixteenth of one core's operations. Shards are padded to a pair of lines, 128 bytes, for the processors that fetch them
//! in pairs: one of `sharded` takes one pair, 2 KiB a core; one of `packed`, which knows its pages, two: 4 KiB a core.

use std::hash::BuildHasher;

use crossbeam_utils::CachePadded;
use parking_lot::RwLock;
use polyserve_core::config::cores;

use crate::hash::IdState;

/// Shards for each core.
const PER_CORE: usize = 16;

/// More would be memory without a use, on the largest machine too.
const MOST: usize = 1 << 14;

/// A table of fewer slots is left as large as it is.
pub(crate) const SMALLEST: usize = 64;

/// A `T` for each shard.
pub(crate) struct Shards<T> {
    shards: Box<[CachePadded<RwLock<T>>]>,
    /// By how much a hash without its tag is shifted to be a shard's number.
    shift: u32,
    state: IdState,
}

impl<T: Default> Default for Shards<T> {
    fn default() -> Self {
        let count = (cores() * PER_CORE).next_power_of_two().min(MOST);
        let shards = (0..count).map(|_| CachePadded::default()).collect();
        Self { shards, shift: u64::BITS - count.ilog2(), state: IdState::default() }
    }
}

impl<T> Shards<T> {
    /// The bytes of a shard, with its lock and what it is padded with.
    #[cfg(all(test, target_arch = "x86_64"))]
    pub(crate) const EACH: usize = size_of::<CachePadded<RwLock<T>>>();

    /// The hash of `id`, for its shard's table, and its shard.
    #[inline]
    pub(crate) fn of(&self, id: i64) -> (u64, &RwLock<T>) {
        let hash = self.hash(id);
        (hash, &self.shards[(hash << 7 >> self.shift) as usize])
    }

    #[inline]
    pub(crate) fn hash(&self, id: i64) -> u64 {
        self.state.hash_one(id)
    }

    /// All of them, in turn. Whoever locks one has let the one before go.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &RwLock<T>> {
        self.shards.iter().map(|shard| &**shard)
    }
}

/// Room for how many a table of so many slots is to keep after a removal: for half as much again as what is left, where less
/// than an eighth is in use. `None` where it stays as it is. Building it anew is O(the table), and a quarter as many removals
/// as that came before: O(1) each.
pub(crate) fn shrunk(len: usize, slots: usize) -> Option<usize> {
    (slots > SMALLEST && len < slots / 8).then_some(len * 3 / 2)
}
