//! One connection, from its first poll to its close: a future that polls hyper's connection.
//!
//! hyper parses, frames and encodes. This file has the deadlines, the drain and the close. After each poll of hyper it
//! sends the output that hyper wrote.
//!
//! Invariants: whenever the future waits, it is woken by its socket, its answer, its deadline or a shutdown. hyper is not
//! polled while its output waits for the client. When a deadline passes, the socket is first tried once more. So a process
//! that was paused loses no request that had arrived in time.
//!
//! Cost: a read and a write for each batch of requests, a clock read for each wait. A connection that is idle for a second
//! drops hyper's connection and its buffers.

use std::future::Future;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hyper::server::conn::http1;
use polyserve_core::{BoxFuture, HandshakeFailure};
use polyserve_serving::http1::TimeLimit;
use polyserve_serving::http1::refusal::LATE_HEAD;
use polyserve_serving::tls::TlsSession;
use polyserve_serving::{Connection, ConnectionHandle as _, ServerState, TableEntry, net, with_buffers};

use super::adapter::Adapter;
use super::connection_state::{ConnectionState, HyperShared, Stage};
use super::error_response::{self, INVALID_BODY};
use super::input::Input;
use super::io::HyperIo;
use super::output::Output;
use super::poll_waker::PollWaker;
use crate::servers::connection_task::ConnectionTask;
use crate::servers::toolkit::{AsyncConnection, AsyncSocket as _, TaskWaker, TokioSocket};

/// A connection over HTTP/1.
pub(crate) struct HyperConnection {
    state: Arc<ConnectionState>,
    service: Adapter,
    /// `None` after a longer idle time, and after the end.
    hyper: Option<http1::Connection<HyperIo, Adapter>>,
    /// The waker of the task.
    task: TaskWaker,
    /// The waker of hyper's polls. `None` before the first one.
    waker: Option<(Arc<PollWaker>, Waker)>,
    /// The output waits for the client.
    is_blocked: bool,
    /// The last poll of hyper ended with an empty socket. So a body that is not complete is the client's to send.
    body_is_awaited: bool,
    /// hyper is done, and the connection is to be closed.
    close: Option<Close>,
    /// Serves the connection from now on: it speaks HTTP/2, or lingers.
    successor: Option<BoxFuture<()>>,
    /// The number of bytes that must have arrived before the task is woken.
    low_water: u64,
    waiting: WaitReason,
    /// The start of the present wait.
    since: Instant,
    deadline: Instant,
    /// The deadline has passed, and the socket was tried once more.
    was_retried: bool,
}

/// The result of a step.
enum StepResult {
    /// Another step can follow now.
    Continue,
    /// Another step can follow after the other tasks.
    Yield,
    /// The task waits.
    Wait,
    /// The connection is to be closed.
    End,
}

/// How a connection is closed after its output is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Close {
    AtOnce,
    /// The client has announced that it sends nothing more. It lingers if bytes have come all the same, or if its output may still be on
    /// its way, as a [connection](polyserve_serving::Connection) of the other servers does.
    AfterLastAnswer,
    /// It was idle. The writing side is closed first: a request may be on its way, and its client then reads the end, not a reset.
    Leave,
    /// The writing side is closed first. Bytes that the client still sends are discarded for a while.
    Linger,
}

impl ConnectionState {
    /// Closes the socket. Returns what is to be polled until it is closed, if that takes time.
    pub(super) fn close_socket(&self, close: Close) -> Option<BoxFuture<()>> {
        let (table, entry) = (&self.shared.table, &self.entry);
        let is_over = match close {
            Close::AtOnce => true,
            Close::AfterLastAnswer => {
                !self.state().output.has_sent_much
                    && !entry.with_fd(|socket| Ok(net::has_input(socket))).unwrap_or(false)
            }
            Close::Leave | Close::Linger => false,
        };
        if is_over || entry.with_fd(|socket| net::end_output(socket)).is_err() {
            return None;
        }
        if close == Close::Leave || !table.begin_linger(entry) {
            let leave = |socket: BorrowedFd<'_>| with_buffers(|buffers| net::leave(socket, &mut buffers.input));
            let _ = entry.with_fd(leave); // an error: the client is gone
            return None;
        }
        Some(Box::pin(ConnectionTask::new(Arc::clone(table), Arc::clone(entry), Connection::lingering())))
    }
}

