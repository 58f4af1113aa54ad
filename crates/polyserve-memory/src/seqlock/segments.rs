//! `Segments`: an array that grows. Its elements never move, and are freed with the array, so a reader needs no lock and no
//! count of references.
//!
//! The array doubles in eight steps: eight segments of one element, then eight of two, eight of four, and so on. So a growth
//! creates at most an eighth of what is there, and at most a ninth of the elements is unused.

use std::sync::OnceLock;

/// Number of segments for each size.
pub(super) const STEPS: usize = 8;

/// Number of segments. The last has 2^19 elements.
const SEGMENTS: usize = STEPS * 20;

/// An array of segments.
pub(super) struct Segments<T> {
    /// std's `OnceLock`, under a model checker too, because no checker has one.
    segments: [OnceLock<Box<[T]>>; SEGMENTS],
}

impl<T> Default for Segments<T> {
    fn default() -> Self {
        Self { segments: [const { OnceLock::new() }; SEGMENTS] }
    }
}

impl<T: Default> Segments<T> {
    /// Returns the element, if its segment was created.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<&T> {
        self.at(place_of(index))
    }

    /// Returns an element by its place, as [`get`](Self::get).
    #[inline]
    pub(super) fn at(&self, (segment, place): (usize, usize)) -> Option<&T> {
        self.segments.get(segment)?.get()?.get(place)
    }

    /// Returns the element, and creates its segment if needed. `None` if it is beyond the last segment.
    pub(super) fn get_or_create(&self, index: usize) -> Option<&T> {
        let (segment, place) = place_of(index);
        let create = || (0..1_usize << (segment / STEPS)).map(|_| T::default()).collect();
        self.segments.get(segment)?.get_or_init(create).get(place)
    }
}

/// Returns the segment of an element, and its place there.
#[inline]
pub(super) fn place_of(index: usize) -> (usize, usize) {
    let number = index + STEPS;
    let size = number.ilog2() - STEPS.ilog2();
    (STEPS * size as usize + (number >> size) - STEPS, number & ((1 << size) - 1))
}

/// Returns the index of the element at a place: the inverse of [`place_of`].
pub(super) fn index_of((segment, place): (usize, usize)) -> usize {
    ((STEPS + segment % STEPS) << (segment / STEPS)) - STEPS + place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_fill_the_segments_in_order() {
        let mut expected = (0, 0);
        for index in 0..10_000 {
            assert_eq!((place_of(index), index_of(expected)), (expected, index), "{index}");
            expected.1 += 1;
            if expected.1 == 1 << (expected.0 / STEPS) {
                expected = (expected.0 + 1, 0);
            }
        }
    }

    #[test]
    fn an_element_exists_once_its_segment_does() {
        let array = Segments::<u8>::default();
        assert_eq!(array.get(9), None);
        assert_eq!(array.get_or_create(9), Some(&0));
        assert_eq!([8, 9, 10].map(|index| array.get(index).is_some()), [true, true, false]);
        assert_eq!(array.get_or_create(index_of((SEGMENTS, 0))), None);
    }
}
