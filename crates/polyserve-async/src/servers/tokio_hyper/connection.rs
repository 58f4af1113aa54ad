//! One connection as a future that polls hyper's.
//!
//! hyper parses, frames and encodes; deadlines, the drain, what is sent when, and refusals that can be read are here.
//!
//! Invariants: whenever it waits, its task is woken by its socket, its answer, its deadline or a shutdown; hyper is not
//! polled while what it wrote waits for the client. Cost: a read and a write for each batch of requests, a look at the
//! clock for each wait; a connection that is idle for a second gives hyper's part of it back.

use std::convert::Infallible;
use std::future::Future;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use polyserve_core::http1::Phase;
use polyserve_core::serving::ServerState;
use polyserve_core::{BoxFuture, net};

use super::io::Io;
use super::line::{Line, Shared, Stage, without_blank};
use super::mark::Mark;
use super::output::{self, Output};
use super::refusal;
use crate::servers::connection_entry::ConnectionEntry;
use crate::servers::connection_task::ConnectionTask as Departing;
use crate::servers::tokio_socket::TokioSocket;

/// What answers the requests of one connection.
pub(crate) trait Answers:
    hyper::service::Service<Request<Incoming>, Response = Response<Self::Body>, Error = Infallible, Future = Self::Work>
    + Clone
    + Send
    + Unpin
    + 'static
{
    type Body: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static;
    type Work: Future<Output = Result<Response<Self::Body>, Infallible>> + Send + Unpin + 'static;
}

impl<S, B, W> Answers for S
where
    S: hyper::service::Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future = W>
        + Clone
        + Send
        + Unpin
        + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    W: Future<Output = Result<Response<B>, Infallible>> + Send + Unpin + 'static,
{
    type Body = B;
    type Work = W;
}

/// A connection, from accept to close.
pub(crate) struct Connection<S: Answers> {
    line: Arc<Line>,
    service: S,
    hyper: Option<http1::Connection<Io, S>>,
    unsent: Option<Box<Output>>,
    /// hyper is done; whether to linger.
    end: Option<bool>,
    departing: Option<Box<Departing<TokioSocket>>>,
    /// It speaks another protocol, and this serves it.
    other: Option<BoxFuture<()>>,
    waker: Option<Waker>,
    mark: Mark,
    waiting: Waiting,
    deadline: Instant,
}

/// What a deadline is for; while it stays the same, so does the deadline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Nothing,
    Stage(u64, Stage),
    /// Idle for a while already, without hyper.
    Parked(u64),
    Written,
}

/// After so long without a request hyper's part of a connection is given back, buffers and all.
const PARKED_AFTER: Duration = Duration::from_secs(1);

/// Where nothing limits a wait.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Polls of hyper before other tasks have their turn; in each it serves up to 16 requests. With 8 of them the runtime, which
/// looks for other sockets after so many tasks, did not look for seconds where a few clients flooded a slow build.
const TURNS: usize = 2;

/// Whether a step can be followed by another now.
enum Step {
    On,
    Wait,
    End,
}

impl<S: Answers> Connection<S> {
    /// One that has just been accepted, or whose first bytes were read `before`.
    pub(super) fn new(line: Arc<Line>, service: S, before: Bytes) -> Self {
        let mut connection = Self {
            line,
            service,
            hyper: None,
            unsent: None,
            end: None,
            departing: None,
            other: None,
            waker: None,
            mark: Mark::new(),
            waiting: Waiting::Nothing,
            deadline: Instant::now(),
        };
        connection.begin(before);
        connection
    }

    fn shared(&self) -> &Shared {
        &self.line.shared
    }

    fn server(&self) -> &ServerState {
        &self.shared().roll.server
    }

    fn place(&self) -> &ConnectionEntry<TokioSocket> {
        &self.line.place
    }

    /// Begins anew with what is left of what was read.
    fn begin(&mut self, before: Bytes) {
        self.line.state().begin(&before);
        let io = Io::new(Arc::clone(&self.line), before);
        self.hyper = Some(self.line.shared.builder.serve_connection(io, self.service.clone()));
    }

