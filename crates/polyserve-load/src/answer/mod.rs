//! An answer as it arrives, at any split, against what is expected. No socket, no clock.
//!
//! Invariant: an answer is right only where its status is expected, its framing valid, and its body one of the expected
//! ones to the last byte. Cost: for a head that was seen before, a comparison of its bytes; for a body, one comparison
//! with each body that may be right. Nothing is allocated and no body is kept.

mod chunks;
mod heads;

pub(crate) use heads::Heads;

use crate::script::Expected;
use chunks::Chunks;
use heads::{Framing, Parsed};

/// How much of a wrong answer is shown.
const SHOWN: usize = 200;
/// How many right bodies' lengths are tried for the likely head, before all heads are.
const MOST_GUESSES: u32 = 4;
/// How many interim heads may come before an answer.
const MOST_INTERIM: u8 = 8;
/// The largest body that is learned.
const MOST_LEARNED: usize = 64 << 20;

/// Reads answers, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    stage: Stage,
    /// Interim heads, such as `100 Continue`, in a row.
    interim: u8,
    /// What the head said.
    head: Parsed,
    unexpected: bool,
    /// The expected bodies, by bit, that agree with what has come so far.
    alive: u32,
    /// How much of the body has come.
    at: usize,
    /// The body, where it is to be learned.
    learned: Vec<u8>,
    /// The beginning of what was not expected.
    shown: Vec<u8>,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Head,
    Sized(u64),
    Chunked(Chunks),
    UntilEnd,
}

/// Where an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It goes on.
    More,
    /// It is complete.
    Done {
        /// Whether the server closes the connection after it.
        closes: bool,
        /// Its status, where that was not expected; its body was not looked at.
        unexpected: Option<u16>,
    },
}

/// Why an answer is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong(pub(crate) String);

impl Wrong {
    fn at(what: &str, bytes: &[u8]) -> Self {
        Self(format!("{what}: {}", show(bytes)))
    }
}

/// At most 200 bytes, printable.
pub(crate) fn show(bytes: &[u8]) -> String {
    let shown = bytes.get(..SHOWN).unwrap_or(bytes);
    let rest = if shown.len() < bytes.len() { "..." } else { "" };
    format!("\"{}\"{rest}", shown.escape_ascii())
}

impl Reader {
    /// Whether not a byte of the next answer has been taken.
    pub(crate) fn is_between(&self) -> bool {
        matches!(self.stage, Stage::Head) && self.interim == 0
    }

    /// Forgets a half answer: a new connection begins.
    pub(crate) fn reset(&mut self) {
        (self.stage, self.interim) = (Stage::Head, 0);
    }

    /// What was learned of the last answer: its status and its body.
    pub(crate) fn take_learned(&mut self) -> (u16, Vec<u8>) {
        (self.head.status, std::mem::take(&mut self.learned))
    }

    /// The beginning of the last answer of an unexpected status, after its head.
    pub(crate) fn shown(&self) -> String {
        show(&self.shown)
    }

