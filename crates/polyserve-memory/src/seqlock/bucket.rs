//! A bucket: four cache lines, which are fetched together, with a *version*, seven short records, and an entry for another entity.
//!
//! ```text
//!          words 0 ... 7                                          words 8 ... 15
//!   line 0 │ version │ bytes │ lengths │ entry 7 │ record 0    │  line 1 │ record 1    │ record 2    │
//!                                                  (4 words)                (4 words)     (4 words)
//!   line 2 │ record 3         │ record 4                       │  line 3 │ record 5    │ record 6    │
//!
//!   bytes, from the lowest: │ of the hash: slot 0, ..., slot 7 │
//!   lengths:                │ of record 0, ..., record 6 │
//!
//!   entry, from the lowest bit: │ 32 address or number │ 10 kind or length │ 22 tag: of the hash │
//!
//!   link, 7 words among the records: │ bytes │ entry 0 │ ... │ entry 5 │
//! ```
//!
//! A byte of each entity's hash tells the slots that may have it. An entity is at one of these places, which are tried in this order:
//!
//! | place | for | what the slot has |
//! |---|---|---|
//! | slots 0 to 6 | an entity of at most 32 packed bytes | a *short record*: a reader waits for memory once |
//! | slot 7 | one that is longer, or for which no short slot is free | an *entry* |
//! | slots 0 to 6 | the same, if slot 7 is in use | an entry in the first word of the record; the length is [`HAS_ENTRY`] |
//! | a slot of a link | the same, if all slots are in use | an entry; the last slot before it has the *link* to it, with the byte [`LINKED`] |
//!
//! An entry names a record that lies apart, by its address and its length; or, by the kind *whole*, the number of an entity that is not
//! packed.

use polyserve_core::sync::atomic::{AtomicU64, Ordering, fence};
use polyserve_sys::prefetch;

use super::records::MAX_WORDS;

/// The maximum length, in bytes, of a packed entity that is copied into words.
pub(super) const MAX_COPIED: usize = 8 * MAX_WORDS;

/// Number of words of a short record.
pub(super) const SHORT_WORDS: usize = 4;

/// Number of short records of a bucket. A checker has fewer, because each word is an object of the model.
pub(super) const SHORT_SLOTS: usize = if cfg!(any(polyserve_loom, polyserve_shuttle)) { 3 } else { 7 };

/// Number of entries of a bucket.
const ENTRIES: usize = 1;

/// Number of words of a link: the bytes of its entries, and the entries.
pub(super) const LINK_WORDS: usize = 7;

/// An entry: 32 bits for an address, 10 for a kind or a length, 22 for a tag, which is never 0. 0 is an unused entry.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct SlotEntry(pub(super) u64);

impl SlotEntry {
    pub(super) const UNUSED: Self = Self(0);
    const KIND_SHIFT: u32 = u32::BITS;
    const TAG_SHIFT: u32 = 42;
    /// The kind of an entry with the address of more entries.
    const LINK: u64 = 1022;
    /// The kind of an entry with the number of an entity that is not packed.
    const WHOLE: u64 = 1023;

    /// Returns the tag of a hash in the place that it has in an entry.
    #[inline]
    pub(super) fn tag(hash: u64) -> u64 {
        (hash >> 24 | 1) << Self::TAG_SHIFT
    }

    pub(super) fn record(tag: u64, address: u32, length: usize) -> Self {
        // One more, so that no entry is 0.
        Self(tag | (length as u64 + 1) << Self::KIND_SHIFT | u64::from(address))
    }

    pub(super) fn whole(tag: u64, number: u32) -> Self {
        Self(tag | Self::WHOLE << Self::KIND_SHIFT | u64::from(number))
    }

    /// A link has the tag 0, which no id has.
    pub(super) fn link(address: u32) -> Self {
        Self(Self::LINK << Self::KIND_SHIFT | u64::from(address))
    }

    #[inline]
    pub(super) fn has_tag(self, tag: u64) -> bool {
        (self.0 ^ tag) >> Self::TAG_SHIFT == 0
    }

    #[inline]
    fn kind(self) -> u64 {
        self.0 >> Self::KIND_SHIFT & 1023
    }

    /// Returns the address of a record or a link, or the number of an entity.
    #[inline]
    pub(super) fn address(self) -> u32 {
        self.0 as u32
    }

