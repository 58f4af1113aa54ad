//! The state that a connection's future shares with hyper's callbacks: the stage of the present request, what was read, and the
//! output.
//!
//! hyper reports neither when a request begins nor when an answer is complete. A request begins when hyper may read its head
//! (`input`). The end of an answer is derived from the drop of its body and the flush after it.
//!
//! Invariant: the end of an answer is marked after hyper has written the answer's last byte to the output.
//!
//! Cost: an uncontended lock for each read, each write and each request. The end of an answer needs one of its own only if it comes
//! after the answer's last byte was written.

use std::any::Any;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use http::{HeaderValue, StatusCode, Version};
use hyper::rt::ReadBufCursor;
use hyper::server::conn::http1;
use polyserve_core::http::Method;
use polyserve_core::panics::text_of;
use polyserve_core::sync::lock;
use polyserve_core::{AnswerReport, BoxFuture, ClientCertificate, Head, Reply, ReportedRequest, RequestNotes};
use polyserve_serving::http1::decode::{Fields, Framing, Parsed, Refusal};
use polyserve_serving::http1::turn::TurnBudget;
use polyserve_serving::http1::{AgentFields, LastHeads, OUTPUT_BOUND, panicked};
use polyserve_serving::tls::TlsSession;
use polyserve_serving::{ConnectionHandle as _, ConnectionTable, ServerState, TableEntry};

use super::answer_body::take_spare;
use super::input::{Input, Next, with_last_heads};
use super::output::Output;
use super::tls::TlsEvents;
use crate::servers::toolkit::{AsyncConnection, TokioSocket};

/// The state that all connections of a run share.
pub(crate) struct HyperShared {
    pub(super) table: Arc<ConnectionTable<AsyncConnection<TokioSocket>>>,
    pub(super) builder: http1::Builder,
    pub(super) server_header: Option<HeaderValue>,
    /// Serves a connection that begins with HTTP/2's preface. `None` if HTTP/2 is off.
    pub(super) http2: Option<Http2>,
    /// The number of answers after which a connection is closed.
    pub(super) max_requests: u64,
}

/// Serves a connection over HTTP/2.
pub(super) type Http2 = Box<dyn Fn(Arc<ConnectionState>) -> BoxFuture<()> + Send + Sync>;

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
    pub(super) entry: Arc<TableEntry<AsyncConnection<TokioSocket>>>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) accepted: Instant,
    /// Set at the end of a handshake in which the client has shown one.
    pub(super) certificate: OnceLock<ClientCertificate>,
    /// The number of answers that hyper has in full, with ends that are not yet marked in the output. It has no lock, because a
    /// pipelined request would take two more.
    unmarked_ends: AtomicU32,
    state: Mutex<RequestState>,
}

/// The part of a connection's state that changes.
#[derive(Default)]
pub(super) struct RequestState {
    /// The waker of the connection's task, which the socket wakes.
    pub(super) task: Option<Waker>,
    /// Since when the task has waited for this turn. For an overload policy, if it is known.
    pub(super) arrived: Option<Instant>,
    pub(super) output: Output,
    pub(super) events: PollEvents,
    /// `None` before the first turn.
    turn: Option<TurnBudget>,
    pub(super) stage: Stage,
    /// The number of requests that hyper has begun to read.
    pub(super) requests: u64,
    /// A further request waits for the next turn.
    pub(super) waits_for_turn: bool,
    pub(super) input: Input,
    pub(super) present: PresentRequest,
    /// The next read tries the socket even if the runtime has not reported it as ready.
    pub(super) must_read: bool,
    /// The client sends no more.
    pub(super) input_ended: bool,
    /// The request was answered before its body was complete. hyper must be polled again to notice that.
    pub(super) poll_again: bool,
    /// The number of bytes of the present answer's body that hyper has not taken yet. Zero if it is not known: the answer is a
    /// stream.
    pub(super) untaken: u64,
    /// The client left during the present request. The answer is not sent.
    pub(super) client_left: bool,
    /// The present answer, if a hook sees the answers.
    pub(super) report: PendingReport,
    pub(super) tls_events: TlsEvents,
}

