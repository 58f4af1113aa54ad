//! A reader that compares an answer with the expected one while it arrives, at any split. It has no socket and no clock.
//!
//! Invariant: an answer is right only if its status is expected, its framing is valid, and its body is exactly one of the
//! expected ones. Of a body that changes, only the length is compared, or nothing. Cost: one comparison of the bytes for a known head, and one comparison with each expected body. The
//! reader does not allocate, and keeps no body.

mod chunks;
mod heads;
mod wrong;

pub(crate) use heads::Heads;
use wrong::MAX_EXCERPT;
pub(crate) use wrong::{Wrong, excerpt};

use crate::encoded_requests::Expected;
use crate::traffic::AnswerCheck;
use chunks::Chunks;
use heads::{AnswerFields, Framing};

/// The max number of expected bodies that are tried for the likely head, before all heads are searched.
const MAX_GUESSES: u32 = 4;
/// The max number of interim heads before an answer.
const MAX_INTERIM: u8 = 8;
/// The max size of a discovered body.
const MAX_DISCOVERED: usize = 64 << 20;

/// A reader of consecutive answers.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    stage: AnswerStage,
    /// The number of consecutive interim heads, such as `100 Continue`.
    interim: u8,
    /// The current head.
    head: AnswerFields,
    unexpected: bool,
    /// One bit for each expected body that agrees with the received part.
    candidates: u32,
    /// The number of received bytes of the body.
    received: usize,
    /// The body, if it is to be discovered.
    discovered: Vec<u8>,
    /// The beginning of the body of an unexpected answer.
    excerpt: Vec<u8>,
}

#[derive(Debug, Default)]
enum AnswerStage {
    #[default]
    Head,
    Sized(u64),
    Chunked(Chunks),
    UntilEnd,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadStep {
    /// The answer is not complete.
    More,
    /// The answer is complete.
    Done {
        /// Whether the server closes the connection after the answer.
        closes: bool,
        /// The status, if it was not expected. The body was not compared then.
        unexpected: Option<u16>,
    },
}

impl Reader {
    /// Whether no byte of the next answer has been read.
    pub(crate) fn is_between(&self) -> bool {
        matches!(self.stage, AnswerStage::Head) && self.interim == 0
    }

    /// Drops a partial answer. For a new connection.
    pub(crate) fn reset(&mut self) {
        (self.stage, self.interim) = (AnswerStage::Head, 0);
    }

    /// Returns the status and the body of the discovered answer.
    pub(crate) fn take_discovered(&mut self) -> (u16, Vec<u8>) {
        (self.head.status, std::mem::take(&mut self.discovered))
    }

    /// Returns the beginning of the body of the last answer with an unexpected status.
    pub(crate) fn excerpt(&self) -> String {
        excerpt(&self.excerpt)
    }

