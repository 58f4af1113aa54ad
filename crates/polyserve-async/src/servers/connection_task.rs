//! One connection as a task, from accept to close, on our codec and any runtime.
//!
//! ```text
//!   admit ── past max_connections: 503 ───────────────┐
//!     │                                               │
//!     ▼            bytes                 answer       ▼
//!   read ◄─────► Session::receive ──► send ──► close, linger ──► end
//!     │ nothing there                   │ the kernel takes no more
//!     ▼                                 ▼
//!   register, wait ◄──────────────── wait to write
//! ```
//!
//! The first read comes before the socket is registered with the runtime: usually the first request has arrived when its
//! connection is accepted. So a connection that is answered and closed at once is never registered.
//!
//! The buffers belong to the thread, so an idle connection has none.
//!
//! Invariants: a task that waits is woken by its socket, its answer, its deadline or a shutdown. When a deadline passes, the
//! task first reads the bytes that are in the socket. After the process was stopped, the runtime may not have reported
//! them.
//!
//! Fairness: a poll is a turn of the session. A task that has more to do yields, so that the runtime looks at its sockets
//! before the task goes on.
//!
//! Cost: a read and a write for each batch of requests; a clock read for each wait.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use polyserve_serving::http1::{Phase, Session, TimeLimit, Want};
use polyserve_serving::net;
use polyserve_serving::{ServerState, ThreadBuffers, with_buffers};

use super::toolkit::{AdmitResult, AsyncSocket, ConnectionEntry, ConnectionRegistry, Direction, Transfer};

/// A connection that was accepted. Polling it serves the connection.
pub(crate) struct ConnectionTask<S: AsyncSocket> {
    registry: Arc<ConnectionRegistry<S>>,
    entry: Arc<ConnectionEntry<S>>,
    session: Session,
    want: Want,
    waker: Option<Waker>,
    waiting: WaitKind,
    /// The start of the present wait.
    since: Instant,
    /// The end of the present wait.
    deadline: Instant,
    mode: Mode,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Serving,
    /// The last answer is sent. Bytes that the client still sends are discarded.
    Lingering,
}

/// The kind of a wait. A new wait begins only if the kind changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitKind {
    None,
    /// Waits for bytes or for the service's answer. The number and the phase are those of [`Session::stage`].
    Session((u64, Phase)),
    /// Waits until the kernel takes more bytes.
    Write,
    /// Waits until the client closes.
    Linger,
}

/// The maximum number of steps in one poll of the task, so that other tasks get their turn. A step is one call of
/// [`ConnectionTask::serve`] or [`ConnectionTask::linger`]. It bounds the bytes of bodies; the session's turn bounds the
/// requests.
const MAX_STEPS: usize = 8;

/// The result of a step.
pub(super) enum StepResult {
    /// Another step can follow now.
    Continue,
    /// Another step can follow after the other tasks.
    Yield,
    /// The task waits.
    Wait,
    /// The connection is to be closed.
    End,
}

/// Whether the deadline of a wait has passed.
enum Deadline {
    Ahead,
    Passed,
}

impl<S: AsyncSocket> ConnectionTask<S> {
    /// Adds an accepted connection to the registry, and returns its task. Past `max_connections` the connection is
    /// [rejected](Self::reject).
    pub(crate) fn admit(registry: &Arc<ConnectionRegistry<S>>, stream: TcpStream, shard: usize) -> Option<Self> {
        match registry.admit(stream, shard) {
            AdmitResult::Serve(entry) => Some(Self::in_mode(Mode::Serving, Arc::clone(registry), entry)),
            rejected => Self::reject(registry, rejected),
        }
    }

    /// Sends a 503 on a connection that is not to be served. Returns a task that lets it linger, or `None` if the connection
    /// is closed because too many linger.
    pub(crate) fn reject(registry: &Arc<ConnectionRegistry<S>>, rejected: AdmitResult<S>) -> Option<Self> {
        match rejected {
            AdmitResult::Serve(entry) | AdmitResult::Reject(entry) => {
                // An error is ignored here: the task's next read returns an error too.
                let _ = entry.with_socket(|socket| send_rejection(&registry.server, socket));
                Some(Self::lingering(Arc::clone(registry), entry))
            }
            AdmitResult::Close(stream) => {
                // The kernel resets a connection that is closed with unread bytes.
                let _ = with_buffers(|buffers| net::receive(&stream, &mut buffers.input));
                let _ = send_rejection(&registry.server, stream.as_fd());
                None
            }
        }
    }

