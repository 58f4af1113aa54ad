//! The table of a shard: buckets of three entities. A bucket is two cache lines that are fetched together, and has one
//! byte of the hash of each entity, the *tag*.
//!
//! The table is a small form of F14 (Bronson and Shi, "Open-sourcing F14 for faster, more memory-efficient hash
//! tables", 2019). If a bucket is full, it sends an entity on to another bucket and counts it. A lookup continues as
//! long as the count is not 0. The tag also chooses the next bucket (double hashing), so entities that share a full
//! bucket rarely share the next. A remove lowers the counts again, so removed entities leave no trace.
//!
//! The entities lie in the bucket itself, so a lookup waits for memory once, for both lines together. If tags and
//! entities are two arrays, a lookup waits for a tag first and then for the entity.
//!
//! Invariants:
//!
//! * A slot is in use if and only if its tag is not 0. An unused slot holds `None`.
//! * Each bucket between the first bucket of an id and the bucket that it lies in counts the entity. A count that has
//!   reached [`MAX_COUNT`] stays there until the table is rebuilt.
//!
//! Cost: 128 bytes for three slots of published entities (for a larger type, the next multiple of 128 that holds three), of which at most
//! 7/8 are in use, and 7/16 after a growth. On average, just before a growth, a lookup reads two buckets if the id is stored and four if
//! it is not (the tests count them). Just after a growth it reads hardly more than one. A table of some MiB is in huge pages, if the
//! system allows them: a lookup then waits less for the tables of pages.

use std::mem;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use polyserve_core::Identifiable;
use polyserve_sys::{advise_huge_pages, prefetch};

use crate::shards::shrunk;

/// Number of slots of a bucket.
const SLOTS: usize = 3;

/// The position of the count in a bucket's word. The bits below it are a tag for each slot.
const COUNT_SHIFT: u32 = 8 * SLOTS as u32;

/// The maximum of a count. A count that has reached it no longer changes.
const MAX_COUNT: u32 = u8::MAX as u32;

/// The number 1 in the byte of each tag.
const TAG_ONES: u32 = 0x01_01_01;

/// Three entities and their tags.
#[repr(C, align(128))]
struct Bucket<E> {
    /// The tags of the slots, with the first slot in the lowest byte. The highest byte is the number of entities that were
    /// sent on.
    word: u32,
    slots: [Option<E>; SLOTS],
}

impl<E> Default for Bucket<E> {
    fn default() -> Self {
        Self { word: 0, slots: [const { None }; SLOTS] }
    }
}

impl<E: Identifiable> Bucket<E> {
    /// Returns the slots that may have this tag, as the highest bit of the byte of each. The lowest of them has the
    /// tag; the others may have it.
    #[inline]
    fn tagged(&self, tag: u32) -> u32 {
        let differing = self.word ^ (tag * TAG_ONES);
        differing.wrapping_sub(TAG_ONES) & !differing & (TAG_ONES << 7)
    }

    /// Returns the slot of `id`.
    #[inline]
    fn find(&self, tag: u32, id: &E::Id) -> Option<usize> {
        let mut tagged = self.tagged(tag);
        while tagged != 0 {
            let slot = tagged.trailing_zeros() as usize / 8;
            if self.slots.get(slot).is_some_and(|entity| entity.as_ref().is_some_and(|entity| entity.id() == id)) {
                return Some(slot);
            }
            tagged &= tagged - 1;
        }
        None
    }

    /// Returns an unused slot.
    #[inline]
    fn free(&self) -> Option<usize> {
        let free = self.tagged(0);
        (free != 0).then(|| free.trailing_zeros() as usize / 8)
    }

    #[inline]
    fn sent_on(&self) -> u32 {
        self.word >> COUNT_SHIFT
    }

    fn count_up(&mut self) {
        if self.sent_on() < MAX_COUNT {
            self.word += 1 << COUNT_SHIFT;
        }
    }

    fn count_down(&mut self) {
        if self.sent_on() < MAX_COUNT {
            self.word -= 1 << COUNT_SHIFT;
        }
    }
}

/// The position of an entity in the table.
#[derive(Clone, Copy)]
struct TablePosition {
    bucket: usize,
    slot: usize,
}

/// Entities by hash and id. The caller hashes, and the hash of an id is always the same.
pub(super) struct ShardTable<E> {
    /// The buckets. Their number is 0 or a power of two.
    buckets: Box<[Bucket<E>]>,
    len: usize,
}

/// Returns the tag of a hash. It consists of the highest bits, which choose neither bucket nor shard, and is never 0.
#[inline]
fn tag(hash: u64) -> u32 {
    (hash >> 57) as u32 | 0x80
}

/// Returns the number of a hash's bucket after `step` steps in a table of `buckets`. The stride is odd, so the steps reach every bucket.
#[inline]
fn bucket_number(buckets: usize, hash: u64, step: usize) -> usize {
    let stride = 2 * tag(hash) as usize + 1;
    (hash as usize).wrapping_add(step.wrapping_mul(stride)) & buckets.wrapping_sub(1)
}

/// The address of a table after its last change: enough to fetch its buckets from memory without its lock.
///
/// The two parts are loaded one after the other, and the table may have moved since. So an address may be wrong, and nothing is read
/// there: a fetch of any address is harmless.
pub(super) struct TableAddress<E> {
    first: AtomicPtr<Bucket<E>>,
    buckets: AtomicUsize,
}

impl<E> Default for TableAddress<E> {
    fn default() -> Self {
        Self { first: AtomicPtr::default(), buckets: AtomicUsize::new(0) }
    }
}

