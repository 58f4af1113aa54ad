//! A shard's table: buckets of three entities, each bucket with one byte of every entity's hash, in two cache lines that are
//! fetched together.
//!
//! After F14 (Bronson and Shi, "Open-sourcing F14 for faster, more memory-efficient hash tables", 2019), in small: a bucket
//! that is full sends an entity on and counts it, and a lookup goes on as long as somebody was sent on. Where to, the tag
//! says too (double hashing), so that who shares a full bucket does not share the next. A remove takes the counts back, so
//! nothing is left behind of what is gone. The entities lie in the bucket itself. So a lookup waits for memory once, for both
//! lines at the same time; where tags and entities are arrays of their own it waits for a tag first, then for the entity.
//!
//! Invariants:
//!
//! * A slot is in use exactly where its tag is not 0; one that is not holds `Entity::default()`, which owns no memory.
//! * Each bucket between the one of an id's hash and the one that it lies in counts it, unless the count has come to [`MANY`],
//!   where it stays until the table is built anew.
//!
//! Cost: 128 bytes for three slots, of which at most 7/8 are in use, and 7/16 after a growth. Just before a growth a lookup
//! looks into two buckets where it finds its id and into four where there is none, on average (the tests count); just after
//! it into hardly more than one.

use std::mem;

use polyserve_core::Entity;
use polyserve_sys::prefetch;

use crate::shards::shrunk;

/// Entities of a bucket.
const SLOTS: usize = 3;

/// Where a bucket's count of those sent on is. Below it, a tag for each slot.
const COUNT: u32 = 8 * SLOTS as u32;

/// A count that is not kept any more.
const MANY: u32 = u8::MAX as u32;

/// One in each tag's byte.
const EACH: u32 = 0x01_01_01;

/// Three entities.
#[derive(Default)]
#[repr(C, align(128))]
struct Bucket {
    /// The slots' tags, first slot lowest, and how many were sent on.
    word: u32,
    slots: [Entity; SLOTS],
}

impl Bucket {
    /// The slots that may have this tag: of each the highest bit of its byte. The lowest one has it, those above it perhaps.
    #[inline]
    fn tagged(&self, tag: u32) -> u32 {
        let differing = self.word ^ (tag * EACH);
        differing.wrapping_sub(EACH) & !differing & (EACH << 7)
    }

    /// The slot of `id`.
    #[inline]
    fn find(&self, tag: u32, id: i64) -> Option<usize> {
        let mut tagged = self.tagged(tag);
        while tagged != 0 {
            let slot = tagged.trailing_zeros() as usize / 8;
            if self.slots.get(slot).is_some_and(|entity| entity.id == id) {
                return Some(slot);
            }
            tagged &= tagged - 1;
        }
        None
    }

    /// A slot that is not in use.
    #[inline]
    fn free(&self) -> Option<usize> {
        let free = self.tagged(0);
        (free != 0).then(|| free.trailing_zeros() as usize / 8)
    }

    #[inline]
    fn sent_on(&self) -> u32 {
        self.word >> COUNT
    }

    fn count_up(&mut self) {
        if self.sent_on() < MANY {
            self.word += 1 << COUNT;
        }
    }

    fn count_down(&mut self) {
        if self.sent_on() < MANY {
            self.word -= 1 << COUNT;
        }
    }
}

/// Where an entity lies.
#[derive(Clone, Copy)]
struct Place {
    bucket: usize,
    slot: usize,
}

/// Entities by hash and id. Whoever calls hashes; the same id always with the same hash.
#[derive(Default)]
pub(super) struct Table {
    /// None, or a power of two of them.
    buckets: Box<[Bucket]>,
    len: usize,
}

/// The tag: of the highest bits, which choose neither bucket nor shard, and never 0.
#[inline]
fn tag(hash: u64) -> u32 {
    (hash >> 57) as u32 | 0x80
}

