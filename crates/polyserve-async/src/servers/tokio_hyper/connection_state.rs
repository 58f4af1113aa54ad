//! The state that a connection's future shares with hyper's callbacks: the stage of the present request, what was read, and the
//! output.
//!
//! hyper reports neither when a request begins nor when an answer is complete. Both are derived: the start from the bytes
//! read (`input`), the end from the drop of the answer's body and the flush after it.
//!
//! Invariant: the end of an answer is marked after hyper has written the answer's last byte to the output.
//!
//! Cost: an uncontended lock for each read, each write and each request, and one for the end of an answer.

use std::any::Any;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use hyper::server::conn::http1;
use polyserve_core::panics::text_of;
use polyserve_core::sync::lock;
use polyserve_core::{AnswerReport, BoxFuture, Reply};
use polyserve_serving::ServerState;
use polyserve_serving::http1::decode::Refusal;
use polyserve_serving::http1::encode::CONTINUE;
use polyserve_serving::http1::panicked;
use polyserve_serving::http1::turn::TurnBudget;

use super::input::Input;
use super::output::Output;
use crate::servers::toolkit::{ConnectionEntry, ConnectionRegistry, TokioSocket};

/// The state that all connections of a run share.
pub(crate) struct HyperShared {
    pub(super) registry: Arc<ConnectionRegistry<TokioSocket>>,
    pub(super) builder: http1::Builder,
    pub(super) server_header: Option<HeaderValue>,
    /// Serves a connection that begins with HTTP/2's preface. `None` if HTTP/2 is off.
    pub(super) http2: Option<Http2>,
    /// The number of answers after which a connection is closed.
    pub(super) max_requests: u64,
}

/// Serves a connection over HTTP/2. Takes the connection and the bytes that were read already.
pub(super) type Http2 = Box<dyn Fn(Arc<ConnectionState>, Bytes) -> BoxFuture<()> + Send + Sync>;

/// The stage of a connection's present request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// The client has sent nothing yet.
    #[default]
    FirstByte,
    /// There is no request.
    Idle,
    /// The head has begun.
    Head,
    /// The body is awaited.
    Body,
    /// The service's answer is awaited.
    Answer,
    /// The answer has begun.
    Sending,
    /// The output has the whole answer. The next request may have begun.
    Done,
    /// The connection speaks HTTP/2, which has no such stages.
    Http2,
}

impl Stage {
    /// Whether a request is in progress.
    pub(super) fn is_busy(self) -> bool {
        !matches!(self, Self::FirstByte | Self::Idle | Self::Done)
    }
}

/// The state of one connection.
pub(crate) struct ConnectionState {
    pub(super) shared: Arc<HyperShared>,
    pub(super) entry: Arc<ConnectionEntry<TokioSocket>>,
    pub(super) peer: Option<SocketAddr>,
    /// The number of answers that hyper has in full, with ends that are not yet marked in the output.
    unmarked_ends: AtomicU32,
    state: Mutex<RequestState>,
}

/// The part of a connection's state that changes.
#[derive(Default)]
pub(super) struct RequestState {
    /// The waker of the connection's task, which the socket wakes.
    pub(super) task: Option<Waker>,
    pub(super) output: Output,
    pub(super) events: PollEvents,
    /// `None` before the first turn.
    turn: Option<TurnBudget>,
    pub(super) stage: Stage,
    /// The number of requests that hyper has passed to the service's adapter.
    pub(super) requests: u64,
    /// A further request waits for the next turn.
    pub(super) waits_for_turn: bool,
    pub(super) input: Input,
    /// The number of bytes of the present body that the service has, or of the last one.
    pub(super) body_received: u64,
    /// The next read tries the socket even if the runtime has not reported it as ready.
    pub(super) must_read: bool,
    /// The client sends no more.
    pub(super) input_ended: bool,
    /// The present stage has timed out. The adapter answers at its next poll.
    pub(super) timed_out: bool,
    /// The connection is closed after the present answer.
    pub(super) is_last: bool,
    /// The close need not linger: the client has asked for it, and its request was not refused.
    pub(super) is_close_expected: bool,
    /// The request was answered before its body was complete. hyper must be polled again to notice that.
    pub(super) poll_again: bool,
    /// The number of bytes of the body that must still arrive before the service is called. Zero if it is unknown, or if the
    /// service reads the body itself.
    pub(super) missing_bytes: u64,
    /// The number of bytes of the present answer's body that hyper has not taken yet. Zero if it is not known: the answer is a
    /// stream.
    pub(super) untaken: u64,
    /// The service reads the request's body, and the body is not complete.
    pub(super) body_is_open: bool,
    /// A part of the present answer may have been sent, so the answer cannot be replaced.
    pub(super) partly_sent: bool,
    /// The client left during the present request. The answer is not sent.
    pub(super) client_left: bool,
    /// The present answer, if a hook sees the answers.
    pub(super) report: PendingReport,
    /// Why the body of the present request was refused, while it was read.
    pub(super) body_refusal: Option<Refusal>,
}

