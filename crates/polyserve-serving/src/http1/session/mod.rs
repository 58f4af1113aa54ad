//! One HTTP/1.1 connection without its socket: bytes go in, answers come out.
//!
//! A server reads bytes and passes them to [`Session::receive`]. It writes the bytes of [`SessionBuffers::out`], reports the
//! number of bytes written to [`Session::written`], and then takes the step that the returned [`SessionStep`] names. Servers
//! differ in when they take that step, and on which thread.
//!
//! Invariants:
//!
//! * Requests are answered in order, one at a time. Answers to pipelined requests are collected and written together.
//! * The answers do not depend on how the bytes were split. There are two exceptions, which depend on whether the body
//!   had arrived (RFC 9110, 10.1.1): `100 Continue`, and whether the refusal of a request that expects it closes the
//!   connection.
//! * The output holds complete answers only, even if the service panics.
//! * Memory is bounded: the limits cover a head, a body and the collected output. What a connection keeps while it waits counts
//!   towards the [memory budget](crate::memory) of its server.
//!
//! Cost: an idle connection owns no buffer. A request that arrives in one piece is parsed in the read buffer. Otherwise
//! its bytes are copied once or twice.
//!
//! # Layout
//!
//! * `read`: from bytes to requests.
//! * `respond`: from requests to answers.
//! * `reports`: what it keeps for the hook of answers, and the report of each answer.
//! * `kept`: what it keeps between two turns: unused bytes, an incomplete body, and answers that the kernel has not accepted.

mod kept;
mod read;
mod reports;
mod respond;

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};

use kept::{BufferedInput, PendingBody, Unsent};
use polyserve_core::http::header::RETRY_AFTER;
use polyserve_core::http::{HeaderValue, Method, StatusCode, Version};
use polyserve_core::log::LogThrottles;
use polyserve_core::panics::text_of;
use polyserve_core::{BoxFuture, ClientCertificate, Reply, isolated};
use reports::PresentRequest;

use super::decode::{EmptyLines, Parsed};
use super::http_state::SessionTurn;
use super::refusal::{LATE_BODY, LATE_HEAD, PLAIN_HTTP, late_answer};
use super::session_buffers::SessionBuffers;
use super::time_limit::TimeLimit;
use crate::memory::{MemoryBudget, MethodClass, Reservation};

/// If the collected answers have at least this many bytes, they are written before the next request is answered.
pub const OUTPUT_BOUND: usize = 64 * 1024;

/// A phase of a request. Each phase has its own timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Waiting for the first byte of the connection.
    FirstByte,
    /// Waiting for the first byte of a further request.
    Idle,
    /// Waiting for the rest of a head.
    Head,
    /// Waiting for the rest of a body.
    Body,
    /// Waiting for the rest of a refused body. Its request was answered, so the bytes are skipped.
    Skip,
    /// Waiting for the service's answer.
    Answer,
}

impl Phase {
    /// Whether every request that has begun is answered, so that the server may close the connection. If the rest of a
    /// body is skipped, a connection that closes must linger: the client may still be sending.
    pub fn may_close(self) -> bool {
        matches!(self, Self::FirstByte | Self::Idle | Self::Skip)
    }
}

/// The next step of a server, after it has written the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum SessionStep {
    /// Read bytes and call [`Session::receive`].
    Read(Phase),
    /// Wait for the service: call [`Session::poll_answer`] until it is ready, then [`Session::resume`].
    Answer,
    /// Write the output, then call [`Session::resume`].
    Write,
    /// The connection's [turn](SessionBuffers::begin_turn) is over, and more requests have arrived. Write the output, serve the
    /// other connections that are ready, and then call [`Session::resume`] in a new turn.
    Yield,
    /// Close the connection.
    Close {
        /// Whether the client may still be sending. If so, close the writing side first, and read and discard for a
        /// while. Otherwise a reset could destroy the last answer before the client reads it.
        linger: bool,
    },
}

