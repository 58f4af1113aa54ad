//! A request with an incomplete body.

use crate::http1::chunked::Chunked;
use crate::http1::connection_fields::Framing;
use crate::http1::decode::Limits;
use crate::http1::refusal::Refusal;

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
