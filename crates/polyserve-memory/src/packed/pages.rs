//! Records, one behind the other in pages of [`PAGE`] bytes, and descriptions that are too long for that, by themselves.
//!
//! A record is `id: i64, value: f64, length: u16, room: u16`, little end first, then the description's bytes, and unused
//! ones up to `room`, a multiple of four. A dead record's length is [`DEAD`]. So a page can be walked from its start.
//!
//! Invariants: a description's bytes are those of one `str`. Records are added to the open page alone; when the next one
//! does not fit, it is full for ever. A full page with more dead bytes than live ones is in `due` until it is emptied.

use std::error::Error;
use std::fmt;
use std::mem;
use std::str;

use polyserve_core::{Entity, EntityRef};
use slab::Slab;

/// Bytes of a page.
pub(super) const PAGE: usize = 1 << 14;

/// The longest description in a page: a page that is full wastes less than a record, 3 % of it.
pub(super) const LONGEST: usize = 512;

/// A record without its description.
const HEAD: usize = 20;

/// The length of a dead record.
const DEAD: u16 = u16::MAX;

/// A place is a page's number and a quarter of an offset.
const OFFSET_BITS: u32 = PAGE.ilog2() - 2;

/// So many pages can be told apart.
const MOST: usize = 1 << (u32::BITS - OFFSET_BITS);

/// Pages that puts leave, so that what is alive can be moved when they find none. An operation empties two at most: the one
/// in which a record died, and the open one, where it became full. Each needs one new page before its own is free.
const RESERVE: usize = 2;

/// A slab with room for so many pages is left as large as it is.
pub(super) const KEPT: usize = 4;

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u32);

impl Place {
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

/// There is no place for another page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the entity's shard is full: it has {MOST} pages of {PAGE} bytes or longer descriptions")
    }
}

impl Error for Full {}

/// A page.
#[derive(Debug)]
enum Page {
    /// Records, and how many of their bytes are dead.
    Records { bytes: Vec<u8>, dead: usize },
    /// An entity whose description is longer than [`LONGEST`].
    Whole(Entity),
}

/// The pages of a shard.
pub(super) struct Pages {
    pages: Slab<Page>,
    /// The page that records are added to.
    open: Option<usize>,
    /// Full pages that are to be emptied.
    due: Vec<usize>,
    /// An empty page's bytes, for the next one.
    spare: Option<Vec<u8>>,
    /// How many pages there may be.
    most: usize,
    /// How many have gone since the slab was last made smaller.
    gone: usize,
}

impl Default for Pages {
    fn default() -> Self {
        Self::with_most(MOST)
    }
}

impl Pages {
    pub(super) fn with_most(most: usize) -> Self {
        Self { pages: Slab::new(), open: None, due: Vec::new(), spare: None, most, gone: 0 }
    }

    /// The id of the record in `place`.
    #[inline]
    pub(super) fn id(&self, place: Place) -> i64 {
        match &self.pages[place.page()] {
            Page::Records { bytes, .. } => Record::at(bytes, place.offset()).id(),
            Page::Whole(entity) => entity.id,
        }
    }