/// The present request, or the last one.
#[derive(Default)]
pub(super) struct PresentRequest {
    /// The connection is closed after the answer.
    pub(super) is_last: bool,
    /// The close need not linger: the client has asked for it, and its request was not refused.
    pub(super) is_close_expected: bool,
    /// The method is HEAD.
    pub(super) is_head: bool,
    /// The version is HTTP/1.0.
    pub(super) is_1_0: bool,
    /// The client waits for `100 Continue`.
    pub(super) expects_continue: bool,
    /// The present stage has timed out. The adapter answers at its next poll.
    pub(super) timed_out: bool,
    /// The length of the body. Zero if it is not known.
    pub(super) body_length: u64,
    /// The body arrived together with the head.
    pub(super) body_has_arrived: bool,
    /// The body, if hyper got all of its bytes with the head. Otherwise it is empty.
    whole_body: Vec<u8>,
    /// The number of bytes of the body that the service has.
    pub(super) body_received: u64,
    /// The service reads the body, and the body is not complete.
    pub(super) body_is_open: bool,
    /// What is wrong with the body. The service may not have read so far.
    pub(super) body_fault: Option<Refusal>,
    /// Why the body was refused to the service that reads it.
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
#[derive(Debug, Default)]
pub(super) struct PendingReport {
    /// The time of the last read. `None` without a hook.
    last_read: Option<Instant>,
    /// The time at which the first byte of the request was read.
    begun: Option<Instant>,
    /// The status, once hyper has the head of the answer.
    status: Option<StatusCode>,
    /// The number of bytes of the answer that hyper has written.
    pub(super) bytes: usize,
    /// The request line. `None` without a hook.
    line: Option<Box<(Method, String, Version)>>,
    /// `None` unless a hook needs them.
    agent: Option<Box<AgentFields>>,
    /// The client that the head names, or the connection's other end. `None` until the head is decoded.
    client: Option<SocketAddr>,
    /// What the service has noted.
    pub(super) notes: RequestNotes,
}

impl PendingReport {
    /// Notes that bytes were read.
    fn received(&mut self, server: &ServerState) {
        if server.http.on_answer.is_some() {
            self.last_read = Some(Instant::now());
        }
    }

    /// Notes that a request begins. Its first bytes were in the last read.
    fn begin(&mut self) {
        self.begun = self.begun.or(self.last_read);
    }

    /// Notes the head of the request.
    fn set_line(&mut self, head: &Head<'_>, server: &ServerState) {
        if self.last_read.is_some() {
            let target = if server.http.reports_clients { head.target.to_owned() } else { String::new() };
            self.line = Some(Box::new((head.method.clone(), target, head.version)));
        }
        if server.http.reports_agents {
            self.agent.get_or_insert_default().set(|name| head.headers.get(name));
        }
    }

    /// Returns the report of an answer with this status and this number of bytes.
    pub(super) fn answer(&self, status: StatusCode, bytes: usize, peer: Option<SocketAddr>) -> AnswerReport<'_> {
        let line = self.line.as_deref();
        let line = line.map(|&(ref method, ref target, version)| ReportedRequest { method, target, version });
        let mut report = AnswerReport::new(status, bytes, self.begun, self.client.or(peer)).noted(&self.notes).to(line);
        if let Some(agent) = &self.agent {
            agent.report(&mut report);
        }
        report
    }

    /// Returns the report, and begins a new one.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self { last_read: self.last_read, ..Self::default() })
    }
}

/// Returns the address of the client of a request with these fields, on a connection with `peer`.
#[cfg(any(feature = "http2", feature = "tower"))]
pub(super) fn client(server: &ServerState, peer: Option<SocketAddr>, fields: &http::HeaderMap) -> Option<SocketAddr> {
    let proxies = &server.http.proxies;
    if proxies.is_empty() {
        return peer;
    }
    proxies.client(peer, |name| fields.get_all(name).iter().map(HeaderValue::as_bytes))
}