    /// The task of a connection that has sent its last answer, and that counts as lingering.
    pub(crate) fn lingering(registry: Arc<ConnectionRegistry<S>>, entry: Arc<ConnectionEntry<S>>) -> Self {
        Self::in_mode(Mode::Lingering, registry, entry)
    }

    fn in_mode(mode: Mode, registry: Arc<ConnectionRegistry<S>>, entry: Arc<ConnectionEntry<S>>) -> Self {
        let session = Session::from_peer(match mode {
            Mode::Serving => entry.peer(),
            Mode::Lingering => None,
        });
        let want = session.want();
        let (waiting, now) = (WaitKind::None, Instant::now());
        Self { registry, entry, session, want, waker: None, waiting, since: now, deadline: now, mode }
    }

    fn server(&self) -> &ServerState {
        &self.registry.server
    }

    /// The connection loop: takes steps until the task has to wait or the connection ends.
    fn run(&mut self, cx: &mut Context<'_>, buffers: &mut ThreadBuffers) -> Poll<()> {
        if self.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            self.entry.set_waker(cx.waker());
            self.waker = Some(cx.waker().clone());
        }
        buffers.begin_turn();
        if self.want == Want::Yield {
            self.want = Want::Write; // this is the next turn
        }
        for _ in 0..MAX_STEPS {
            let step = match self.mode {
                Mode::Serving => self.serve(cx, buffers),
                Mode::Lingering => self.linger(cx, buffers),
            };
            match step {
                StepResult::Continue => {}
                StepResult::Yield => break,
                StepResult::Wait => return Poll::Pending,
                StepResult::End => return Poll::Ready(()),
            }
        }
        S::yield_turn(cx);
        Poll::Pending
    }

    /// Takes the session's next step.
    fn serve(&mut self, cx: &mut Context<'_>, buffers: &mut ThreadBuffers) -> StepResult {
        if self.server().shutdown.is_begun() && self.server().is_over() {
            return self.abandon();
        }
        if !self.session.unsent().is_empty() {
            match self.send_unsent(cx) {
                Poll::Pending => return StepResult::Wait,
                Poll::Ready(false) => return self.abandon(),
                Poll::Ready(true) if self.waiting == WaitKind::Write => self.waiting = WaitKind::None,
                Poll::Ready(true) => {}
            }
        }
        self.registry.server.count(&mut self.session);
        match self.want {
            Want::Read(phase) => return self.read(phase, cx, buffers),
            Want::Close { linger } => return self.close(linger),
            Want::Write | Want::Yield => {}
            Want::Answer => {
                self.entry.set_calling(true);
                let polled = self.session.poll_answer(cx);
                self.entry.set_calling(false);
                if polled.is_pending() {
                    return match self.wait_for(WaitKind::Session(self.session.stage())) {
                        Deadline::Ahead => StepResult::Wait,
                        Deadline::Passed => self.time_out(buffers),
                    };
                }
            }
        }
        buffers.refresh_closing(&self.registry.server, self.entry.is_evicted());
        self.entry.set_calling(true);
        self.want = self.session.resume(&self.registry.server.env, &mut buffers.scratch);
        self.entry.set_calling(false);
        self.send(buffers)
    }

    /// Reads from the socket. Passes the bytes to the session, which calls the service.
    fn read(&mut self, phase: Phase, cx: &mut Context<'_>, buffers: &mut ThreadBuffers) -> StepResult {
        // In a drain, a connection that is idle or skips a body is closed as soon as its socket is empty. So is one that was
        // evicted.
        let is_evicted = self.entry.is_evicted();
        let last = phase.may_close() && (is_evicted || self.server().shutdown.is_begun());
        let read = match self.entry.socket() {
            Some(socket) if !last => socket.poll_io(cx, Direction::Read, || receive(&self.entry, buffers)),
            _ => try_once(|| receive(&self.entry, buffers)),
        };
        if let Poll::Ready(read) = read {
            return self.take_input(read, buffers);
        }
        if last {
            return self.close(is_evicted || phase == Phase::Skip);
        }
        if self.entry.socket().is_none() {
            return self.register();
        }
        match self.wait_for(WaitKind::Session(self.session.stage())) {
            Deadline::Ahead => StepResult::Wait,
            // Bytes may be in the socket that the runtime has not reported.
            Deadline::Passed => match try_once(|| receive(&self.entry, buffers)) {
                Poll::Ready(read) => self.take_input(read, buffers),
                Poll::Pending => self.time_out(buffers),
            },
        }
    }

    fn take_input(&mut self, read: io::Result<usize>, buffers: &mut ThreadBuffers) -> StepResult {
        match read {
            Ok(0) => {
                self.want = self.session.end_of_input();
                StepResult::Continue
            }
            Ok(count) => {
                self.entry.set_busy();
                self.entry.set_calling(true);
                let is_evicted = self.entry.is_evicted();
                self.want = buffers.receive(count, &mut self.session, &self.registry.server, is_evicted);
                self.entry.set_calling(false);
                self.send(buffers)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => StepResult::Continue,
            Err(_) => self.abandon(),
        }
    }

    fn register(&mut self) -> StepResult {
        match self.registry.register(&self.entry) {
            Ok(()) => StepResult::Continue,
            Err(_) => self.abandon(),
        }
    }

    /// Sends the session's output. The session keeps the bytes that the kernel does not take.
    fn send(&mut self, buffers: &mut ThreadBuffers) -> StepResult {
        let step = if self.want == Want::Yield { StepResult::Yield } else { StepResult::Continue };
        let out = buffers.scratch.out();
        if out.is_empty() {
            return step;
        }
        let last = matches!(self.want, Want::Close { .. });
        // Earlier output that is unsent goes first.
        let sent = if self.session.unsent().is_empty() {
            self.entry.with_socket(|socket| net::send(socket, out, last))
        } else {
            Ok(0)
        };
        // An error is ignored here: sending the rest returns an error too.
        self.session.written(sent.unwrap_or(0), &mut buffers.scratch);
        step
    }

    /// Sends the bytes that the kernel did not take before. Returns false if the client is gone or reads too slowly.
    fn send_unsent(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let entry = Arc::clone(&self.entry);
        let (Ok(()), Some(socket)) = (entry.register(), entry.socket()) else { return Poll::Ready(false) };
        let last = matches!(self.want, Want::Close { .. });
        let mut passed = false;
        while !self.session.unsent().is_empty() {
            let unsent = self.session.unsent();
            let attempt = || {
                let count = net::send(socket, unsent, last)?;
                Ok(Transfer { count, drained: count < unsent.len() })
            };
            // After the deadline the socket is tried once without the runtime, which may not have reported it as ready.
            let sent = if passed { try_once(attempt) } else { socket.poll_io(cx, Direction::Write, attempt) };
            match sent {
                Poll::Ready(Ok(count)) if count > 0 => drop(self.session.advance(count)),
                Poll::Ready(_) => return Poll::Ready(false),
                Poll::Pending if passed => return Poll::Ready(false),
                Poll::Pending => match self.wait_for(WaitKind::Write) {
                    Deadline::Ahead => return Poll::Pending,
                    Deadline::Passed => passed = true,
                },
            }
        }
        Poll::Ready(true)
    }

    /// Waits until the deadline of `waiting`. A new kind of wait sets a new deadline.
    fn wait_for(&mut self, waiting: WaitKind) -> Deadline {
        let now = Instant::now();
        if self.waiting != waiting {
            self.waiting = waiting;
            self.since = now;
            self.deadline = now + self.time_limit(waiting);
        } else {
            if matches!(waiting, WaitKind::Session((_, Phase::Body | Phase::Skip))) {
                self.deadline = self.since + self.time_limit(waiting); // a body that arrives has more time
            }
            if self.deadline <= now {
                return Deadline::Passed;
            }
        }
        self.note_activity(waiting, now);
        self.registry.set_deadline(&self.entry, self.deadline);
        Deadline::Ahead
    }

    /// Notes whether the connection may be evicted while it waits.
    fn note_activity(&self, waiting: WaitKind, now: Instant) {
        match waiting {
            WaitKind::Session((_, phase)) if phase.may_close() => {
                let has_sent = phase != Phase::FirstByte;
                self.entry.set_idle(|| self.registry.idle_since(now, has_sent));
            }
            WaitKind::Linger => {} // it is quiet
            WaitKind::Session(_) | WaitKind::Write | WaitKind::None => self.entry.set_busy(),
        }
    }

    fn time_limit(&self, waiting: WaitKind) -> Duration {
        let config = &self.server().config;
        match waiting {
            WaitKind::Session(_) => self.session.time_limit().of(config),
            WaitKind::Write => TimeLimit::Write { unsent: self.session.unsent().len() }.of(config),
            WaitKind::Linger => config.linger_timeout,
            WaitKind::None => Duration::ZERO,
        }
    }

    fn time_out(&mut self, buffers: &mut ThreadBuffers) -> StepResult {
        self.waiting = WaitKind::None;
        buffers.refresh(&self.registry.server);
        self.want = self.session.time_out(&self.registry.server.env, &mut buffers.scratch);
        self.send(buffers)
    }

    fn close(&mut self, linger: bool) -> StepResult {
        let lingers = linger
            && self.entry.with_socket(|socket| net::shutdown(socket, Shutdown::Write)).is_ok()
            && self.registry.begin_linger(&self.entry);
        if !lingers {
            return StepResult::End;
        }
        self.mode = Mode::Lingering;
        StepResult::Continue
    }

    /// Discards the client's bytes until the client closes or the linger timeout has passed.
    fn linger(&mut self, cx: &mut Context<'_>, buffers: &mut ThreadBuffers) -> StepResult {
        if self.server().is_over() {
            return StepResult::End;
        }
        if self.entry.socket().is_none() && matches!(self.register(), StepResult::End) {
            return StepResult::End;
        }
        let Some(socket) = self.entry.socket() else { return StepResult::End };
        let read = socket.poll_io(cx, Direction::Read, || {
            let count = net::receive(socket, &mut buffers.input)?;
            Ok(Transfer { count, drained: false })
        });
        match (read, self.wait_for(WaitKind::Linger)) {
            (Poll::Pending, Deadline::Ahead) => StepResult::Wait,
            // A client that keeps sending does not move the deadline.
            (Poll::Ready(Ok(1..)), Deadline::Ahead) => StepResult::Continue,
            _ => StepResult::End,
        }
    }

    /// Drops the session's request and output. After the shutdown's deadline, the request counts as cut.
    fn abandon(&mut self) -> StepResult {
        if self.session.is_busy() && self.server().is_over() {
            self.registry.count_cut(&self.entry);
        }
        self.session.abandon();
        self.registry.server.count(&mut self.session);
        StepResult::End
    }
}

