//! Records in pages of [`PAGE`] bytes, and entities that are too long for a page.
//!
//! A record is `length: u16, capacity: u16` in little-endian order, then the packed entity (see `pack`), then unused bytes
//! up to `capacity`, a multiple of four. The length of a dead record is [`DEAD`]. So a page can be read from its start,
//! record by record.
//!
//! Invariants: the bytes of a live record are those of one entity. Records are added to the open page only; when the
//! next record does not fit, the page is full for ever. A full page with more dead bytes than live ones is in `due`
//! until it is emptied.

use std::error::Error;
use std::fmt;
use std::mem;

use polyserve_core::{Identifiable, Shown};
use slab::Slab;

use crate::pack::{ToStore, has_packed_id, packed_id, show_packed};

/// The size of a page in bytes.
pub(super) const PAGE: usize = 1 << 14;

/// The maximum length of a packed entity in a page. The unused end of a full page is shorter than a record of this length,
/// so it is at most about 3 % of the page.
pub(super) const MAX_COPIED: usize = 528;

/// The length of a record without its entity.
const HEADER: usize = 4;

/// The length of a dead record.
const DEAD: u16 = u16::MAX;

/// Number of bits for the offset in an address. An address is a page's number and a quarter of an offset.
const OFFSET_BITS: u32 = PAGE.ilog2() - 2;

/// The maximum number of pages that addresses can distinguish.
const MAX_PAGES: usize = 1 << (u32::BITS - OFFSET_BITS);

/// Number of pages that puts do not use. They are for moving live records if no other page is left. An operation empties
/// at most two pages: the page of the dead record, and the open page if it became full. The records of each move to a new
/// page before the page is free.
const RESERVED_PAGES: usize = 2;

/// A slab with this capacity or less is not shrunk.
pub(super) const KEPT_CAPACITY: usize = 4;

/// The address of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address(u32);

impl Address {
    fn new(page: usize, offset: usize) -> Self {
        Self((page as u32) << OFFSET_BITS | (offset / 4) as u32)
    }

    #[inline]
    fn page(self) -> usize {
        (self.0 >> OFFSET_BITS) as usize
    }

    #[inline]
    fn offset(self) -> usize {
        (self.0 & ((1 << OFFSET_BITS) - 1)) as usize * 4
    }
}

/// The error if a shard has no address for another page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the entity's shard is full: it has {MAX_PAGES} pages of {PAGE} bytes or longer entities")
    }
}

impl Error for Full {}

/// A page of records, or one long entity.
#[derive(Debug)]
enum RecordPage<E> {
    /// Records, and the number of their bytes that are dead.
    Records { bytes: Vec<u8>, dead: usize },
    /// An entity that is not packed.
    Whole(E),
}

/// The pages of a shard.
pub(super) struct Pages<E> {
    pages: Slab<RecordPage<E>>,
    /// The number of the page that records are added to.
    open: Option<usize>,
    /// The numbers of the full pages that are to be emptied.
    due: Vec<usize>,
    /// The buffer of an emptied page, for the next page.
    spare: Option<Vec<u8>>,
    /// The maximum number of pages.
    max_pages: usize,
    /// Number of pages removed since the slab was last shrunk.
    removed_pages: usize,
}

impl<E: Identifiable> Default for Pages<E> {
    fn default() -> Self {
        Self::with_max_pages(MAX_PAGES)
    }
}

impl<E: Identifiable> Pages<E> {
    pub(super) fn with_max_pages(max_pages: usize) -> Self {
        Self { pages: Slab::new(), open: None, due: Vec::new(), spare: None, max_pages, removed_pages: 0 }
    }

    /// Whether the record at `address` has this id.
    #[inline]
    pub(super) fn has_id(&self, address: Address, id: &E::Id) -> bool {
        match &self.pages[address.page()] {
            RecordPage::Records { bytes, .. } => has_packed_id::<E>(Record::at(bytes, address.offset()).packed(), id),
            RecordPage::Whole(entity) => entity.id() == id,
        }
    }

    /// Calls `with` with the id of the record at `address`.
    pub(super) fn with_id<T>(&self, address: Address, with: impl FnOnce(&E::Id) -> T) -> T {
        match &self.pages[address.page()] {
            RecordPage::Records { bytes, .. } => with(&packed_id::<E>(Record::at(bytes, address.offset()).packed())),
            RecordPage::Whole(entity) => with(entity.id()),
        }
    }

