//! A connection's life without its socket and without a thread: what its driver does next, and until when it waits.
//!
//! A *driver* owns the socket. It makes the system calls, decides how a wait is made (a thread that blocks, `poll`, a future, a
//! ring) and which thread runs a turn. It decides nothing about HTTP, time or limits: it takes the [`Step`] that the connection
//! returns, and reports the result.
//!
//! ```text
//!            +-------------------------- begin_turn ---------------------------+
//!            v                                                                 |
//!   Read ── on_bytes ──► Write ── on_written ──► Await ── on_answer ──► ...  Yield
//!    │ on_empty            │ on_blocked            │ on_pending
//!    v                     v                       v
//!   Wait (bytes)          Wait (room)             Wait (answer)      Linger ──► Read ──► Close   Leave
//! ```
//!
//! After a wait, whatever ended it, the driver calls [`Connection::next`], or [`Connection::begin_turn`] for a new turn.
//!
//! What comes next is told by five types. Each is computed from those above it:
//!
//! | type | tells |
//! |---|---|
//! | [`Phase`] | which bytes of the present request are awaited; it selects the time limit |
//! | [`SessionStep`] | what the session needs next, without time and without limits |
//! | [`Step`] | what the driver does next; [`Step::Wait`] once the socket takes and has nothing |
//! | [`WaitFor`] | what ends this wait before its deadline |
//! | `WaitKind` | whether this wait is the one that has begun already, and keeps its deadline |
//!
//! Most turns begin and end *at rest*: the connection waits for its next request, and nothing is left to be written. So
//! [`begin_turn`](Connection::begin_turn) and [`on_empty`](Connection::on_empty) first look whether it is at rest, and then do at once
//! what `begin_turn_in_any_state` and `on_empty_in_any_state` would come to. The latter hold for every state.
//!
//! Invariants:
//!
//! * A wait has one deadline. It moves only if the body that is awaited has grown, or a client goes on with one after its last answer.
//! * When a deadline passes, the socket is tried once more before it is judged. So a process that was paused loses no request that
//!   came in time.
//! * While the connection may close, a drain or an eviction closes it as soon as its socket is found empty. If it has not sent a byte,
//!   a drain waits for it until [`ServerState::silent_until`] of its accept.
//! * After [`Step::Close`] and [`Step::Leave`], nothing is left to be done.
//!
//! Cost: nothing is allocated. The clock is read once for each new wait.

mod closing;
mod sealed;
mod turn;

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use polyserve_core::HandshakeFailure;

use crate::http1::{Phase, Session, SessionStep, TimeLimit};
use crate::net::FIRST_FLIGHT;
use crate::tls::TlsSession;
use crate::{DeadlineClock, ServerState, ThreadBuffers, millis, nanos};
pub use turn::{QueuedSince, Step, Turn, WaitFor};

/// A turn is over after this number of reads. The session bounds the requests of a turn, and this the bytes of bodies.
const MAX_TURN_READS: u32 = 8;

/// The state of one connection.
#[derive(Debug)]
pub struct Connection {
    session: Session,
    /// Of a server that speaks TLS, from the first byte of the connection on.
    tls: Option<TlsSession>,
    session_step: SessionStep,
    /// The kind of the present wait, and the stage of the session in it: the number of the request, and its phase. A new wait begins
    /// only if one of them changes.
    waiting: WaitKind,
    phase: Phase,
    request: u64,
    /// The start of the present wait, and its max time in nanoseconds. At first, when the connection was accepted.
    since: Instant,
    limit: u64,
    /// The deadline has passed, and the socket is tried once more.
    is_late: bool,
    is_lingering: bool,
    /// An output was larger than the client may have received before the close.
    has_sent_much: bool,
    /// The connection is closed while it is idle.
    is_leaving: bool,
    /// A request that had begun was dropped at the deadline of a shutdown.
    is_cut: bool,
    /// The number of the first request of the present turn.
    first_request: u64,
    /// The number of reads of the present turn.
    reads: u32,
}

/// The kind of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitKind {
    None,
    /// For bytes, or for the answer of the service.
    Session,
    Write,
    Linger,
}

impl Connection {
    /// The connection of `session`, which has just been accepted.
    #[inline]
    pub fn new(session: Session) -> Self {
        Self::accepted(session, Instant::now())
    }

