//! The writes of a shard: puts, removes, and the growth of the table. All are made by the holder of the shard's lock. The places of an
//! entity are listed in `bucket`.

use std::error::Error;
use std::fmt;

use polyserve_core::sync::atomic::Ordering;
use polyserve_core::sync::write;
use polyserve_core::{Condition, Conditional, Identifiable, Put, Removed};

use super::super::bucket::{
    BucketCount, EntryPlace, LINK_WORDS, LINKED, SHORT_WORDS, ShortRecord, SlotEntry, VersionedBucket, byte, words_in,
    words_of,
};
use super::super::records::MAX_PAGES;
use super::{LockedShard, Place, Stored, VersionedShard};
use crate::pack::{ToStore, packed_id};

/// Another bucket comes into use if there are more entities than this for each bucket. Of those with a longer record, a bucket has as many
/// as entries. More would take less memory for the table, and more records would lie apart, or behind a link.
const SHORT_PER_BUCKET: usize = if cfg!(any(polyserve_loom, polyserve_shuttle)) { 3 } else { 5 };
const LONG_PER_BUCKET: usize = if cfg!(any(polyserve_loom, polyserve_shuttle)) { 5 } else { 8 };

/// The error if a shard has no address for another record.
#[derive(Debug)]
pub(crate) struct PagesFull;

impl fmt::Display for PagesFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the entity's shard is full: it has {MAX_PAGES} pages of records")
    }
}

impl Error for PagesFull {}

/// An entity that a split moves, or leaves.
enum SplitEntity {
    Short(ShortRecord),
    Entry(SlotEntry),
}