    fn run(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            self.place().set_waker(cx.waker());
            self.waker = Some(cx.waker().clone());
        }
        for _ in 0..TURNS {
            match self.turn(cx) {
                Step::On => {}
                Step::Wait => return Poll::Pending,
                Step::End => return Poll::Ready(()),
            }
            if self.departing.is_some() || self.other.is_some() {
                self.mark.lower(&self.line);
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        self.send(false);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Step {
        if self.server().shutdown.is_begun() && self.server().is_over() {
            return self.abandon();
        }
        if let Some(unsent) = &mut self.unsent {
            match unsent.write_on(&self.line, cx, self.end.is_some()) {
                Poll::Ready(true) => self.unsent = None,
                Poll::Ready(false) => return self.abandon(),
                Poll::Pending => return self.wait_for(Waiting::Written, true),
            }
        }
        if let Some(linger) = self.end {
            return self.close(linger);
        }
        if self.hyper.is_none() {
            self.begin(Bytes::new());
        }
        let Some(hyper) = &mut self.hyper else { return Step::End };
        match hyper.poll_without_shutdown(cx) {
            Poll::Ready(result) => {
                self.finish(result);
                Step::On
            }
            Poll::Pending => self.after_poll(),
        }
    }

    /// hyper waits for something, or for its next turn.
    fn after_poll(&mut self) -> Step {
        let mut state = self.line.state();
        let seen = state.take_seen();
        if seen.again || (!seen.dry && !seen.blocked && state.is_reading()) {
            return Step::On; // what it wrote may leave with what it writes next
        }
        let unsent = state.send(&self.line, false);
        if seen.blocked || unsent.is_some() {
            drop(state);
            self.unsent = unsent;
            return Step::On;
        }
        let (requests, stage, missing) = (state.requests, state.stage, state.missing);
        let stage = match stage {
            Stage::Done if !state.is_reading() => Stage::Body,
            Stage::Done if state.rests() => Stage::Idle,
            stage => stage,
        };
        drop(state);
        if stage == Stage::Body && seen.dry {
            self.mark.await_bytes(&self.line, missing);
        }
        match stage {
            Stage::Done if !self.look_closely() => Step::On,
            // It may have begun after that look for more.
            Stage::Done | Stage::Idle if self.server().shutdown.is_begun() => {
                if seen.may_leave {
                    Step::End
                } else {
                    Step::On
                }
            }
            Stage::Done => self.wait_for(Waiting::Stage(requests, Stage::Idle), false),
            stage => self.wait_for(Waiting::Stage(requests, stage), stage.is_busy()),
        }
    }

    /// Finds out from hyper's own buffer whether the next request has begun; then hyper is to be polled for it.
    fn look_closely(&mut self) -> bool {
        let left = self.hyper.take().map(|hyper| hyper.into_parts().read_buf).unwrap_or_default();
        let left = left.slice_ref(without_blank(&left));
        let is_idle = left.is_empty();
        self.begin(left);
        is_idle
    }

    /// hyper is done with the connection.
    fn finish(&mut self, result: hyper::Result<()>) {
        let left = self.hyper.take().map(|hyper| hyper.into_parts().read_buf).unwrap_or_default();
        let mut state = self.line.state();
        let linger = match result {
            Ok(()) => !state.input_ended && (state.client_stays || !left.is_empty()),
            Err(error) if error.is_parse() && state.begins_with_preface(&left) && self.line.shared.http2.is_some() => {
                state.buffers().output.take_back();
                drop(state);
                self.end = Some(false);
                self.other = self.line.shared.http2.as_ref().map(|http2| http2(Arc::clone(&self.line), left));
                return;
            }
            Err(error) if error.is_parse() => {
                refusal::replace(&mut state, &self.line.shared, &left);
                true
            }
            #[cfg(feature = "tower")]
            Err(_) if state.too_large && !state.torn => {
                refusal::too_large(&mut state, &self.line.shared);
                true
            }
            Err(error) => {
                tracing::debug!(%error, "a connection failed");
                false
            }
        };
        drop(state);
        self.end = Some(linger);
        self.send(true);
    }

    /// Sends what has gathered; what the kernel does not take waits.
    fn send(&mut self, last: bool) {
        // While something waits, hyper is not polled: nothing has gathered since.
        if self.unsent.is_none() {
            let unsent = self.line.state().send(&self.line, last);
            self.unsent = unsent;
        }
    }

    /// Waits until the deadline of `waiting`, which is set where it is new; or does what is due where it has passed.
    fn wait_for(&mut self, waiting: Waiting, busy: bool) -> Step {
        let now = Instant::now();
        let waiting = match (self.waiting, waiting) {
            (Waiting::Parked(parked), Waiting::Stage(requests, Stage::Idle)) if parked == requests => {
                self.park(requests)
            }
            (_, waiting) => waiting,
        };
        if self.waiting != waiting {
            self.waiting = waiting;
            self.deadline = now + self.timeout(waiting);
        } else if self.deadline <= now {
            match waiting {
                Waiting::Stage(requests, Stage::Idle) if self.server().config.idle_timeout > PARKED_AFTER => {
                    self.waiting = self.park(requests);
                    self.deadline = now + (self.server().config.idle_timeout - PARKED_AFTER);
                }
                Waiting::Stage(_, stage) => return self.time_out(stage),
                Waiting::Parked(_) => return Step::End,
                Waiting::Written | Waiting::Nothing => return self.abandon(),
            }
        }
        if !matches!(waiting, Waiting::Stage(_, Stage::Body)) {
            self.mark.lower(&self.line);
        }
        self.shared().roll.set_deadline(self.place(), self.deadline);
        self.place().set_busy(busy);
        Step::Wait
    }

    /// Does without hyper until something comes: the runtime wakes this task for it all the same.
    fn park(&mut self, requests: u64) -> Waiting {
        self.hyper = None;
        Waiting::Parked(requests)
    }

    fn timeout(&self, waiting: Waiting) -> Duration {
        let config = &self.server().config;
        match waiting {
            Waiting::Stage(_, Stage::Idle) => config.idle_timeout.min(PARKED_AFTER),
            Waiting::Stage(_, Stage::Head) => Phase::Head.timeout(config),
            Waiting::Stage(_, Stage::Body) => Phase::Body.timeout(config),
            Waiting::Stage(_, Stage::Answer) => Phase::Answer.timeout(config),
            Waiting::Stage(_, Stage::Sending | Stage::Done) => FAR,
            Waiting::Parked(_) => config.idle_timeout,
            Waiting::Written => config.write_timeout,
            Waiting::Nothing => Duration::ZERO,
        }
    }

    fn time_out(&mut self, stage: Stage) -> Step {
        match stage {
            Stage::Head => {
                let left = self.hyper.take().map(|hyper| hyper.into_parts().read_buf).unwrap_or_default();
                if without_blank(&left).is_empty() {
                    return Step::End;
                }
                refusal::late_head(&mut self.line.state(), &self.line.shared, &left);
                self.end = Some(true);
                self.send(true);
                Step::On
            }
            Stage::Body | Stage::Answer if !std::mem::replace(&mut self.line.state().late, true) => Step::On,
            Stage::Body | Stage::Answer => self.abandon(), // it does not heed it
            _ => Step::End,
        }
    }

    fn close(&mut self, linger: bool) -> Step {
        let may_linger = linger
            && self.place().with_socket(|socket| net::shut(socket, Shutdown::Write)).is_ok()
            && self.shared().roll.begin_linger();
        if !may_linger {
            return Step::End;
        }
        let (roll, place) = (Arc::clone(&self.shared().roll), Arc::clone(&self.line.place));
        self.departing = Some(Box::new(Departing::lingering(roll, place)));
        Step::On
    }

    fn abandon(&mut self) -> Step {
        let busy = self.unsent.take().is_some() || (self.end.is_none() && self.line.state().stage.is_busy());
        if busy && self.server().is_over() {
            self.shared().roll.count_cut(self.place());
        }
        self.end = Some(false);
        self.hyper = None;
        Step::End
    }
}

impl<S: Answers> Future for Connection<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let connection = self.get_mut();
        if let Some(departing) = &mut connection.departing {
            return Pin::new(departing.as_mut()).poll(cx);
        }
        if let Some(other) = &mut connection.other {
            return other.as_mut().poll(cx);
        }
        let line = Arc::clone(&connection.line);
        output::with_buffers(&line, || connection.run(cx))
    }
}

impl<S: Answers> Drop for Connection<S> {
    fn drop(&mut self) {
        if self.departing.is_none() {
            self.other = None;
            if self.end.is_none() || self.unsent.is_some() {
                let _ = self.abandon(); // a runtime that ends drops its tasks
            }
            self.shared().roll.remove(self.place(), false);
        }
    }
}