    /// The connection of `session`, from which nothing was read since it was accepted.
    #[inline]
    pub fn accepted(session: Session, accepted: Instant) -> Self {
        let (session_step, (request, phase)) = (session.next_step(), session.stage());
        Self {
            session,
            tls: None,
            session_step,
            waiting: WaitKind::None,
            phase,
            request,
            since: accepted,
            limit: 0,
            is_late: false,
            is_lingering: false,
            has_sent_much: false,
            is_leaving: false,
            is_cut: false,
            first_request: 0,
            reads: 0,
        }
    }

    /// A connection that has sent its last answer, and lingers.
    pub fn lingering() -> Self {
        Self { is_lingering: true, ..Self::new(Session::new()) }
    }

    /// Begins a turn. Call [`ThreadBuffers::begin_turn`] before, if the requests of a turn are to be bounded.
    #[inline]
    pub fn begin_turn(&mut self, turn: &mut Turn<'_>) -> Step {
        if self.is_at_rest() & turn.server.http.admission.is_none() & !turn.server.shutdown.is_begun() {
            (self.first_request, self.reads) = (self.session.requests(), 0);
            return Step::Read { past_report: self.is_late | turn.is_evicted };
        }
        self.begin_turn_in_any_state(turn)
    }

    #[inline(never)]
    fn begin_turn_in_any_state(&mut self, turn: &mut Turn<'_>) -> Step {
        (self.first_request, _) = self.session.stage();
        self.reads = 0;
        if turn.server.http.admission.is_some() {
            turn.note_arrival(true); // for requests that were received before
        }
        if self.session_step == SessionStep::Yield {
            self.session_step = SessionStep::Write; // this is the next turn
        }
        self.next(turn)
    }

    /// Returns the next step, after a wait.
    #[allow(clippy::inline_always)] // at the start of each turn
    #[inline(always)]
    pub fn next(&mut self, turn: &mut Turn<'_>) -> Step {
        if turn.server.shutdown.is_begun() && turn.server.is_over() {
            return self.cut(turn);
        }
        if self.is_lingering { self.read(turn) } else { self.advance(turn) }
    }

    /// Returns the next step after the deadline of a shutdown.
    #[inline(never)]
    fn cut(&mut self, turn: &mut Turn<'_>) -> Step {
        // A request that has arrived is cut, so it must be seen.
        let is_idle = self.idle().is_some();
        if is_idle { Step::Read { past_report: true } } else { self.on_error(turn) }
    }

    /// Returns the next step of a connection that does not linger.
    #[allow(clippy::inline_always)] // twice for each request, and the usual way through is short
    #[inline(always)]
    fn advance(&mut self, turn: &mut Turn<'_>) -> Step {
        if self.tls.is_some() {
            self.seal(turn);
        }
        let unsent = self.output(turn.buffers).len();
        if unsent > 0 {
            self.has_sent_much |= unsent > FIRST_FLIGHT;
            let last = matches!(self.session_step, SessionStep::Close { .. });
            return Step::Write { last, past_report: self.is_late };
        }
        turn.server.count_own(&mut self.session, &mut turn.buffers.answers);
        if matches!(self.session_step, SessionStep::Read(_)) { self.read(turn) } else { self.end_output(turn) }
    }

    /// Returns the next step after the output is written, unless that is a read.
    #[inline(never)]
    fn end_output(&mut self, turn: &mut Turn<'_>) -> Step {
        match self.session_step {
            SessionStep::Close { linger: true } => Step::Linger,
            SessionStep::Close { linger: false } if self.is_leaving => Step::Leave,
            SessionStep::Close { linger: false } => self.end_last_answer(),
            SessionStep::Yield => Step::Yield,
            SessionStep::Answer => Step::Await,
            SessionStep::Read(_) => self.read(turn),
            SessionStep::Write => {
                turn.buffers.refresh(turn.server, turn.must_give_way() || self.has_worn_keys());
                self.session_step = self.session.resume(&mut turn.of_session());
                self.advance(turn)
            }
        }
    }

    #[inline]
    fn read(&self, turn: &Turn<'_>) -> Step {
        if self.reads >= MAX_TURN_READS {
            return Step::Yield;
        }
        Step::Read { past_report: self.is_late || self.leaves(turn) }
    }