/// The state of one connection.
pub struct Session {
    state: SessionState,
    step: SessionStep,
    buffered: BufferedInput,
    /// The empty lines before the request line that is expected.
    empty_lines: EmptyLines,
    input_ended: bool,
    /// The last read has filled its buffer. So a drain does not take the last request in the buffer for the last one that has arrived.
    more_follows: bool,
    /// Number of answers encoded.
    requests: u64,
    /// Number of answers encoded while other connections waited.
    crowded_answers: u32,
    answered: u64,
    /// The panics of the service that were not taken yet.
    panics: Option<Box<CaughtPanics>>,
    /// The connection was rejected, and that was not taken yet.
    rejected: bool,
    peer: Option<SocketAddr>,
    certificate: Option<ClientCertificate>,
    /// `None` unless a hook sees the answers. A hook of times needs it once a request is not answered at once.
    reported: Option<Box<PresentRequest>>,
    unsent: Option<Box<Unsent>>,
    /// The memory that the connection keeps while it waits: its input, its body and its unsent answers.
    reservation: Reservation,
}

enum SessionState {
    /// Between requests, or within a head.
    Head,
    Body(Box<PendingBody>),
    /// The request was answered before its body arrived. The rest of the body is discarded.
    Skip(Box<PendingBody>),
    Answer(AnswerContext, BoxFuture<Reply>),
    /// The answer has arrived and is not yet encoded. In a box, because every idle connection has room for the largest state.
    Answered(Box<(AnswerContext, Reply)>),
    Closed,
}

/// The bytes that have arrived after a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Following {
    /// Nothing but empty lines.
    Nothing,
    /// While other connections wait: a part of a request, or any bytes after a deferred answer. They are not served.
    Part,
    /// A request, which is served. It may be incomplete if no other connection waits.
    Request,
}

/// The properties of a request that the head of its answer depends on.
#[derive(Clone, Copy)]
struct AnswerContext {
    version: Version,
    head_only: bool,
    keep_alive: bool,
    /// `None` for an answer of the server in place of the service.
    method: Option<MethodClass>,
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}

impl Session {
    /// Creates the state of a connection without a socket. Its requests have no peer.
    pub fn new() -> Self {
        Self::from_peer(None)
    }

    /// Creates the state of a connection that has just been accepted. `peer` is the address of its other end.
    #[inline]
    pub fn from_peer(peer: Option<SocketAddr>) -> Self {
        Self {
            state: SessionState::Head,
            step: SessionStep::Read(Phase::FirstByte),
            buffered: BufferedInput::default(),
            empty_lines: EmptyLines::default(),
            input_ended: false,
            more_follows: false,
            requests: 0,
            crowded_answers: 0,
            answered: 0,
            panics: None,
            rejected: false,
            peer,
            certificate: None,
            reported: None,
            unsent: None,
            reservation: Reservation::default(),
        }
    }

    /// The address of the connection's other end, if it is known.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    /// Sets the certificate that the client has shown.
    pub fn set_certificate(&mut self, certificate: Option<ClientCertificate>) {
        self.certificate = certificate;
    }

    /// Returns the server's next step, after it has written the output.
    pub fn next_step(&self) -> SessionStep {
        self.step
    }

    /// Identifies the running wait for bytes or for an answer by the number of the request and its phase. Its
    /// [limit](Self::time_limit) counts from the time at which this value changed.
    #[inline]
    pub fn stage(&self) -> (u64, Phase) {
        let phase = match (&self.state, self.step) {
            (SessionState::Answer(..), _) => Phase::Answer,
            (_, SessionStep::Read(phase)) => phase,
            _ => Phase::Idle,
        };
        // A refused body that is skipped belongs to the request that was answered last.
        let answered = u64::from(matches!(self.state, SessionState::Skip(_)));
        (self.requests.saturating_sub(answered), phase)
    }

    /// Returns the limit on the wait that [`stage`](Self::stage) identifies. The limit of a body grows with its bytes.
    pub fn time_limit(&self) -> TimeLimit {
        let (_, phase) = self.stage();
        match (phase, &self.state) {
            (Phase::FirstByte, _) => TimeLimit::FirstByte,
            (Phase::Idle, _) => TimeLimit::Idle,
            (Phase::Head, _) => TimeLimit::Head,
            (Phase::Answer, _) => TimeLimit::Answer,
            (_, SessionState::Body(pending) | SessionState::Skip(pending)) => {
                TimeLimit::Body { received: pending.received }
            }
            (Phase::Body | Phase::Skip, _) => TimeLimit::Body { received: 0 },
        }
    }