/// Reads into the thread's buffer.
fn receive<S: AsyncSocket>(entry: &ConnectionEntry<S>, buffers: &mut ThreadBuffers) -> io::Result<Transfer> {
    let count = entry.with_socket(|socket| net::receive(socket, &mut buffers.input))?;
    Ok(Transfer { count, drained: count < buffers.input.len() && count > 0 })
}

/// Makes one attempt, whether or not the runtime has reported the socket as ready. Returns `Pending`, and sets no waker, if
/// the attempt would block.
fn try_once(attempt: impl FnOnce() -> io::Result<Transfer>) -> Poll<io::Result<usize>> {
    match attempt() {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
        result => Poll::Ready(result.map(|transfer| transfer.count)),
    }
}

/// Sends a 503, counts it, and closes the writing side.
fn send_rejection(server: &ServerState, socket: BorrowedFd<'_>) -> io::Result<()> {
    with_buffers(|buffers| {
        buffers.refresh(server);
        let mut session = server.rejecting(socket);
        let _ = session.reject(&server.env, &mut buffers.scratch);
        let sent = net::send(socket, buffers.scratch.out(), true);
        session.written(*sent.as_ref().unwrap_or(&0), &mut buffers.scratch);
        server.abandon(&mut session);
        sent.and_then(|_| net::shutdown(socket, Shutdown::Write))
    })
}

impl<S: AsyncSocket> Future for ConnectionTask<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        with_buffers(|buffers| self.get_mut().run(cx, buffers))
    }
}

impl<S: AsyncSocket> Drop for ConnectionTask<S> {
    fn drop(&mut self) {
        let _ = self.abandon(); // a runtime that ends drops its tasks
        self.registry.remove(&self.entry, self.mode == Mode::Lingering);
    }
}

#[cfg(all(test, feature = "tokio"))]
mod tests;