    /// Whether the connection is closed once its socket is empty.
    #[inline]
    fn leaves(&self, turn: &Turn<'_>) -> bool {
        if !turn.is_evicted && turn.draining_at.is_none()
            || !matches!(self.session_step, SessionStep::Read(_))
            || self.is_lingering
        {
            return false;
        }
        let phase = self.phase();
        phase.may_close() && (turn.is_evicted || phase != Phase::FirstByte || self.is_silent_too_long(turn))
    }

    /// Whether a drain closes the connection, which has not sent a byte.
    #[cold]
    fn is_silent_too_long(&self, turn: &Turn<'_>) -> bool {
        turn.draining_at >= turn.server.silent_until(self.since)
    }

    /// The driver has read `count` bytes into the buffers of the turn.
    #[inline]
    pub fn on_bytes(&mut self, turn: &mut Turn<'_>, count: usize) -> Step {
        self.is_late = false;
        self.reads = self.reads.saturating_add(1);
        if self.is_closing() {
            return self.on_late_bytes(turn, count);
        }
        if turn.server.shutdown.is_begun() && turn.server.is_over() {
            self.is_cut |= self.session_step != SessionStep::Read(Phase::Skip); // a body that is skipped belongs to a request that is answered
            return self.on_error(turn);
        }
        if turn.server.http.notes_arrivals {
            turn.note_arrival(self.reads == 1);
        }
        if turn.server.has_tls() {
            return self.on_sealed(turn, count);
        }
        let others_wait = turn.must_give_way();
        self.session_step = turn.buffers.receive(count, &mut self.session, turn.server, others_wait);
        self.advance(turn)
    }

    /// The socket has nothing to read for now.
    #[inline]
    pub fn on_empty(&mut self, turn: &mut Turn<'_>) -> Step {
        let is_new_wait = self.waiting != WaitKind::Session || self.request != self.session.requests();
        if self.is_at_rest() & is_new_wait & !turn.is_evicted & turn.draining_at.is_none() {
            return self.wait_at_rest(turn);
        }
        self.on_empty_in_any_state(turn)
    }

    #[inline(never)]
    fn on_empty_in_any_state(&mut self, turn: &mut Turn<'_>) -> Step {
        if self.is_closing() && !self.is_lingering {
            return Step::Close; // nothing has come after the last request
        }
        if self.leaves(turn) {
            // The client may still be sending a refused body. The request for which an eviction comes too late may be on its way.
            let lingers = turn.is_evicted || matches!(self.session_step, SessionStep::Read(Phase::Skip));
            return self.leave(turn, lingers);
        }
        self.wait(turn, WaitFor::Input)
    }

    /// Closes a connection between two requests, without an answer. For a driver that finds out by itself that its connection is to
    /// close for another one.
    pub fn leave(&mut self, turn: &mut Turn<'_>, linger: bool) -> Step {
        self.session_step = SessionStep::Close { linger };
        self.is_leaving = true;
        self.advance(turn)
    }

    /// Returns the deadline of the wait for input, for a driver that waits as it reads. The deadline of a shutdown ends the wait too.
    /// If nothing has come by then, [`on_empty`](Self::on_empty) follows.
    #[inline]
    pub fn input_deadline(&mut self, turn: &Turn<'_>) -> Instant {
        self.begin_wait(turn, WaitKind::Session, (turn.clock)());
        let drained = self.drain_deadline(turn.server);
        drained.map_or(self.deadline(), |drained| drained.min(self.deadline()))
    }

    /// Returns the deadline of the wait for the kernel to take output, which begins now with this number of unsent bytes. For a driver
    /// that keeps the output while it waits. Others call [`on_blocked`](Self::on_blocked).
    pub fn write_deadline(&self, server: &ServerState, unsent: usize) -> Instant {
        // The client has time to read its answers, and none for the end of TLS.
        let limit = if self.has_only_end() { Duration::ZERO } else { TimeLimit::Write { unsent }.of(&server.config) };
        Instant::now() + limit
    }

    /// When a shutdown ends a wait of this connection; `None` if none has begun.
    #[inline]
    pub(crate) fn drain_deadline(&self, server: &ServerState) -> Option<Instant> {
        if server.shutdown.is_begun() { self.drain_deadline_of(server) } else { None }
    }

    #[cold]
    fn drain_deadline_of(&self, server: &ServerState) -> Option<Instant> {
        if self.idle() == Some(HasSent(false)) { server.silent_until(self.since) } else { server.shutdown.deadline() }
    }