/// The reason for a deadline. A new wait begins only if the reason changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitReason {
    Nothing,
    Stage(u64, Stage),
    /// The kernel takes no more output. An answer of known length has one wait, a stream has one for each piece. The number is
    /// that of the request.
    Write(u64),
}

impl WaitReason {
    /// Whether a request is in progress.
    fn is_busy(self) -> bool {
        !matches!(self, Self::Stage(_, stage) if !stage.is_busy())
    }
}

/// The idle time after which hyper's connection and its buffers are dropped.
const PARKED_AFTER: Duration = Duration::from_secs(1);

/// The timeout of a wait without a limit.
pub(super) const NO_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// The highest low-water mark. A receive buffer has room for more bytes, so a long body is read in parts while it arrives.
const MAX_LOW_WATER: u64 = 16 * 1024;

/// The maximum number of polls of hyper in one poll of the task, so that other tasks get their turn. It bounds the bytes of
/// bodies; the turn bounds the requests.
const MAX_STEPS: usize = 2;

impl HyperConnection {
    /// A connection that has just been accepted.
    pub(super) fn new(service: Adapter) -> Self {
        Self {
            state: Arc::clone(&service.connection),
            service,
            hyper: None,
            task: TaskWaker::default(),
            waker: None,
            is_blocked: false,
            body_is_awaited: true,
            close: None,
            successor: None,
            low_water: 1,
            waiting: WaitReason::Nothing,
            since: Instant::now(),
            deadline: Instant::now(),
            was_retried: false,
        }
    }

    fn shared(&self) -> &HyperShared {
        &self.state.shared
    }

    fn server(&self) -> &ServerState {
        self.state.server()
    }

    fn entry(&self) -> &TableEntry<AsyncConnection<TokioSocket>> {
        &self.state.entry
    }

    /// Notes the waker of the task.
    fn set_waker(&mut self, cx: &Context<'_>) {
        let is_stamped = self.server().http.admission.is_some();
        if self.task.renew(cx.waker(), is_stamped) {
            let task = self.task.waker().unwrap_or(cx.waker()).clone();
            self.entry().set_waker(&task);
            let waker = PollWaker::new(task.clone());
            self.waker = Some((Arc::clone(&waker), waker.into()));
            self.state.state().task = Some(task);
        }
        if is_stamped {
            let accepted = (self.state.state().stage == Stage::FirstByte).then_some(self.since);
            self.state.state().arrived = self.task.woken().or(accepted);
        }
    }

    fn run(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.state.state().begin_turn();
        for _ in 0..MAX_STEPS {
            match self.step(cx) {
                StepResult::Continue => {}
                StepResult::Yield => break,
                StepResult::Wait => return Poll::Pending,
                StepResult::End => return Poll::Ready(()),
            }
            if self.successor.is_some() {
                self.set_low_water(1);
                break;
            }
        }
        self.send(false);
        TokioSocket::yield_turn(cx);
        Poll::Pending
    }

    fn step(&mut self, cx: &mut Context<'_>) -> StepResult {
        if self.server().shutdown.is_begun() && self.server().is_over() {
            return self.abandon();
        }
        if self.is_blocked {
            match self.state.poll_send(cx, self.close.is_some()) {
                Poll::Ready(true) => {
                    self.is_blocked = false;
                    if self.state.state().untaken == 0 {
                        self.waiting = WaitReason::Nothing; // a further piece has a wait of its own
                    }
                }
                Poll::Ready(false) => return self.abandon(),
                Poll::Pending => {
                    let requests = self.state.state().requests;
                    return self.wait_for(WaitReason::Write(requests));
                }
            }
        }
        if let Some(close) = self.close {
            return self.close_connection(close);
        }
        let Some((poll_waker, waker)) = &self.waker else { return StepResult::Yield }; // it is set
        let hyper = self.hyper.get_or_insert_with(|| {
            self.state.shared.builder.serve_connection(HyperIo::new(Arc::clone(&self.state)), self.service.clone())
        });
        poll_waker.begin_poll();
        let polled = hyper.poll_without_shutdown(&mut Context::from_waker(waker));
        let is_woken = poll_waker.end_poll();
        match polled {
            Poll::Ready(result) => {
                self.finish(result);
                StepResult::Continue
            }
            Poll::Pending => self.after_poll(is_woken),
        }
    }

