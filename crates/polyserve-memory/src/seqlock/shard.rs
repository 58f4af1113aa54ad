//! A shard: buckets that readers read without a lock and without a write, and one lock for writers.
//!
//! A bucket has a *version*, short records, and entries of records that lie apart: see `bucket`.
//!
//! # Writers
//!
//! A writer holds the shard's lock. It stores words of a bucket, of its links and of its records inside a *write section*, which
//! begins by making the bucket's version odd, and ends by making it even again. A record that is taken out of a bucket is free at once: a
//! later write section may store another record there, while a slow reader still reads it. See `writes`.
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

mod writes;

use std::hint;

use crossbeam_utils::CachePadded;
use polyserve_core::sync::atomic::{AtomicU64, Ordering};
use polyserve_core::sync::{RwLock, read};
use polyserve_core::{Condition, Identifiable, Shown};
use polyserve_sys::prefetch;
use slab::Slab;

pub(super) use super::bucket::MAX_COPIED;
use super::bucket::{BUCKET_WORDS, BucketCount, Entries, EntryPlace, SlotEntry, VersionedBucket, byte, words_of};
use super::records::{MAX_WORDS, PagesInUse, Words};
use super::segments::ShardSegments;
use crate::pack::{CopiedWords, has_copied_id, has_packed_id, show_copied, show_packed};

/// Number of words of a record up to which a reader copies it to a small buffer.
const SMALL: usize = 8;

/// Number of attempts to read without the lock, after the first two. A checker would repeat the same steps.
const ATTEMPTS: usize = if cfg!(any(polyserve_loom, polyserve_shuttle)) { 0 } else { 8 };

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
    /// The number of entities without a short record.
    long: usize,
    in_use: PagesInUse,
    /// The entities that are not packed.
    whole: Slab<E>,
}

/// A bucket and its number.
type NumberedBucket<'a> = (usize, VersionedBucket<'a>);

/// A bucket to read. What was read is of this version, if the bucket still is afterwards.
#[derive(Clone, Copy)]
struct BucketToRead<'a> {
    words: VersionedBucket<'a>,
    number: usize,
    version: u64,
}

impl<'a> BucketToRead<'a> {
    /// Loads the version; `None` during a write.
    #[inline]
    fn of((number, words): NumberedBucket<'a>) -> Option<Self> {
        let version = words.version().load(Ordering::Acquire);
        (version % 2 == 0).then_some(Self { words, number, version })
    }
}

/// The place of an entity.
#[derive(Clone, Copy)]
enum Place<'a> {
    /// A short record: its bucket, and its slot.
    Short(VersionedBucket<'a>, usize),
    Entry(EntryPlace<'a>),
}

/// What is stored at a place.
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
    table: ShardSegments<BUCKET_WORDS>,
    words: Words,
    /// Every writer holds this lock. A reader takes it for an entity that is not packed, and after some conflicts.
    locked: CachePadded<RwLock<LockedShard<E>>>,
}

impl<E: Identifiable> VersionedShard<E> {
    /// Creates the shards of a store. `count`: a power of two.
    pub(crate) fn shards(count: usize) -> impl Iterator<Item = Self> {
        ShardSegments::of_shards(count).zip(ShardSegments::of_shards(count)).map(|(table, words)| {
            table.get_or_create(0).expect("the array has a first element");
            let locked = LockedShard { len: 0, long: 0, in_use: PagesInUse::default(), whole: Slab::new() };
            Self {
                buckets: AtomicU64::new(BucketCount::new(1).0),
                table,
                words: Words(words),
                locked: CachePadded::new(RwLock::new(locked)),
            }
        })
    }