    /// The phase of the present request.
    #[inline]
    pub fn phase(&self) -> Phase {
        self.stage().1
    }

    /// The stage of the session. A handshake, and an incomplete record, are the begun head of the next request.
    #[inline]
    fn stage(&self) -> (u64, Phase) {
        match (self.session.stage(), &self.tls) {
            ((request, Phase::FirstByte | Phase::Idle), Some(tls)) if tls.has_part() => (request, Phase::Head),
            (stage, _) => stage,
        }
    }

    /// The client sends no more.
    pub fn on_end(&mut self, turn: &mut Turn<'_>) -> Step {
        if self.is_closing() {
            return Step::Close;
        }
        if turn.server.is_over() {
            return self.on_error(turn); // this side may have ended it
        }
        self.fail_handshake(turn.server, HandshakeFailure::Closed);
        self.session_step = self.session.end_of_input();
        self.next(turn)
    }

    /// The connection is lost.
    pub fn on_error(&mut self, turn: &mut Turn<'_>) -> Step {
        let is_sealed = self.tls.as_ref().is_some_and(TlsSession::has_answers);
        let has_answers = !turn.buffers.http.out().is_empty() || is_sealed;
        self.is_cut |= has_answers && !self.is_lingering && turn.server.is_over();
        turn.buffers.http.clear();
        turn.buffers.tls.clear();
        self.abandon(turn.server)
    }

    /// The bytes to write.
    #[inline]
    pub fn output<'o>(&'o self, buffers: &'o ThreadBuffers) -> &'o [u8] {
        if let Some(tls) = &self.tls {
            return tls.output(&buffers.tls);
        }
        match self.session.unsent() {
            [] => buffers.http.out(),
            unsent => unsent,
        }
    }

    /// The kernel has taken the first `count` bytes of the output.
    #[inline]
    pub fn on_written(&mut self, turn: &mut Turn<'_>, count: usize) -> Step {
        self.note_written(turn, count);
        self.advance(turn)
    }

    /// Like [`on_written`](Self::on_written), for a thread that must not call the service. Then a turn must follow.
    #[allow(clippy::inline_always)] // for each output
    #[inline(always)]
    pub fn note_written(&mut self, turn: &mut Turn<'_>, count: usize) {
        if self.tls.is_some() {
            self.note_sealed_written(turn, count);
        } else if self.session.unsent().is_empty() {
            self.session.written(count, &mut turn.buffers.http);
        } else {
            self.session.advance(count);
        }
        if self.waiting == WaitKind::Write && self.is_new_output() {
            (self.waiting, self.is_late) = (WaitKind::None, false); // the next output has a wait of its own
        }
    }

    /// Whether the output is new: no part of the output was tried to be written before.
    #[inline]
    pub fn is_new_output(&self) -> bool {
        self.unsent() == 0
    }

    /// The number of bytes that were tried to be written, and that the kernel has not accepted.
    #[inline]
    fn unsent(&self) -> usize {
        self.tls.as_ref().map_or_else(|| self.session.unsent().len(), TlsSession::unsent)
    }

    /// The kernel takes no output for now. The session keeps the bytes, so that the thread can serve other connections.
    pub fn on_blocked(&mut self, turn: &mut Turn<'_>) -> Step {
        if self.tls.is_some() {
            if self.has_only_end() {
                return self.on_error(turn); // the client has time to read its answers, and none for that
            }
            self.note_sealed_written(turn, 0);
        } else if !turn.buffers.http.out().is_empty() {
            self.session.written(0, &mut turn.buffers.http);
        }
        turn.server.count_own(&mut self.session, &mut turn.buffers.answers);
        self.wait(turn, WaitFor::Room)
    }

