//! One connection as a future, over any runtime.
//!
//! It reads before it has the runtime watch its socket: a request is there when its connection is accepted, as a rule, and
//! one that is answered and closed at once is never watched. Buffers are the thread's, so that a connection at rest has
//! none.
//!
//! Invariant: whenever it waits, its task is woken by its socket, its answer, its deadline or a shutdown. Cost: a read and
//! a write for each batch of requests; a look at the clock for each wait.

use std::cell::Cell;
use std::future::Future;
use std::io::ErrorKind;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use polyserve_core::http1::{Phase, Session, Want};
use polyserve_core::net;
use polyserve_core::serving::{ServerState, ThreadBuffers};

use super::place::Place;
use super::roll::Roll;
use super::runtime::{Direction, Moved, Runtime, Watched};

/// A connection, from accept to close.
pub(crate) struct Connection<R: Runtime> {
    roll: Arc<Roll<R>>,
    place: Arc<Place<R>>,
    session: Session,
    want: Want,
    waker: Option<Waker>,
    waiting: Waiting,
    deadline: Instant,
    state: State,
    rejected: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Serving,
    /// The last answer is sent; what still comes is thrown away.
    Departing,
}

/// What a deadline is for; while it stays the same, so does the deadline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Nothing,
    Stage((u64, Phase)),
    Written,
    Gone,
}

/// Full reads, or answers that came at once, before other tasks have their turn.
const TURNS: usize = 8;

/// Whether a step can be followed by another now.
enum Step {
    On,
    Wait,
    End,
}

impl<R: Runtime> Connection<R> {
    /// One that has just been accepted. `rejected`: it is told that there is no room.
    pub(crate) fn new(roll: Arc<Roll<R>>, place: Arc<Place<R>>, rejected: bool) -> Self {
        let session = Session::new();
        let want = session.want();
        Self {
            roll,
            place,
            session,
            want,
            waker: None,
            waiting: Waiting::Nothing,
            deadline: Instant::now(),
            state: State::Serving,
            rejected,
        }
    }

    /// One whose last answer is sent, and who is no longer among those served: what still comes is thrown away.
    #[cfg(feature = "hyper")]
    pub(crate) fn departing(roll: Arc<Roll<R>>, place: Arc<Place<R>>) -> Self {
        let mut connection = Self::new(roll, place, false);
        connection.state = State::Departing;
        connection
    }

    fn server(&self) -> &ServerState {
        &self.roll.server
    }