    /// Calls `show` with the entity of `id`, and returns what it returned; `None` if there is no entity.
    ///
    /// Most gets end with the first slot that may have the entity.
    #[allow(clippy::inline_always)] // as the get of the repo
    #[inline(always)]
    pub(crate) fn get<T>(&self, hash: u64, id: &E::Id, show: impl FnOnce(Shown<'_, E>) -> T) -> Option<T> {
        let found = self.bucket_now(hash);
        if let Some((_, bucket)) = found {
            bucket.fetch();
        }
        self.get_in(found, hash, id, show)
    }

    /// [`get`](Self::get) of an entity that is on its way from memory.
    #[allow(clippy::inline_always)] // as `get`
    #[inline(always)]
    pub(crate) fn get_fetched<T>(&self, hash: u64, id: &E::Id, show: impl FnOnce(Shown<'_, E>) -> T) -> Option<T> {
        self.get_in(self.bucket_now(hash), hash, id, show)
    }

    #[allow(clippy::inline_always)] // as `get`
    #[inline(always)]
    fn get_in<T>(
        &self,
        found: Option<NumberedBucket<'_>>,
        hash: u64,
        id: &E::Id,
        show: impl FnOnce(Shown<'_, E>) -> T,
    ) -> Option<T> {
        let Some(bucket) = found.and_then(BucketToRead::of) else { return self.get_larger(hash, id, show) };
        let (lengths, mut slots) = bucket.words.with_byte(byte(hash));
        if let Some(slot) = slots.next()
            && let Some(record) = bucket.words.record(slot, lengths)
        {
            let [first, second, third, fourth] = record;
            let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
            let copy = CopiedWords::of([load(first), load(second), load(third), load(fourth)]);
            let length = lengths.of(slot);
            if bucket.words.is_still(bucket.version) && has_copied_id::<E, 4>(&copy, length, id) {
                return Some(show_copied(id, &copy, length, show));
            }
        }
        self.get_other(bucket, hash, id, show)
    }

    /// Does the work of [`get`](Self::get) for an entity at another place.
    #[inline(never)]
    fn get_other<T>(
        &self,
        bucket: BucketToRead<'_>,
        hash: u64,
        id: &E::Id,
        show: impl FnOnce(Shown<'_, E>) -> T,
    ) -> Option<T> {
        let mut copy = CopiedWords::<SMALL>::default();
        match self.attempt(bucket, hash, id, &mut copy) {
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
            let bucket = self.bucket_now(hash).and_then(BucketToRead::of);
            let attempt = bucket.map(|bucket| self.attempt(bucket, hash, id, &mut copy));
            match attempt.unwrap_or(Attempt::Conflict) {
                Attempt::Found(length) => return Some(show_copied(id, &copy, length, show)),
                Attempt::Absent => return None,
                Attempt::Conflict => hint::spin_loop(),
                Attempt::Larger => break,
            }
        }
        let locked = read(&self.locked);
        let place = self.find(&locked, hash, id)?;
        Some(self.with(&locked, place, |stored| stored.show(show)))
    }

    /// Copies the record of `id`. It takes no lock, and writes only to `copy`.
    #[inline]
    fn attempt<const N: usize>(
        &self,
        BucketToRead { words: bucket, number, version }: BucketToRead<'_>,
        hash: u64,
        id: &E::Id,
        copy: &mut CopiedWords<N>,
    ) -> Attempt {
        let (lengths, slots) = bucket.with_byte(byte(hash));
        for slot in slots {
            let Some(record) = bucket.record(slot, lengths) else {
                match self.attempt_entry(bucket, version, bucket.entry(slot), hash, id, copy) {
                    Some(attempt) => return attempt,
                    None => continue,
                }
            };
            copy.store(record.iter().map(|word| word.load(Ordering::Relaxed)));
            if !bucket.is_still(version) {
                return Attempt::Conflict;
            }
            let length = lengths.of(slot);
            if has_copied_id::<E, N>(copy, length, id) {
                return Attempt::Found(length);
            }
        }
        let last = bucket.entries().last();
        if last.is_link()
            && let Some(attempt) = self.attempt_links(bucket, version, last, hash, id, copy)
        {
            return attempt;
        }
        if !bucket.is_still(version) {
            return Attempt::Conflict;
        }
        match self.count(Ordering::Acquire).bucket_of(hash) == number {
            true => Attempt::Absent,
            false => Attempt::Conflict,
        }
    }

    /// Copies the record of an entry, if it is that of `id`.
    fn attempt_entry<const N: usize>(
        &self,
        bucket: VersionedBucket<'_>,
        version: u64,
        entry: SlotEntry,
        hash: u64,
        id: &E::Id,
        copy: &mut CopiedWords<N>,
    ) -> Option<Attempt> {
        if !entry.has_tag(SlotEntry::tag(hash)) {
            return None;
        }
        let length = entry.length().unwrap_or(usize::MAX);
        if length > 8 * N {
            return Some(Attempt::Larger);
        }
        let Some(words) = self.words.at(entry.address(), words_of(length)) else { return Some(Attempt::Conflict) };
        copy.store(words.iter().map(|word| word.load(Ordering::Relaxed)));
        if !bucket.is_still(version) {
            return Some(Attempt::Conflict);
        }
        has_copied_id::<E, N>(copy, length, id).then_some(Attempt::Found(length))
    }

    /// Looks for `id` in the entries that `link` and the links after it lead to.
    #[cold]
    fn attempt_links<const N: usize>(
        &self,
        bucket: VersionedBucket<'_>,
        version: u64,
        mut link: SlotEntry,
        hash: u64,
        id: &E::Id,
        copy: &mut CopiedWords<N>,
    ) -> Option<Attempt> {
        while link.is_link() {
            // A stale link could lead in a circle.
            if !bucket.is_still(version) {
                return Some(Attempt::Conflict);
            }
            let Some(linked) = self.words.array_at(link.address()) else { return Some(Attempt::Conflict) };
            let entries = Entries::of_link(linked);
            let attempt = |entry| self.attempt_entry(bucket, version, entry, hash, id, copy);
            let found = entries.with_byte(byte(hash)).find_map(attempt);
            if found.is_some() {
                return found;
            }
            link = entries.last();
        }
        None
    }

    #[inline]
    fn count(&self, ordering: Ordering) -> BucketCount {
        BucketCount(self.buckets.load(ordering))
    }

    /// Returns the bucket of a hash and its number. A growth may send the hash to another bucket meanwhile.
    #[inline]
    fn bucket_now(&self, hash: u64) -> Option<NumberedBucket<'_>> {
        let number = self.count(Ordering::Acquire).bucket_of(hash);
        Some((number, VersionedBucket(self.table.get(number)?)))
    }

    /// Returns the size of the table in bytes.
    #[inline]
    pub(crate) fn table_bytes(&self) -> usize {
        self.count(Ordering::Relaxed).number() * size_of::<[AtomicU64; BUCKET_WORDS]>()
    }

    /// Fetches from memory the line of a bucket that tells its slots, and does not wait for it.
    #[inline]
    pub(crate) fn fetch_slots(&self, hash: u64) {
        if let Some((_, bucket)) = self.bucket_now(hash) {
            prefetch(bucket.version());
        }
    }

    /// Waits for that line, and fetches the record that is probably that of the hash.
    #[inline]
    pub(crate) fn fetch_record(&self, hash: u64) {
        let Some((_, bucket)) = self.bucket_now(hash) else { return };
        let (lengths, mut slots) = bucket.with_byte(byte(hash));
        let Some(slot) = slots.next() else { return };
        let apart = || self.words.at(bucket.entry(slot).address(), 1);
        if let Some(words) = bucket.record(slot, lengths).map(|record| &record[..]).or_else(apart) {
            prefetch(words.as_ptr());
        }
    }

    /// Returns the version of `id`; `None` during a write.
    pub(crate) fn version(&self, hash: u64) -> Option<u64> {
        loop {
            let (number, bucket) = self.bucket_now(hash)?;
            let version = bucket.version().load(Ordering::Acquire);
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

    /// Returns the bucket of a hash. The caller holds the lock.
    fn bucket(&self, hash: u64) -> VersionedBucket<'_> {
        self.bucket_now(hash).expect("a bucket in use exists").1
    }

    /// Returns the places of the entries of a bucket and of its links, without the links themselves. The caller holds the lock.
    fn entry_places<'a>(&'a self, bucket: VersionedBucket<'a>) -> impl Iterator<Item = EntryPlace<'a>> {
        let mut next = Some(bucket.entries());
        let groups = std::iter::from_fn(move || {
            let entries = next?;
            let last = entries.last();
            next = last.is_link().then(|| self.linked(last));
            Some(entries)
        });
        let entries = groups.flat_map(Entries::places).filter(|place| !place.entry().is_link());
        bucket.entries_in_short_slots().chain(entries)
    }

    /// Returns the entries that a link leads to. The caller holds the lock.
    fn linked(&self, link: SlotEntry) -> Entries<'_> {
        Entries::of_link(self.words.array_at(link.address()).expect("a link leads to entries"))
    }

    /// Returns the places of all entities of a bucket: the short records first. The caller holds the lock.
    fn places<'a>(&'a self, bucket: VersionedBucket<'a>) -> impl Iterator<Item = Place<'a>> {
        let short = bucket.short_slots().map(move |slot| Place::Short(bucket, slot));
        let entries = self.entry_places(bucket).filter(|place| place.entry() != SlotEntry::UNUSED);
        short.chain(entries.map(Place::Entry))
    }

    /// Returns the place of `id`. The caller holds the lock.
    fn find(&self, locked: &LockedShard<E>, hash: u64, id: &E::Id) -> Option<Place<'_>> {
        self.places(self.bucket(hash)).find(|place| {
            let may_be = match place {
                Place::Short(bucket, slot) => bucket.short_byte(*slot) == byte(hash),
                Place::Entry(place) => place.entry().has_tag(SlotEntry::tag(hash)),
            };
            may_be
                && self.with(locked, *place, |stored| match stored {
                    Stored::Packed(packed) => has_packed_id::<E>(packed, id),
                    Stored::Whole(entity) => entity.id() == id,
                })
        })
    }

    /// Calls `see` with what is stored at a place. The caller holds the lock.
    fn with<T>(&self, locked: &LockedShard<E>, place: Place<'_>, see: impl FnOnce(Stored<'_, E>) -> T) -> T {
        let entry = match place {
            Place::Short(bucket, slot) => {
                let record = bucket.short(slot);
                let mut copy = CopiedWords::<SMALL>::default();
                copy.store(record.words);
                return see(Stored::Packed(&copy.bytes()[..record.length]));
            }
            Place::Entry(place) => place.entry(),
        };
        let Some(length) = entry.length() else { return see(Stored::Whole(&locked.whole[entry.address() as usize])) };
        let words = self.words.at(entry.address(), words_of(length)).expect("the record exists");
        let mut copy = CopiedWords::<MAX_WORDS>::default();
        copy.store(words.iter().map(|word| word.load(Ordering::Relaxed)));
        see(Stored::Packed(&copy.bytes()[..length]))
    }

    /// Whether `condition` allows to write over what is stored at a place. It changes nothing, also if it panics.
    fn allows(&self, locked: &LockedShard<E>, place: Option<Place<'_>>, condition: &Condition) -> bool {
        if condition.is_always() {
            return true;
        }
        let Some(place) = place else { return condition.allows_shown::<E>(None) };
        self.with(locked, place, |stored| stored.show(|shown| condition.allows_shown(Some(shown))))
    }
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests;
