//! One connection as a future, over any runtime.
//!
//! It reads before it has the runtime watch its socket: a request is there when its connection is accepted, as a rule, and
//! one that is answered and closed at once is never watched. Buffers are the thread's, so that a connection at rest has
//! none.
//!
//! Invariant: whenever it waits, its task is woken by its socket, its answer, its deadline or a shutdown. Cost: a read and
//! a write for each batch of requests; a look at the clock for each wait.

use std::future::Future;
use std::io::ErrorKind;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use polyserve_core::http1::{Phase, Session, Want};
use polyserve_core::net;
use polyserve_core::serving::{ServerState, ThreadBuffers, with_buffers};

use super::connection_entry::ConnectionEntry;
use super::connection_registry::ConnectionRegistry;
use super::server_runtime::{AsyncSocket, Direction, ServerRuntime, Transfer};

/// A connection, from accept to close.
pub(crate) struct ConnectionTask<R: ServerRuntime> {
    registry: Arc<ConnectionRegistry<R>>,
    entry: Arc<ConnectionEntry<R>>,
    session: Session,
    want: Want,
    waker: Option<Waker>,
    waiting: DeadlineKind,
    deadline: Instant,
    state: Mode,
    rejected: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Serving,
    /// The last answer is sent; what still comes is thrown away.
    Lingering,
}

/// What a deadline is for; while it stays the same, so does the deadline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeadlineKind {
    Nothing,
    Stage((u64, Phase)),
    Written,
    Gone,
}

/// Full reads, or answers that came at once, before other tasks have their turn.
const TURNS: usize = 8;

/// Whether a step can be followed by another now.
enum Progress {
    Continue,
    Wait,
    Done,
}

impl<R: ServerRuntime> ConnectionTask<R> {
    /// One that has just been accepted. `rejected`: it is told that there is no room.
    pub(crate) fn new(registry: Arc<ConnectionRegistry<R>>, entry: Arc<ConnectionEntry<R>>, rejected: bool) -> Self {
        let session = Session::new();
        let want = session.want();
        Self {
            registry,
            entry,
            session,
            want,
            waker: None,
            waiting: DeadlineKind::Nothing,
            deadline: Instant::now(),
            state: Mode::Serving,
            rejected,
        }
    }

    /// One whose last answer is sent, and who is no longer among those served: what still comes is thrown away.
    #[cfg(feature = "hyper")]
    pub(crate) fn lingering(registry: Arc<ConnectionRegistry<R>>, entry: Arc<ConnectionEntry<R>>) -> Self {
        let mut connection = Self::new(registry, entry, false);
        connection.state = Mode::Lingering;
        connection
    }

    fn server(&self) -> &ServerState {
        &self.registry.server
    }

