//! A request whose body is still coming.

use crate::http1::chunked::Chunked;
use crate::http1::decode::{Framing, Limits, Refusal};

/// A request whose body is incomplete.
pub(super) struct PendingBody {
    pub(super) head: Vec<u8>,
    pub(super) body: Vec<u8>,
    framing: BodyReader,
}

enum BodyReader {
    Length(u64),
    Chunked(Chunked),
}

impl PendingBody {
    /// One of which the head has come. `head` is kept to be decoded again, once the body is there.
    pub(super) fn new(head: &[u8], framing: Framing) -> Self {
        let framing = match framing {
            Framing::Length(length) => BodyReader::Length(length),
            Framing::Chunked => BodyReader::Chunked(Chunked::new()),
        };
        Self { head: head.to_vec(), body: Vec::new(), framing }
    }

    /// How many bytes were used, and whether the body is complete.
    pub(super) fn read(&mut self, input: &[u8], limits: &Limits) -> Result<(usize, bool), Refusal> {
        match &mut self.framing {
            BodyReader::Length(remaining) => {
                let take = usize::try_from(*remaining).unwrap_or(usize::MAX).min(input.len());
                self.body.extend_from_slice(input.get(..take).unwrap_or_default());
                *remaining = remaining.saturating_sub(take as u64);
                Ok((take, *remaining == 0))
            }
            BodyReader::Chunked(chunked) => {
                let used = chunked.decode(input, &mut self.body, limits)?;
                Ok((used, chunked.is_done()))
            }
        }
    }
}
