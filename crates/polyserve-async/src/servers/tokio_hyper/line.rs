//! What stands between a connection's task and hyper, which it polls: the stage that a request is in, what was read, and
//! what is to be sent.
//!
//! hyper says of itself neither whether a request has begun nor when an answer is complete, so both are derived from what
//! passes: bytes in, calls of the service, bodies that end, flushes.
//!
//! Invariants: an answer's end is marked where hyper has handed over its last byte; while hyper is polled, the thread's
//! buffers are here. Cost: an uncontended lock for each thing that passes.

use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use http::HeaderValue;
use hyper::server::conn::http1;
use polyserve_core::BoxFuture;
use polyserve_core::sync::lock;

use super::output::{Buffers, Output};
use crate::servers::connection_entry::ConnectionEntry;
use crate::servers::connection_registry::ConnectionRegistry;
use crate::servers::tokio_socket::TokioSocket;

/// What all connections of a run share.
pub(crate) struct Shared {
    pub(super) roll: Arc<ConnectionRegistry<TokioSocket>>,
    pub(super) builder: http1::Builder,
    pub(super) server_header: Option<HeaderValue>,
    /// Serves a connection that begins with HTTP/2's preface, where that is asked for; the bytes were read already.
    pub(super) http2: Option<Http2>,
    /// Answers after which a connection is closed.
    pub(super) most_requests: u64,
}

/// How HTTP/2 is served.
pub(super) type Http2 = Box<dyn Fn(Arc<Line>, Bytes) -> BoxFuture<()> + Send + Sync>;

/// Where a connection's present request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// There is none.
    Idle,
    /// Its head has begun.
    Head,
    /// Its body is awaited.
    Body,
    /// The service has it.
    Answer,
    /// Its answer has begun.
    Sending,
    /// Its answer is in the output. Whether the next one has begun is not known yet.
    Done,
}

impl Stage {
    /// Whether a request is in hand.
    pub(super) fn is_busy(self) -> bool {
        !matches!(self, Self::Idle | Self::Done)
    }
}

/// One connection's line.
pub(crate) struct Line {
    pub(super) shared: Arc<Shared>,
    pub(super) place: Arc<ConnectionEntry<TokioSocket>>,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) stage: Stage,
    /// Requests of this connection.
    pub(super) requests: u64,
    pub(super) buffers: Option<Box<Buffers>>,
    /// Answers whose end hyper has and the output has not.
    ended: u32,
    pub(super) seen: Seen,
    /// The client sends no more.
    pub(super) input_ended: bool,
    /// The present stage has lasted too long.
    pub(super) late: bool,
    /// The client would keep the connection; or what it sent was refused.
    pub(super) client_stays: bool,
    /// So many bytes are in the input still, which were read last.
    pub(super) fresh: usize,
    /// Bytes of the present request's body that are awaited before the service is called; 0 where that is not known, or the
    /// service reads the body itself.
    pub(super) missing: u64,
    /// The service has a body of which hyper has not read the end.
    pub(super) body_is_open: bool,
    /// A part of the present answer may have left.
    pub(super) torn: bool,
    /// The client left within the present request: its answer is not sent.
    pub(super) gone: bool,
    /// More of the body came than one may have.
    #[cfg(feature = "tower")]
    pub(super) too_large: bool,
    pub(super) tally: Tally,
}

/// What was seen while hyper was polled.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// There was nothing more to read.
    pub(super) dry: bool,
    /// That was so after the shutdown had begun, whatever the runtime knew.
    pub(super) may_leave: bool,
    /// hyper was not rid of all that it wanted to write.
    pub(super) blocked: bool,
    /// hyper has not seen yet that a body is not wanted.
    pub(super) again: bool,
}

/// What was read and what was made of it, from which it is told whether anything is left.
#[derive(Debug, Default)]
pub(super) struct Tally {
    read: u64,
    /// Bytes of the requests since, each header field written as most clients do.
    used: u64,
    /// The last bytes.
    tail: [u8; 3],
    /// The first bytes, as far as they are needed to know a HEAD.
    start: [u8; 5],
    /// The last request's end is an empty line.
    ends_in_a_line: bool,
    requests: u64,
}

impl Tally {
    /// Takes note of bytes that came.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        let known = usize::try_from(self.read).unwrap_or(usize::MAX).min(self.start.len());
        for (to, from) in self.start.iter_mut().skip(known).zip(bytes) {
            *to = *from;
        }
        self.read += bytes.len() as u64;
        match bytes {
            [.., a, b, c] => self.tail = [*a, *b, *c],
            few => few.iter().for_each(|byte| self.tail = [self.tail[1], self.tail[2], *byte]),
        }
    }

    /// Takes note of a request of `bytes`.
    pub(super) fn request(&mut self, bytes: u64, ends_in_a_line: bool) {
        self.requests += 1;
        self.used = self.used.saturating_add(bytes);
        self.ends_in_a_line = ends_in_a_line;
    }

    /// Whether nothing is left, which hyper would have made a request of if it were one. False where it is not known.
    fn nothing_is_left(&self) -> bool {
        (self.ends_in_a_line && matches!(&self.tail, b"\n\r\n" | [_, b'\n', b'\n'])) || self.is_used()
    }

    /// Whether the requests since are all that was read. False where it is not known: of bodies in chunks, and of heads that
    /// are not written as most clients do.
    fn is_used(&self) -> bool {
        self.read == self.used
    }

    /// Whether the first request is a HEAD; `None` where it is over.
    pub(super) fn is_head(&self) -> Option<bool> {
        (self.requests == 0).then_some(&self.start == b"HEAD ")
    }
}