impl ConnectionState {
    pub(super) fn new(shared: Arc<HyperShared>, entry: Arc<TableEntry<AsyncConnection<TokioSocket>>>) -> Arc<Self> {
        let (peer, accepted, certificate) = (entry.peer(), Instant::now(), OnceLock::new());
        let (unmarked_ends, state) = (AtomicU32::new(0), Mutex::default());
        Arc::new(Self { shared, entry, peer, accepted, certificate, unmarked_ends, state })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, RequestState> {
        lock(&self.state)
    }

    pub(super) fn server(&self) -> &ServerState {
        &self.shared.table.server
    }

    /// Returns the address of the client of a request with these fields.
    #[cfg(feature = "http2")]
    pub(super) fn client(&self, fields: &http::HeaderMap) -> Option<SocketAddr> {
        client(self.server(), self.peer, fields)
    }

    /// Whether the present request's answer is the last one: its request requires that, the connection was evicted, or a shutdown
    /// has begun and no byte after the request was read.
    pub(super) fn is_last(&self) -> bool {
        let state = self.state();
        let drains = || self.server().shutdown.is_begun() && state.input.is_blank();
        state.present.is_last || self.entry.is_evicted() || drains() || state.has_worn_keys()
    }

    /// Whether the connection is to be closed once it is idle, in this stage, and its socket is empty.
    pub(super) fn must_leave(&self, stage: Stage) -> bool {
        let server = self.server();
        self.entry.is_evicted()
            || server.shutdown.is_begun() && (stage != Stage::FirstByte || server.closes_silent(self.accepted))
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
        panicked(&self.server().http.failures, panic)
    }

    /// Drops a future or a body of the service. Its destructor may panic.
    pub(super) fn abandon<F>(&self, foreign: F) {
        if let Err(panic) = self.entry.calling(|| catch_unwind(AssertUnwindSafe(|| drop(foreign)))) {
            self.server().count_panic();
            let (failures, text) = (&self.server().http.failures, text_of(panic));
            polyserve_core::throttled!(of failures, warn, text, "what a service returned panicked in its destructor");
        }
    }

    /// Reports an answer that was made, if a hook sees the answers.
    pub(super) fn report_answer<'r>(&self, report: impl FnOnce() -> AnswerReport<'r>) {
        if let Some(hook) = &self.server().http.on_answer {
            hook.call(&report());
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

    /// Marks the ends of complete answers in the output. Called when the output has all their bytes: hyper flushes, or it has
    /// written its whole buffer.
    ///
    /// Over HTTP/2 an answer may be complete on another thread before its frame is written. An end in an empty output
    /// would be lost, so it is marked at the next flush.
    pub(super) fn mark_ends(&self) {
        if self.has_unmarked_end() {
            self.state().mark_ends(self);
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
    /// Begins a request, of which hyper may read the head.
    fn begin_request(&mut self, parsed: &Parsed<'_>, connection: &ConnectionState) {
        self.requests += 1;
        let body_is_open = parsed.framing != Framing::Length(0);
        self.present = PresentRequest {
            // hyper misses a `close` in a value with bytes that are no text.
            is_last: self.requests >= connection.shared.max_requests || !parsed.keep_alive,
            is_close_expected: !parsed.keep_alive,
            is_head: parsed.head.method == Method::HEAD,
            is_1_0: parsed.head.version == Version::HTTP_10,
            expects_continue: parsed.expects_continue,
            body_length: if let Framing::Length(length) = parsed.framing { length } else { 0 },
            body_has_arrived: self.input.has_whole_request(),
            body_is_open,
            ..PresentRequest::default()
        };
        self.report.begin();
        self.report.set_line(&parsed.head, connection.server());
        self.report.client = connection.server().http.client(connection.peer, parsed.head.headers);
        self.stage = if body_is_open { Stage::Body } else { Stage::Answer };
        if let Some(turn) = &mut self.turn {
            turn.count_request();
        }
    }

    /// Begins a turn of the connection.
    pub(super) fn begin_turn(&mut self) {
        (self.turn, self.events) = (Some(TurnBudget::new(Instant::now)), PollEvents::default());
    }

    /// Does what [`ConnectionState::mark_ends`] does, for a caller that has the lock.
    pub(super) fn mark_ends(&mut self, connection: &ConnectionState) {
        if !connection.has_unmarked_end() || self.output.bytes.is_empty() {
            return;
        }
        let ends = connection.unmarked_ends.swap(0, Ordering::AcqRel);
        if self.client_left && ends == 1 {
            self.output.discard_present();
            self.report.take();
        } else {
            self.output.mark_ends(ends);
            self.report_answer(connection);
        }
        if self.stage != Stage::Http2 {
            self.stage = Stage::Done;
        }
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

    /// Whether the connection goes on as HTTP/2, which TLS has negotiated or the first bytes say.
    pub(super) fn begins_http2(&self) -> bool {
        match self.has_negotiated_http2() {
            true => self.input.has_unread(),
            false => self.requests == 0 && self.input.refusal.is_some() && self.input.begins_with_preface(),
        }
    }

    /// Whether hyper may read more of the socket. A further request is not read before the present one is answered, its answer is
    /// in the output, and the output has room.
    pub(super) fn may_read(&mut self) -> bool {
        if self.stage == Stage::Http2 || !self.input.is_between_requests() {
            return true;
        }
        self.events.output_full |= self.output.unsent() >= OUTPUT_BOUND;
        self.is_answered() && !self.waits_for_turn && self.input.refusal.is_none() && !self.events.output_full
    }

    /// Passes on to hyper what was received before. It is pending if that is nothing.
    pub(super) fn pass_on(&mut self, connection: &ConnectionState, to: &mut ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        self.waits_for_turn = false;
        if !self.may_read() {
            return Poll::Pending;
        }
        let Some((bytes, before)) = self.input.take() else { return Poll::Pending };
        let (used, passed) = self.pass_on_of(connection, bytes.get(before..).unwrap_or_default(), to);
        self.input.put_back(bytes, before + used);
        passed
    }

    /// Passes on to hyper what it may read of `new` bytes, and keeps the others. It is pending if that is nothing.
    pub(super) fn received(
        &mut self,
        connection: &ConnectionState,
        new: &[u8],
        to: &mut ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.must_read = false;
        self.report.received(connection.server());
        let limits = &connection.server().http.limits;
        if self.input.has_unread() {
            return match self.input.append(new, limits) {
                true => self.pass_on(connection, to),
                false => Poll::Pending,
            };
        }
        let (used, passed) = self.pass_on_of(connection, new, to);
        self.input.keep(new.get(used..).unwrap_or_default());
        passed
    }

    /// Passes on to hyper what it may read at the start of `bytes`. Returns the number of bytes that are used.
    fn pass_on_of(
        &mut self,
        connection: &ConnectionState,
        bytes: &[u8],
        to: &mut ReadBufCursor<'_>,
    ) -> (usize, Poll<io::Result<()>>) {
        if self.stage == Stage::Http2 {
            let count = bytes.len().min(to.remaining());
            to.put_slice(bytes.get(..count).unwrap_or(bytes));
            return (count, Poll::Ready(Ok(())));
        }
        if self.has_negotiated_http2() {
            return (0, Poll::Pending);
        }
        if self.input.is_between_requests() && self.turn.as_mut().is_some_and(TurnBudget::is_over) {
            self.waits_for_turn = true;
            return (0, Poll::Pending);
        }
        with_last_heads(|last_heads| self.pass_on_next(connection, bytes, last_heads, to))
    }

    /// Passes on to hyper the next head or a part of the present request. Returns the number of bytes that are used.
    fn pass_on_next(
        &mut self,
        connection: &ConnectionState,
        bytes: &[u8],
        last_heads: &mut LastHeads,
        to: &mut ReadBufCursor<'_>,
    ) -> (usize, Poll<io::Result<()>>) {
        let (mut fields, mut begins_body) = (Fields::new(), false);
        let (skipped, next) = self.input.next(bytes, &connection.server().http.limits, last_heads, &mut fields);
        match next {
            Next::Part => {}
            Next::Head(parsed) => {
                self.begin_request(&parsed, connection);
                begins_body = matches!(parsed.framing, Framing::Length(1..));
            }
            Next::More | Next::Refused => {
                if self.is_answered() && skipped < bytes.len() {
                    self.stage = Stage::Head;
                    self.report.begin();
                } else if self.is_reading() {
                    self.stage = Stage::Idle;
                }
                return (skipped, Poll::Pending);
            }
            Next::InvalidBody(refusal) => {
                self.present.body_fault = Some(refusal);
                return (0, Poll::Ready(Err(ErrorKind::InvalidData.into())));
            }
        }
        let unread = bytes.get(skipped..).unwrap_or_default();
        let passed = self.input.pass_on(unread, to);
        if begins_body && self.input.is_between_requests() {
            self.keep_body(unread.get(..passed).unwrap_or_default());
        }
        (skipped + passed, Poll::Ready(Ok(())))
    }

    /// Keeps the body of `request`, of which hyper has got the last byte.
    fn keep_body(&mut self, request: &[u8]) {
        let length = usize::try_from(self.present.body_length).unwrap_or(usize::MAX);
        let head = request.len().saturating_sub(length);
        self.present.whole_body = take_spare();
        self.present.whole_body.extend_from_slice(request.get(head..).unwrap_or_default());
    }

    /// Takes the body of the present request, and notes that it is received. `None` if it did not come with the head, or is larger
    /// than `limit`.
    pub(super) fn take_body(&mut self, limit: usize) -> Option<Vec<u8>> {
        let present = &mut self.present;
        if present.whole_body.is_empty() || present.whole_body.len() > limit {
            return None;
        }
        (present.body_received, present.body_is_open) = (present.body_length, false);
        self.stage = Stage::Answer;
        Some(std::mem::take(&mut present.whole_body))
    }

    /// Notes that the request is answered before its body is complete.
    pub(super) fn reply_early(&mut self) {
        self.present.is_close_expected = false;
        self.poll_again = true;
    }

    /// Notes that the request is refused: the end of its body may not be known, so no other request follows.
    pub(super) fn refuse(&mut self) {
        self.reply_early();
        (self.present.is_last, self.present.body_is_open) = (true, false);
    }

    /// Notes that the service reads no more of the body, which is not complete. hyper skips a body of known length that it has. Otherwise
    /// it closes the connection, and the answer says so if it is not made yet.
    pub(super) fn drop_body(&mut self) {
        self.reply_early();
        self.present.is_last |= self.present.body_length == 0 || !self.input.is_between_requests();
    }

    /// Whether the connection has sent as much as its keys are good for.
    pub(super) fn has_worn_keys(&self) -> bool {
        self.output.tls.as_ref().is_some_and(TlsSession::has_worn_keys)
    }

    /// Whether a request is in progress, or waits for its turn.
    pub(super) fn is_busy(&self) -> bool {
        self.waits_for_turn || self.stage.is_busy() || self.has_tls_part()
    }

    /// Whether the last request is answered, as far as the service is concerned.
    fn is_answered(&self) -> bool {
        self.stage == Stage::Head || !self.stage.is_busy()
    }

    /// Whether hyper's next poll only reads.
    pub(super) fn is_reading(&self) -> bool {
        self.is_answered() && !self.present.body_is_open
    }

    /// Reports the present answer, of which bytes were made.
    pub(super) fn report_answer(&mut self, connection: &ConnectionState) {
        if let PendingReport { status: Some(status), bytes: 1.., .. } = self.report {
            let mut report = self.report.take();
            connection.report_answer(|| report.answer(status, report.bytes, connection.peer));
            if let Some(agent) = &mut report.agent {
                agent.clear();
            }
            self.report.agent = report.agent; // with its room
        }
    }

    /// Sends the bytes that the kernel takes. Ignores an error: sending the rest returns an error too.
    pub(super) fn send(&mut self, connection: &ConnectionState, last: bool) {
        self.output.try_send(&connection.entry, connection.server(), last);
    }
}