/// The events of one poll of hyper.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PollEvents {
    /// The last read found the socket empty.
    pub(super) input_drained: bool,
    /// A read after the shutdown had begun found the socket empty. So the connection may be closed.
    pub(super) may_close: bool,
    /// hyper could not write all its bytes, because the output was full.
    pub(super) output_full: bool,
}

/// What is known of the present answer, for a hook that sees the answers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PendingReport {
    /// The time of the last read. `None` without a hook.
    last_read: Option<Instant>,
    /// The time at which the first byte of the request was read.
    pub(super) begun: Option<Instant>,
    /// The status, once hyper has the head of the answer.
    status: Option<StatusCode>,
    /// The number of bytes that hyper has written since the answer before.
    bytes: usize,
}

impl PendingReport {
    /// Notes that bytes were read. They belong to the next request, unless a request is in progress.
    fn received(&mut self, server: &ServerState) {
        if server.env.on_answer.is_some() {
            self.last_read = Some(Instant::now());
            self.begun = self.begun.or(self.last_read);
        }
    }

    /// Notes that hyper begins with a request, of which the bytes may have been read together with the request before.
    fn begin(&mut self) {
        self.begun = self.begun.or(self.last_read);
    }

    /// Adds bytes that hyper has written. An interim answer is no part of the answer.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let is_interim = self.bytes == 0 && bytes.starts_with(CONTINUE);
        self.bytes += bytes.len() - if is_interim { CONTINUE.len() } else { 0 };
    }

    /// Returns the report, and begins a new one.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self { last_read: self.last_read, ..Self::default() })
    }
}