    /// Polls the answer of the service.
    pub fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.session.poll_answer(cx)
    }

    /// The answer is there.
    pub fn on_answer(&mut self, turn: &mut Turn<'_>) -> Step {
        self.is_late = false;
        self.session_step = SessionStep::Write;
        self.advance(turn)
    }

    /// The answer is not there yet.
    pub fn on_pending(&mut self, turn: &mut Turn<'_>) -> Step {
        self.wait(turn, WaitFor::Answer)
    }

    /// The writing side is closed, and the connection lingers.
    pub fn on_lingering(&mut self, turn: &mut Turn<'_>) -> Step {
        self.is_lingering = true;
        self.is_late = false;
        self.begin_wait(turn, WaitKind::Linger, (turn.clock)());
        self.read(turn)
    }

    /// The connection is refused with a 503. To be called between requests only.
    pub fn reject(&mut self, turn: &mut Turn<'_>) -> Step {
        if turn.server.has_tls() && self.tls.as_ref().is_none_or(TlsSession::is_handshaking) {
            return self.reject_handshake(turn);
        }
        turn.buffers.refresh(turn.server, false);
        self.session_step = self.session.reject(&mut turn.of_session());
        self.advance(turn)
    }

    /// Whether the connection waits for its next request, and nothing else is to be done. It is so at the start and at the end of most
    /// turns, which then need no other look at the state.
    #[inline]
    fn is_at_rest(&self) -> bool {
        let is_idle = matches!(self.session_step, SessionStep::Read(Phase::Idle)) & !self.is_lingering;
        is_idle & !self.session.has_unsent() & self.tls.is_none()
    }

    /// Does what [`wait`](Self::wait) does for a new wait of a connection at rest.
    #[inline]
    fn wait_at_rest(&mut self, turn: &mut Turn<'_>) -> Step {
        let now = (turn.clock)();
        turn.buffers.note_end(now);
        (self.waiting, self.phase, self.is_late) = (WaitKind::Session, Phase::Idle, false);
        (self.request, self.since) = (self.session.requests(), now);
        self.limit = nanos(TimeLimit::Idle.of(&turn.server.config));
        Step::Wait(WaitFor::Input)
    }

    /// Waits, unless the deadline of the wait has passed.
    #[inline]
    fn wait(&mut self, turn: &mut Turn<'_>, reason: WaitFor) -> Step {
        let kind = match reason {
            WaitFor::Room => WaitKind::Write,
            WaitFor::Input if self.is_lingering => WaitKind::Linger,
            WaitFor::Input | WaitFor::Answer => WaitKind::Session,
        };
        let now = (turn.clock)();
        turn.buffers.note_end(now);
        self.begin_wait(turn, kind, now);
        // A wait that begins now is a wait, however short.
        if self.since == now || self.is_in_time(now) { Step::Wait(reason) } else { self.on_late_wait(turn, reason) }
    }

    /// The deadline of the present wait has passed: the socket is tried once more. If it was tried already, the wait has timed out.
    #[inline(never)]
    fn on_late_wait(&mut self, turn: &mut Turn<'_>, reason: WaitFor) -> Step {
        let is_tried = std::mem::replace(&mut self.is_late, true);
        let has_socket = reason != WaitFor::Answer;
        if has_socket && !is_tried { self.next(turn) } else { self.on_deadline(turn) }
    }

    /// Begins a wait of this kind at `now`. If it has begun before, it goes on, with the same deadline; but a body that arrives has more
    /// time.
    #[inline]
    fn begin_wait(&mut self, turn: &Turn<'_>, kind: WaitKind, now: Instant) {
        let stage = self.stage();
        let is_running = self.waiting == kind && ((self.request, self.phase) == stage || kind != WaitKind::Session);
        if is_running && (kind != WaitKind::Session || !matches!(stage.1, Phase::Body | Phase::Skip)) {
            return;
        }
        if !is_running {
            (self.waiting, self.is_late) = (kind, false);
            (self.request, self.phase) = stage;
            self.since = self.began(turn).unwrap_or(now);
            if let Some(tls) = self.tls.as_mut().filter(|_| kind == WaitKind::Session) {
                self.since = tls.wait_since(stage, self.since);
            }
        }
        let limit = match (kind, stage.1) {
            (WaitKind::Write, _) => TimeLimit::Write { unsent: self.unsent() },
            (WaitKind::Linger, _) => TimeLimit::Linger { sent: Duration::ZERO },
            (_, Phase::Idle) => TimeLimit::Idle,
            (_, Phase::Head) => TimeLimit::Head,
            _ => self.session.time_limit(),
        };
        self.limit = nanos(limit.of(&turn.server.config));
    }

    /// Whether the deadline of the present wait is later than `now`.
    fn is_in_time(&self, now: Instant) -> bool {
        nanos(now.saturating_duration_since(self.since)) < self.limit
    }

    /// When the present wait began, if that was before its turn.
    fn began(&self, turn: &Turn<'_>) -> Option<Instant> {
        let is_first = self.request == self.first_request && matches!(self.phase, Phase::FirstByte | Phase::Head);
        turn.queued_since.filter(|_| is_first && self.waiting == WaitKind::Session)?.instant()
    }

    /// The deadline of the present wait. The driver also ends the wait at the deadline of a shutdown.
    pub fn deadline(&self) -> Instant {
        self.since + Duration::from_nanos(self.limit)
    }

    /// When the present wait began, and its max time in milliseconds.
    #[inline]
    pub(crate) fn present_wait(&self) -> (Instant, u64) {
        (self.since, self.limit.div_ceil(NANOS_OF_A_MILLI))
    }

    /// The present wait in the times of `clock`. A shutdown may end the wait before. Costs one conversion.
    #[inline]
    pub fn wait_times(&self, clock: &DeadlineClock) -> WaitTimes {
        let (instant, began) = (self.since, clock.time_at(self.since));
        let since = millis(began);
        WaitTimes { instant, began, since, deadline: since.saturating_add(self.limit.div_ceil(NANOS_OF_A_MILLI)) }
    }

    /// The deadline of the wait has passed, and the socket was tried since: ends the wait.
    pub fn on_deadline(&mut self, turn: &mut Turn<'_>) -> Step {
        self.is_late = false;
        if self.is_lingering {
            return Step::Close;
        }
        let reads_too_slowly = !self.output(turn.buffers).is_empty();
        if reads_too_slowly || turn.server.is_over() {
            return self.on_error(turn);
        }
        self.fail_handshake(turn.server, HandshakeFailure::TimedOut);
        turn.buffers.refresh(turn.server, false);
        self.session_step = self.session.time_out(&mut turn.of_session());
        self.is_leaving = true; // or it is refused, and lingers
        self.advance(turn)
    }

    /// Drops the request and the output. After the deadline of a shutdown, the request is cut.
    pub fn abandon(&mut self, server: &ServerState) -> Step {
        self.is_cut |= !self.is_lingering && self.is_busy() && server.is_over();
        self.fail_handshake(server, HandshakeFailure::Closed);
        self.tls = None;
        self.session.abandon();
        server.count(&mut self.session);
        Step::Close
    }

    /// Whether a request was cut, and that was not taken before. The driver counts it.
    #[inline]
    pub fn take_cut(&mut self) -> bool {
        std::mem::take(&mut self.is_cut)
    }

    /// Whether more requests are answered once the output is written.
    pub fn has_more(&self) -> bool {
        matches!(self.session_step, SessionStep::Write | SessionStep::Yield)
    }

    /// The memory that is reserved for the connection, in bytes.
    pub fn reserved_bytes(&self) -> usize {
        self.session.reserved_bytes().saturating_add(self.tls.as_ref().map_or(0, TlsSession::reserved_bytes))
    }

    /// Whether the answer of the service is awaited.
    pub fn awaits_answer(&self) -> bool {
        self.session_step == SessionStep::Answer
    }

    /// Whether the connection has sent its last answer.
    #[inline]
    pub fn is_lingering(&self) -> bool {
        self.is_lingering
    }

    /// Whether every request that has begun is answered, so that the connection may be closed for another; and if so, whether its
    /// client has ever sent anything.
    #[inline]
    pub fn idle(&self) -> Option<HasSent> {
        if self.is_at_rest() {
            return Some(HasSent(self.session.requests() > 0));
        }
        let (requests, phase) = self.session.stage();
        let is_idle = !self.is_busy() && !self.is_lingering;
        is_idle.then_some(HasSent(requests > 0 || phase == Phase::Skip))
    }

    /// Whether a request has begun, and its answer is not completely written.
    #[inline]
    fn is_busy(&self) -> bool {
        self.session.is_busy() || self.tls.as_ref().is_some_and(|tls| tls.has_part() || tls.unsent() > 0)
    }
}

const NANOS_OF_A_MILLI: u64 = 1_000_000;

/// A wait of a [`Connection`] in the times of a [`DeadlineClock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimes {
    /// When it began, exactly.
    pub instant: Instant,
    /// The same, as a time of the clock.
    pub began: Duration,
    /// When it began, in milliseconds.
    pub since: u64,
    /// Its deadline, in milliseconds.
    pub deadline: u64,
}

/// Whether a client has ever sent anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HasSent(pub bool);

#[cfg(test)]
mod tests;