    /// The entity in `place`.
    #[inline]
    pub(super) fn show(&self, place: Place) -> EntityRef<'_> {
        match &self.pages[place.page()] {
            Page::Records { bytes, .. } => Record::at(bytes, place.offset()).entity(),
            Page::Whole(entity) => entity.as_ref(),
        }
    }

    /// Adds an entity. One with a long description is taken, any other is copied and left.
    pub(super) fn add(&mut self, entity: &mut Entity) -> Result<Place, Full> {
        let most = self.most.saturating_sub(RESERVE);
        if entity.description.len() > LONGEST {
            if self.pages.len() >= most {
                return Err(Full);
            }
            return Ok(Place::new(self.pages.insert(Page::Whole(mem::take(entity))), 0));
        }
        self.append(entity.as_ref(), most)
    }

    /// Adds what was in a page that is being emptied.
    pub(super) fn add_again(&mut self, entity: EntityRef<'_>) -> Place {
        self.append(entity, usize::MAX).expect("there is a reserve of pages")
    }

    fn append(&mut self, entity: EntityRef<'_>, most: usize) -> Result<Place, Full> {
        let room = entity.description.len().next_multiple_of(4);
        let number = self.open_page(HEAD + room, most)?;
        let Page::Records { bytes, .. } = &mut self.pages[number] else { unreachable!("the open page has records") };
        let offset = bytes.len();
        bytes.extend_from_slice(&head(entity, room));
        bytes.extend_from_slice(entity.description.as_bytes());
        bytes.resize(offset + HEAD + room, 0);
        Ok(Place::new(number, offset))
    }

    /// The number of a page with `needed` bytes left. The open one is full where it has not that many.
    fn open_page(&mut self, needed: usize, most: usize) -> Result<usize, Full> {
        if let Some(number) = self.open
            && let Page::Records { bytes, dead } = &self.pages[number]
        {
            if bytes.len() + needed <= PAGE {
                return Ok(number);
            }
            if self.pages.len() >= most {
                return Err(Full);
            }
            if mostly_dead(*dead, bytes.len()) {
                self.due.push(number);
            }
        } else if self.pages.len() >= most {
            return Err(Full);
        }
        let bytes = self.spare.take().unwrap_or_else(|| Vec::with_capacity(PAGE));
        let number = self.pages.insert(Page::Records { bytes, dead: 0 });
        self.open = Some(number);
        Ok(number)
    }

    /// Writes `entity` over the one in `place`, where that has the room for it and not too much. A long description is
    /// exchanged for the old one. Says whether it did.
    pub(super) fn write_over(&mut self, place: Place, entity: &mut Entity) -> bool {
        let length = entity.description.len();
        match &mut self.pages[place.page()] {
            Page::Whole(old) if length > LONGEST => {
                mem::swap(old, entity);
                true
            }
            Page::Records { bytes, .. } => {
                let record = &mut bytes[place.offset()..];
                let room = usize::from(short(record, 18));
                let fits = length <= room && length.next_multiple_of(4) * 2 >= room;
                if fits {
                    record[..HEAD].copy_from_slice(&head(entity.as_ref(), room));
                    record[HEAD..HEAD + length].copy_from_slice(entity.description.as_bytes());
                }
                fits
            }
            Page::Whole(_) => false,
        }
    }

    /// The record in `place` is dead. One with a long description is handed out, to be dropped elsewhere.
    pub(super) fn end(&mut self, place: Place) -> Option<Entity> {
        let number = place.page();
        let Page::Records { bytes, dead } = &mut self.pages[number] else {
            let Page::Whole(entity) = self.remove(number) else { unreachable!("it was none of records") };
            return Some(entity);
        };
        let before = mostly_dead(*dead, bytes.len());
        let record = &mut bytes[place.offset()..];
        *dead += HEAD + usize::from(short(record, 18));
        record[16..18].copy_from_slice(&DEAD.to_le_bytes());
        if self.open == Some(number) {
            if *dead == bytes.len() {
                bytes.clear();
                *dead = 0;
                self.give_back();
            }
        } else if !before && mostly_dead(*dead, bytes.len()) {
            self.due.push(number);
        }
        None
    }

    /// A full page that is less than half alive, with its records. Its number is not given to another page before it is
    /// [recycled](Self::recycle).
    pub(super) fn next_to_empty(&mut self) -> Option<Emptied> {
        let number = self.due.pop()?;
        let Page::Records { bytes, .. } = &mut self.pages[number] else { unreachable!("a page of records was due") };
        Some(Emptied { number, bytes: mem::take(bytes) })
    }

    /// Nothing of the page is needed any more.
    pub(super) fn recycle(&mut self, emptied: Emptied) {
        let mut bytes = emptied.bytes;
        bytes.clear();
        self.spare.get_or_insert(bytes);
        self.remove(emptied.number);
    }

    fn remove(&mut self, number: usize) -> Page {
        let page = self.pages.remove(number);
        self.gone += 1;
        self.give_back();
        page
    }

    /// Gives memory back: everything where no record is left, for a page that stays would keep an allocator from giving
    /// back all that lies below it. Else the slab's, where an eighth of it is in use at most: what is behind the last page,
    /// which cannot have another number. O(its room), and at least a sixteenth as many pages have gone before: O(1) each.
    fn give_back(&mut self) {
        let room = self.pages.capacity();
        let is_empty = |open| matches!(&self.pages[open], Page::Records { bytes, .. } if bytes.is_empty());
        if self.pages.len() == usize::from(self.open.is_some_and(is_empty)) {
            *self = Self::with_most(self.most);
            return;
        }
        if room <= KEPT || self.pages.len() > (room / 8).max(1) {
            return;
        }
        // The open page needs no number where it is empty.
        if let Some(number) = self.open
            && let Page::Records { bytes, .. } = &mut self.pages[number]
            && bytes.is_empty()
        {
            let bytes = mem::take(bytes);
            self.spare.get_or_insert(bytes);
            self.pages.remove(number);
            self.open = None;
        }
        if self.gone >= room / 16 {
            self.gone = 0;
            self.pages.shrink_to_fit();
        }
    }
}