impl Table {
    /// How many entities there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// How many there is room for, at 7/8.
    fn room(buckets: usize) -> usize {
        buckets * SLOTS * 7 / 8
    }

    /// The number of a hash's bucket after so many steps; of no bucket where there is none. A stride is odd, so that as many
    /// steps as there are buckets come to each of them.
    #[inline]
    fn number(&self, hash: u64, step: usize) -> usize {
        let stride = 2 * tag(hash) as usize + 1;
        (hash as usize).wrapping_add(step.wrapping_mul(stride)) & self.buckets.len().wrapping_sub(1)
    }

    /// Where `id` lies.
    #[inline]
    fn place(&self, hash: u64, id: i64) -> Option<Place> {
        for step in 0..self.buckets.len() {
            let number = self.number(hash, step);
            let bucket = &self.buckets[number];
            prefetch(&raw const bucket.slots[SLOTS - 1]); // the second line, while the first is on its way
            if let Some(slot) = bucket.find(tag(hash), id) {
                return Some(Place { bucket: number, slot });
            }
            if bucket.sent_on() == 0 {
                return None;
            }
        }
        None
    }

    /// The entity of `id`.
    #[inline]
    pub(super) fn find(&self, hash: u64, id: i64) -> Option<&Entity> {
        let place = self.place(hash, id)?;
        Some(&self.buckets[place.bucket].slots[place.slot])
    }

    /// Puts `entity` in, and hands out what it replaced. `hash_of` hashes those that a growth moves.
    pub(super) fn insert(&mut self, hash: u64, entity: Entity, hash_of: impl Fn(i64) -> u64) -> Option<Entity> {
        if let Some(Place { bucket, slot }) = self.place(hash, entity.id) {
            return Some(mem::replace(&mut self.buckets[bucket].slots[slot], entity));
        }
        if self.len == Self::room(self.buckets.len()) {
            self.build(self.len + 1, hash_of);
        }
        self.add(hash, entity);
        None
    }

    /// Puts in an entity that is not there; there is room.
    fn add(&mut self, hash: u64, entity: Entity) {
        for step in 0..self.buckets.len() {
            let number = self.number(hash, step);
            let bucket = &mut self.buckets[number];
            if let Some(slot) = bucket.free() {
                bucket.word |= tag(hash) << (8 * slot);
                bucket.slots[slot] = entity;
                self.len += 1;
                return;
            }
            bucket.count_up();
        }
        unreachable!("there is room");
    }

    /// Takes the entity of `id` out, and gives memory back as [`shrunk`] says.
    pub(super) fn remove(&mut self, hash: u64, id: i64, hash_of: impl Fn(i64) -> u64) -> Option<Entity> {
        let Place { bucket: last, slot } = self.place(hash, id)?;
        for step in 0..self.buckets.len() {
            let number = self.number(hash, step);
            if number == last {
                break;
            }
            self.buckets[number].count_down();
        }
        let bucket = &mut self.buckets[last];
        bucket.word &= !(u32::from(u8::MAX) << (8 * slot));
        let entity = mem::take(&mut bucket.slots[slot]);
        self.len -= 1;
        if let Some(room) = shrunk(self.len, self.slots()) {
            self.build(room, hash_of);
        }
        Some(entity)
    }

    /// How many slots there are.
    pub(super) fn slots(&self) -> usize {
        self.buckets.len() * SLOTS
    }

    /// Builds it anew, with room for so many, which are at least those that there are.
    fn build(&mut self, entities: usize, hash_of: impl Fn(i64) -> u64) {
        let mut buckets = 1;
        while Self::room(buckets) < entities {
            buckets *= 2;
        }
        let new: Box<[Bucket]> = (0..buckets).map(|_| Bucket::default()).collect();
        self.len = 0;
        for mut bucket in mem::replace(&mut self.buckets, new) {
            for (slot, entity) in bucket.slots.iter_mut().enumerate() {
                if bucket.word >> (8 * slot) & MANY != 0 {
                    self.add(hash_of(entity.id), mem::take(entity));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