    /// Returns the length of the record in bytes; `None` if it has none.
    #[inline]
    pub(super) fn length(self) -> Option<usize> {
        let length = (self.kind() as usize).wrapping_sub(1);
        (length <= MAX_COPIED).then_some(length)
    }

    #[inline]
    pub(super) fn is_link(self) -> bool {
        self.kind() == Self::LINK
    }
}

/// Returns the number of words of a record with this number of bytes.
#[inline]
pub(super) fn words_of(length: usize) -> usize {
    length.div_ceil(8).max(1)
}

/// Returns the words of some bytes, with zeros after them.
pub(super) fn words_in(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(8).map(|bytes| {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(whole)
    })
}

/// The byte of a link. That of an entity has its upper bit set, and that of an unused slot is 0.
pub(super) const LINKED: u64 = 1;

/// The number 1 in the byte of each slot: those of a bucket, and those of a link.
const BUCKET_ONES: u64 = 0x0101_0101_0101_0101;
const LINK_ONES: u64 = 0x0101_0101_0101;

/// The length in place of that of a short record, if the first word of the slot is an entry.
const HAS_ENTRY: usize = 0xff;

/// Returns the byte of a hash.
#[inline]
pub(super) fn byte(hash: u64) -> u64 {
    hash >> 16 & 0x7f | 0x80
}

/// Returns the slots that may have this byte, as the highest bit of the byte of each. The lowest of them has it. An unused one is never
/// among them.
#[inline]
fn slots_with(bytes: u64, byte: u64, ones: u64) -> u64 {
    let differing = bytes ^ (byte * ones);
    differing.wrapping_sub(ones) & !differing & (ones << 7)
}

/// Stores the byte of a slot. The caller is in a write section.
fn store_byte(bytes: &AtomicU64, slot: usize, byte: u64) {
    let others = bytes.load(Ordering::Relaxed) & !(0xff << (8 * slot));
    bytes.store(others | byte << (8 * slot), Ordering::Relaxed);
}

/// The numbers of the slots that [`slots_with`] returns.
#[derive(Clone, Copy)]
pub(super) struct SlotNumbers(u64);

impl Iterator for SlotNumbers {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let slot = self.0.trailing_zeros() as usize / 8;
        self.0 &= self.0.wrapping_sub(1);
        (slot < 8).then_some(slot)
    }
}

/// The entries of a bucket, or of a link.
#[derive(Clone, Copy)]
pub(super) struct Entries<'a> {
    bytes: &'a AtomicU64,
    /// The slot of the first entry.
    first: usize,
    entries: &'a [AtomicU64],
}

impl<'a> Entries<'a> {
    /// The entries of a link.
    #[inline]
    pub(super) fn of_link(words: &'a [AtomicU64; LINK_WORDS]) -> Self {
        let [bytes, entries @ ..] = words;
        Self { bytes, first: 0, entries }
    }

    /// Returns the entries that may be of this byte.
    #[inline]
    pub(super) fn with_byte(self, byte: u64) -> impl Iterator<Item = SlotEntry> {
        let numbers = SlotNumbers(slots_with(self.bytes.load(Ordering::Relaxed), byte, LINK_ONES));
        numbers.filter_map(move |number| Some(SlotEntry(self.entries.get(number)?.load(Ordering::Relaxed))))
    }

    /// Returns the last entry, which may be a link.
    #[inline]
    pub(super) fn last(self) -> SlotEntry {
        self.entries.last().map_or(SlotEntry::UNUSED, |entry| SlotEntry(entry.load(Ordering::Relaxed)))
    }

    /// Returns the places of the entries.
    pub(super) fn places(self) -> impl Iterator<Item = EntryPlace<'a>> {
        let place = move |(slot, entry)| EntryPlace { bytes: self.bytes, slot, entry, lengths: None };
        (self.first..).zip(self.entries).map(place)
    }
}

/// The place of an entry.
#[derive(Clone, Copy)]
pub(super) struct EntryPlace<'a> {
    bytes: &'a AtomicU64,
    slot: usize,
    entry: &'a AtomicU64,
    /// The lengths of short records, if the slot is that of one.
    lengths: Option<&'a AtomicU64>,
}

