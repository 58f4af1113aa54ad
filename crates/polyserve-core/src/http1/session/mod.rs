//! One HTTP/1.1 connection, without its socket: bytes in, answers out.
//!
//! A server reads, calls [`Session::receive`], writes what is in [`Scratch::out`], tells the session by
//! [`Session::written`], and does what the returned [`Want`] says. That is all that a strategy needs; what differs
//! between strategies is who does it and when.
//!
//! Invariants:
//!
//! * Requests are answered in order, one at a time; pipelined answers gather in one buffer and leave together.
//! * What the client is told does not depend on how its bytes were split; only `100 Continue`, and whether a refused
//!   request that asked for one ends the connection, depend on whether the body had come (RFC 9110, 10.1.1).
//! * Whatever foreign code does, panics included, the output holds whole answers only.
//! * Everything is bounded: an unread head, a body, the gathered output.
//!
//! Cost: a connection at rest owns no buffer. A request that arrives in one piece is parsed where it was read to; one
//! that does not is copied once.
//!
//! # Layout
//!
//! `read`: from bytes to requests; `respond`: from requests to answers; `pending_body`: a request whose body is still coming;
//! `unsent`: answers that the kernel has not taken yet.

mod carry;
mod pending_body;
mod read;
mod respond;
mod unsent;

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};
use std::time::Duration;

use carry::Carry;
use pending_body::PendingBody;
use unsent::Unsent;

use super::decode::{Parsed, Refusal};
use super::scratch::{Env, Scratch};
use crate::answer::BoxFuture;
use crate::config::ServerConfig;
use crate::executor::{dispose, isolated};
use crate::server::panic_text;
use crate::service::{Method, Reply, Status, Version};

/// Gathered answers of at least this many bytes are written before more requests are answered.
pub const OUTPUT_BOUND: usize = 64 * 1024;

/// The maximum number of empty lines that are skipped before a request line.
const MAX_EMPTY_LINES: u8 = 32;

/// What a session waits for, each with a timeout of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// A request's first byte.
    Idle,
    /// The rest of a head.
    Head,
    /// The rest of a body.
    Body,
    /// The service's answer.
    Answer,
}

impl Phase {
    /// How long it may last, in this configuration.
    pub fn timeout(self, config: &ServerConfig) -> Duration {
        match self {
            Self::Idle => config.idle_timeout,
            Self::Head => config.head_timeout,
            Self::Body => config.body_timeout,
            Self::Answer => config.answer_timeout,
        }
    }
}

/// What a session wants once the output has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Want {
    /// More bytes: call [`Session::receive`].
    Read(Phase),
    /// The service's answer: call [`Session::poll_answer`] until it is ready, then [`Session::resume`].
    Answer,
    /// Nothing but that the output is written: then call [`Session::resume`].
    Write,
    /// The end. `linger`: the client may still be sending, so close the writing side first and read on for a while, or
    /// the last answer could be lost to a reset.
    Close {
        /// Whether to linger.
        linger: bool,
    },
}

/// One connection.
pub struct Session {
    state: State,
    want: Want,
    /// Bytes received and not yet used: part of a head, or requests that wait for their turn.
    carry: Carry,
    /// Number of empty lines skipped before the request line that is expected.
    empty_lines: u8,
    input_ended: bool,
    /// Number of answers encoded.
    requests: u64,
    answered: u64,
    unsent: Option<Box<Unsent>>,
}

enum State {
    /// Between requests, or in a head.
    Head,
    Body(Box<PendingBody>),
    /// An answer was given before the body had come; the rest of the body is thrown away.
    Skip(Box<PendingBody>),
    Answer(Exchange, BoxFuture<Reply>),
    /// The answer is here, to be encoded.
    Answered(Exchange, Reply),
    Closed,
}

/// What of a request its answer's head depends on.
#[derive(Clone, Copy)]
struct Exchange {
    version: Version,
    head_only: bool,
    keep_alive: bool,
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}

impl Session {
    /// A connection that has just been accepted.
    pub fn new() -> Self {
        Self {
            state: State::Head,
            want: Want::Read(Phase::Idle),
            carry: Carry::default(),
            empty_lines: 0,
            input_ended: false,
            requests: 0,
            answered: 0,
            unsent: None,
        }
    }

    /// What it wants once the output has been written.
    pub fn want(&self) -> Want {
        self.want
    }

    /// Which timeout runs, and for which request: while this value stays the same, so does the deadline.
    pub fn stage(&self) -> (u64, Phase) {
        let phase = match (&self.state, self.want) {
            (State::Answer(..), _) => Phase::Answer,
            (_, Want::Read(phase)) => phase,
            _ => Phase::Idle,
        };
        // A refused body that is skipped belongs to the request that was answered last.
        let answered = u64::from(matches!(self.state, State::Skip(_)));
        (self.requests.saturating_sub(answered), phase)
    }

    /// Whether a request has begun and its answer is not yet wholly written.
    pub fn is_busy(&self) -> bool {
        let at_rest = matches!(self.want, Want::Read(Phase::Idle) | Want::Close { .. });
        self.unsent.is_some() || !(at_rest || matches!(self.state, State::Skip(_)))
    }

    /// How many answers were wholly written since the last call.
    pub fn take_answered(&mut self) -> u64 {
        std::mem::take(&mut self.answered)
    }