    fn run(&mut self, cx: &mut Context<'_>, buffers: &mut ThreadBuffers) -> Poll<()> {
        if self.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            self.entry.set_waker(cx.waker());
            self.waker = Some(cx.waker().clone());
        }
        if self.rejected && self.state == Mode::Serving && !matches!(self.want, Want::Close { .. }) {
            buffers.refresh(&self.registry.server);
            self.want = self.session.reject(&self.registry.server.env, &mut buffers.scratch);
            self.send(buffers);
        }
        for _ in 0..TURNS {
            let step = match self.state {
                Mode::Serving => self.serve(cx, buffers),
                Mode::Lingering => self.linger(cx, buffers),
            };
            match step {
                Progress::Continue => {}
                Progress::Wait => {
                    self.entry.set_busy(self.session.is_busy());
                    return Poll::Pending;
                }
                Progress::Done => return Poll::Ready(()),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn serve(&mut self, cx: &mut Context<'_>, buffers: &mut ThreadBuffers) -> Progress {
        if self.server().shutdown.is_begun() && self.server().is_over() {
            return self.abandon();
        }
        if !self.session.unsent().is_empty() {
            match self.write_on(cx) {
                Poll::Ready(true) if self.waiting == DeadlineKind::Written => self.waiting = DeadlineKind::Nothing,
                Poll::Ready(true) => {}
                Poll::Ready(false) => return self.abandon(),
                Poll::Pending => return self.wait_for(DeadlineKind::Written, buffers),
            }
        }
        self.registry.server.count(&mut self.session);
        match self.want {
            Want::Close { linger } => return self.close(linger),
            Want::Read(phase) => return self.read(phase, cx, buffers),
            Want::Write => {}
            Want::Answer => {
                self.entry.set_calling(true);
                let polled = self.session.poll_answer(cx);
                self.entry.set_calling(false);
                if polled.is_pending() {
                    return self.wait_for(DeadlineKind::Stage(self.session.stage()), buffers);
                }
            }
        }
        buffers.refresh(&self.registry.server);
        self.entry.set_calling(true);
        self.want = self.session.resume(&self.registry.server.env, &mut buffers.scratch);
        self.entry.set_calling(false);
        self.send(buffers);
        Progress::Continue
    }

    fn read(&mut self, phase: Phase, cx: &mut Context<'_>, buffers: &mut ThreadBuffers) -> Progress {
        let entry = &self.entry;
        let mut attempt = || {
            let count = entry.with_socket(|socket| net::receive(socket, &mut buffers.input))?;
            Ok(Transfer { count, drained: count < buffers.input.len() && count > 0 })
        };
        // What has come before a shutdown is served, also where the runtime has not heard of it yet.
        let leaves = phase == Phase::Idle && self.registry.server.shutdown.is_begun();
        let read = match entry.socket() {
            Some(watched) if !leaves => watched.poll_io(cx, Direction::Read, attempt),
            _ => match attempt() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
                other => Poll::Ready(other.map(|moved| moved.count)),
            },
        };
        match read {
            Poll::Ready(Ok(0)) => {
                self.want = self.session.end_of_input();
                Progress::Continue
            }
            Poll::Ready(Ok(count)) => {
                self.entry.set_calling(true);
                self.want = buffers.receive(count, &mut self.session, &self.registry.server, false);
                self.entry.set_calling(false);
                self.send(buffers);
                Progress::Continue
            }
            Poll::Ready(Err(error)) if error.kind() == ErrorKind::Interrupted => Progress::Continue,
            Poll::Ready(Err(_)) => self.abandon(),
            Poll::Pending if leaves => Progress::Done,
            Poll::Pending if self.entry.socket().is_none() => self.start_watching(),
            Poll::Pending => self.wait_for(DeadlineKind::Stage(self.session.stage()), buffers),
        }
    }

    fn start_watching(&mut self) -> Progress {
        match self.entry.register() {
            Ok(()) => Progress::Continue,
            Err(error) => {
                if self.registry.log_throttle.is_due() {
                    tracing::warn!(%error, "a connection cannot be watched");
                }
                self.abandon()
            }
        }
    }

    /// Sends what the session has to say; what the kernel does not take stays with the session.
    fn send(&mut self, buffers: &mut ThreadBuffers) {
        let out = buffers.scratch.out();
        if out.is_empty() {
            return;
        }
        let last = matches!(self.want, Want::Close { .. });
        // Behind what waits already, nothing is sent.
        let sent = if self.session.unsent().is_empty() {
            self.entry.with_socket(|socket| net::send(socket, out, last))
        } else {
            Ok(0)
        };
        // An error is met again with the rest.
        self.session.written(sent.unwrap_or(0), &mut buffers.scratch);
    }

    /// Sends what could not be sent before. False where the client is gone.
    fn write_on(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        while !self.session.unsent().is_empty() {
            if self.entry.register().is_err() {
                return Poll::Ready(false);
            }
            let Some(watched) = self.entry.socket() else { return Poll::Ready(false) };
            let unsent = self.session.unsent();
            let last = matches!(self.want, Want::Close { .. });
            let attempt = || {
                let count = net::send(watched, unsent, last)?;
                Ok(Transfer { count, drained: count < unsent.len() })
            };
            match watched.poll_io(cx, Direction::Write, attempt) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(count)) if count > 0 => drop(self.session.advance(count)),
                Poll::Ready(_) => return Poll::Ready(false),
            }
        }
        Poll::Ready(true)
    }

    /// Waits until the deadline of `waiting`, which is set where it is new; or does what is due where it has passed.
    fn wait_for(&mut self, waiting: DeadlineKind, buffers: &mut ThreadBuffers) -> Progress {
        let now = Instant::now();
        if self.waiting != waiting {
            self.waiting = waiting;
            self.deadline = now + self.timeout(waiting);
        } else if self.deadline <= now {
            self.waiting = DeadlineKind::Nothing;
            match waiting {
                DeadlineKind::Stage(_) => {
                    buffers.refresh(&self.registry.server);
                    self.want = self.session.time_out(&self.registry.server.env, &mut buffers.scratch);
                    self.send(buffers);
                    return Progress::Continue;
                }
                DeadlineKind::Written | DeadlineKind::Nothing => return self.abandon(),
                DeadlineKind::Gone => return Progress::Done,
            }
        }
        self.registry.set_deadline(&self.entry, self.deadline);
        Progress::Wait
    }

    fn timeout(&self, waiting: DeadlineKind) -> Duration {
        let config = &self.server().config;
        match waiting {
            DeadlineKind::Stage((_, phase)) => phase.timeout(config),
            DeadlineKind::Written => config.write_timeout,
            DeadlineKind::Gone => config.linger_timeout,
            DeadlineKind::Nothing => Duration::ZERO,
        }
    }

    fn close(&mut self, linger: bool) -> Progress {
        let may_linger = linger
            && self.entry.with_socket(|socket| net::shut(socket, Shutdown::Write)).is_ok()
            && (self.rejected || self.registry.begin_linger());
        if !may_linger {
            return Progress::Done;
        }
        self.state = Mode::Lingering;
        Progress::Continue
    }

    /// Throws away what comes, until the client closes or the time is up.
    fn linger(&mut self, cx: &mut Context<'_>, buffers: &mut ThreadBuffers) -> Progress {
        if self.server().is_over() {
            return Progress::Done;
        }
        if self.entry.socket().is_none() && matches!(self.start_watching(), Progress::Done) {
            return Progress::Done;
        }
        let Some(watched) = self.entry.socket() else { return Progress::Done };
        let attempt = || {
            let count = net::receive(watched, &mut buffers.input)?;
            Ok(Transfer { count, drained: false })
        };
        match watched.poll_io(cx, Direction::Read, attempt) {
            // A client that never stops sending does not move the deadline.
            Poll::Ready(Ok(count)) if count > 0 => match self.wait_for(DeadlineKind::Gone, buffers) {
                Progress::Wait => Progress::Continue,
                step => step,
            },
            Poll::Ready(_) => Progress::Done,
            Poll::Pending => self.wait_for(DeadlineKind::Gone, buffers),
        }
    }

    /// Past the shutdown's deadline, a request that it has counts as cut.
    fn abandon(&mut self) -> Progress {
        if self.session.is_busy() && self.server().is_over() {
            self.registry.count_cut(&self.entry);
        }
        self.session.abandon();
        self.registry.server.count(&mut self.session);
        Progress::Done
    }
}

impl<R: ServerRuntime> Future for ConnectionTask<R> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        with_buffers(|buffers| self.get_mut().run(cx, buffers))
    }
}

impl<R: ServerRuntime> Drop for ConnectionTask<R> {
    fn drop(&mut self) {
        let _ = self.abandon(); // a runtime that ends drops its tasks
        self.registry.remove(&self.entry, self.rejected || self.state == Mode::Lingering);
    }
}

#[cfg(all(test, feature = "tokio"))]
mod tests;