    /// Sends the bytes that hyper wrote. Then waits for the event that hyper waits for. `is_woken`: hyper is to be polled
    /// again.
    fn after_poll(&mut self, is_woken: bool) -> StepResult {
        let mut state = self.state.state();
        let events = std::mem::take(&mut state.events);
        if state.waits_for_turn {
            return StepResult::Yield;
        }
        if !events.output_full && (state.input.refusal.is_some() || state.begins_http2()) {
            drop(state);
            self.refuse_input();
            return StepResult::Continue;
        }
        if std::mem::take(&mut state.poll_again) || (!events.input_drained && !events.output_full && state.is_reading())
        {
            return StepResult::Continue; // the output is sent together with that of the next poll
        }
        state.send(&self.state, false);
        state.input.reserve(&self.server().http.memory);
        self.is_blocked = !state.output.is_empty();
        // If hyper has nothing but the socket to wait for, the wake was for the body of a request that is answered.
        let is_at_rest = self.service.tower.is_none() && events.input_drained && state.is_reading();
        if events.output_full || self.is_blocked || (is_woken && !is_at_rest) {
            return StepResult::Continue;
        }
        if state.stage == Stage::Done && state.is_reading() {
            state.stage = if state.input.has_unread() { Stage::Head } else { Stage::Idle };
        }
        let requests = state.requests;
        let (stage, missing) = match (state.stage, &self.service.tower) {
            (Stage::Done, _) => (Stage::Body, 0), // answered early; the service still reads the body
            (stage, Some(_)) => (stage, 0),       // the service uses each part of a body
            (stage, None) if state.output.tls.is_some() => (stage, 0), // TLS has parts of records
            (stage, None) => (stage, state.input.missing()),
        };
        let stage = state.stage_over_tls(stage);
        self.body_is_awaited = events.input_drained;
        drop(state);
        if stage == Stage::Body && events.input_drained {
            self.set_low_water(missing);
        }
        match stage {
            // If the shutdown or the eviction came after the last read, the socket is read once more.
            Stage::FirstByte | Stage::Idle if self.state.must_leave(stage) => match events.may_close {
                true if self.entry().is_evicted() => {
                    self.hyper = None;
                    self.close_connection(Close::Linger)
                }
                true => self.close_connection(Close::Leave),
                false => StepResult::Continue,
            },
            stage => self.wait_for(WaitReason::Stage(requests, stage)),
        }
    }

    /// Answers bytes that are no request of HTTP/1, or passes the connection on to HTTP/2. hyper has no other request.
    fn refuse_input(&mut self) {
        self.hyper = None;
        let mut state = self.state.state();
        if let Some(http2) = &self.state.shared.http2
            && state.begins_http2()
        {
            drop(state);
            self.successor = Some(http2(Arc::clone(&self.state)));
            self.close = Some(Close::AtOnce);
        } else if let Some(refusal) = state.input.refusal {
            let is_head = state.input.is_head();
            error_response::refuse(&mut state, &self.state, refusal, is_head);
            drop(state);
            self.send_last(Close::Linger);
        }
    }

    /// Decides how the connection is closed after hyper is done with it. If hyper has answered an error itself, replaces
    /// that answer.
    fn finish(&mut self, result: hyper::Result<()>) {
        self.hyper = None;
        if result.is_ok() {
            self.state.count_last_end();
        }
        let mut state = self.state.state();
        state.fail_handshake(&self.state, HandshakeFailure::Closed);
        let close = match result {
            Ok(()) if state.input_ended => Close::AtOnce,
            Ok(()) if state.present.is_close_expected && !state.input.has_unread() => Close::AfterLastAnswer,
            Ok(()) => Close::Linger,
            Err(_) if state.tls_events.has_failed => Close::Linger,
            Err(error) if error.is_parse() => {
                error_response::replace(&mut state, &self.state);
                Close::Linger
            }
            Err(_) if !state.output.is_partly_sent && !state.client_left && state.present.body_refusal.is_some() => {
                let (refusal, is_head) = (state.present.body_refusal.unwrap_or(INVALID_BODY), state.present.is_head);
                error_response::refuse(&mut state, &self.state, refusal, is_head);
                Close::Linger
            }
            Err(error) => {
                tracing::debug!(%error, "a connection failed");
                Close::AtOnce
            }
        };
        drop(state);
        self.send_last(close);
    }

