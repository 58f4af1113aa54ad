//! The input of a connection: what was received, and what hyper may read next.
//!
//! This project's codec decodes each head before hyper does, and follows each body to its end. hyper gets one head, the bytes of its
//! body, and the next head after the answer. So hyper reads no byte that the codec refuses, and no two readers can differ in
//! the end of a request. It is always known whether a further request has begun, which hyper does not report.
//!
//! Cost: the codec's pass over a head, which is short if the head is like the last one, and over the frames of chunks. A copy of the
//! bytes that come before hyper may read them: of further requests, and of an incomplete head.

use std::cell::RefCell;

use hyper::rt::ReadBufCursor;
use polyserve_serving::http1::LastHeads;
use polyserve_serving::http1::chunked::Chunked;
use polyserve_serving::http1::decode::{self, Decoded, EmptyLines, Fields, Framing, Limits, Parsed, Refusal};
use polyserve_serving::memory::{MemoryBudget, Reservation};

thread_local! {
    /// The heads that this thread has decoded last.
    static LAST_HEADS: RefCell<LastHeads> = RefCell::new(LastHeads::none());
}

/// Calls `act` with the heads that this thread has decoded last.
pub(super) fn with_last_heads<T>(act: impl FnOnce(&mut LastHeads) -> T) -> T {
    LAST_HEADS.with_borrow_mut(act)
}

/// The input of a connection.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// The bytes that were received and kept.
    kept: Vec<u8>,
    /// The number of bytes at the start of `kept` that are used.
    used: usize,
    /// The memory of `kept` while the connection waits.
    reservation: Reservation,
    /// The number of unread bytes that hyper may read.
    allowed: usize,
    body: RestOfBody,
    empty_lines: EmptyLines,
    /// The unread bytes are a part of a head. More bytes are needed.
    is_partial: bool,
    /// Why what follows is no request.
    pub(super) refusal: Option<Refusal>,
}

/// The rest of a body that hyper may not read yet.
#[derive(Debug)]
enum RestOfBody {
    /// The number of bytes. Zero if there is no body.
    Length(u64),
    Chunked(Chunked),
}

impl Default for RestOfBody {
    fn default() -> Self {
        Self::Length(0)
    }
}

/// What hyper may read next.
pub(super) enum Next<'a> {
    /// A part of the present request.
    Part,
    /// A head.
    Head(Parsed<'a>),
    /// More bytes are needed.
    More,
    /// Nothing: see [`Input::refusal`].
    Refused,
    /// Nothing: the body is not valid.
    InvalidBody(Refusal),
}

impl Input {
    /// Whether no byte of a further request was received.
    pub(super) fn is_blank(&self) -> bool {
        self.unread().iter().all(|byte| matches!(byte, b'\r' | b'\n'))
    }

    /// Whether the bytes begin with the method HEAD, so that their refusal has no body.
    pub(super) fn is_head(&self) -> bool {
        self.unread().starts_with(b"HEAD ")
    }

    /// The number of bytes of the present body that were not received. Zero if that is not known.
    pub(super) fn missing(&self) -> u64 {
        match self.body {
            RestOfBody::Length(rest) => rest.saturating_sub(self.unread().len().saturating_sub(self.allowed) as u64),
            RestOfBody::Chunked(_) => 0,
        }
    }

    /// Whether hyper may read the next head, once it has answered the present request.
    pub(super) fn is_between_requests(&self) -> bool {
        self.allowed == 0 && self.has_whole_request()
    }

    /// Whether all bytes of the present request have arrived, so that hyper may read its rest.
    pub(super) fn has_whole_request(&self) -> bool {
        matches!(self.body, RestOfBody::Length(0))
    }

    /// Whether the bytes begin with a part of HTTP/2's preface.
    pub(super) fn begins_with_preface(&self) -> bool {
        const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let start = self.unread().get(..PREFACE.len()).unwrap_or(self.unread());
        !start.is_empty() && PREFACE.starts_with(start) && !self.empty_lines.were_skipped()
    }

    /// The kept bytes that hyper has not read.
    pub(super) fn unread(&self) -> &[u8] {
        self.kept.get(self.used..).unwrap_or_default()
    }

    /// Whether there are unread bytes.
    pub(super) fn has_unread(&self) -> bool {
        self.used < self.kept.len()
    }