    fn run(&mut self, cx: &mut Context<'_>, buffers: &mut ThreadBuffers) -> Poll<()> {
        if self.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            self.place.set_waker(cx.waker());
            self.waker = Some(cx.waker().clone());
        }
        if self.rejected && self.state == State::Serving && !matches!(self.want, Want::Close { .. }) {
            buffers.refresh(&self.roll.server);
            self.want = self.session.reject(&self.roll.server.env, &mut buffers.scratch);
            self.send(buffers);
        }
        for _ in 0..TURNS {
            let step = match self.state {
                State::Serving => self.serve(cx, buffers),
                State::Departing => self.see_off(cx, buffers),
            };
            match step {
                Step::On => {}
                Step::Wait => {
                    self.place.set_busy(self.session.is_busy());
                    return Poll::Pending;
                }
                Step::End => return Poll::Ready(()),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn serve(&mut self, cx: &mut Context<'_>, buffers: &mut ThreadBuffers) -> Step {
        if self.server().shutdown.is_begun() && self.server().is_over() {
            return self.abandon();
        }
        if !self.session.unsent().is_empty() {
            match self.write_on(cx) {
                Poll::Ready(true) if self.waiting == Waiting::Written => self.waiting = Waiting::Nothing,
                Poll::Ready(true) => {}
                Poll::Ready(false) => return self.abandon(),
                Poll::Pending => return self.wait_for(Waiting::Written, buffers),
            }
        }
        self.roll.server.count(&mut self.session);
        match self.want {
            Want::Close { linger } => return self.close(linger),
            Want::Read(phase) => return self.read(phase, cx, buffers),
            Want::Write => {}
            Want::Answer => {
                self.place.set_calling(true);
                let polled = self.session.poll_answer(cx);
                self.place.set_calling(false);
                if polled.is_pending() {
                    return self.wait_for(Waiting::Stage(self.session.stage()), buffers);
                }
            }
        }
        buffers.refresh(&self.roll.server);
        self.place.set_calling(true);
        self.want = self.session.resume(&self.roll.server.env, &mut buffers.scratch);
        self.place.set_calling(false);
        self.send(buffers);
        Step::On
    }

    fn read(&mut self, phase: Phase, cx: &mut Context<'_>, buffers: &mut ThreadBuffers) -> Step {
        let place = &self.place;
        let mut attempt = || {
            let count = place.with_socket(|socket| net::receive(socket, &mut buffers.input))?;
            Ok(Moved { count, drained: count < buffers.input.len() && count > 0 })
        };
        // What has come before a shutdown is served, also where the runtime has not heard of it yet.
        let leaves = phase == Phase::Idle && self.roll.server.shutdown.is_begun();
        let read = match place.watched() {
            Some(watched) if !leaves => watched.poll_io(cx, Direction::Read, attempt),
            _ => match attempt() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
                other => Poll::Ready(other.map(|moved| moved.count)),
            },
        };
        match read {
            Poll::Ready(Ok(0)) => {
                self.want = self.session.end_of_input();
                Step::On
            }
            Poll::Ready(Ok(count)) => {
                buffers.refresh(&self.roll.server);
                let bytes = buffers.input.get(..count).unwrap_or_default();
                self.place.set_calling(true);
                self.want = self.session.receive(bytes, &self.roll.server.env, &mut buffers.scratch);
                self.place.set_calling(false);
                self.send(buffers);
                Step::On
            }
            Poll::Ready(Err(error)) if error.kind() == ErrorKind::Interrupted => Step::On,
            Poll::Ready(Err(_)) => self.abandon(),
            Poll::Pending if leaves => Step::End,
            Poll::Pending if self.place.watched().is_none() => self.start_watching(),
            Poll::Pending => self.wait_for(Waiting::Stage(self.session.stage()), buffers),
        }
    }

    fn start_watching(&mut self) -> Step {
        match self.place.watch() {
            Ok(()) => Step::On,
            Err(error) => {
                if self.roll.log_throttle.is_due() {
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
            self.place.with_socket(|socket| net::send(socket, out, last))
        } else {
            Ok(0)
        };
        // An error is met again with the rest.
        self.session.written(sent.unwrap_or(0), &mut buffers.scratch);
    }

    /// Sends what could not be sent before. False where the client is gone.
    fn write_on(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        while !self.session.unsent().is_empty() {
            if self.place.watch().is_err() {
                return Poll::Ready(false);
            }
            let Some(watched) = self.place.watched() else { return Poll::Ready(false) };
            let unsent = self.session.unsent();
            let last = matches!(self.want, Want::Close { .. });
            let attempt = || {
                let count = net::send(watched, unsent, last)?;
                Ok(Moved { count, drained: count < unsent.len() })
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
    fn wait_for(&mut self, waiting: Waiting, buffers: &mut ThreadBuffers) -> Step {
        let now = Instant::now();
        if self.waiting != waiting {
            self.waiting = waiting;
            self.deadline = now + self.timeout(waiting);
        } else if self.deadline <= now {
            self.waiting = Waiting::Nothing;
            match waiting {
                Waiting::Stage(_) => {
                    buffers.refresh(&self.roll.server);
                    self.want = self.session.time_out(&self.roll.server.env, &mut buffers.scratch);
                    self.send(buffers);
                    return Step::On;
                }
                Waiting::Written | Waiting::Nothing => return self.abandon(),
                Waiting::Gone => return Step::End,
            }
        }
        self.roll.watch(&self.place, self.deadline);
        Step::Wait
    }

    fn timeout(&self, waiting: Waiting) -> Duration {
        let config = &self.server().config;
        match waiting {
            Waiting::Stage((_, phase)) => phase.timeout(config),
            Waiting::Written => config.write_timeout,
            Waiting::Gone => config.linger_timeout,
            Waiting::Nothing => Duration::ZERO,
        }
    }

    fn close(&mut self, linger: bool) -> Step {
        let may_linger = linger
            && self.place.with_socket(|socket| net::shut(socket, Shutdown::Write)).is_ok()
            && (self.rejected || self.roll.depart());
        if !may_linger {
            return Step::End;
        }
        self.state = State::Departing;
        Step::On
    }

    /// Throws away what comes, until the client closes or the time is up.
    fn see_off(&mut self, cx: &mut Context<'_>, buffers: &mut ThreadBuffers) -> Step {
        if self.server().is_over() {
            return Step::End;
        }
        if self.place.watched().is_none() && matches!(self.start_watching(), Step::End) {
            return Step::End;
        }
        let Some(watched) = self.place.watched() else { return Step::End };
        let attempt = || {
            let count = net::receive(watched, &mut buffers.input)?;
            Ok(Moved { count, drained: false })
        };
        match watched.poll_io(cx, Direction::Read, attempt) {
            // A client that never stops sending does not move the deadline.
            Poll::Ready(Ok(count)) if count > 0 => match self.wait_for(Waiting::Gone, buffers) {
                Step::Wait => Step::On,
                step => step,
            },
            Poll::Ready(_) => Step::End,
            Poll::Pending => self.wait_for(Waiting::Gone, buffers),
        }
    }

    /// Past the shutdown's deadline, a request that it has counts as cut.
    fn abandon(&mut self) -> Step {
        if self.session.is_busy() && self.server().is_over() {
            self.roll.count_cut(&self.place);
        }
        self.session.abandon();
        self.roll.server.count(&mut self.session);
        Step::End
    }
}

thread_local! {
    /// What a thread has at hand. It is taken while a connection is served, so that foreign code which serves another
    /// one meanwhile finds none and makes its own.
    static BUFFERS: Cell<Option<Box<ThreadBuffers>>> = const { Cell::new(None) };
}

impl<R: Runtime> Future for Connection<R> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut buffers = BUFFERS.take().unwrap_or_else(|| Box::new(ThreadBuffers::new()));
        let polled = self.get_mut().run(cx, &mut buffers);
        BUFFERS.set(Some(buffers));
        polled
    }
}

impl<R: Runtime> Drop for Connection<R> {
    fn drop(&mut self) {
        let _ = self.abandon(); // a runtime that ends drops its tasks
        self.roll.leave(&self.place, self.rejected || self.state == State::Departing);
    }
}

#[cfg(all(test, feature = "tokio"))]
mod tests;