#[cfg(test)]
impl Pages {
    /// Holds the pages to their invariants, between operations, and counts them.
    pub(super) fn check(&self) -> usize {
        assert!(self.due.is_empty());
        for (number, page) in &self.pages {
            let Page::Records { bytes, dead } = page else { continue };
            assert!(bytes.len() <= PAGE && bytes.capacity() == PAGE);
            let alive: usize = Emptied { number, bytes: bytes.clone() }
                .alive()
                .map(|(place, ..)| HEAD + usize::from(short(&bytes[place.offset()..], 18)))
                .sum();
            assert_eq!(alive + dead, bytes.len());
            assert!(
                self.open == Some(number) || !mostly_dead(*dead, bytes.len()),
                "{dead} of {} bytes dead",
                bytes.len()
            );
        }
        self.pages.len()
    }

    /// For how many pages the slab has room.
    pub(super) fn room(&self) -> usize {
        self.pages.capacity()
    }
}

/// A page that is being emptied.
pub(super) struct Emptied {
    number: usize,
    bytes: Vec<u8>,
}

impl Emptied {
    /// The records that are alive: where each is, its id, and all of it.
    pub(super) fn alive(&self) -> impl Iterator<Item = (Place, i64, EntityRef<'_>)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            while at < self.bytes.len() {
                let (offset, record) = (at, Record::at(&self.bytes, at));
                at += HEAD + usize::from(short(record.0, 18));
                if record.length() != DEAD {
                    return Some((Place::new(self.number, offset), record.id(), record.entity()));
                }
            }
            None
        })
    }
}

/// A record and what follows it in its page.
struct Record<'a>(&'a [u8]);

impl<'a> Record<'a> {
    #[inline]
    fn at(bytes: &'a [u8], offset: usize) -> Self {
        Self(&bytes[offset..])
    }

    #[inline]
    fn id(&self) -> i64 {
        i64::from_le_bytes(word(self.0, 0))
    }

    #[inline]
    fn length(&self) -> u16 {
        short(self.0, 16)
    }

    #[inline]
    fn entity(&self) -> EntityRef<'a> {
        let description = &self.0[HEAD..HEAD + usize::from(self.length())];
        let description = str::from_utf8(description).expect("a description was a str");
        EntityRef { id: self.id(), description, value: f64::from_le_bytes(word(self.0, 8)) }
    }
}

fn head(entity: EntityRef<'_>, room: usize) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&entity.id.to_le_bytes());
    head[8..16].copy_from_slice(&entity.value.to_le_bytes());
    head[16..18].copy_from_slice(&(entity.description.len() as u16).to_le_bytes());
    head[18..].copy_from_slice(&(room as u16).to_le_bytes());
    head
}

#[inline]
fn word(bytes: &[u8], at: usize) -> [u8; 8] {
    *bytes[at..].first_chunk().expect("a record is whole")
}

#[inline]
fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(*bytes[at..].first_chunk().expect("a record is whole"))
}

/// More dead bytes than live ones.
fn mostly_dead(dead: usize, bytes: usize) -> bool {
    dead * 2 > bytes
}