impl<E> TableAddress<E> {
    /// Notes the address of the table. The caller holds its lock.
    #[inline]
    pub(super) fn update(&self, table: &mut ShardTable<E>) {
        let first = table.buckets.as_mut_ptr();
        if self.first.load(Ordering::Relaxed) != first || self.buckets.load(Ordering::Relaxed) != table.buckets.len() {
            self.first.store(first, Ordering::Relaxed);
            self.buckets.store(table.buckets.len(), Ordering::Relaxed);
        }
    }

    /// Returns the size of the table in bytes.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.buckets.load(Ordering::Relaxed) * size_of::<Bucket<E>>()
    }

    /// Fetches the first two buckets of a hash from memory, and does not wait for them.
    #[inline]
    pub(super) fn fetch(&self, hash: u64) {
        let (first, buckets) = (self.first.load(Ordering::Relaxed), self.buckets.load(Ordering::Relaxed));
        for step in 0..2 {
            let bucket = first.wrapping_add(bucket_number(buckets, hash, step)).cast::<u8>();
            prefetch(bucket);
            prefetch(bucket.wrapping_add(size_of::<Bucket<E>>() / 2));
        }
    }
}

impl<E> Default for ShardTable<E> {
    fn default() -> Self {
        Self { buckets: Box::default(), len: 0 }
    }
}

impl<E: Identifiable> ShardTable<E> {
    /// Returns the number of entities.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of entities in `buckets` buckets if 7/8 of the slots are in use.
    fn capacity(buckets: usize) -> usize {
        buckets * SLOTS * 7 / 8
    }

    /// Returns the number of a hash's bucket after `step` steps. It names no bucket if there are none.
    #[inline]
    fn number(&self, hash: u64, step: usize) -> usize {
        bucket_number(self.buckets.len(), hash, step)
    }

    /// Returns the position of `id`.
    #[inline]
    fn position(&self, hash: u64, id: &E::Id) -> Option<TablePosition> {
        for step in 0..self.buckets.len() {
            let number = self.number(hash, step);
            let bucket = &self.buckets[number];
            prefetch(&raw const bucket.slots[SLOTS - 1]); // the second line, while the first is on its way
            if let Some(slot) = bucket.find(tag(hash), id) {
                return Some(TablePosition { bucket: number, slot });
            }
            if bucket.sent_on() == 0 {
                return None;
            }
        }
        None
    }

    /// The entity of `id`.
    #[inline]
    pub(super) fn find(&self, hash: u64, id: &E::Id) -> Option<&E> {
        let place = self.position(hash, id)?;
        self.buckets[place.bucket].slots[place.slot].as_ref()
    }

    /// Stores `entity` and returns the replaced entity. `hash_of` hashes the entities that a growth moves.
    #[allow(clippy::inline_always)] // as for `Sharded::replace`
    #[inline(always)]
    pub(super) fn insert(&mut self, hash: u64, entity: E, hash_of: impl Fn(&E::Id) -> u64) -> Option<E> {
        if let Some(TablePosition { bucket, slot }) = self.position(hash, entity.id()) {
            return self.buckets[bucket].slots[slot].replace(entity);
        }
        if self.len == Self::capacity(self.buckets.len()) {
            self.build(self.len + 1, hash_of);
        }
        self.add(hash, entity);
        None
    }

    /// Adds an entity that is not stored. There must be a free slot.
    fn add(&mut self, hash: u64, entity: E) {
        for step in 0..self.buckets.len() {
            let number = self.number(hash, step);
            let bucket = &mut self.buckets[number];
            if let Some(slot) = bucket.free() {
                bucket.word |= tag(hash) << (8 * slot);
                bucket.slots[slot] = Some(entity);
                self.len += 1;
                return;
            }
            bucket.count_up();
        }
        unreachable!("there is a free slot");
    }

    /// Removes the entity of `id` and returns it. Frees memory as [`shrunk`] decides.
    pub(super) fn remove(&mut self, hash: u64, id: &E::Id, hash_of: impl Fn(&E::Id) -> u64) -> Option<E> {
        let TablePosition { bucket: last, slot } = self.position(hash, id)?;
        for step in 0..self.buckets.len() {
            let number = self.number(hash, step);
            if number == last {
                break;
            }
            self.buckets[number].count_down();
        }
        let bucket = &mut self.buckets[last];
        bucket.word &= !(u32::from(u8::MAX) << (8 * slot));
        let entity = bucket.slots[slot].take();
        self.len -= 1;
        if let Some(capacity) = shrunk(self.len, self.slots()) {
            self.build(capacity, hash_of);
        }
        entity
    }

    /// Returns the number of slots.
    pub(super) fn slots(&self) -> usize {
        self.buckets.len() * SLOTS
    }

    /// Rebuilds the table with capacity for `entities`, which is at least the present number. All ids are hashed before
    /// the first one is moved: if that panics, nothing is lost.
    fn build(&mut self, entities: usize, hash_of: impl Fn(&E::Id) -> u64) {
        let mut buckets = 1;
        while Self::capacity(buckets) < entities {
            buckets *= 2;
        }
        let entities = self.buckets.iter().flat_map(|bucket| &bucket.slots).flatten();
        let mut hashes = Vec::with_capacity(self.len);
        hashes.extend(entities.map(|entity| hash_of(entity.id())));
        let mut new = Vec::with_capacity(buckets);
        advise_huge_pages(new.spare_capacity_mut());
        new.resize_with(buckets, Bucket::default);
        let new = new.into_boxed_slice();
        self.len = 0;
        let entities = mem::replace(&mut self.buckets, new).into_iter().flat_map(|bucket| bucket.slots).flatten();
        for (hash, entity) in hashes.into_iter().zip(entities) {
            self.add(hash, entity);
        }
    }
}

#[cfg(test)]
mod tests;
