//! The connections of an event loop, by numbers that are not used twice: the kernel, or another thread, may name a connection that has
//! ended after its place was given to another.
//!
//! Cost: a comparison for each lookup. The list is as long as the max number of concurrent connections was.

/// The bits of a number that are the place. The others are the generation.
const PLACE_BITS: u32 = usize::BITS / 2;

const MAX_PLACE: usize = (1 << PLACE_BITS) - 1;

/// Values by their numbers.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Slot<T> {
    /// The number of the value, or of the next value.
    number: usize,
    value: Option<T>,
}

impl<T> Slots<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    /// The number of the value that is inserted next; `None` if there is no number left.
    pub(crate) fn next_number(&mut self) -> Option<usize> {
        if self.free.is_empty() {
            let place = self.slots.len();
            if place >= MAX_PLACE {
                return None;
            }
            self.slots.push(Slot { number: place, value: None });
            self.free.push(place);
        }
        self.free.last().and_then(|place| self.slots.get(*place)).map(|slot| slot.number)
    }

    /// Inserts a value under `number`, which is the [next](Self::next_number).
    pub(crate) fn insert(&mut self, number: usize, value: T) {
        let place = self.free.pop();
        debug_assert_eq!(place, Some(number & MAX_PLACE));
        if let Some(slot) = place.and_then(|place| self.slots.get_mut(place)) {
            slot.value = Some(value);
        }
    }

    /// Returns the value with this number, unless it was removed.
    #[inline]
    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        let slot = self.slots.get_mut(number & MAX_PLACE)?;
        if slot.number == number { slot.value.as_mut() } else { None }
    }

    /// Removes the value with this number, and drops it in its place: a connection is large.
    pub(crate) fn remove(&mut self, number: usize) {
        let place = number & MAX_PLACE;
        let Some(slot) = self.slots.get_mut(place) else { return };
        if slot.number == number && slot.value.is_some() {
            slot.value = None;
            slot.number = number.wrapping_add(1 << PLACE_BITS);
            self.free.push(place);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_not_used_twice() {
        let mut slots = Slots::new();
        let first = slots.next_number().unwrap();
        slots.insert(first, "a");
        slots.remove(first);
        assert!(slots.is_empty());
        let second = slots.next_number().unwrap();
        assert_eq!(slots.next_number(), Some(second), "it is not taken yet");
        slots.insert(second, "b");
        assert_eq!(slots.get_mut(first), None);
        slots.remove(first);
        assert_eq!(slots.get_mut(second), Some(&mut "b"));
        let third = slots.next_number().unwrap();
        slots.insert(third, "c");
        assert_eq!(slots.slots.len(), 2, "the first place is used again");
        assert!(!slots.is_empty());
    }
}