impl<E: Identifiable> VersionedShard<E> {
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
        if !self.allows(locked, found, condition) {
            return Ok(Conditional::Refused);
        }
        let short = new.packed.and_then(ShortRecord::of);
        let is_long = usize::from(short.is_none());
        let section = self.bucket(hash).write();
        let Some(place) = found else {
            self.add(locked, section.bucket, hash, short, &mut new)?;
            drop(section);
            locked.len += 1;
            locked.long += is_long;
            self.grow(locked, hash_of);
            return Ok(Conditional::Done((Put::Created, None)));
        };
        let was_long = usize::from(is_long_at(place));
        let replaced = match (place, short) {
            (Place::Short(bucket, slot), Some(record)) => {
                bucket.store_short(slot, &record, byte(hash));
                None
            }
            (Place::Short(bucket, slot), None) => {
                let entry = self.store_apart(locked, SlotEntry::tag(hash), &mut new)?;
                bucket.entry_in_short_slot(slot).store(entry, byte(hash));
                None
            }
            (Place::Entry(place), Some(record)) => {
                self.replace_by_short(locked, section.bucket, place, hash, &record, &mut new)?
            }
            (Place::Entry(place), None) => self.replace_entry(locked, place, hash, &mut new)?,
        };
        locked.long = locked.long + is_long - was_long;
        Ok(Conditional::Done((Put::Replaced, replaced)))
    }

    /// Removes `id`. Returns the entity to drop, if it was not packed.
    pub(crate) fn remove(&self, hash: u64, id: &E::Id, condition: &Condition) -> Conditional<(Removed, Option<E>)> {
        let locked = &mut *write(&self.locked);
        let Some(place) = self.find(locked, hash, id) else {
            return Conditional::Done((Removed::Absent, None));
        };
        if !self.allows(locked, Some(place), condition) {
            return Conditional::Refused;
        }
        let _section = self.bucket(hash).write();
        locked.len -= 1;
        locked.long -= usize::from(is_long_at(place));
        let removed = match place {
            Place::Short(bucket, slot) => {
                bucket.clear_short(slot);
                None
            }
            Place::Entry(place) => self.remove_entry(locked, place),
        };
        Conditional::Done((Removed::Removed, removed))
    }

    /// Stores an entity with a new id. The caller is in a write section of the bucket.
    fn add(
        &self,
        locked: &mut LockedShard<E>,
        bucket: VersionedBucket<'_>,
        hash: u64,
        short: Option<ShortRecord>,
        new: &mut ToStore<'_, E>,
    ) -> Result<(), PagesFull> {
        if let Some((record, slot)) = short.zip(bucket.free_short_slot()) {
            bucket.store_short(slot, &record, byte(hash));
            return Ok(());
        }
        let entry = self.store_apart(locked, SlotEntry::tag(hash), new)?;
        let more = |locked: &mut LockedShard<E>| locked.in_use.take(&self.words, LINK_WORDS).ok_or(PagesFull);
        let added = self.add_entry(locked, bucket, (entry, byte(hash)), more);
        if added.is_err() {
            self.discard(locked, entry);
        }
        added
    }

    /// Replaces the entity of an entry, and returns the entity to drop. The caller is in a write section of the bucket.
    fn replace_entry(
        &self,
        locked: &mut LockedShard<E>,
        place: EntryPlace<'_>,
        hash: u64,
        new: &mut ToStore<'_, E>,
    ) -> Result<Option<E>, PagesFull> {
        let (old, tag) = (place.entry(), SlotEntry::tag(hash));
        if let (Some(packed), Some(length)) = (new.packed, old.length())
            && words_of(packed.len()) == words_of(length)
        {
            self.store_record(old.address(), packed);
            place.store(SlotEntry::record(tag, old.address(), packed.len()), byte(hash));
            return Ok(None);
        }
        place.store(self.store_apart(locked, tag, new)?, byte(hash));
        Ok(self.discard(locked, old))
    }

    /// Replaces the entity of an entry by a short record, in a slot if there is one. Returns the entity to drop. The caller is in a write
    /// section of the bucket.
    fn replace_by_short(
        &self,
        locked: &mut LockedShard<E>,
        bucket: VersionedBucket<'_>,
        place: EntryPlace<'_>,
        hash: u64,
        record: &ShortRecord,
        new: &mut ToStore<'_, E>,
    ) -> Result<Option<E>, PagesFull> {
        let Some(slot) = place.short_slot().or_else(|| bucket.free_short_slot()) else {
            return self.replace_entry(locked, place, hash, new);
        };
        let replaced = self.remove_entry(locked, place);
        bucket.store_short(slot, record, byte(hash));
        Ok(replaced)
    }

    /// Stores the bytes of a record. The caller is in a write section.
    fn store_record(&self, address: u32, packed: &[u8]) {
        let words = self.words.at(address, words_of(packed.len())).expect("the record exists");
        for (word, new) in words.iter().zip(words_in(packed)) {
            word.store(new, Ordering::Relaxed);
        }
    }

    /// Stores an entity that is in no bucket yet, and returns its entry. The caller is in a write section.
    fn store_apart(
        &self,
        locked: &mut LockedShard<E>,
        tag: u64,
        new: &mut ToStore<'_, E>,
    ) -> Result<SlotEntry, PagesFull> {
        if let Some(packed) = new.packed {
            let address = locked.in_use.take(&self.words, words_of(packed.len())).ok_or(PagesFull)?;
            self.store_record(address, packed);
            return Ok(SlotEntry::record(tag, address, packed.len()));
        }
        let number = u32::try_from(locked.whole.vacant_key()).map_err(|_| PagesFull)?;
        locked.whole.insert(new.entity.take().expect("the entity is there"));
        Ok(SlotEntry::whole(tag, number))
    }

    /// Removes an entry, and returns the entity to drop. The caller is in a write section of the bucket.
    fn remove_entry(&self, locked: &mut LockedShard<E>, place: EntryPlace<'_>) -> Option<E> {
        let entry = place.entry();
        place.store(SlotEntry::UNUSED, 0);
        self.discard(locked, entry)
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
    fn add_entry(
        &self,
        locked: &mut LockedShard<E>,
        bucket: VersionedBucket<'_>,
        (entry, byte): (SlotEntry, u64),
        more: impl FnOnce(&mut LockedShard<E>) -> Result<u32, PagesFull>,
    ) -> Result<(), PagesFull> {
        let is_free = |place: &EntryPlace<'_>| place.entry() == SlotEntry::UNUSED;
        let for_short = || bucket.free_short_slot().map(|slot| bucket.entry_in_short_slot(slot));
        let own = bucket.entries().places().find(is_free).or_else(for_short);
        if let Some(place) = own.or_else(|| self.entry_places(bucket).find(is_free)) {
            place.store(entry, byte);
            return Ok(());
        }
        let last = self.entry_places(bucket).last().expect("a bucket has entries, and so has a link");
        let link = SlotEntry::link(more(locked)?);
        let linked = self.linked(link);
        let of_last = (last.entry(), last.byte());
        let first = [of_last, (entry, byte)].into_iter().chain(std::iter::repeat((SlotEntry::UNUSED, 0)));
        linked.places().zip(first).for_each(|(place, (entry, byte))| place.store(entry, byte));
        last.store(link, LINKED);
        Ok(())
    }

    /// Takes one more bucket into use if there are too few.
    fn grow(&self, locked: &mut LockedShard<E>, hash_of: impl Fn(&E::Id) -> u64) {
        let count = self.count(Ordering::Relaxed);
        let (number, next) = (count.number(), BucketCount::new(count.number() + 1));
        let short = locked.len - locked.long;
        if short * LONG_PER_BUCKET + locked.long * SHORT_PER_BUCKET <= number * SHORT_PER_BUCKET * LONG_PER_BUCKET {
            return;
        }
        // A table of the maximum size has longer chains of links.
        let Some(new) = self.table.get_or_create(number).map(VersionedBucket) else { return };
        let old = self.bucket(number as u64);
        let moves = |place: &Place<'_>| {
            let hash = self.with(locked, *place, |stored| match stored {
                Stored::Packed(packed) => hash_of(&packed_id::<E>(packed)),
                Stored::Whole(entity) => hash_of(entity.id()),
            });
            next.bucket_of(hash) == number
        };
        let (moved, stay): (Vec<_>, Vec<_>) = self.places(old).partition(moves);
        let [moved, stay] = [moved, stay].map(|places| places.into_iter().map(split_entity).collect::<Vec<_>>());
        let section = old.write();
        self.fill(locked, new, &moved);
        new.version().store(section.next, Ordering::Relaxed);
        self.buckets.store(next.0, Ordering::Release);
        self.fill(locked, old, &stay);
    }

    /// Replaces what is in a bucket. The caller is in a write section of the bucket, or no reader reads it yet. Short records come first.
    fn fill(&self, locked: &mut LockedShard<E>, bucket: VersionedBucket<'_>, entities: &[(SplitEntity, u64)]) {
        let mut last = bucket.entries().last();
        while last.is_link() {
            let link = last;
            last = self.linked(link).last();
            locked.in_use.free(&self.words, link.address());
        }
        bucket.clear();
        for (entity, byte) in entities {
            match entity {
                SplitEntity::Short(record) => {
                    let slot = bucket.free_short_slot().expect("they were in one bucket");
                    bucket.store_short(slot, record, *byte);
                }
                SplitEntity::Entry(entry) => self.move_entry(locked, bucket, *entry, *byte),
            }
        }
    }

    /// Adds an entry to a bucket that is filled. If its record is short and there is a slot, the record goes into the bucket.
    fn move_entry(&self, locked: &mut LockedShard<E>, bucket: VersionedBucket<'_>, entry: SlotEntry, byte: u64) {
        let length = entry.length().filter(|length| *length <= 8 * SHORT_WORDS);
        let Some((length, slot)) = length.zip(bucket.free_short_slot()) else {
            let more = |locked: &mut LockedShard<E>| Ok(locked.in_use.take_reserved(&self.words, LINK_WORDS));
            return self.add_entry(locked, bucket, (entry, byte), more).expect("there is a reserve of pages");
        };
        let mut record = ShortRecord { words: [0; SHORT_WORDS], length };
        let words = self.words.at(entry.address(), words_of(length)).expect("the record exists");
        record.words.iter_mut().zip(words).for_each(|(new, word)| *new = word.load(Ordering::Relaxed));
        bucket.store_short(slot, &record, byte);
        locked.in_use.free(&self.words, entry.address());
    }
}

/// Returns what a place has, and its byte.
fn split_entity(place: Place<'_>) -> (SplitEntity, u64) {
    match place {
        Place::Short(bucket, slot) => (SplitEntity::Short(bucket.short(slot)), bucket.short_byte(slot)),
        Place::Entry(place) => (SplitEntity::Entry(place.entry()), place.byte()),
    }
}

/// Whether the entity at a place has no short record.
fn is_long_at(place: Place<'_>) -> bool {
    match place {
        Place::Short(..) => false,
        Place::Entry(place) => place.entry().length().is_none_or(|length| length > 8 * SHORT_WORDS),
    }
}