    /// Sends the last output. What was received after it is not used.
    fn send_last(&mut self, close: Close) {
        self.close = Some(close);
        self.state.state().input = Input::default();
        self.send(true);
    }

    /// Sends the collected output. Bytes that the kernel does not take become unsent.
    fn send(&mut self, last: bool) {
        // While output waits, hyper is not polled, so nothing was collected since.
        if !self.is_blocked {
            let mut state = self.state.state();
            state.send(&self.state, last);
            self.is_blocked = !state.output.is_empty();
        }
    }

    /// Sets the low-water mark of the socket: the task is woken when `missing` bytes have arrived.
    ///
    /// A task that waits for a body of known length cannot use a part of the body. So the mark is the number of missing bytes,
    /// and the parts stay in the kernel. A wake-up is expensive if the connection's memory was not used for a second: hyper's
    /// connection covers four or five pages. The end of the input and errors wake the task in any case.
    ///
    /// Invariant: when hyper waits for the socket, the mark is at most the number of bytes of the present request that hyper
    /// has not read. Otherwise the task could sleep although the whole request has arrived.
    ///
    /// * The mark is set after a read that found the socket empty. hyper reads only after it has passed on all bytes that it
    ///   read before. So all missing bytes are still to come.
    /// * If hyper did not read in its last poll, the mark may be that of an earlier wait. In this case hyper wakes itself and
    ///   reads. Then the mark is set again, and the kernel checks whether enough bytes have arrived.
    /// * In every other wait the mark is 1.
    ///
    /// Cost: two system calls for a body that is awaited, none for a body that comes with its head.
    fn set_low_water(&mut self, missing: u64) {
        let mark = missing.clamp(1, MAX_LOW_WATER);
        // It fails only if the socket is closed. hyper's next read then returns an error.
        let set = || self.entry().with_fd(|socket| net::set_receive_low_water(socket, mark as usize));
        if self.low_water != mark && set().is_ok() {
            self.low_water = mark;
        }
    }

    /// Waits for `waiting` until its deadline. A new reason sets a new deadline. If the deadline has passed, takes the action for
    /// that reason.
    fn wait_for(&mut self, waiting: WaitReason) -> StepResult {
        let now = Instant::now();
        if self.waiting != waiting {
            self.waiting = waiting;
            self.since = match waiting {
                // Only with TLS may the wait have begun before now, so only then it is worth the lock.
                WaitReason::Stage(_, stage) if self.server().has_tls() => self.state.state().wait_since(stage, now),
                _ => now,
            };
            self.deadline = self.since + self.timeout(waiting);
            self.was_retried = false;
        } else if matches!(waiting, WaitReason::Stage(_, Stage::Body)) {
            // A body that arrives has more time.
            self.deadline = self.since + self.timeout(waiting);
            self.was_retried &= self.deadline <= now;
        }
        if self.deadline <= now && self.since < now {
            if !std::mem::replace(&mut self.was_retried, true) {
                return self.retry();
            }
            return match waiting {
                WaitReason::Stage(_, stage) => self.time_out(stage),
                WaitReason::Write(_) | WaitReason::Nothing => self.abandon(),
            };
        }
        if !matches!(waiting, WaitReason::Stage(_, Stage::Body)) {
            self.set_low_water(1);
        }
        let mut wake_at = self.deadline;
        if let WaitReason::Stage(_, Stage::FirstByte | Stage::Idle) = waiting {
            let park_at = self.since + PARKED_AFTER;
            if park_at <= now {
                self.hyper = None; // the next poll creates it anew
                self.state.state().output.release();
            } else {
                wake_at = wake_at.min(park_at);
            }
        }
        if let WaitReason::Stage(_, Stage::FirstByte) = waiting
            && let Some(silent_until) = self.server().silent_until(self.state.accepted)
        {
            wake_at = wake_at.min(silent_until);
        }
        self.shared().table.set_deadline(self.entry(), wake_at);
        if waiting.is_busy() {
            self.shared().table.set_busy(self.entry());
        } else {
            let has_sent = matches!(waiting, WaitReason::Stage(1.., _));
            self.entry().set_idle(|| self.shared().table.idle_since(self.since, has_sent));
        }
        StepResult::Wait
    }