    /// Whether a request has begun and its answer is not completely written.
    #[inline]
    pub fn is_busy(&self) -> bool {
        let at_rest =
            matches!(self.step, SessionStep::Read(Phase::FirstByte | Phase::Idle) | SessionStep::Close { .. });
        self.unsent.is_some() || !(at_rest || matches!(self.state, SessionState::Skip(_)))
    }

    /// Whether a part of the output is kept, because the kernel has not accepted it.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent.is_some()
    }

    /// The number of requests that were answered.
    #[inline]
    pub(crate) fn requests(&self) -> u64 {
        self.requests
    }

    /// Whether there are panics or a rejection that were not taken yet.
    #[inline]
    pub(crate) fn has_failures(&self) -> bool {
        self.panics.is_some() || self.rejected
    }

    /// Returns the number of answers that were completely written since the last call.
    #[inline]
    pub fn take_answered(&mut self) -> u64 {
        std::mem::take(&mut self.answered)
    }

    /// Returns the panics of the service since the last call.
    pub(crate) fn take_panics(&mut self) -> Option<Box<CaughtPanics>> {
        self.panics.take()
    }

    /// Whether the connection was [rejected](Self::reject) since the last call.
    pub fn take_rejected(&mut self) -> bool {
        std::mem::take(&mut self.rejected)
    }

    /// Processes bytes that the client sent.
    #[inline]
    pub fn receive(&mut self, bytes: &[u8], turn: &mut SessionTurn<'_>) -> SessionStep {
        if turn.http.on_answer.is_some() {
            self.note_read(turn);
        }
        self.more_follows = turn.buffers.input_is_full;
        if self.buffered.is_empty() {
            let used = self.run(bytes, turn);
            if used < bytes.len() {
                self.keep(bytes.get(used..).unwrap_or_default());
            }
        } else {
            self.buffered.append(bytes);
            if self.may_complete(bytes, &turn.http.limits) {
                self.run_buffered(turn);
            }
        }
        if turn.buffers.begun.is_some() | !self.buffered.is_empty() {
            self.keep_times(turn);
        }
        self.reserve_output(turn);
        self.step
    }

    /// Continues after the output was written or the answer has arrived.
    pub fn resume(&mut self, turn: &mut SessionTurn<'_>) -> SessionStep {
        self.run_buffered(turn);
        self.reserve_output(turn);
        self.step
    }

    /// The number of bytes that the connection keeps while it waits.
    fn kept_bytes(&self) -> usize {
        let body = match &self.state {
            SessionState::Body(pending) | SessionState::Skip(pending) => pending.capacity(),
            _ => 0,
        };
        let unsent = self.unsent.as_ref().map_or(0, |unsent| unsent.capacity());
        self.buffered.capacity().saturating_add(body).saturating_add(unsent)
    }

    /// The number of bytes that are reserved for the connection: what it keeps, and a large answer in the output.
    pub fn reserved_bytes(&self) -> usize {
        self.reservation.bytes()
    }

    /// Reserves the memory that the connection keeps, and that of the output. Notes the budget for the time when it is written.
    #[inline]
    fn reserve_output(&mut self, turn: &mut SessionTurn<'_>) {
        turn.buffers.set_memory(&turn.http.memory);
        self.reserve(&turn.http.memory, turn.buffers.out.len());
    }

    /// Reserves the memory that the connection keeps, and that of `output` bytes that are not written yet. Other threads must
    /// not use the room of a large answer before it is known how much the client takes. Output up to the usual bound is what a
    /// request in work uses, so it is not reserved.
    #[inline]
    fn reserve(&mut self, memory: &MemoryBudget, output: usize) {
        let has_body = matches!(self.state, SessionState::Body(_) | SessionState::Skip(_));
        let keeps_nothing = !has_body && self.buffered.is_empty() && self.unsent.is_none();
        if keeps_nothing && output <= OUTPUT_BOUND && self.reservation.is_empty() {
            return;
        }
        self.reserve_kept(memory, output);
    }

    #[inline(never)]
    fn reserve_kept(&mut self, memory: &MemoryBudget, output: usize) {
        let output = if output > OUTPUT_BOUND { output } else { 0 };
        self.reservation.set(memory, self.kept_bytes().saturating_add(output));
    }

    /// Records that the client sends no more. Requests that have arrived completely are still answered.
    pub fn end_of_input(&mut self) -> SessionStep {
        self.input_ended = true;
        if matches!(self.step, SessionStep::Read(_)) {
            self.close(false);
            self.reservation.shrink(self.kept_bytes());
        }
        self.step
    }

    /// Whether the client sends no more.
    pub(crate) fn input_ended(&self) -> bool {
        self.input_ended
    }

    /// Polls the answer that [`SessionStep::Answer`] waits for. If it panics, the answer is 500.
    pub fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let SessionState::Answer(context, future) = &mut self.state else { return Poll::Ready(()) };
        let context = *context;
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        let reply = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(reply)) => reply,
            Err(panic) => self.panicked(panic),
        };
        self.set_answered(context, reply);
        Poll::Ready(())
    }

    /// Ends the present [`Phase`]. Call it if the timeout of the phase has passed.
    pub fn time_out(&mut self, turn: &mut SessionTurn<'_>) -> SessionStep {
        match (&self.state, self.step) {
            (SessionState::Answer(context, _), _) => {
                let context = AnswerContext { keep_alive: false, ..*context };
                self.encode(context, &late_answer(), Following::Nothing, turn);
                self.close(true);
            }
            (SessionState::Skip(_), SessionStep::Read(_)) => self.close(true), // answered already
            (SessionState::Body(pending), SessionStep::Read(Phase::Body)) => {
                let head_only = is_head(&pending.head);
                self.refuse(LATE_BODY, head_only, turn);
            }
            (_, SessionStep::Read(Phase::Head)) => {
                let head_only = is_head(self.buffered.unused());
                self.refuse(LATE_HEAD, head_only, turn);
            }
            _ => self.close(false),
        }
        self.reserve_output(turn);
        self.step
    }

    /// Answers 503 because the server is full, whatever the client asks for. To be called between requests only.
    pub fn reject(&mut self, turn: &mut SessionTurn<'_>) -> SessionStep {
        if matches!(self.state, SessionState::Skip(_)) {
            self.close(true); // this request was answered
            self.reservation.shrink(self.kept_bytes());
            return self.step;
        }
        self.rejected = true;
        let context = AnswerContext { version: Version::HTTP_11, head_only: false, keep_alive: false, method: None };
        let reply = Reply::problem(StatusCode::SERVICE_UNAVAILABLE, "This server is full for now.");
        let reply = reply.with_field(RETRY_AFTER, HeaderValue::from_static("1"));
        self.encode(context, &reply, Following::Nothing, turn);
        self.close(true);
        self.reserve_output(turn);
        self.step
    }

    /// Like [`reject`](Self::reject), with `bytes` in place of the 503.
    pub(crate) fn reject_with(&mut self, bytes: &[u8], buffers: &mut SessionBuffers) -> SessionStep {
        self.rejected = true;
        buffers.out.extend_from_slice(bytes);
        self.close(true);
        self.step
    }

    /// Answers 400 to a client that speaks HTTP without TLS, to a server that speaks TLS.
    pub(crate) fn refuse_plain_http(&mut self, turn: &mut SessionTurn<'_>) -> SessionStep {
        self.refuse(PLAIN_HTTP, false, turn);
        self.step
    }

    /// Takes the output, which the caller sends in another form. Returns the number of answers that end in it, which the caller
    /// [counts](Self::count_answered) when they are sent.
    pub(crate) fn take_output(&mut self, buffers: &mut SessionBuffers) -> u64 {
        let answers = buffers.ends.len() as u64;
        if let Some(memory) = &buffers.memory {
            self.reserve(memory, 0);
        }
        buffers.clear();
        answers
    }

    /// Counts answers of [`take_output`](Self::take_output) that were completely written.
    pub(crate) fn count_answered(&mut self, answers: u64) {
        self.answered = self.answered.saturating_add(answers);
    }

    /// Records that the first `count` bytes of the output of `buffers` were written, and empties it. The other
    /// bytes are appended to [`unsent`](Self::unsent).
    #[inline]
    pub fn written(&mut self, count: usize, buffers: &mut SessionBuffers) {
        if count >= buffers.out.len() {
            self.answered = self.answered.saturating_add(buffers.ends.len() as u64);
        } else {
            self.keep_unsent(count, buffers);
        }
        if let Some(memory) = &buffers.memory {
            self.reserve(memory, 0);
        }
        buffers.clear();
    }

    /// Keeps the output after its first `count` bytes, and counts the answers that end in those bytes.
    #[inline(never)]
    fn keep_unsent(&mut self, count: usize, buffers: &SessionBuffers) {
        let (rest, complete) = Unsent::split(buffers, count);
        self.answered = self.answered.saturating_add(complete);
        if let Some(rest) = rest {
            match &mut self.unsent {
                Some(unsent) => unsent.append(&rest),
                none => *none = Some(rest),
            }
        }
    }

    /// Returns the bytes that are still to be written.
    #[inline]
    pub fn unsent(&self) -> &[u8] {
        self.unsent.as_ref().map_or(&[], |unsent| unsent.rest())
    }

    /// Records that `count` more bytes of [`unsent`](Self::unsent) were written. Returns whether none are left.
    pub fn advance(&mut self, count: usize) -> bool {
        let Some(unsent) = &mut self.unsent else { return true };
        self.answered = self.answered.saturating_add(unsent.advance(count));
        let done = unsent.rest().is_empty();
        if done {
            self.unsent = None;
            self.reservation.shrink(self.kept_bytes());
        }
        done
    }

    /// Gives up the connection. Its unsent bytes and its answer are dropped.
    pub fn abandon(&mut self) {
        self.unsent = None;
        self.set_state(SessionState::Closed);
        self.reservation = Reservation::default();
        self.step = SessionStep::Close { linger: false };
    }
}