    /// Takes bytes that the client sent.
    pub fn receive(&mut self, bytes: &[u8], env: &Env, scratch: &mut Scratch) -> Want {
        if self.carry.is_empty() {
            let used = self.run(bytes, env, scratch);
            self.keep(bytes.get(used..).unwrap_or_default());
        } else {
            self.carry.append(bytes);
            if self.is_worth_a_look(bytes, &env.limits) {
                self.run_carried(env, scratch);
            }
        }
        self.want
    }

    /// Goes on, after the output was written or the answer has come.
    pub fn resume(&mut self, env: &Env, scratch: &mut Scratch) -> Want {
        self.run_carried(env, scratch);
        self.want
    }

    /// Takes note that the client sends no more. What has come whole is still answered.
    pub fn end_of_input(&mut self) -> Want {
        self.input_ended = true;
        if matches!(self.want, Want::Read(_)) {
            self.close(false);
        }
        self.want
    }

    /// Polls the answer that [`Want::Answer`] asks for. A panic in it is an answer too.
    pub fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let State::Answer(exchange, future) = &mut self.state else { return Poll::Ready(()) };
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        let reply = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(reply)) => reply,
            Err(panic) => panicked(panic),
        };
        let exchange = *exchange;
        self.settle(exchange, reply);
        Poll::Ready(())
    }

    /// The present [`Phase`] has lasted too long.
    pub fn time_out(&mut self, env: &Env, scratch: &mut Scratch) -> Want {
        let late = |detail| Refusal { status: Status::REQUEST_TIMEOUT, detail };
        match (&self.state, self.want) {
            (State::Answer(exchange, _), _) => {
                let exchange = Exchange { keep_alive: false, ..*exchange };
                let reply = Reply::problem(Status::SERVICE_UNAVAILABLE, "The answer did not come in time.");
                self.encode(exchange, &reply, true, env, scratch);
                self.close(true);
            }
            (State::Skip(_), Want::Read(_)) => self.close(true), // answered already
            (State::Body(pending), Want::Read(Phase::Body)) => {
                let head_only = is_head(&pending.head);
                self.refuse(late("The body did not come in time."), head_only, env, scratch);
            }
            (_, Want::Read(Phase::Head)) => {
                let head_only = is_head(self.carry.unused());
                self.refuse(late("The head did not come in time."), head_only, env, scratch);
            }
            _ => self.close(false),
        }
        self.want
    }

    /// Answers 503 in place of whatever the client asks: the server is full. For a connection between requests.
    pub fn reject(&mut self, env: &Env, scratch: &mut Scratch) -> Want {
        if matches!(self.state, State::Skip(_)) {
            self.close(true); // this request has its answer
            return self.want;
        }
        let exchange = Exchange { version: Version::Http11, head_only: false, keep_alive: false };
        let reply = Reply::problem(Status::SERVICE_UNAVAILABLE, "This server is full for now.");
        let reply = reply.with_header("Retry-After", "1").unwrap_or_else(|_| Reply::empty(Status::SERVICE_UNAVAILABLE));
        self.encode(exchange, &reply, true, env, scratch);
        self.close(true);
        self.want
    }

    /// Takes note that the first `count` bytes of the scratch's output were written; the rest is kept, behind what is
    /// kept already, in [`unsent`](Self::unsent). Empties the scratch.
    pub fn written(&mut self, count: usize, scratch: &mut Scratch) {
        let (rest, whole) = Unsent::split(scratch, count);
        self.answered = self.answered.saturating_add(whole);
        if let Some(rest) = rest {
            match &mut self.unsent {
                Some(unsent) => unsent.append(&rest),
                none => *none = Some(rest),
            }
        }
        scratch.clear();
    }

    /// What could not be written yet; empty where all was.
    pub fn unsent(&self) -> &[u8] {
        self.unsent.as_ref().map_or(&[], |unsent| unsent.rest())
    }

    /// Takes note that `count` more bytes of [`unsent`](Self::unsent) were written. True where nothing is left.
    pub fn advance(&mut self, count: usize) -> bool {
        let Some(unsent) = &mut self.unsent else { return true };
        self.answered = self.answered.saturating_add(unsent.advance(count));
        let done = unsent.rest().is_empty();
        if done {
            self.unsent = None;
        }
        done
    }

    /// Gives the connection up: it is cut.
    pub fn abandon(&mut self) {
        self.unsent = None;
        self.set_state(State::Closed);
        self.want = Want::Close { linger: false };
    }
}

fn exchange(parsed: &Parsed<'_>) -> Exchange {
    Exchange {
        version: parsed.head.version,
        head_only: parsed.head.method == Method::Head,
        keep_alive: parsed.keep_alive,
    }
}

/// Whether a request's head asks for an answer without its body, however malformed it is.
fn is_head(head: &[u8]) -> bool {
    head.starts_with(b"HEAD ")
}

/// Logs a service's panic and returns the answer to its request. The payload is dropped here; if its drop panics as well,
/// that panic ends here.
pub fn panicked(panic: Box<dyn Any + Send>) -> Reply {
    log_panic(panic, "a service panicked");
    Reply::problem(Status::INTERNAL_SERVER_ERROR, "The service panicked.")
}

/// Logs a panic of foreign code, and drops its payload. Both may panic in turn; that ends here.
fn log_panic(panic: Box<dyn Any + Send>, what: &str) {
    isolated(|| tracing::warn!(text = panic_text(panic.as_ref()), "{what}"));
    dispose(panic);
}

impl Drop for Session {
    fn drop(&mut self) {
        self.set_state(State::Closed);
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("want", &self.want).field("requests", &self.requests).finish_non_exhaustive()
    }
}