    /// Tries the socket once more after a deadline: the runtime may not have reported it as ready.
    fn retry(&mut self) -> StepResult {
        let mut state = self.state.state();
        if self.is_blocked {
            state.output.try_send(&self.state.entry, self.state.server(), self.close.is_some());
        } else {
            state.must_read = true;
        }
        StepResult::Continue
    }

    fn timeout(&self, waiting: WaitReason) -> Duration {
        let config = &self.server().config;
        match waiting {
            WaitReason::Stage(_, Stage::FirstByte) => TimeLimit::FirstByte.of(config),
            WaitReason::Stage(_, Stage::Idle) => TimeLimit::Idle.of(config),
            WaitReason::Stage(_, Stage::Head) => TimeLimit::Head.of(config),
            // The service has not read all of a body that has arrived.
            WaitReason::Stage(_, Stage::Body) if self.state.state().input.is_between_requests() => {
                TimeLimit::Answer.of(config)
            }
            // The service has not asked for what has arrived. So the rate of the body is not the client's.
            WaitReason::Stage(_, Stage::Body) if !self.body_is_awaited => config.body_timeout,
            WaitReason::Stage(_, Stage::Body) => {
                let received = self.state.state().present.body_received;
                TimeLimit::Body { received }.of(config)
            }
            WaitReason::Stage(_, Stage::Answer) => TimeLimit::Answer.of(config),
            WaitReason::Stage(_, Stage::Sending | Stage::Done | Stage::Http2) => NO_TIMEOUT,
            WaitReason::Write(_) => {
                let state = self.state.state();
                let untaken = usize::try_from(state.untaken).unwrap_or(usize::MAX);
                TimeLimit::Write { unsent: state.output.unsent().saturating_add(untaken) }.of(config)
            }
            WaitReason::Nothing => Duration::ZERO,
        }
    }

    fn time_out(&mut self, stage: Stage) -> StepResult {
        match stage {
            Stage::Head if self.state.state().output.tls.as_ref().is_some_and(TlsSession::is_handshaking) => {
                self.state.state().fail_handshake(&self.state, HandshakeFailure::TimedOut);
                StepResult::End
            }
            Stage::Head => {
                self.hyper = None;
                let mut state = self.state.state();
                let is_head = state.input.is_head();
                error_response::refuse(&mut state, &self.state, LATE_HEAD, is_head);
                drop(state);
                self.send_last(Close::Linger);
                StepResult::Continue
            }
            Stage::Body | Stage::Answer if !std::mem::replace(&mut self.state.state().present.timed_out, true) => {
                StepResult::Continue
            }
            Stage::Body | Stage::Answer => self.abandon(), // the service has not answered since
            _ => self.close_connection(Close::Leave),
        }
    }

    fn close_connection(&mut self, close: Close) -> StepResult {
        self.send(true); // the end of TLS, which is not waited for
        self.successor = self.state.close_socket(close);
        if self.successor.is_some() { StepResult::Continue } else { StepResult::End }
    }

    fn abandon(&mut self) -> StepResult {
        let busy = std::mem::take(&mut self.is_blocked) || (self.close.is_none() && self.state.state().is_busy());
        if busy && self.server().is_over() {
            self.shared().table.count_cut(self.entry());
        }
        self.close = Some(Close::AtOnce);
        self.hyper = None;
        StepResult::End
    }
}

impl Future for HyperConnection {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let connection = self.get_mut();
        connection.set_waker(cx);
        match &mut connection.successor {
            Some(successor) => successor.as_mut().poll(cx),
            // With an overload policy, the time at which the task has yielded is noted too.
            None => match connection.task.waker().filter(|_| connection.server().http.admission.is_some()).cloned() {
                Some(waker) => connection.run(&mut Context::from_waker(&waker)),
                None => connection.run(cx),
            },
        }
    }
}

impl Drop for HyperConnection {
    fn drop(&mut self) {
        let mut state = self.state.state();
        state.report_answer(&self.state); // an answer that was cut
        state.task = None; // a waker keeps the memory of its task
        drop(state);
        self.successor = None;
        if self.close.is_none() || self.is_blocked {
            let _ = self.abandon(); // a runtime that ends drops its tasks
        }
        // A request's body, which a service may keep for longer, keeps the state.
        let mut state = self.state.state();
        state.fail_handshake(&self.state, HandshakeFailure::Closed);
        (state.input, state.output) = (Input::default(), Output::default());
        drop(state);
        self.shared().table.remove(self.entry());
    }
}