impl EntryPlace<'_> {
    /// Returns the slot, if it is that of a short record.
    pub(super) fn short_slot(self) -> Option<usize> {
        self.lengths.map(|_| self.slot)
    }

    pub(super) fn entry(self) -> SlotEntry {
        SlotEntry(self.entry.load(Ordering::Relaxed))
    }

    /// Returns the byte of the entry.
    pub(super) fn byte(self) -> u64 {
        self.bytes.load(Ordering::Relaxed) >> (8 * self.slot) & 0xff
    }

    /// Stores an entry and its byte. The caller is in a write section.
    pub(super) fn store(self, entry: SlotEntry, byte: u64) {
        store_byte(self.bytes, self.slot, byte);
        if let Some(lengths) = self.lengths {
            store_byte(lengths, self.slot, HAS_ENTRY as u64);
        }
        self.entry.store(entry.0, Ordering::Relaxed);
    }
}

/// Number of words of a bucket: four cache lines.
pub(super) const BUCKET_WORDS: usize = 3 + ENTRIES + SHORT_SLOTS * SHORT_WORDS;

/// A bucket: its words.
#[derive(Clone, Copy)]
pub(super) struct VersionedBucket<'a>(pub(super) &'a [AtomicU64; BUCKET_WORDS]);

impl<'a> VersionedBucket<'a> {
    /// The number of write sections that have begun and ended. It is odd during a section.
    #[inline]
    pub(super) fn version(self) -> &'a AtomicU64 {
        &self.0[0]
    }

    /// The byte of each slot, the first in the lowest.
    #[inline]
    fn bytes(self) -> &'a AtomicU64 {
        &self.0[1]
    }

    /// The length of each short record.
    #[inline]
    fn lengths(self) -> &'a AtomicU64 {
        &self.0[2]
    }

    #[inline]
    fn own_entries(self) -> &'a [AtomicU64] {
        &self.0[3..3 + ENTRIES]
    }

    #[inline]
    fn records(self) -> &'a [[AtomicU64; SHORT_WORDS]] {
        self.0[3 + ENTRIES..].as_chunks().0
    }

    /// Fetches the bucket from memory, and does not wait for it.
    #[inline]
    pub(super) fn fetch(self) {
        for line in self.0.as_chunks::<8>().0 {
            prefetch(line);
        }
    }

    #[inline]
    fn short_lengths(self) -> ShortLengths {
        ShortLengths(self.lengths().load(Ordering::Relaxed))
    }

    /// Returns the lengths, and the slots that may have the byte: those of short records first, then those of entries.
    #[inline]
    pub(super) fn with_byte(self, byte: u64) -> (ShortLengths, SlotNumbers) {
        let slots = SlotNumbers(slots_with(self.bytes().load(Ordering::Relaxed), byte, BUCKET_ONES));
        (self.short_lengths(), slots)
    }

    /// Returns the short record of a slot; `None` if the slot has an entry.
    #[inline]
    pub(super) fn record(self, slot: usize, lengths: ShortLengths) -> Option<&'a [AtomicU64; SHORT_WORDS]> {
        self.records().get(slot).filter(|_| lengths.of(slot) != HAS_ENTRY)
    }

    /// Returns the entry of a slot.
    #[inline]
    pub(super) fn entry(self, slot: usize) -> SlotEntry {
        let entry =
            self.records().get(slot).map_or_else(|| &self.own_entries()[slot - SHORT_SLOTS], |record| &record[0]);
        SlotEntry(entry.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn entries(self) -> Entries<'a> {
        Entries { bytes: self.bytes(), first: SHORT_SLOTS, entries: self.own_entries() }
    }

    /// Whether no write section has begun since the version was loaded. What was loaded before is then of that version.
    #[inline]
    pub(super) fn is_still(self, version: u64) -> bool {
        fence(Ordering::Acquire);
        self.version().load(Ordering::Relaxed) == version
    }

    /// Begins a write section, which ends when the result is dropped. The caller holds the lock.
    pub(super) fn write(self) -> WriteSection<'a> {
        let version = self.version().load(Ordering::Relaxed);
        self.version().store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        WriteSection { bucket: self, next: version + 2 }
    }

    /// Returns the slots that have a short record. The caller holds the lock.
    pub(super) fn short_slots(self) -> impl Iterator<Item = usize> + use<'a> {
        (0..SHORT_SLOTS).filter(move |slot| self.short_byte(*slot) != 0 && self.short_length(*slot) != HAS_ENTRY)
    }

    /// Returns the places of the entries in slots of short records. The caller holds the lock.
    pub(super) fn entries_in_short_slots(self) -> impl Iterator<Item = EntryPlace<'a>> {
        let slots =
            (0..SHORT_SLOTS).filter(move |slot| self.short_byte(*slot) != 0 && self.short_length(*slot) == HAS_ENTRY);
        slots.map(move |slot| self.entry_in_short_slot(slot))
    }

    /// Returns the place of an entry in the slot of a short record.
    pub(super) fn entry_in_short_slot(self, slot: usize) -> EntryPlace<'a> {
        EntryPlace { bytes: self.bytes(), slot, entry: &self.records()[slot][0], lengths: Some(self.lengths()) }
    }

    /// Returns an unused slot for a short record. The caller holds the lock.
    pub(super) fn free_short_slot(self) -> Option<usize> {
        (0..SHORT_SLOTS).find(|slot| self.short_byte(*slot) == 0)
    }

    /// Returns the byte of a short record, or 0. The caller holds the lock.
    pub(super) fn short_byte(self, slot: usize) -> u64 {
        self.bytes().load(Ordering::Relaxed) >> (8 * slot) & 0xff
    }

    fn short_length(self, slot: usize) -> usize {
        self.short_lengths().of(slot)
    }

    /// Returns the words and the length of a short record. The caller holds the lock.
    pub(super) fn short(self, slot: usize) -> ShortRecord {
        let words = std::array::from_fn(|word| self.records()[slot][word].load(Ordering::Relaxed));
        ShortRecord { words, length: self.short_length(slot) }
    }

    /// Stores a short record and its byte. The caller is in a write section.
    pub(super) fn store_short(self, slot: usize, record: &ShortRecord, byte: u64) {
        store_byte(self.bytes(), slot, byte);
        store_byte(self.lengths(), slot, record.length as u64);
        for (word, new) in self.records()[slot].iter().zip(record.words) {
            word.store(new, Ordering::Relaxed);
        }
    }

    /// Makes the slot of a short record unused. The caller is in a write section.
    pub(super) fn clear_short(self, slot: usize) {
        store_byte(self.bytes(), slot, 0);
    }

    /// Makes all slots unused. The caller is in a write section, or no reader reads the bucket yet.
    pub(super) fn clear(self) {
        self.bytes().store(0, Ordering::Relaxed);
        self.own_entries().iter().for_each(|entry| entry.store(0, Ordering::Relaxed));
    }
}