    /// Calls `show` with the entity at `address`.
    #[inline]
    pub(super) fn show<T>(&self, address: Address, show: impl FnOnce(Shown<'_, E>) -> T) -> T {
        match &self.pages[address.page()] {
            RecordPage::Records { bytes, .. } => show_packed(Record::at(bytes, address.offset()).packed(), show),
            RecordPage::Whole(entity) => show(Shown::from(entity)),
        }
    }

    /// Adds an entity. If it is packed, it is copied; otherwise it is moved in.
    pub(super) fn add(&mut self, new: &mut ToStore<'_, E>) -> Result<Address, Full> {
        let max_pages = self.max_pages.saturating_sub(RESERVED_PAGES);
        if let Some(packed) = new.packed {
            return self.append(packed, max_pages);
        }
        if self.pages.len() >= max_pages {
            return Err(Full);
        }
        let entity = new.entity.take().expect("the entity is there");
        Ok(Address::new(self.pages.insert(RecordPage::Whole(entity)), 0))
    }

    /// Adds a record of a page that is being emptied.
    pub(super) fn add_again(&mut self, packed: &[u8]) -> Address {
        self.append(packed, usize::MAX).expect("there is a reserve of pages")
    }

    fn append(&mut self, packed: &[u8], max_pages: usize) -> Result<Address, Full> {
        let capacity = packed.len().next_multiple_of(4);
        let number = self.open_page(HEADER + capacity, max_pages)?;
        let RecordPage::Records { bytes, .. } = &mut self.pages[number] else {
            unreachable!("the open page has records")
        };
        let offset = bytes.len();
        bytes.extend_from_slice(&head(packed.len(), capacity));
        bytes.extend_from_slice(packed);
        bytes.resize(offset + HEADER + capacity, 0);
        Ok(Address::new(number, offset))
    }

    /// Returns the number of a page with `needed` free bytes. If the open page has fewer, it is full, and a new page is
    /// opened.
    fn open_page(&mut self, needed: usize, max_pages: usize) -> Result<usize, Full> {
        if let Some(number) = self.open
            && let RecordPage::Records { bytes, dead } = &self.pages[number]
        {
            if bytes.len() + needed <= PAGE {
                return Ok(number);
            }
            if self.pages.len() >= max_pages {
                return Err(Full);
            }
            if mostly_dead(*dead, bytes.len()) {
                self.due.push(number);
            }
        } else if self.pages.len() >= max_pages {
            return Err(Full);
        }
        let bytes = self.spare.take().unwrap_or_else(|| Vec::with_capacity(PAGE));
        let number = self.pages.insert(RecordPage::Records { bytes, dead: 0 });
        self.open = Some(number);
        Ok(number)
    }

    /// Overwrites the record at `address`, if the record's capacity is large enough and not more than twice as large. If
    /// neither the old nor the new entity is packed, swaps them. Returns whether the new entity is stored.
    pub(super) fn write_over(&mut self, address: Address, new: &mut ToStore<'_, E>) -> bool {
        match (&mut self.pages[address.page()], new.packed) {
            (RecordPage::Whole(old), None) => {
                let entity = new.entity.as_mut().expect("the entity is there");
                mem::swap(old, entity);
                true
            }
            (RecordPage::Records { bytes, .. }, Some(packed)) => {
                let record = &mut bytes[address.offset()..];
                let (length, capacity) = (packed.len(), usize::from(short(record, 2)));
                let fits = length <= capacity && length.next_multiple_of(4) * 2 >= capacity;
                if fits {
                    record[..HEADER].copy_from_slice(&head(length, capacity));
                    record[HEADER..HEADER + length].copy_from_slice(packed);
                }
                fits
            }
            _ => false,
        }
    }

    /// Marks the record at `address` as dead. An entity that is not packed is returned, so that the caller drops it.
    pub(super) fn end(&mut self, address: Address) -> Option<E> {
        let number = address.page();
        let RecordPage::Records { bytes, dead } = &mut self.pages[number] else {
            let RecordPage::Whole(entity) = self.remove(number) else { unreachable!("the page is not one of records") };
            return Some(entity);
        };
        let before = mostly_dead(*dead, bytes.len());
        let record = &mut bytes[address.offset()..];
        *dead += HEADER + usize::from(short(record, 2));
        record[..2].copy_from_slice(&DEAD.to_le_bytes());
        if self.open == Some(number) {
            if *dead == bytes.len() {
                bytes.clear();
                *dead = 0;
                self.free_unused();
            }
        } else if !before && mostly_dead(*dead, bytes.len()) {
            self.due.push(number);
        }
        None
    }

    /// Takes the records of a full page that is less than half live. The page's number is not reused before the page is
    /// [recycled](Self::recycle).
    pub(super) fn next_to_empty(&mut self) -> Option<Emptied> {
        let number = self.due.pop()?;
        let RecordPage::Records { bytes, .. } = &mut self.pages[number] else {
            unreachable!("a page of records was due")
        };
        Some(Emptied { number, bytes: mem::take(bytes) })
    }

    /// Frees an emptied page.
    pub(super) fn recycle(&mut self, emptied: Emptied) {
        let mut bytes = emptied.bytes;
        bytes.clear();
        self.spare.get_or_insert(bytes);
        self.remove(emptied.number);
    }

    fn remove(&mut self, number: usize) -> RecordPage<E> {
        let page = self.pages.remove(number);
        self.removed_pages += 1;
        self.free_unused();
        page
    }

    /// Frees memory. If no record is left, it frees everything, because a page that stays would keep an allocator from
    /// returning the memory below it. Otherwise, if at most an eighth of the slab is in use, it frees the slab behind
    /// the last page. The number of a page cannot change. That costs O(capacity). At least capacity / 16 pages were
    /// removed before, so the cost of each removal is O(1).
    fn free_unused(&mut self) {
        let capacity = self.pages.capacity();
        let is_empty = |open| matches!(&self.pages[open], RecordPage::Records { bytes, .. } if bytes.is_empty());
        if self.pages.len() == usize::from(self.open.is_some_and(is_empty)) {
            *self = Self::with_max_pages(self.max_pages);
            return;
        }
        if capacity <= KEPT_CAPACITY || self.pages.len() > (capacity / 8).max(1) {
            return;
        }
        // An empty open page needs no number.
        if let Some(number) = self.open
            && let RecordPage::Records { bytes, .. } = &mut self.pages[number]
            && bytes.is_empty()
        {
            let bytes = mem::take(bytes);
            self.spare.get_or_insert(bytes);
            self.pages.remove(number);
            self.open = None;
        }
        if self.removed_pages >= capacity / 16 {
            self.removed_pages = 0;
            self.pages.shrink_to_fit();
        }
    }
}

#[cfg(test)]
impl<E: Identifiable> Pages<E> {
    /// Checks the invariants between operations, and returns the number of pages.
    pub(super) fn check(&self) -> usize {
        assert!(self.due.is_empty());
        for (number, page) in &self.pages {
            let RecordPage::Records { bytes, dead } = page else { continue };
            assert!(bytes.len() <= PAGE && bytes.capacity() == PAGE);
            let live: usize = Emptied { number, bytes: bytes.clone() }
                .live()
                .map(|(address, _)| HEADER + usize::from(short(&bytes[address.offset()..], 2)))
                .sum();
            assert_eq!(live + dead, bytes.len());
            assert!(
                self.open == Some(number) || !mostly_dead(*dead, bytes.len()),
                "{dead} of {} bytes dead",
                bytes.len()
            );
        }
        self.pages.len()
    }

