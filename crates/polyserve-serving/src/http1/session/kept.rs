//! What a session keeps between two turns: bytes that it has not used, a body that is not complete, and answers that the kernel has
//! not accepted.
//!
//! Cost: each byte of the input is copied at most twice, however many requests a batch has. The input's buffer is freed when it is
//! empty.

use crate::http1::chunked::Chunked;
use crate::http1::connection_fields::Framing;
use crate::http1::decode::Limits;
use crate::http1::refusal::Refusal;
use crate::http1::session_buffers::SessionBuffers;

/// A queue of bytes that were received and not yet used: part of a head, or requests that wait for their turn.
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

/// A request with an incomplete body.
pub(super) struct PendingBody {
    /// The head's bytes, which are decoded again when the body is complete. Empty if the body is skipped.
    pub(super) head: Vec<u8>,
    pub(super) body: Vec<u8>,
    /// Number of bytes that have arrived, with those that frame chunks.
    pub(super) received: u64,
    is_skipped: bool,
    reader: BodyReader,
}

enum BodyReader {
    /// The number of bytes that are missing.
    Length(u64),
    Chunked(Chunked),
}

/// Capacity reserved for a body of known length when its first byte arrives. A body up to this size costs one
/// allocation; a client that announces a large body and sends one byte costs no more than this.
const INITIAL_CAPACITY: usize = 16 * 1024;

impl PendingBody {
    /// Starts the body of a request. The head has arrived.
    pub(super) fn new(head: &[u8], framing: Framing) -> Self {
        let reader = match framing {
            Framing::Length(length) => BodyReader::Length(length),
            Framing::Chunked => BodyReader::Chunked(Chunked::new()),
        };
        Self { head: head.to_vec(), body: Vec::new(), received: 0, is_skipped: false, reader }
    }

    /// A body that is read and thrown away: its request is answered already.
    pub(super) fn skipped(framing: Framing) -> Self {
        Self { is_skipped: true, ..Self::new(&[], framing) }
    }

    /// Returns the size of the buffers.
    pub(super) fn capacity(&self) -> usize {
        self.head.capacity().saturating_add(self.body.capacity())
    }

    /// Reads from `input`. Returns the number of bytes used, and whether the body is complete.
    pub(super) fn read(&mut self, input: &[u8], limits: &Limits) -> Result<(usize, bool), Refusal> {
        let read = match &mut self.reader {
            BodyReader::Length(missing) => {
                let max = usize::try_from(*missing).unwrap_or(usize::MAX);
                let bytes = input.get(..max).unwrap_or(input);
                if !self.is_skipped {
                    if self.body.capacity() == 0 && !bytes.is_empty() {
                        self.body.reserve_exact(max.min(bytes.len().max(INITIAL_CAPACITY)));
                    }
                    self.body.extend_from_slice(bytes);
                }
                *missing = missing.saturating_sub(bytes.len() as u64);
                (bytes.len(), *missing == 0)
            }
            BodyReader::Chunked(chunked) => {
                let used = match self.is_skipped {
                    true => chunked.skip(input, limits)?,
                    false => chunked.decode(input, &mut self.body, limits)?,
                };
                (used, chunked.is_done())
            }
        };
        self.received = self.received.saturating_add(read.0 as u64);
        Ok(read)
    }
}

/// The rest of an output, and the offsets at which its answers end.
#[derive(Debug)]
pub(super) struct Unsent {
    bytes: Vec<u8>,
    sent: usize,
    ends: Vec<usize>,
}

impl Unsent {
    /// Returns the output after its first `count` bytes, and the number of answers that are complete in those bytes.
    pub(super) fn split(buffers: &SessionBuffers, count: usize) -> (Option<Box<Self>>, u64) {
        let complete = buffers.ends.partition_point(|end| *end <= count);
        let rest = buffers.out.get(count..).filter(|rest| !rest.is_empty()).map(|rest| {
            let ends = buffers.ends.iter().skip(complete).map(|end| end.saturating_sub(count)).collect();
            Box::new(Self { bytes: rest.to_vec(), sent: 0, ends })
        });
        (rest, complete as u64)
    }

    /// Returns the size of the buffers.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity().saturating_add(self.ends.capacity().saturating_mul(size_of::<usize>()))
    }

    pub(super) fn rest(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    /// Appends `other`.
    pub(super) fn append(&mut self, other: &Self) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(other.rest());
        self.ends.extend(other.ends.iter().map(|end| end.saturating_add(start)));
    }

    /// Marks `count` more bytes as sent. Returns the number of answers that they complete.
    pub(super) fn advance(&mut self, count: usize) -> u64 {
        let before = self.answers_sent();
        self.sent = self.sent.saturating_add(count);
        self.answers_sent().saturating_sub(before)
    }

    fn answers_sent(&self) -> u64 {
        self.ends.partition_point(|end| *end <= self.sent) as u64
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