/// The lengths of the short records of a bucket.
#[derive(Clone, Copy)]
pub(super) struct ShortLengths(u64);

impl ShortLengths {
    /// Returns the length of the record of a slot in bytes.
    #[inline]
    pub(super) fn of(self, slot: usize) -> usize {
        (self.0 >> (8 * slot) & 0xff) as usize
    }
}

/// A short record.
#[derive(Clone, Copy)]
pub(super) struct ShortRecord {
    pub(super) words: [u64; SHORT_WORDS],
    pub(super) length: usize,
}

impl ShortRecord {
    /// Returns the record of a packed entity, if it is short.
    pub(super) fn of(packed: &[u8]) -> Option<Self> {
        if packed.len() > 8 * SHORT_WORDS {
            return None;
        }
        let mut words = [0; SHORT_WORDS];
        words.iter_mut().zip(words_in(packed)).for_each(|(word, new)| *word = new);
        Some(Self { words, length: packed.len() })
    }
}

/// A write section of a bucket.
#[must_use]
pub(super) struct WriteSection<'a> {
    pub(super) bucket: VersionedBucket<'a>,
    /// The version after the section.
    pub(super) next: u64,
}

impl Drop for WriteSection<'_> {
    fn drop(&mut self) {
        self.bucket.version().store(self.next, Ordering::Release);
    }
}

/// The number of buckets in use, in the lower half, and the mask of a hash for it.
#[derive(Clone, Copy)]
pub(super) struct BucketCount(pub(super) u64);

impl BucketCount {
    pub(super) fn new(number: usize) -> Self {
        Self((number.next_power_of_two() as u64 - 1) << u32::BITS | number as u64)
    }

    pub(super) fn number(self) -> usize {
        self.0 as u32 as usize
    }

    /// Returns the bucket of a hash. The lowest bits of the hash choose the bucket. If it is not in use yet, its entities are in the bucket
    /// that will be split for it.
    #[inline]
    pub(super) fn bucket_of(self, hash: u64) -> usize {
        let mask = (self.0 >> u32::BITS) as usize;
        let index = hash as usize & mask;
        if index < self.number() { index } else { index & (mask >> 1) }
    }
}
