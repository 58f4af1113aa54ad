//! A shard: buckets that readers read without a lock and without a write, and one lock for writers.
//!
//! A bucket is a cache line: a *version*, and slots for six entries, with a byte of each entry's hash. An entry has a longer part of the
//! hash, and the length and the address of its record. If there are more entities, the last entry is a *link* to more slots among the
//! records.
//!
//! # Writers
//!
//! A writer holds the shard's lock. It stores words of a bucket, of its links and of its records inside a *write section*, which
//! begins by making the bucket's version odd, and ends by making it even again. A record that is taken out of a bucket is free at once: a
//! later write section may store another record there, while a slow reader still reads it.
//!
//! # Readers
//!
//! A reader loads the version, copies the words of the record, and loads the version again. If it was even and is the same, the copy
//! is a record that was stored when the version was loaded. Otherwise the reader repeats, and after some attempts it takes the lock.
//!
//! This is a *sequence lock*. The orderings are those of Boehm ("Can seqlocks get along with programming language memory models?", MSPC
//! 2012, figure 6), and every word is an atomic, so a race is no undefined behaviour:
//!
//! 1. The first load of the version acquires what the end of a write section has released. So the copy has no older word than those of
//!    that version.
//! 2. If a reader reads a word that a later section stored, then the release fence at the begin of that section and the reader's acquire
//!    fence after its copy synchronise, because the fences are around the relaxed store and load. So the second load of the version
//!    returns at least the odd number that was stored before the fence, and the two loads differ.
//! 3. The section that stores the word need not be one of the bucket that the reader reads: the record may have been freed, and used by
//!    another bucket. The section that took the record out of the reader's bucket came before, under the same lock. So the odd number of
//!    the reader's bucket happens before the fence, and 2 holds.
//! 4. A copy with words of several sections is made, and thrown away. So nothing is decoded before the second load, and a stale address or
//!    length is checked before its use: a record that does not exist is a conflict.
//!
//! # Growth
//!
//! The table grows by one bucket at a time (linear hashing: Litwin, VLDB 1980). When bucket `n` comes into use, it gets a part of the
//! entries of one other bucket. The whole split is a write section of that bucket, and stores `n + 1` as the number of buckets before its
//! end. A reader that finds an entity needs no more, whatever bucket it was in. One that finds none loads the number of buckets
//! again: if it has loaded the version from after the split, it has acquired the number, which sends it to bucket `n`.
//!
//! # Versions
//!
//! The version of a bucket is the version of its ids. A new bucket begins with the version that the split bucket has after the split, so
//! the version of an id that moves grows too.

use std::error::Error;
use std::{fmt, hint};

use crossbeam_utils::CachePadded;
use polyserve_core::sync::atomic::{AtomicU64, Ordering, fence};
use polyserve_core::sync::{RwLock, read, write};
use polyserve_core::{Condition, Conditional, Identifiable, Put, Removed, Shown};
use polyserve_sys::prefetch;
use slab::Slab;

use super::records::{MAX_PAGES, MAX_WORDS, PagesInUse, Words};
use super::segments::Segments;
use crate::pack::{CopiedWords, ToStore, has_packed_id, packed_id, show_copied, show_packed};

/// The maximum length, in bytes, of a packed entity that is copied into words.
pub(super) const MAX_COPIED: usize = 8 * MAX_WORDS;

/// Number of words of a record up to which a reader copies it to a small buffer.
const SMALL: usize = 8;

/// Number of entries of a bucket, and of a link.
const SLOTS: usize = 6;

/// Number of words of a link: its slots.
const LINK_WORDS: usize = SLOTS + 1;

/// Another bucket comes into use at seven entities for each two in use. More would take less memory for the table, and more links to
/// follow.
const PER_TWO_BUCKETS: usize = 7;

/// Number of attempts to read without the lock.
const ATTEMPTS: usize = if cfg!(any(polyserve_loom, polyserve_shuttle)) { 2 } else { 8 };