fn answer_context(parsed: &Parsed<'_>) -> AnswerContext {
    AnswerContext {
        version: parsed.head.version,
        head_only: parsed.head.method == Method::HEAD,
        keep_alive: parsed.keep_alive,
        method: Some(MethodClass::of(parsed.method)),
    }
}

/// Whether the request is HEAD, even if it is malformed otherwise. Its answer has no body.
fn is_head(head: &[u8]) -> bool {
    head.starts_with(b"HEAD ")
}

/// Panics of a service. A server counts and logs them.
#[derive(Debug)]
pub(crate) struct CaughtPanics {
    pub(crate) count: u32,
    /// The text of the first one.
    text: String,
    /// What panicked.
    what: &'static str,
}

impl CaughtPanics {
    /// The payload of the panic is dropped here. If its drop panics as well, that panic ends here.
    fn new(panic: Box<dyn Any + Send>, what: &'static str) -> Self {
        Self { count: 1, text: text_of(panic), what }
    }

    pub(crate) fn log(&self, failures: &LogThrottles) {
        isolated(|| polyserve_core::throttled!(of failures, warn, text = self.text, "{}", self.what));
    }
}

/// Logs a service's panic, within the limits of `failures`, and returns the answer to its request.
pub fn panicked(failures: &LogThrottles, panic: Box<dyn Any + Send>) -> Reply {
    CaughtPanics::new(panic, "a service panicked").log(failures);
    panic_reply()
}

fn panic_reply() -> Reply {
    Reply::problem(StatusCode::INTERNAL_SERVER_ERROR, "The service panicked.")
}

impl Drop for Session {
    /// Drops the answer that is awaited. Logs the panics that no server has taken.
    fn drop(&mut self) {
        self.set_state(SessionState::Closed);
        if let Some(panics) = self.panics.take() {
            isolated(|| polyserve_core::throttled!(warn, text = panics.text, "{}", panics.what));
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("step", &self.step).field("requests", &self.requests).finish_non_exhaustive()
    }
}
