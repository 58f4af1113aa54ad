//! The spare buffer of a thread: that of a text which is not needed any more, for the next text that the thread reads. A PUT of a known
//! id replaces a description, which is about as long as the new one, as a rule. So it needs no allocation.
//!
//! Invariants: a thread keeps at most one buffer, of at most [`MAX_CAPACITY`] bytes. A text leaves less than [`MAX_UNUSED`] bytes of its
//! buffer unused, which is about what an allocator rounds up to.

use std::cell::Cell;

const MAX_CAPACITY: usize = 64;

const MAX_UNUSED: usize = 16;

thread_local! {
    static SPARE: Cell<String> = const { Cell::new(String::new()) };
}

/// Keeps the buffer of `text`, in place of the one before.
#[inline]
pub(super) fn keep(text: String) {
    if text.capacity() <= MAX_CAPACITY {
        let _ = SPARE.try_with(|spare| spare.set(text)); // an error: the thread ends
    }
}

/// Returns a copy of `text`, in the buffer that was kept if the text fits in it.
#[inline]
pub(crate) fn owned(text: &str) -> String {
    let mut spare = SPARE.try_with(Cell::take).unwrap_or_default();
    let unused = spare.capacity().checked_sub(text.len());
    if unused.is_some_and(|unused| unused < MAX_UNUSED) {
        spare.clear();
        spare.push_str(text);
        return spare;
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_gets_the_spare_buffer_if_it_fits() {
        for (capacity, length, is_reused) in
            [(20, 20, true), (20, 5, true), (20, 4, false), (20, 21, false), (MAX_CAPACITY + 1, MAX_CAPACITY, false)]
        {
            let spare = String::with_capacity(capacity);
            let start = spare.as_ptr();
            keep(spare);
            // What is reused is not free, so that no other text gets its memory.
            let (first, second) = (owned(&"a".repeat(length)), owned("bcd"));
            assert_eq!((first.len(), &*second), (length, "bcd"));
            assert_eq!(first.capacity() == capacity && first.as_ptr() == start, is_reused, "{capacity} for {length}");
        }
        keep("a".repeat(9));
        keep("b".repeat(5));
        assert_eq!(owned("").capacity(), 5, "one buffer is kept");
        assert_eq!(owned("").capacity(), 0);
    }
}