    /// Takes the kept bytes, and the number of those that are used. Returns `None` if the unread ones must wait for more.
    /// [`put_back`](Self::put_back) returns them.
    pub(super) fn take(&mut self) -> Option<(Vec<u8>, usize)> {
        (!self.is_partial && self.has_unread()).then(|| (std::mem::take(&mut self.kept), self.used))
    }

    /// Puts bytes back that were taken, of which the first `used` are used.
    pub(super) fn put_back(&mut self, bytes: Vec<u8>, used: usize) {
        if used < bytes.len() {
            (self.kept, self.used) = (bytes, used);
        } else {
            // An idle connection has no buffer.
            (self.kept, self.used, self.reservation) = Default::default();
        }
    }

    /// Reserves the memory of the kept bytes, before the connection waits. They cannot be refused: they are a part of a head, or
    /// further requests.
    pub(super) fn reserve(&mut self, memory: &MemoryBudget) {
        self.reservation.set(memory, self.kept.capacity());
    }

    /// Keeps `new` bytes after the unread ones. Returns false if it cannot complete a part of a head.
    pub(super) fn append(&mut self, new: &[u8], limits: &Limits) -> bool {
        self.kept.drain(..std::mem::take(&mut self.used));
        self.kept.extend_from_slice(new);
        let is_ready = !self.is_partial || decode::may_complete(self.kept.len(), new, limits);
        self.is_partial &= !is_ready;
        is_ready
    }

    /// Keeps `rest`. There are no other unread bytes.
    pub(super) fn keep(&mut self, rest: &[u8]) {
        if !rest.is_empty() {
            (self.kept, self.used) = (rest.to_vec(), 0);
        }
    }

    /// Decides what hyper may read of `bytes`. Between requests it is the next head. Returns the number of empty lines' bytes before it.
    pub(super) fn next<'b: 'a, 'a>(
        &mut self,
        bytes: &'b [u8],
        limits: &Limits,
        last_heads: &'a mut LastHeads,
        fields: &'a mut Fields<'b>,
    ) -> (usize, Next<'a>) {
        let next = match &mut self.body {
            _ if self.allowed > 0 => Next::Part,
            _ if bytes.is_empty() => Next::More,
            RestOfBody::Length(0) => {
                let skipped = self.empty_lines.skip(bytes);
                return (skipped, self.head(bytes.get(skipped..).unwrap_or_default(), limits, last_heads, fields));
            }
            RestOfBody::Length(rest) => {
                self.allowed = usize::try_from(*rest).unwrap_or(usize::MAX).min(bytes.len());
                *rest -= self.allowed as u64;
                Next::Part
            }
            RestOfBody::Chunked(chunked) => match chunked.skip(bytes, limits) {
                Ok(allowed) => {
                    self.allowed = allowed;
                    if chunked.is_done() {
                        self.body = RestOfBody::default();
                    }
                    Next::Part
                }
                Err(refusal) => Next::InvalidBody(refusal),
            },
        };
        (0, next)
    }

    fn head<'b: 'a, 'a>(
        &mut self,
        bytes: &'b [u8],
        limits: &Limits,
        last_heads: &'a mut LastHeads,
        fields: &'a mut Fields<'b>,
    ) -> Next<'a> {
        self.is_partial = false;
        if bytes.is_empty() {
            return Next::More;
        }
        let decoded = match bytes {
            b"\r" => Decoded::Partial,
            bytes => last_heads.head(bytes, limits, fields),
        };
        match decoded {
            Decoded::Partial => {
                self.is_partial = true;
                Next::More
            }
            Decoded::Refused(refusal) => {
                self.refusal = Some(refusal);
                Next::Refused
            }
            Decoded::Head(parsed) => {
                (self.allowed, self.empty_lines) = (parsed.length, EmptyLines::default());
                let following = bytes.len() - parsed.length;
                self.body = match parsed.framing {
                    Framing::Length(length) => {
                        let part = length.min(following as u64); // what comes with its head
                        self.allowed += part as usize;
                        RestOfBody::Length(length - part)
                    }
                    Framing::Chunked => RestOfBody::Chunked(Chunked::new()),
                };
                Next::Head(parsed)
            }
        }
    }

    /// Passes on to hyper what it may read at the start of `bytes`. Returns the number of bytes.
    pub(super) fn pass_on(&mut self, bytes: &[u8], to: &mut ReadBufCursor<'_>) -> usize {
        let count = self.allowed.min(to.remaining());
        let passed = bytes.get(..count).unwrap_or(bytes);
        to.put_slice(passed);
        self.allowed -= passed.len();
        passed.len()
    }
}