/// An entry of a bucket: 32 bits for an address, 10 for a kind or a length, 22 for a tag, which is never 0. 0 is an unused entry.
#[derive(Clone, Copy, PartialEq)]
struct SlotEntry(u64);

impl SlotEntry {
    const UNUSED: Self = Self(0);
    const KIND_SHIFT: u32 = u32::BITS;
    const TAG_SHIFT: u32 = 42;
    /// The kind of an entry with the address of more entries.
    const LINK: u64 = 1022;
    /// The kind of an entry with the number of an entity that is not packed.
    const WHOLE: u64 = 1023;

    /// Returns the tag of a hash in the place that it has in an entry.
    #[inline]
    fn tag(hash: u64) -> u64 {
        (hash >> 24 | 1) << Self::TAG_SHIFT
    }

    fn record(tag: u64, address: u32, length: usize) -> Self {
        // One more, so that no entry is 0.
        Self(tag | (length as u64 + 1) << Self::KIND_SHIFT | u64::from(address))
    }

    fn whole(tag: u64, number: u32) -> Self {
        Self(tag | Self::WHOLE << Self::KIND_SHIFT | u64::from(number))
    }

    /// A link has the tag 0, which no id has.
    fn link(address: u32) -> Self {
        Self(Self::LINK << Self::KIND_SHIFT | u64::from(address))
    }

    #[inline]
    fn has_tag(self, tag: u64) -> bool {
        (self.0 ^ tag) >> Self::TAG_SHIFT == 0
    }

    #[inline]
    fn kind(self) -> u64 {
        self.0 >> Self::KIND_SHIFT & 1023
    }

    /// Returns the address of a record or a link, or the number of an entity.
    #[inline]
    fn address(self) -> u32 {
        self.0 as u32
    }

    /// Returns the length of the record in bytes; `None` if it has none.
    #[inline]
    fn length(self) -> Option<usize> {
        let length = (self.kind() as usize).wrapping_sub(1);
        (length <= MAX_COPIED).then_some(length)
    }

    #[inline]
    fn is_link(self) -> bool {
        self.kind() == Self::LINK
    }
}

/// Returns the number of words of a record with this number of bytes.
#[inline]
fn words_of(length: usize) -> usize {
    length.div_ceil(8).max(1)
}

/// The slots of a bucket or a link: a word with a byte for each entry, and then the entries. A byte is 0 if its slot is unused, and
/// [`LINKED`] for a link.
type Slots = [AtomicU64; LINK_WORDS];

/// The byte of a link. That of an entity has its upper bit set.
const LINKED: u64 = 1;

/// The number 1 in the byte of each slot.
const BYTE_ONES: u64 = 0x0101_0101_0101;

/// Returns the byte of a hash.
#[inline]
fn byte(hash: u64) -> u64 {
    hash >> 16 & 0x7f | 0x80
}

/// Returns the slots that may have this byte, as the highest bit of the byte of each. The lowest of them has it.
#[inline]
fn slots_with(bytes: u64, byte: u64) -> u64 {
    let differing = bytes ^ (byte * BYTE_ONES);
    differing.wrapping_sub(BYTE_ONES) & !differing & (BYTE_ONES << 7)
}

/// The place of an entry.
#[derive(Clone, Copy)]
struct Place<'a> {
    slots: &'a Slots,
    number: usize,
}

impl Place<'_> {
    fn entry(self) -> SlotEntry {
        SlotEntry(self.slots[self.number + 1].load(Ordering::Relaxed))
    }

    /// Stores an entry and its byte. The caller is in a write section.
    fn store(self, entry: SlotEntry, byte: u64) {
        let [bytes, entries @ ..] = self.slots;
        let others = bytes.load(Ordering::Relaxed) & !(0xff << (8 * self.number));
        bytes.store(others | byte << (8 * self.number), Ordering::Relaxed);
        entries[self.number].store(entry.0, Ordering::Relaxed);
    }

    /// Returns the byte of the entry.
    fn byte(self) -> u64 {
        self.slots[0].load(Ordering::Relaxed) >> (8 * self.number) & 0xff
    }
}