    /// Returns the number of pages that the slab has capacity for.
    pub(super) fn capacity(&self) -> usize {
        self.pages.capacity()
    }
}

/// A page that is being emptied.
pub(super) struct Emptied {
    number: usize,
    bytes: Vec<u8>,
}

impl Emptied {
    /// Returns the live records: the address and the packed entity of each.
    pub(super) fn live(&self) -> impl Iterator<Item = (Address, &[u8])> {
        let mut next = 0;
        std::iter::from_fn(move || {
            while next < self.bytes.len() {
                let (offset, record) = (next, Record::at(&self.bytes, next));
                next += HEADER + usize::from(short(record.0, 2));
                if record.length() != DEAD {
                    return Some((Address::new(self.number, offset), record.packed()));
                }
            }
            None
        })
    }
}

/// A record, and the bytes after it in its page.
struct Record<'a>(&'a [u8]);

impl<'a> Record<'a> {
    #[inline]
    fn at(bytes: &'a [u8], offset: usize) -> Self {
        Self(&bytes[offset..])
    }

    #[inline]
    fn length(&self) -> u16 {
        short(self.0, 0)
    }

    /// Returns the packed entity.
    #[inline]
    fn packed(&self) -> &'a [u8] {
        &self.0[HEADER..HEADER + usize::from(self.length())]
    }
}

fn head(length: usize, capacity: usize) -> [u8; HEADER] {
    let ([a, b], [c, d]) = ((length as u16).to_le_bytes(), (capacity as u16).to_le_bytes());
    [a, b, c, d]
}

#[inline]
fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(*bytes[at..].first_chunk().expect("a record is complete"))
}

/// Whether there are more dead bytes than live ones.
fn mostly_dead(dead: usize, bytes: usize) -> bool {
    dead * 2 > bytes
}
