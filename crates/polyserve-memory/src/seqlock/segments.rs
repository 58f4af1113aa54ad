//! `Segments`: the elements of all shards, of `N` words each. They never move, and are freed with the store, so a reader needs no lock and
//! no count of references.
//!
//! The shards have their elements in turn: the first of each shard, then the second of each, and so on. They are about as large as each
//! other, because the hash of an id chooses its shard. So the elements lie in a few large segments: a reader finds a segment in one or two
//! cache lines, and huge pages of 2 MiB can hold them.
//!
//! The first segment has 2 MiB, and each other one is twice as large as the one before. Memory that was never written takes none: the
//! system gives it page by page. From the second segment on these are huge pages, if the system allows that.

use std::sync::{Arc, OnceLock};

use polyserve_core::sync::atomic::AtomicU64;

/// Number of segments. All together have 32 TiB.
const SEGMENTS: usize = 24;

/// The elements of all shards.
struct Segments {
    /// std's `OnceLock`, under a model checker too, because no checker has one.
    segments: [OnceLock<WordSegment>; SEGMENTS],
}

/// Words. The first of them are not used, so that the others are aligned to huge pages.
struct WordSegment {
    words: Box<[AtomicU64]>,
    first: usize,
}

#[cfg(not(any(polyserve_loom, polyserve_shuttle)))]
impl WordSegment {
    const FIRST_WORDS: usize = (2 << 20) / size_of::<u64>();

    fn new(count: usize) -> Self {
        use polyserve_sys::{HUGE_PAGE, advise_huge_pages, zeroed_words};

        // A small store has the first segment alone. It would take 2 MiB at once, if the system gives huge pages unasked.
        let alignment = if count > Self::FIRST_WORDS { HUGE_PAGE } else { 4096 };
        let max_unused = alignment / size_of::<u64>();
        let words = zeroed_words(max_unused + count);
        let first = words.as_ptr().align_offset(alignment).min(max_unused);
        if count > Self::FIRST_WORDS {
            advise_huge_pages(&words[first..]);
        }
        Self { words, first }
    }
}

/// A checker creates few words, because each is an object of the model.
#[cfg(any(polyserve_loom, polyserve_shuttle))]
impl WordSegment {
    const FIRST_WORDS: usize = 1;

    fn new(count: usize) -> Self {
        Self { words: (0..count).map(|_| AtomicU64::new(0)).collect(), first: 0 }
    }
}

/// The elements of one shard.
pub(super) struct ShardSegments<const N: usize> {
    all: Arc<Segments>,
    /// The number of the shard, and the bits of the numbers of all shards.
    shard: usize,
    bits: u32,
}

impl<const N: usize> ShardSegments<N> {
    /// Number of elements of the first segment.
    const FIRST: usize = if WordSegment::FIRST_WORDS < N { 1 } else { WordSegment::FIRST_WORDS / N };

    /// Returns the elements of each shard. `shards`: a power of two.
    pub(super) fn of_shards(shards: usize) -> impl Iterator<Item = Self> {
        let all = Arc::new(Segments { segments: [const { OnceLock::new() }; SEGMENTS] });
        (0..shards).map(move |shard| Self { all: Arc::clone(&all), shard, bits: shards.ilog2() })
    }

    /// Returns the segment of an element of the shard, and its place there.
    #[inline]
    fn place_of(&self, index: usize) -> (usize, usize) {
        let number = ((index << self.bits) | self.shard) + Self::FIRST;
        let size = number.ilog2();
        ((size - Self::FIRST.ilog2()) as usize, number ^ (1 << size))
    }

    /// Returns the words of an element, if its segment was created. They are 0 at first.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&[AtomicU64; N]> {
        let (segment, place) = self.place_of(index);
        let segment = self.all.segments.get(segment)?.get()?;
        segment.words.get(segment.first + place * N..)?.first_chunk()
    }

    /// Returns the element, and creates its segment if needed. `None` if it is beyond the last segment.
    pub(super) fn get_or_create(&self, index: usize) -> Option<&[AtomicU64; N]> {
        let (segment, _) = self.place_of(index);
        self.all.segments.get(segment)?.get_or_init(|| WordSegment::new(N * (Self::FIRST << segment)));
        self.get(index)
    }
}

#[cfg(all(test, not(any(polyserve_loom, polyserve_shuttle))))]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn each_element_of_each_shard_has_its_place() {
        let shards: Vec<_> = ShardSegments::<512>::of_shards(4).collect();
        let places: HashSet<_> =
            (0..1000).flat_map(|index| shards.iter().map(move |shard| shard.place_of(index))).collect();
        assert_eq!(places.len(), 4000);
        let first = ShardSegments::<512>::FIRST;
        for segment in 0..3 {
            let count = places.iter().filter(|place| place.0 == segment).count();
            assert_eq!(count, (first << segment).min(4000 - (first << segment) + first), "{segment}");
            assert!(places.iter().all(|place| place.0 != segment || place.1 < first << segment));
        }
    }

    #[test]
    fn an_element_exists_once_its_segment_does() {
        let shards: Vec<_> = ShardSegments::<512>::of_shards(2).collect();
        let beyond_first = ShardSegments::<512>::FIRST;
        assert!(shards[0].get(0).is_none());
        assert!(shards[0].get_or_create(0).is_some());
        assert!([0, beyond_first / 2 - 1].map(|index| shards[1].get(index).is_some()) == [true, true]);
        assert!(shards[1].get(beyond_first / 2).is_none());
        assert!(shards[1].get_or_create(usize::MAX >> 20).is_none());
    }

    /// A huge page is aligned to its size. All words are 0 at first, and no two elements share one.
    #[test]
    fn segments_are_aligned_and_empty() {
        let shards: Vec<_> = ShardSegments::<512>::of_shards(2).collect();
        for index in 0..ShardSegments::<512>::FIRST {
            for (number, shard) in (0_u64..).zip(&shards) {
                let element = shard.get_or_create(index).expect("it is small");
                assert!(element.iter().all(|word| word.load(Ordering::Relaxed) == 0));
                element[0].store(index as u64 + 1, Ordering::Relaxed);
                element[511].store(number + 1, Ordering::Relaxed);
            }
        }
        let first_of_second = shards[0].get(ShardSegments::<512>::FIRST / 2).expect("it exists");
        assert_eq!(first_of_second.as_ptr().addr() % (2 << 20), 0);
    }
}