/// The number of buckets in use, in the lower half, and the mask of a hash for it.
#[derive(Clone, Copy)]
struct BucketCount(u64);

impl BucketCount {
    fn new(number: usize) -> Self {
        Self((number.next_power_of_two() as u64 - 1) << u32::BITS | number as u64)
    }

    fn number(self) -> usize {
        self.0 as u32 as usize
    }

    /// Returns the bucket of a hash. The lowest bits of the hash choose the bucket. If it is not in use yet, its entities are in the bucket
    /// that will be split for it.
    #[inline]
    fn bucket_of(self, hash: u64) -> usize {
        let mask = (self.0 >> u32::BITS) as usize;
        let index = hash as usize & mask;
        if index < self.number() { index } else { index & (mask >> 1) }
    }
}

/// A cache line of the table.
#[derive(Default)]
#[repr(align(64))]
struct VersionedBucket {
    /// The number of write sections that have begun and ended. It is odd during a section.
    version: AtomicU64,
    slots: Slots,
}

impl VersionedBucket {
    /// Whether no write section has begun since the version was loaded. What was loaded before is then of that version.
    #[inline]
    fn is_still(&self, version: u64) -> bool {
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }

    /// Begins a write section, which ends when the result is dropped. The caller holds the lock.
    fn write(&self) -> WriteSection<'_> {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        WriteSection { bucket: self, next: version + 2 }
    }
}

/// A write section of a bucket.
#[must_use]
struct WriteSection<'a> {
    bucket: &'a VersionedBucket,
    /// The version after the section.
    next: u64,
}

impl Drop for WriteSection<'_> {
    fn drop(&mut self) {
        self.bucket.version.store(self.next, Ordering::Release);
    }
}

/// The result of an attempt to read without the lock.
enum Attempt {
    /// The length of the copied record, in bytes.
    Found(usize),
    Absent,
    /// A write came in between.
    Conflict,
    /// The entity may be one that does not fit into the buffer.
    Larger,
}

/// What only the holder of the lock uses.
struct LockedShard<E> {
    len: usize,
    in_use: PagesInUse,
    /// The entities that are not packed.
    whole: Slab<E>,
}

/// The error if a shard has no address for another record.
#[derive(Debug)]
pub(crate) struct PagesFull;

impl fmt::Display for PagesFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the entity's shard is full: it has {MAX_PAGES} pages of records")
    }
}

impl Error for PagesFull {}

