//! Versions of ids: a service that knows the version of an entity need not write or hash its JSON again.
//!
//! A store counts the writes that have begun and ended, in stripes of ids. While no write is in progress, the count is the version of
//! all ids of the stripe. A write to another id of the stripe changes the version as well; that costs time only.
//!
//! Invariant: a write is counted before a reader can see a part, and counted as ended when every reader sees the whole. So a reader that
//! finds the same version before and after a get has read the entity of that version. A reader that has seen a later write finds another
//! version.
//!
//! Cost: a write adds to two counters of one cache line. A version is a hash and two loads.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use polyserve_core::sync::atomic::{AtomicU64, Ordering};

use crate::hash::IdState;

/// The number of stripes: 16 KiB for each store.
const STRIPES: usize = 1024;

/// The counts of writes to a store.
pub(crate) struct Versions {
    stripes: Box<[Stripe]>,
    state: IdState,
}

#[derive(Default)]
struct Stripe {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Versions {
    fn stripe(&self, id: &impl Hash) -> &Stripe {
        &self.stripes[(self.state.hash_one(id) >> (u64::BITS - STRIPES.ilog2())) as usize]
    }

    /// Begins a write to `id`. It ends when the result is dropped, also if it panics.
    #[inline]
    pub(crate) fn write(&self, id: &impl Hash) -> VersionedWrite<'_> {
        let stripe = self.stripe(id);
        stripe.begun.fetch_add(1, Ordering::AcqRel);
        VersionedWrite { ended: &stripe.ended }
    }

    /// Returns the version of `id`, or `None` if a write is in progress.
    pub(crate) fn version(&self, id: &impl Hash) -> Option<u64> {
        let stripe = self.stripe(id);
        // In this order: a write that begins in between makes the two differ.
        let ended = stripe.ended.load(Ordering::Acquire);
        let begun = stripe.begun.load(Ordering::Acquire);
        (begun == ended).then_some(begun)
    }
}

/// The counts of writes to a store in shards. A shard is written under its lock, so a count needs no exchange.
///
/// A write is counted before it changes anything. A reader that finds the new count waits for the lock in its get, and so reads what was
/// written. So there is a version during a write too.
pub(crate) struct LockedVersions {
    stripes: Box<[AtomicU64]>,
    /// The shift that turns a hash without its tag bits into the number of a stripe.
    shift: u32,
}

impl LockedVersions {
    /// `shards`: a power of two. The ids of a stripe are in one shard, because the bits that choose the shard are the first of those that
    /// choose the stripe: see [`Shards`](crate::shards::Shards).
    pub(crate) fn new(shards: usize) -> Self {
        let count = STRIPES.max(shards);
        Self { stripes: (0..count).map(|_| AtomicU64::new(0)).collect(), shift: u64::BITS - count.ilog2() }
    }

    fn stripe(&self, hash: u64) -> &AtomicU64 {
        &self.stripes[(hash << 7 >> self.shift) as usize]
    }

    /// Counts a write to the ids of a hash. The caller holds the lock of their shard, and has not changed it yet.
    #[inline]
    pub(crate) fn count(&self, hash: u64) {
        let count = self.stripe(hash);
        count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Returns the version of the ids of a hash.
    pub(crate) fn version(&self, hash: u64) -> u64 {
        self.stripe(hash).load(Ordering::Acquire)
    }
}

impl Default for Versions {
    fn default() -> Self {
        Self { stripes: (0..STRIPES).map(|_| Stripe::default()).collect(), state: IdState::default() }
    }
}

impl fmt::Debug for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Versions").finish_non_exhaustive()
    }
}

/// A write in progress.
#[must_use]
pub(crate) struct VersionedWrite<'a> {
    ended: &'a AtomicU64,
}

impl Drop for VersionedWrite<'_> {
    #[inline]
    fn drop(&mut self) {
        self.ended.fetch_add(1, Ordering::AcqRel);
    }
}