impl ConnectionState {
    pub(super) fn new(shared: Arc<HyperShared>, entry: Arc<ConnectionEntry<TokioSocket>>) -> Arc<Self> {
        let peer = entry.peer();
        Arc::new(Self { shared, entry, peer, unmarked_ends: AtomicU32::new(0), state: Mutex::default() })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, RequestState> {
        lock(&self.state)
    }

    pub(super) fn server(&self) -> &ServerState {
        &self.shared.registry.server
    }

    /// Whether the present request's answer is the last one: its request requires that, the connection was evicted, or a shutdown
    /// has begun and no byte after the request was read.
    pub(super) fn is_last(&self) -> bool {
        let state = self.state();
        let drains = || self.server().shutdown.is_begun() && state.input.nothing_follows(false);
        state.is_last || self.entry.is_evicted() || drains()
    }

    /// Whether the connection is to be closed once it is idle and its socket is empty.
    pub(super) fn must_leave(&self) -> bool {
        self.entry.is_evicted() || self.server().shutdown.is_begun()
    }

    /// Calls code of the service, without a lock.
    ///
    /// # Errors
    ///
    /// Returns the answer in place of the service's if the code panics.
    pub(super) fn calling<T>(&self, act: impl FnOnce() -> T) -> Result<T, Reply> {
        self.entry.calling(|| catch_unwind(AssertUnwindSafe(act))).map_err(|panic| self.panicked(panic))
    }

    /// Counts a panic of the service, and returns the answer.
    #[cold]
    pub(super) fn panicked(&self, panic: Box<dyn Any + Send>) -> Reply {
        self.server().count_panic();
        panicked(&self.server().env.failures, panic)
    }

    /// Drops a future or a body of the service. Its destructor may panic.
    pub(super) fn abandon<F>(&self, foreign: F) {
        if let Err(panic) = self.entry.calling(|| catch_unwind(AssertUnwindSafe(|| drop(foreign)))) {
            self.server().count_panic();
            let (failures, text) = (&self.server().env.failures, text_of(panic));
            polyserve_core::throttled!(of failures, warn, text, "what a service returned panicked in its destructor");
        }
    }

    /// Reports an answer that was made, if a hook sees the answers.
    pub(super) fn report_answer(&self, status: StatusCode, bytes: usize, begun: Option<Instant>) {
        if let Some(hook) = &self.server().env.on_answer {
            hook.call(&AnswerReport::new(status, bytes, begun, self.peer));
        }
    }

    /// Counts an answer that hyper has completely. Over HTTP/2 other threads call it.
    pub(super) fn end_answer(&self) {
        self.unmarked_ends.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether hyper has the whole present answer, and has not flushed it.
    pub(super) fn has_unmarked_end(&self) -> bool {
        self.unmarked_ends.load(Ordering::Acquire) > 0
    }

    /// Marks the ends of complete answers in the output. Called when hyper flushes, so the output has all their bytes.
    ///
    /// Over HTTP/2 an answer may be complete on another thread before its frame is written. An end in an empty output
    /// would be lost, so it is marked at the next flush.
    pub(super) fn mark_ends(&self) {
        if !self.has_unmarked_end() {
            return;
        }
        let mut state = self.state();
        if state.output.is_empty() {
            return;
        }
        let ends = self.unmarked_ends.swap(0, Ordering::AcqRel);
        state.partly_sent = false;
        if state.client_left && ends == 1 {
            state.output.discard_incomplete();
            state.report.take();
        } else {
            state.output.mark_ends(ends);
            state.report_answer(self);
        }
        if state.stage != Stage::Http2 {
            state.stage = Stage::Done;
        }
    }

    /// Counts an answer of which the end is the end of the connection. So no byte, and no flush, comes after it.
    pub(super) fn count_last_end(&self) {
        self.mark_ends();
        let ends = self.unmarked_ends.swap(0, Ordering::AcqRel);
        let mut state = self.state();
        if ends > 0 && !state.client_left {
            self.server().count_answered(u64::from(ends));
            state.report_answer(self);
        }
    }

    /// Sends the output. Waits while the kernel takes no more. Returns false if the client is gone.
    pub(super) fn poll_send(&self, cx: &mut Context<'_>, last: bool) -> Poll<bool> {
        self.state().output.poll_send(&self.entry, self.server(), cx, last)
    }
}

impl RequestState {
    /// Begins a request that hyper has passed on.
    pub(super) fn begin_request(&mut self, is_bodiless: bool) {
        self.requests += 1;
        self.is_last = false;
        self.report.begin();
        self.timed_out = false;
        self.missing_bytes = 0;
        self.body_received = 0;
        (self.body_is_open, self.body_refusal) = (!is_bodiless, None);
        self.stage = if is_bodiless { Stage::Answer } else { Stage::Body };
    }

    /// Begins a turn of the connection.
    pub(super) fn begin_turn(&mut self) {
        (self.turn, self.events) = (Some(TurnBudget::new(SystemTime::now)), PollEvents::default());
    }

    /// Counts a request in this turn. Returns false if the turn is over. The request then waits for the next one.
    pub(super) fn take_place_in_turn(&mut self) -> bool {
        self.waits_for_turn = self.turn.as_mut().is_some_and(|turn| {
            let is_over = turn.is_over();
            if !is_over {
                turn.count_request();
            }
            is_over
        });
        !self.waits_for_turn
    }

    /// Notes that hyper gets the head of an answer with this status. Not needed for an answer in one piece, unless a hook sees
    /// it.
    pub(super) fn begin_sending(&mut self, status: StatusCode, is_large: bool) {
        self.stage = Stage::Sending;
        self.report.status = Some(status).filter(|status| !status.is_informational());
        if is_large && let Some(turn) = &mut self.turn {
            turn.note_large();
        }
    }

    /// Notes that `input` was read.
    pub(super) fn received(&mut self, input: &[u8], server: &ServerState) {
        self.input.read(input);
        self.must_read = false;
        if matches!(self.stage, Stage::FirstByte | Stage::Idle) {
            self.stage = Stage::Head;
        }
        self.report.received(server);
    }

    /// Notes that the request is answered before its body is complete.
    pub(super) fn reply_early(&mut self) {
        self.is_close_expected = false;
        self.poll_again = true;
    }

    /// Notes that the request is refused: the end of its body may not be known, so no other request follows.
    pub(super) fn refuse(&mut self) {
        self.reply_early();
        (self.is_last, self.body_is_open) = (true, false);
    }

    /// Whether the bytes that were read are the start of HTTP/2's preface. `unused` has the bytes that hyper did not use.
    pub(super) fn begins_with_preface(&self, unused: &[u8]) -> bool {
        const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
        let start = unused.get(..PREFACE.len()).unwrap_or(unused);
        let is_all = self.input.rest() == unused.len() as u64;
        self.requests == 0 && is_all && !unused.is_empty() && PREFACE.starts_with(start)
    }

    /// Whether a request is in progress, or waits for its turn.
    pub(super) fn is_busy(&self) -> bool {
        self.waits_for_turn || self.stage.is_busy()
    }

    /// Whether hyper's next poll only reads.
    pub(super) fn is_reading(&self) -> bool {
        (self.stage == Stage::Head || !self.stage.is_busy()) && !self.body_is_open
    }

    /// Reports the present answer, of which bytes were made.
    pub(super) fn report_answer(&mut self, connection: &ConnectionState) {
        if let PendingReport { status: Some(status), bytes: 1.., .. } = self.report {
            let PendingReport { bytes, begun, .. } = self.report.take();
            connection.report_answer(status, bytes, begun);
        }
    }

    /// Becomes idle if hyper, which waits for input, has no part of a request. Returns false if that is unknown.
    pub(super) fn try_idle(&mut self) -> bool {
        let is_idle = self.input.nothing_follows(true);
        if is_idle {
            (self.stage, self.input) = (Stage::Idle, Input::default());
        }
        is_idle
    }

    /// Begins anew with the rest of hyper's input, after an answer. Returns the stage.
    pub(super) fn restart(&mut self, rest: &[u8]) -> Stage {
        (self.stage, self.input) = (Stage::Head, Input::default());
        self.input.read(rest);
        self.try_idle();
        self.stage
    }

    /// Sends the bytes that the kernel takes. Ignores an error: sending the rest returns an error too.
    pub(super) fn send(&mut self, connection: &ConnectionState, last: bool) {
        self.partly_sent |= self.output.is_partial();
        self.output.try_send(&connection.entry, connection.server(), last);
    }
}