    /// Reads the bytes of this answer, and returns their number. The bytes left after [`ReadStep::More`] are an incomplete head
    /// or line: the next call must have them again, with more bytes after them.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        expected: &Expected<'_>,
        heads: &mut Heads,
    ) -> Result<(usize, ReadStep), Wrong> {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            match &mut self.stage {
                AnswerStage::Head => {
                    // The length of an expected body indicates the likely head.
                    let likely = |index| heads.likely(rest, expected.body(index).len());
                    let found = match (0..expected.count().min(MAX_GUESSES)).find_map(likely) {
                        None => heads.find(rest)?,
                        found => found,
                    };
                    let Some((head, length)) = found else { return Ok((used, ReadStep::More)) };
                    used += length;
                    if (100..200).contains(&head.status) && head.status != 101 {
                        self.interim += 1;
                        if self.interim > MAX_INTERIM {
                            return Err(Wrong::at("interim heads and no answer", rest));
                        }
                        continue;
                    }
                    self.interim = 0;
                    if let Some(size) = fast_path(&head, expected, bytes.get(used..).unwrap_or_default()) {
                        return Ok((used + size, ReadStep::Done { closes: head.closes, unexpected: None }));
                    }
                    self.begin(head, expected, bytes.get(used..).unwrap_or_default());
                }
                AnswerStage::Sized(remaining) => {
                    let length = usize::try_from(*remaining).unwrap_or(usize::MAX).min(rest.len());
                    *remaining -= length as u64;
                    let is_whole = *remaining == 0;
                    self.body(rest.get(..length).unwrap_or_default(), expected)?;
                    used += length;
                    return if is_whole { Ok((used, self.finish(expected)?)) } else { Ok((used, ReadStep::More)) };
                }
                AnswerStage::Chunked(chunks) => {
                    let Some((piece, length)) = chunks.next(rest)? else { return Ok((used, ReadStep::More)) };
                    let is_last = chunks.is_over();
                    self.body(piece, expected)?;
                    used += length;
                    if is_last {
                        return Ok((used, self.finish(expected)?));
                    }
                }
                AnswerStage::UntilEnd => {
                    self.body(rest, expected)?;
                    return Ok((bytes.len(), ReadStep::More));
                }
            }
        }
    }

    /// Handles the end of the connection: the answer is complete if it lasts until the end. Returns `None` if it is cut off.
    pub(crate) fn end(&mut self, expected: &Expected<'_>) -> Result<Option<ReadStep>, Wrong> {
        match self.stage {
            AnswerStage::UntilEnd => self.finish(expected).map(Some),
            AnswerStage::Head | AnswerStage::Sized(_) | AnswerStage::Chunked(_) => Ok(None),
        }
    }

    fn begin(&mut self, head: AnswerFields, expected: &Expected<'_>, rest: &[u8]) {
        self.head = head;
        self.received = 0;
        let count = expected.count();
        self.candidates = if count >= 32 { u32::MAX } else { (1 << count) - 1 };
        self.unexpected = !expected.takes(head.status);
        if self.unexpected {
            self.excerpt.clear();
            self.excerpt.extend_from_slice(rest.get(..MAX_EXCERPT + 1).unwrap_or(rest));
        }
        // What follows a 101 is another protocol.
        let has_no_body = expected.is_head || [101, 204, 304].contains(&head.status);
        self.stage = match head.framing {
            _ if has_no_body => AnswerStage::Sized(0),
            Framing::Length(length) => AnswerStage::Sized(length),
            Framing::Chunked => AnswerStage::Chunked(Chunks::default()),
            Framing::UntilEnd => AnswerStage::UntilEnd,
        };
    }

    fn body(&mut self, piece: &[u8], expected: &Expected<'_>) -> Result<(), Wrong> {
        if self.unexpected || piece.is_empty() {
            return Ok(());
        }
        if expected.is_unknown() {
            self.discovered.extend_from_slice(piece);
            let fits = self.discovered.len() <= MAX_DISCOVERED;
            return if fits { Ok(()) } else { Err(Wrong(format!("the body is longer than {MAX_DISCOVERED} bytes"))) };
        }
        let end = self.received + piece.len();
        if expected.judged != AnswerCheck::Body {
            self.received = end;
            return Ok(());
        }
        let mut remaining = self.candidates;
        while remaining != 0 {
            let index = remaining.trailing_zeros();
            remaining &= remaining - 1;
            if expected.body(index).get(self.received..end) != Some(piece) {
                self.candidates &= !(1 << index);
            }
        }
        if self.candidates == 0 {
            return Err(Wrong::at(&format!("the body is not the expected one from byte {} on", self.received), piece));
        }
        self.received = end;
        Ok(())
    }

    fn finish(&mut self, expected: &Expected<'_>) -> Result<ReadStep, Wrong> {
        let closes = self.head.closes || matches!(self.stage, AnswerStage::UntilEnd);
        self.stage = AnswerStage::Head;
        let status = self.head.status;
        if self.unexpected {
            return Ok(ReadStep::Done { closes: closes || status == 101, unexpected: Some(status) });
        }
        let is_whole = |index: u32| self.candidates & (1 << index) != 0 && expected.body(index).len() == self.received;
        let is_any = expected.is_unknown() || expected.judged == AnswerCheck::Status;
        if expected.is_head || is_any || (0..expected.count()).any(is_whole) {
            return Ok(ReadStep::Done { closes, unexpected: None });
        }
        Err(Wrong(format!("the body ends after {} bytes", self.received)))
    }
}

/// The fast path: an expected status and length, and a complete body. Returns the length of a right body, or `None` for any
/// other answer, which the reader then handles.
#[inline]
fn fast_path(head: &AnswerFields, expected: &Expected<'_>, rest: &[u8]) -> Option<usize> {
    let Framing::Length(length) = head.framing else { return None };
    let body = rest.get(..usize::try_from(length).ok()?)?;
    let has_body = !expected.is_head && head.status != 204 && head.status != 304;
    if !has_body || expected.is_unknown() || !expected.takes(head.status) {
        return None;
    }
    let is_right = match expected.judged {
        AnswerCheck::Body => (0..expected.count()).any(|index| body == expected.body(index)),
        AnswerCheck::Length => (0..expected.count()).any(|index| body.len() == expected.body(index).len()),
        AnswerCheck::Status => true,
    };
    is_right.then_some(body.len())
}

#[cfg(test)]
mod tests;