impl Line {
    pub(super) fn new(shared: Arc<Shared>, place: Arc<ConnectionEntry<TokioSocket>>) -> Arc<Self> {
        let state = State {
            stage: Stage::Idle,
            requests: 0,
            buffers: None,
            ended: 0,
            seen: Seen::default(),
            input_ended: false,
            late: false,
            client_stays: true,
            fresh: 0,
            missing: 0,
            body_is_open: false,
            torn: false,
            gone: false,
            #[cfg(feature = "tower")]
            too_large: false,
            tally: Tally::default(),
        };
        Arc::new(Self { shared, place, state: Mutex::new(state) })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Whether a shutdown has begun, and nothing of the client is known to be here but the request in hand. Where that is not
    /// known, the connection ends without a word once there is nothing more to read.
    pub(super) fn is_last(&self) -> bool {
        self.shared.roll.server.shutdown.is_begun() && self.state().tally.is_used()
    }

    /// hyper has an answer's last byte.
    pub(super) fn end_answer(&self) {
        self.state().ended += 1;
    }
}

impl State {
    pub(super) fn buffers(&mut self) -> &mut Buffers {
        self.buffers.get_or_insert_with(|| Box::new(Buffers::new()))
    }

    /// A request is answered before its body has come.
    pub(super) fn turn_down(&mut self) {
        self.client_stays = true;
        self.seen.again = true;
    }

    /// What was seen in the last poll.
    pub(super) fn take_seen(&mut self) -> Seen {
        self.fresh = 0;
        std::mem::take(&mut self.seen)
    }

    /// The bytes of which hyper has refused some, where all that were read for the present request are at hand: `left` is
    /// what it did not use.
    pub(super) fn refused<'a>(&'a self, left: &'a [u8]) -> Option<&'a [u8]> {
        if self.tally.requests == 0 && self.tally.read == self.fresh as u64 {
            return self.buffers.as_ref().and_then(|buffers| buffers.input.get(..self.fresh));
        }
        (self.tally.read.checked_sub(self.tally.used) == Some(left.len() as u64)).then_some(left)
    }

    /// Whether nothing but the start of HTTP/2 was read; `left` is what hyper did not use.
    pub(super) fn begins_with_preface(&self, left: &[u8]) -> bool {
        const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let start = left.get(..PREFACE.len()).unwrap_or(left);
        self.requests == 0 && self.tally.read == left.len() as u64 && !left.is_empty() && PREFACE.starts_with(start)
    }

    /// Whether hyper reads on, and nothing else, when it is polled.
    pub(super) fn is_reading(&self) -> bool {
        matches!(self.stage, Stage::Idle | Stage::Head | Stage::Done) && !self.body_is_open
    }

    /// hyper has handed over all that it has: the answers that have ended do so here.
    pub(super) fn flushed(&mut self) {
        if self.ended > 0 {
            let ended = std::mem::take(&mut self.ended);
            self.torn = false;
            if self.gone && ended == 1 {
                self.buffers().output.take_back();
            } else {
                self.buffers().output.end(ended);
            }
            if self.stage == Stage::Sending {
                self.stage = Stage::Done;
            }
        }
    }

    /// The request is done, and nothing more can be read: whether the connection is known to be idle.
    pub(super) fn rests(&mut self) -> bool {
        let idle = self.tally.nothing_is_left();
        if idle {
            self.begin(b"");
        }
        idle
    }

    /// Begins anew, with what is left of what was read.
    pub(super) fn begin(&mut self, left: &[u8]) {
        self.tally = Tally::default();
        self.tally.read(left);
        self.stage = if left.is_empty() { Stage::Idle } else { Stage::Head };
    }

    /// Sends what the kernel takes; hands out the rest. An error is met again with it.
    pub(super) fn send(&mut self, line: &Line, last: bool) -> Option<Box<Output>> {
        let output = &mut self.buffers.as_mut()?.output;
        self.torn |= output.is_partial();
        output.try_send(line, last);
        (!output.is_empty()).then(|| Box::new(std::mem::take(output)))
    }
}

/// `bytes` without the empty lines before a request.
pub(super) fn without_blank(bytes: &[u8]) -> &[u8] {
    let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    bytes.get(blank..).unwrap_or_default()
}
