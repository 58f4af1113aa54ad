//! Bytes that were received and not yet used: part of a head, or requests that wait for their turn.
//!
//! Cost: each byte is copied at most twice, however many requests a batch has. The buffer is freed when it is empty.

/// A queue of bytes.
#[derive(Debug, Default)]
pub(super) struct BufferedInput {
    bytes: Vec<u8>,
    /// Number of used bytes at the front. It is less than half of the length of `bytes`, or both are zero.
    used: usize,
}

impl BufferedInput {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the size of the buffer.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Returns the bytes that are not used.
    pub(super) fn unused(&self) -> &[u8] {
        self.bytes.get(self.used..).unwrap_or_default()
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes `count` bytes from the front. The remaining bytes are moved only when at least the same number of bytes has
    /// been removed. Moving them for each request would cost the square of a batch's length.
    pub(super) fn remove(&mut self, count: usize) {
        self.used = self.used.saturating_add(count);
        let rest = self.unused();
        if rest.len() <= self.used {
            *self = Self { bytes: rest.to_vec(), used: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: in a batch of requests with deferred answers, all remaining bytes were moved after each answer.
    #[test]
    fn removing_many_small_pieces_moves_each_byte_once() {
        let mut buffered = BufferedInput::default();
        let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(32 * 1024).collect();
        buffered.append(&bytes);
        let (mut rest, mut moved) = (bytes.as_slice(), 0);
        while !rest.is_empty() {
            let expected = buffered.unused().as_ptr().wrapping_add(37);
            buffered.remove(37.min(rest.len()));
            rest = rest.get(37..).unwrap_or_default();
            assert_eq!(buffered.unused(), rest);
            if buffered.unused().as_ptr() != expected {
                moved += rest.len();
            }
        }
        assert!(buffered.is_empty() && buffered.bytes.capacity() == 0);
        assert!(moved <= bytes.len(), "{moved} bytes were moved for {} bytes", bytes.len());
    }

    #[test]
    fn bytes_leave_in_their_order() {
        let mut buffered = BufferedInput::default();
        buffered.append(b"abcdef");
        buffered.remove(2);
        buffered.append(b"gh");
        assert_eq!(buffered.unused(), b"cdefgh");
        buffered.remove(0);
        buffered.remove(5);
        assert_eq!(buffered.unused(), b"h");
        buffered.remove(9);
        assert!(buffered.is_empty() && buffered.unused().is_empty());
    }
}