/// What an entry names.
enum Stored<'a, E> {
    Packed(&'a [u8]),
    Whole(&'a E),
}

impl<E: Identifiable> Stored<'_, E> {
    fn show<T>(self, show: impl FnOnce(Shown<'_, E>) -> T) -> T {
        match self {
            Self::Packed(packed) => show_packed(packed, show),
            Self::Whole(entity) => show(Shown::from(entity)),
        }
    }
}

pub(crate) struct VersionedShard<E> {
    /// The [`BucketCount`].
    buckets: AtomicU64,
    table: Segments<VersionedBucket>,
    words: Words,
    /// Every writer holds this lock. A reader takes it for an entity that is not packed, and after some conflicts.
    locked: CachePadded<RwLock<LockedShard<E>>>,
}

impl<E: Identifiable> Default for VersionedShard<E> {
    fn default() -> Self {
        let table = Segments::default();
        table.get_or_create(0).expect("the array has a first element");
        let locked = LockedShard { len: 0, in_use: PagesInUse::default(), whole: Slab::new() };
        Self {
            buckets: AtomicU64::new(BucketCount::new(1).0),
            table,
            words: Words::default(),
            locked: CachePadded::new(RwLock::new(locked)),
        }
    }
}

impl<E: Identifiable> VersionedShard<E> {
    /// Calls `show` with the entity of `id`, and returns what it returned; `None` if there is no entity.
    #[allow(clippy::inline_always)] // as the get of the repo
    #[inline(always)]
    pub(crate) fn get<T>(&self, hash: u64, id: &E::Id, show: impl FnOnce(Shown<'_, E>) -> T) -> Option<T> {
        let mut copy = CopiedWords::<SMALL>::default();
        match self.attempt(hash, id, &mut copy) {
            Attempt::Found(length) => Some(show_copied(id, &copy, length, show)),
            Attempt::Absent => None,
            Attempt::Conflict | Attempt::Larger => self.get_larger(hash, id, show),
        }
    }

    /// Does the work of [`get`](Self::get) for an entity of any length, after any number of conflicts.
    #[inline(never)]
    fn get_larger<T>(&self, hash: u64, id: &E::Id, show: impl FnOnce(Shown<'_, E>) -> T) -> Option<T> {
        let mut copy = CopiedWords::<MAX_WORDS>::default();
        for _ in 0..ATTEMPTS {
            match self.attempt(hash, id, &mut copy) {
                Attempt::Found(length) => return Some(show_copied(id, &copy, length, show)),
                Attempt::Absent => return None,
                Attempt::Conflict => hint::spin_loop(),
                Attempt::Larger => break,
            }
        }
        let locked = read(&self.locked);
        let (_, entry) = self.find(&locked, hash, id)?;
        Some(self.with(&locked, entry, |stored| stored.show(show)))
    }

    /// Copies the record of `id`. It takes no lock, and writes only to `copy`.
    #[allow(clippy::inline_always)] // a get of a short record is one function
    #[inline(always)]
    fn attempt<const N: usize>(&self, hash: u64, id: &E::Id, copy: &mut CopiedWords<N>) -> Attempt {
        let Some((number, bucket)) = self.bucket_now(hash) else { return Attempt::Conflict };
        let version = bucket.version.load(Ordering::Acquire);
        if version % 2 == 1 {
            return Attempt::Conflict;
        }
        let tag = SlotEntry::tag(hash);
        let mut slots = &bucket.slots;
        loop {
            let [bytes, entries @ ..] = slots;
            let bytes = bytes.load(Ordering::Relaxed);
            let mut with_byte = slots_with(bytes, byte(hash));
            while with_byte != 0 {
                let slot = with_byte.trailing_zeros() as usize / 8;
                with_byte &= with_byte - 1;
                let Some(entry) = entries.get(slot) else { break };
                let entry = SlotEntry(entry.load(Ordering::Relaxed));
                if !entry.has_tag(tag) {
                    continue;
                }
                let length = entry.length().unwrap_or(usize::MAX);
                if length > 8 * N {
                    return Attempt::Larger;
                }
                let Some(words) = self.words.at(entry.address(), words_of(length)) else { return Attempt::Conflict };
                copy.store(words.iter().map(|word| word.load(Ordering::Relaxed)));
                if !bucket.is_still(version) {
                    return Attempt::Conflict;
                }
                if has_packed_id::<E>(&copy.bytes()[..length], id) {
                    return Attempt::Found(length);
                }
            }
            let last = SlotEntry(entries[SLOTS - 1].load(Ordering::Relaxed));
            // A stale link could lead in a circle.
            if !bucket.is_still(version) {
                return Attempt::Conflict;
            }
            if !last.is_link() {
                break;
            }
            let Some(linked) = self.words.array_at(last.address()) else { return Attempt::Conflict };
            slots = linked;
        }
        match self.count(Ordering::Acquire).bucket_of(hash) == number {
            true => Attempt::Absent,
            false => Attempt::Conflict,
        }
    }

    #[inline]
    fn count(&self, ordering: Ordering) -> BucketCount {
        BucketCount(self.buckets.load(ordering))
    }

    /// Returns the bucket of a hash and its number. A growth may send the hash to another bucket meanwhile.
    #[inline]
    fn bucket_now(&self, hash: u64) -> Option<(usize, &VersionedBucket)> {
        let number = self.count(Ordering::Acquire).bucket_of(hash);
        Some((number, self.table.get(number)?))
    }

    /// Fetches the bucket of a hash from memory, and does not wait for it.
    #[inline]
    pub(crate) fn fetch_bucket(&self, hash: u64) {
        if let Some((_, bucket)) = self.bucket_now(hash) {
            prefetch(bucket);
        }
    }

    /// Fetches the first line of the record of a hash from memory, and does not wait for it.
    #[inline]
    pub(crate) fn fetch_record(&self, hash: u64) {
        let Some((_, bucket)) = self.bucket_now(hash) else { return };
        let [bytes, entries @ ..] = &bucket.slots;
        let slot = slots_with(bytes.load(Ordering::Relaxed), byte(hash)).trailing_zeros() as usize / 8;
        let Some(entry) = entries.get(slot) else { return };
        if let Some(words) = self.words.at(entry.load(Ordering::Relaxed) as u32, 1) {
            prefetch(words.as_ptr());
        }
    }

    /// Returns the version of `id`; `None` during a write.
    pub(crate) fn version(&self, hash: u64) -> Option<u64> {
        loop {
            let (number, bucket) = self.bucket_now(hash)?;
            let version = bucket.version.load(Ordering::Acquire);
            // The version of a bucket that the id has left says nothing about it.
            if self.count(Ordering::Acquire).bucket_of(hash) == number {
                return (version % 2 == 0).then_some(version);
            }
        }
    }

    /// Returns the number of entities.
    pub(crate) fn len(&self) -> usize {
        read(&self.locked).len
    }

    /// Stores an entity. The entity to drop is left in `new`, or returned. `hash_of` hashes the ids of the entities that a growth moves.
    pub(crate) fn put(
        &self,
        hash: u64,
        id: &E::Id,
        mut new: ToStore<'_, E>,
        condition: &Condition,
        hash_of: impl Fn(&E::Id) -> u64,
    ) -> Result<Conditional<(Put, Option<E>)>, PagesFull> {
        let locked = &mut *write(&self.locked);
        let found = self.find(locked, hash, id);
        if !self.allows(locked, found.map(|(_, entry)| entry), condition) {
            return Ok(Conditional::Refused);
        }
        let section = self.bucket(hash).write();
        let Some((place, old)) = found else {
            let entry = self.place(locked, SlotEntry::tag(hash), &mut new)?;
            let more = |locked: &mut LockedShard<E>| locked.in_use.take(&self.words, LINK_WORDS).ok_or(PagesFull);
            if let Err(full) = self.add(locked, section.bucket, (entry, byte(hash)), more) {
                self.discard(locked, entry);
                return Err(full);
            }
            drop(section);
            locked.len += 1;
            self.grow(locked, hash_of);
            return Ok(Conditional::Done((Put::Created, None)));
        };
        let replaced = match (new.packed, old.length()) {
            (Some(packed), Some(length)) if words_of(packed.len()) == words_of(length) => {
                self.store_record(old.address(), packed);
                place.store(SlotEntry::record(SlotEntry::tag(hash), old.address(), packed.len()), byte(hash));
                None
            }
            _ => {
                place.store(self.place(locked, SlotEntry::tag(hash), &mut new)?, byte(hash));
                self.discard(locked, old)
            }
        };
        Ok(Conditional::Done((Put::Replaced, replaced)))
    }

    /// Removes `id`. Returns the entity to drop, if it was not packed.
    pub(crate) fn remove(&self, hash: u64, id: &E::Id, condition: &Condition) -> Conditional<(Removed, Option<E>)> {
        let locked = &mut *write(&self.locked);
        let Some((place, entry)) = self.find(locked, hash, id) else {
            return Conditional::Done((Removed::Absent, None));
        };
        if !self.allows(locked, Some(entry), condition) {
            return Conditional::Refused;
        }
        let _section = self.bucket(hash).write();
        place.store(SlotEntry::UNUSED, 0);
        locked.len -= 1;
        Conditional::Done((Removed::Removed, self.discard(locked, entry)))
    }

    /// Returns the bucket of a hash. The caller holds the lock.
    fn bucket(&self, hash: u64) -> &VersionedBucket {
        self.bucket_now(hash).expect("a bucket in use exists").1
    }

    /// Returns the places of a bucket and of its links, without the links themselves. The caller holds the lock.
    fn places<'a>(&'a self, bucket: &'a VersionedBucket) -> impl Iterator<Item = Place<'a>> {
        let mut next = Place { slots: &bucket.slots, number: 0 };
        std::iter::from_fn(move || {
            if next.number == SLOTS {
                return None;
            }
            let entry = next.entry();
            if entry.is_link() {
                next = Place { slots: self.linked(entry), number: 0 };
            }
            next.number += 1;
            Some(Place { number: next.number - 1, ..next })
        })
    }

    /// Returns the slots that a link leads to. The caller holds the lock.
    fn linked(&self, link: SlotEntry) -> &Slots {
        self.words.array_at(link.address()).expect("a link leads to slots")
    }

    /// Returns the place of `id`, and its entry. The caller holds the lock.
    fn find(&self, locked: &LockedShard<E>, hash: u64, id: &E::Id) -> Option<(Place<'_>, SlotEntry)> {
        let mut entries = self.places(self.bucket(hash)).map(|place| (place, place.entry()));
        entries.find(|&(_, entry)| {
            entry.has_tag(SlotEntry::tag(hash))
                && self.with(locked, entry, |stored| match stored {
                    Stored::Packed(packed) => has_packed_id::<E>(packed, id),
                    Stored::Whole(entity) => entity.id() == id,
                })
        })
    }

    /// Calls `see` with what an entry names. The caller holds the lock.
    fn with<T>(&self, locked: &LockedShard<E>, entry: SlotEntry, see: impl FnOnce(Stored<'_, E>) -> T) -> T {
        let Some(length) = entry.length() else { return see(Stored::Whole(&locked.whole[entry.address() as usize])) };
        let words = self.words.at(entry.address(), words_of(length)).expect("the record exists");
        let words = words.iter().map(|word| word.load(Ordering::Relaxed));
        if length <= 8 * SMALL {
            let mut copy = CopiedWords::<SMALL>::default();
            copy.store(words);
            return see(Stored::Packed(&copy.bytes()[..length]));
        }
        let mut copy = CopiedWords::<MAX_WORDS>::default();
        copy.store(words);
        see(Stored::Packed(&copy.bytes()[..length]))
    }

    /// Whether `condition` allows to write an id with this entry. It changes nothing, also if it panics.
    fn allows(&self, locked: &LockedShard<E>, entry: Option<SlotEntry>, condition: &Condition) -> bool {
        if condition.is_always() {
            return true;
        }
        let Some(entry) = entry else { return condition.allows_shown::<E>(None) };
        self.with(locked, entry, |stored| stored.show(|shown| condition.allows_shown(Some(shown))))
    }

    /// Stores the bytes of a record. The caller is in a write section.
    fn store_record(&self, address: u32, packed: &[u8]) {
        let words = self.words.at(address, words_of(packed.len())).expect("the record exists");
        for (word, bytes) in words.iter().zip(packed.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
        }
    }

    /// Stores an entity that is in no bucket yet, and returns its entry. The caller is in a write section.
    fn place(&self, locked: &mut LockedShard<E>, tag: u64, new: &mut ToStore<'_, E>) -> Result<SlotEntry, PagesFull> {
        if let Some(packed) = new.packed {
            let address = locked.in_use.take(&self.words, words_of(packed.len())).ok_or(PagesFull)?;
            self.store_record(address, packed);
            return Ok(SlotEntry::record(tag, address, packed.len()));
        }
        let number = u32::try_from(locked.whole.vacant_key()).map_err(|_| PagesFull)?;
        locked.whole.insert(new.entity.take().expect("the entity is there"));
        Ok(SlotEntry::whole(tag, number))
    }

    /// Frees what an entry that is in no bucket any more names. Returns the entity to drop. The caller is in a write section.
    fn discard(&self, locked: &mut LockedShard<E>, entry: SlotEntry) -> Option<E> {
        if entry.length().is_none() {
            return Some(locked.whole.remove(entry.address() as usize));
        }
        locked.in_use.free(&self.words, entry.address());
        None
    }

    /// Adds an entry to a bucket. If all slots are in use, `more` returns the address of words for more. The caller is in a write
    /// section of the bucket, or no reader reads it yet.
    fn add(
        &self,
        locked: &mut LockedShard<E>,
        bucket: &VersionedBucket,
        (entry, byte): (SlotEntry, u64),
        more: impl FnOnce(&mut LockedShard<E>) -> Result<u32, PagesFull>,
    ) -> Result<(), PagesFull> {
        let mut last = Place { slots: &bucket.slots, number: 0 };
        for place in self.places(bucket) {
            if place.entry() == SlotEntry::UNUSED {
                place.store(entry, byte);
                return Ok(());
            }
            last = place;
        }
        let link = SlotEntry::link(more(locked)?);
        let slots = self.linked(link);
        slots.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        Place { slots, number: 0 }.store(last.entry(), last.byte());
        Place { slots, number: 1 }.store(entry, byte);
        last.store(link, LINKED);
        Ok(())
    }

    /// Takes one more bucket into use if there are too few.
    fn grow(&self, locked: &mut LockedShard<E>, hash_of: impl Fn(&E::Id) -> u64) {
        let count = self.count(Ordering::Relaxed);
        let (number, next) = (count.number(), BucketCount::new(count.number() + 1));
        if locked.len * 2 <= number * PER_TWO_BUCKETS {
            return;
        }
        // A table of the maximum size has longer chains of links.
        let Some(new) = self.table.get_or_create(number) else { return };
        let old = self.table.get(count.bucket_of(number as u64)).expect("a bucket in use exists");
        let moves = |&(entry, _): &(SlotEntry, u64)| {
            let hash = self.with(locked, entry, |stored| match stored {
                Stored::Packed(packed) => hash_of(&packed_id::<E>(packed)),
                Stored::Whole(entity) => hash_of(entity.id()),
            });
            next.bucket_of(hash) == number
        };
        let entries = self.places(old).map(|place| (place.entry(), place.byte()));
        let entries = entries.filter(|&(entry, _)| entry != SlotEntry::UNUSED);
        let (moved, stay): (Vec<_>, Vec<_>) = entries.partition(moves);
        let section = old.write();
        self.fill(locked, new, &moved);
        new.version.store(section.next, Ordering::Relaxed);
        self.buckets.store(next.0, Ordering::Release);
        self.fill(locked, old, &stay);
    }

    /// Replaces the entries of a bucket. The caller is in a write section of the bucket, or no reader reads it yet.
    fn fill(&self, locked: &mut LockedShard<E>, bucket: &VersionedBucket, entries: &[(SlotEntry, u64)]) {
        let mut last = Place { slots: &bucket.slots, number: SLOTS - 1 }.entry();
        while last.is_link() {
            let link = last;
            last = Place { slots: self.linked(link), number: SLOTS - 1 }.entry();
            locked.in_use.free(&self.words, link.address());
        }
        bucket.slots.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        for &entry in entries {
            let more = |locked: &mut LockedShard<E>| Ok(locked.in_use.take_reserved(&self.words, LINK_WORDS));
            self.add(locked, bucket, entry, more).expect("there is a reserve of pages");
        }
    }
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests;