    /// Takes of `bytes` what belongs to this answer, and answers how much that was. What is left over after
    /// [`Step::More`] is an incomplete head or line: it must come again, with more behind it.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        expected: &Expected<'_>,
        heads: &mut Heads,
    ) -> Result<(usize, Step), Wrong> {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            match &mut self.stage {
                Stage::Head => {
                    // The length of a right body tells which head it is likely to have.
                    let likely = |index| heads.likely(rest, expected.body(index).len());
                    let found = match (0..expected.count().min(MOST_GUESSES)).find_map(likely) {
                        None => heads.find(rest)?,
                        found => found,
                    };
                    let Some((head, length)) = found else { return Ok((used, Step::More)) };
                    used += length;
                    if (100..200).contains(&head.status) && head.status != 101 {
                        self.interim += 1;
                        if self.interim > MOST_INTERIM {
                            return Err(Wrong::at("interim heads and no answer", rest));
                        }
                        continue;
                    }
                    self.interim = 0;
                    if let Some(size) = plain(&head, expected, bytes.get(used..).unwrap_or_default()) {
                        return Ok((used + size, Step::Done { closes: head.closes, unexpected: None }));
                    }
                    self.begin(head, expected, bytes.get(used..).unwrap_or_default());
                }
                Stage::Sized(left) => {
                    let length = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= length as u64;
                    let is_whole = *left == 0;
                    self.body(rest.get(..length).unwrap_or_default(), expected)?;
                    used += length;
                    return if is_whole { Ok((used, self.finish(expected)?)) } else { Ok((used, Step::More)) };
                }
                Stage::Chunked(chunks) => {
                    let Some((piece, length)) = chunks.next(rest)? else { return Ok((used, Step::More)) };
                    let is_last = chunks.is_over();
                    self.body(piece, expected)?;
                    used += length;
                    if is_last {
                        return Ok((used, self.finish(expected)?));
                    }
                }
                Stage::UntilEnd => {
                    self.body(rest, expected)?;
                    return Ok((bytes.len(), Step::More));
                }
            }
        }
    }

    /// The connection has ended: complete where the answer lasts until then, `None` where it is torn.
    pub(crate) fn end(&mut self, expected: &Expected<'_>) -> Result<Option<Step>, Wrong> {
        match self.stage {
            Stage::UntilEnd => self.finish(expected).map(Some),
            Stage::Head | Stage::Sized(_) | Stage::Chunked(_) => Ok(None),
        }
    }

    fn begin(&mut self, head: Parsed, expected: &Expected<'_>, rest: &[u8]) {
        self.head = head;
        self.at = 0;
        let count = expected.count();
        self.alive = if count >= 32 { u32::MAX } else { (1 << count) - 1 };
        self.unexpected = !expected.takes(head.status);
        if self.unexpected {
            self.shown.clear();
            self.shown.extend_from_slice(rest.get(..SHOWN + 1).unwrap_or(rest));
        }
        let has_no_body = expected.is_head || head.status == 204 || head.status == 304;
        self.stage = match head.framing {
            _ if has_no_body => Stage::Sized(0),
            Framing::Length(length) => Stage::Sized(length),
            Framing::Chunked => Stage::Chunked(Chunks::default()),
            Framing::UntilEnd => Stage::UntilEnd,
        };
    }

    fn body(&mut self, piece: &[u8], expected: &Expected<'_>) -> Result<(), Wrong> {
        if self.unexpected || piece.is_empty() {
            return Ok(());
        }
        if expected.is_unknown() {
            self.learned.extend_from_slice(piece);
            let fits = self.learned.len() <= MOST_LEARNED;
            return if fits { Ok(()) } else { Err(Wrong(format!("the body is longer than {MOST_LEARNED} bytes"))) };
        }
        let end = self.at + piece.len();
        let mut left = self.alive;
        while left != 0 {
            let index = left.trailing_zeros();
            left &= left - 1;
            if expected.body(index).get(self.at..end) != Some(piece) {
                self.alive &= !(1 << index);
            }
        }
        if self.alive == 0 {
            return Err(Wrong::at(&format!("the body is not the expected one from byte {} on", self.at), piece));
        }
        self.at = end;
        Ok(())
    }

    fn finish(&mut self, expected: &Expected<'_>) -> Result<Step, Wrong> {
        let closes = self.head.closes || matches!(self.stage, Stage::UntilEnd);
        self.stage = Stage::Head;
        let status = self.head.status;
        if self.unexpected {
            return Ok(Step::Done { closes: closes || status == 101, unexpected: Some(status) });
        }
        let is_whole = |index: u32| self.alive & (1 << index) != 0 && expected.body(index).len() == self.at;
        if expected.is_head || expected.is_unknown() || (0..expected.count()).any(is_whole) {
            return Ok(Step::Done { closes, unexpected: None });
        }
        Err(Wrong(format!("the body ends after {} bytes", self.at)))
    }
}

/// Most answers: a status and a length as expected, and the whole body there. Answers the body's length where it is
/// right; all else is told by the reader.
#[inline]
fn plain(head: &Parsed, expected: &Expected<'_>, rest: &[u8]) -> Option<usize> {
    let Framing::Length(length) = head.framing else { return None };
    let body = rest.get(..usize::try_from(length).ok()?)?;
    let has_body = !expected.is_head && head.status != 204 && head.status != 304;
    if !has_body || expected.is_unknown() || !expected.takes(head.status) {
        return None;
    }
    let is_right = (0..expected.count()).any(|index| body == expected.body(index));
    is_right.then_some(body.len())
}

#[cfg(test)]
mod tests;
