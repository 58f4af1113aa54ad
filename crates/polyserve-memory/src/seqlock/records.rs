//! Records of words, in pages that never move and are never freed before the store is.
//!
//! A record is a number of words, its *class*. All records of a page are of one class. A page without a live record serves any class
//! again, so entities that change their length leave no memory that others cannot use, beyond the pages of each class that are partly
//! used.
//!
//! Invariants:
//!
//! * Words are read without a lock, and stored by the holder of the shard's lock inside a write section (see `shard`).
//! * A page is in the list of its class if and only if it has a free record, and in `empty` if and only if it has no live one.

use polyserve_core::sync::atomic::{AtomicU64, Ordering};

use super::segments::ShardSegments;

/// Number of words of a page: 4 KiB. A checker creates few of them, because each word is an object of the model.
const PAGE_WORDS: usize = if cfg!(any(polyserve_loom, polyserve_shuttle)) { 16 } else { 512 };

/// The maximum number of pages that addresses can distinguish. An address is the number of a word.
const MAX_ADDRESSES: usize = ((1_u64 << u32::BITS) / PAGE_WORDS as u64) as usize;

/// The maximum number of words of a record.
pub(super) const MAX_WORDS: usize = 64;

/// Number of pages that only a split may use: the words that it needs are free again when it ends.
const RESERVED_PAGES: usize = 64;

/// The maximum number of pages.
pub(super) const MAX_PAGES: usize = MAX_ADDRESSES - RESERVED_PAGES;

/// The end of a list of pages.
const NO_PAGE: u32 = u32::MAX;

/// The end of a list of free records in a page.
const NO_OFFSET: u16 = u16::MAX;

/// The words of all pages, for readers.
pub(super) struct Words(pub(super) ShardSegments<PAGE_WORDS>);

impl Words {
    /// Returns `count` words at `address`. `None` if there are none, which a reader sees that has read a stale address.
    #[inline]
    pub(super) fn at(&self, address: u32, count: usize) -> Option<&[AtomicU64]> {
        let page = self.0.get(page_of(address))?;
        let offset = address as usize % PAGE_WORDS;
        page.get(offset..offset + count)
    }

    /// Returns `N` words at `address`, as [`at`](Self::at).
    #[inline]
    pub(super) fn array_at<const N: usize>(&self, address: u32) -> Option<&[AtomicU64; N]> {
        self.at(address, N)?.first_chunk()
    }
}

/// Returns the number of the page of an address.
#[inline]
fn page_of(address: u32) -> usize {
    address as usize / PAGE_WORDS
}

/// What is in use of a page.
struct PageUse {
    /// Number of words of each record.
    class: u16,
    /// Number of live records.
    live: u16,
    /// The offset of the first word that was in no record yet.
    fresh: u16,
    /// The offset of the first free record. Its first word is the offset of the next.
    free: u16,
    /// The neighbours in the list of the class.
    next: u32,
    previous: u32,
}

impl PageUse {
    fn new(class: usize) -> Self {
        Self { class: class as u16, live: 0, fresh: 0, free: NO_OFFSET, next: NO_PAGE, previous: NO_PAGE }
    }

    fn is_full(&self) -> bool {
        self.free == NO_OFFSET && usize::from(self.fresh + self.class) > PAGE_WORDS
    }
}

/// What is in use of all pages.
pub(super) struct PagesInUse {
    pages: Vec<PageUse>,
    /// The first page with a free record, for each class.
    open: [u32; MAX_WORDS + 1],
    /// The pages without a live record.
    empty: Vec<u32>,
}

impl Default for PagesInUse {
    fn default() -> Self {
        Self { pages: Vec::new(), open: [NO_PAGE; MAX_WORDS + 1], empty: Vec::new() }
    }
}

impl PagesInUse {
    /// Returns the address of a free record of `class` words, which is in use from now on. `None` if there are too many pages.
    pub(super) fn take(&mut self, words: &Words, class: usize) -> Option<u32> {
        self.take_below(words, class, MAX_PAGES)
    }

    /// Returns the address of a record that a split needs until it ends.
    pub(super) fn take_reserved(&mut self, words: &Words, class: usize) -> u32 {
        self.take_below(words, class, MAX_ADDRESSES).expect("there is a reserve of pages")
    }

    fn take_below(&mut self, words: &Words, class: usize, max_pages: usize) -> Option<u32> {
        if self.open[class] == NO_PAGE {
            self.open_page(words, class, max_pages)?;
        }
        let number = self.open[class];
        let page = &mut self.pages[number as usize];
        let offset = if page.free == NO_OFFSET { page.fresh } else { page.free };
        let address = number * PAGE_WORDS as u32 + u32::from(offset);
        if page.free == NO_OFFSET {
            page.fresh += page.class;
        } else {
            page.free = words.at(address, 1).expect("the page exists")[0].load(Ordering::Relaxed) as u16;
        }
        page.live += 1;
        if page.is_full() {
            self.unlink(number);
        }
        Some(address)
    }

    /// Frees a record. The caller is in a write section of the bucket that had it, because this stores a word.
    pub(super) fn free(&mut self, words: &Words, address: u32) {
        let number = page_of(address) as u32;
        let page = &mut self.pages[number as usize];
        let was_full = page.is_full();
        words.at(address, 1).expect("the page exists")[0].store(u64::from(page.free), Ordering::Relaxed);
        page.free = (address as usize % PAGE_WORDS) as u16;
        page.live -= 1;
        match (page.live, was_full) {
            (0, _) => {
                if !was_full {
                    self.unlink(number);
                }
                self.empty.push(number);
            }
            (_, true) => self.link(number),
            _ => {}
        }
    }

    /// Makes an empty page, or a new one, the first of its class.
    fn open_page(&mut self, words: &Words, class: usize, max_pages: usize) -> Option<()> {
        let number = match self.empty.pop() {
            Some(number) => number,
            None if self.pages.len() >= max_pages => return None,
            None => {
                words.0.get_or_create(self.pages.len())?;
                self.pages.push(PageUse::new(class));
                (self.pages.len() - 1) as u32
            }
        };
        self.pages[number as usize] = PageUse::new(class);
        self.link(number);
        Some(())
    }

    fn link(&mut self, number: u32) {
        let class = usize::from(self.pages[number as usize].class);
        let next = std::mem::replace(&mut self.open[class], number);
        if next != NO_PAGE {
            self.pages[next as usize].previous = number;
        }
        let page = &mut self.pages[number as usize];
        (page.next, page.previous) = (next, NO_PAGE);
    }

    fn unlink(&mut self, number: u32) {
        let PageUse { class, next, previous, .. } = self.pages[number as usize];
        if next != NO_PAGE {
            self.pages[next as usize].previous = previous;
        }
        match previous {
            NO_PAGE => self.open[usize::from(class)] = next,
            previous => self.pages[previous as usize].next = next,
        }
    }

    /// Returns the number of pages, and of those without a live record.
    #[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
    pub(super) fn counts(&self) -> [usize; 2] {
        [self.pages.len(), self.empty.len()]
    }
}
