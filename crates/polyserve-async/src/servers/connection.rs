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
use polyserve_core::serving::{Desk, House};

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
    turned_away: bool,
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
    /// One that has just been accepted. `turned_away`: it is told that there is no room.
    pub(crate) fn new(roll: Arc<Roll<R>>, place: Arc<Place<R>>, turned_away: bool) -> Self {
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
            turned_away,
        }
    }

    /// One whose last answer is sent, and who is no longer among those served: what still comes is thrown away.
    #[cfg(feature = "hyper")]
    pub(crate) fn departing(roll: Arc<Roll<R>>, place: Arc<Place<R>>) -> Self {
        let mut connection = Self::new(roll, place, false);
        connection.state = State::Departing;
        connection
    }

    fn house(&self) -> &House {
        &self.roll.house
    }

    fn run(&mut self, cx: &mut Context<'_>, desk: &mut Desk) -> Poll<()> {
        if self.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            self.place.set_waker(cx.waker());
            self.waker = Some(cx.waker().clone());
        }
        if self.turned_away && self.state == State::Serving && !matches!(self.want, Want::Close { .. }) {
            desk.refresh(&self.roll.house);
            self.want = self.session.turn_away(&self.roll.house.env, &mut desk.scratch);
            self.send(desk);
        }
        for _ in 0..TURNS {
            let step = match self.state {
                State::Serving => self.serve(cx, desk),
                State::Departing => self.see_off(cx, desk),
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

    fn serve(&mut self, cx: &mut Context<'_>, desk: &mut Desk) -> Step {
        if self.house().shutdown.is_begun() && self.house().is_over() {
            return self.give_up();
        }
        if !self.session.unsent().is_empty() {
            match self.write_on(cx) {
                Poll::Ready(true) if self.waiting == Waiting::Written => self.waiting = Waiting::Nothing,
                Poll::Ready(true) => {}
                Poll::Ready(false) => return self.give_up(),
                Poll::Pending => return self.wait_for(Waiting::Written, desk),
            }
        }
        self.roll.house.count(&mut self.session);
        match self.want {
            Want::Close { linger } => return self.close(linger),
            Want::Read(phase) => return self.read(phase, cx, desk),
            Want::Write => {}
            Want::Answer => {
                self.place.set_calling(true);
                let polled = self.session.poll_answer(cx);
                self.place.set_calling(false);
                if polled.is_pending() {
                    return self.wait_for(Waiting::Stage(self.session.stage()), desk);
                }
            }
        }
        desk.refresh(&self.roll.house);
        self.place.set_calling(true);
        self.want = self.session.resume(&self.roll.house.env, &mut desk.scratch);
        self.place.set_calling(false);
        self.send(desk);
        Step::On
    }

    fn read(&mut self, phase: Phase, cx: &mut Context<'_>, desk: &mut Desk) -> Step {
        let place = &self.place;
        let mut attempt = || {
            let count = place.with_socket(|socket| net::receive(socket, &mut desk.input))?;
            Ok(Moved { count, drained: count < desk.input.len() && count > 0 })
        };
        // What has come before a shutdown is served, also where the runtime has not heard of it yet.
        let leaves = phase == Phase::Idle && self.roll.house.shutdown.is_begun();
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
                desk.refresh(&self.roll.house);
                let bytes = desk.input.get(..count).unwrap_or_default();
                self.place.set_calling(true);
                self.want = self.session.receive(bytes, &self.roll.house.env, &mut desk.scratch);
                self.place.set_calling(false);
                self.send(desk);
                Step::On
            }
            Poll::Ready(Err(error)) if error.kind() == ErrorKind::Interrupted => Step::On,
            Poll::Ready(Err(_)) => self.give_up(),
            Poll::Pending if leaves => Step::End,
            Poll::Pending if self.place.watched().is_none() => self.start_watching(),
            Poll::Pending => self.wait_for(Waiting::Stage(self.session.stage()), desk),
        }
    }

    fn start_watching(&mut self) -> Step {
        match self.place.watch() {
            Ok(()) => Step::On,
            Err(error) => {
                if self.roll.complaint.is_due() {
                    tracing::warn!(%error, "a connection cannot be watched");
                }
                self.give_up()
            }
        }
    }

    /// Sends what the session has to say; what the kernel does not take stays with the session.
    fn send(&mut self, desk: &mut Desk) {
        let out = desk.scratch.out();
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
        self.session.written(sent.unwrap_or(0), &mut desk.scratch);
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
    fn wait_for(&mut self, waiting: Waiting, desk: &mut Desk) -> Step {
        let now = Instant::now();
        if self.waiting != waiting {
            self.waiting = waiting;
            self.deadline = now + self.timeout(waiting);
        } else if self.deadline <= now {
            self.waiting = Waiting::Nothing;
            match waiting {
                Waiting::Stage(_) => {
                    desk.refresh(&self.roll.house);
                    self.want = self.session.time_out(&self.roll.house.env, &mut desk.scratch);
                    self.send(desk);
                    return Step::On;
                }
                Waiting::Written | Waiting::Nothing => return self.give_up(),
                Waiting::Gone => return Step::End,
            }
        }
        self.roll.watch(&self.place, self.deadline);
        Step::Wait
    }

    fn timeout(&self, waiting: Waiting) -> Duration {
        let config = &self.house().config;
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
            && (self.turned_away || self.roll.depart());
        if !may_linger {
            return Step::End;
        }
        self.state = State::Departing;
        Step::On
    }

    /// Throws away what comes, until the client closes or the time is up.
    fn see_off(&mut self, cx: &mut Context<'_>, desk: &mut Desk) -> Step {
        if self.house().is_over() {
            return Step::End;
        }
        if self.place.watched().is_none() && matches!(self.start_watching(), Step::End) {
            return Step::End;
        }
        let Some(watched) = self.place.watched() else { return Step::End };
        let attempt = || {
            let count = net::receive(watched, &mut desk.input)?;
            Ok(Moved { count, drained: false })
        };
        match watched.poll_io(cx, Direction::Read, attempt) {
            // A client that never stops sending does not move the deadline.
            Poll::Ready(Ok(count)) if count > 0 => match self.wait_for(Waiting::Gone, desk) {
                Step::Wait => Step::On,
                step => step,
            },
            Poll::Ready(_) => Step::End,
            Poll::Pending => self.wait_for(Waiting::Gone, desk),
        }
    }

    /// Past the shutdown's deadline, a request that it has counts as cut.
    fn give_up(&mut self) -> Step {
        if self.session.is_busy() && self.house().is_over() {
            self.roll.count_cut(&self.place);
        }
        self.session.abandon();
        self.roll.house.count(&mut self.session);
        Step::End
    }
}

thread_local! {
    /// What a thread has at hand. It is taken while a connection is served, so that foreign code which serves another
    /// one meanwhile finds none and makes its own.
    static DESK: Cell<Option<Box<Desk>>> = const { Cell::new(None) };
}

impl<R: Runtime> Future for Connection<R> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut desk = DESK.take().unwrap_or_else(|| Box::new(Desk::new()));
        let polled = self.get_mut().run(cx, &mut desk);
        DESK.set(Some(desk));
        polled
    }
}

impl<R: Runtime> Drop for Connection<R> {
    fn drop(&mut self) {
        let _ = self.give_up(); // a runtime that ends drops its tasks
        self.roll.leave(&self.place, self.turned_away || self.state == State::Departing);
    }
}

#[cfg(all(test, feature = "tokio"))]
mod tests;
