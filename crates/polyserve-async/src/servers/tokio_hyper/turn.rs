//! A connection's turn: how many requests one poll of its task serves.
//!
//! hyper serves 16 requests in a poll, and then wakes its task by reference. tokio runs a task that is woken so before it
//! looks at its sockets, 61 times in a row. Two parts prevent that:
//!
//! * [`TurnGate`] passes a request to the service only while the [`Turn`](polyserve_serving::http1::turn::Turn) is not over.
//!   Otherwise the request waits for the next turn.
//! * [`PollWaker`] notes a wake that comes while hyper is polled. The connection's loop then decides when it polls again.
//!
//! Cost: an atomic store and a swap for each poll of hyper; an allocation for each connection.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use http::{Request, Response};
use hyper::body::Incoming;

use super::connection::RequestHandler;
use super::output::{HyperBuffers, with_buffers};

/// A handler that passes requests on while the connection's turn is not over.
#[derive(Clone)]
pub(super) struct TurnGate<S>(pub(super) S);

impl<S: RequestHandler> hyper::service::Service<Request<Incoming>> for TurnGate<S> {
    type Response = Response<S::Body>;
    type Error = Infallible;
    type Future = GatedFuture<S>;

    fn call(&self, request: Request<Incoming>) -> GatedFuture<S> {
        if with_buffers(HyperBuffers::take_place_in_turn) {
            return GatedFuture::Called(self.0.call(request));
        }
        GatedFuture::Waiting(Some(Box::new((self.clone(), request))))
    }
}

/// The future of one answer.
pub(super) enum GatedFuture<S: RequestHandler> {
    /// The request waits for the next turn. `None` only while it is passed on.
    Waiting(Option<Box<(TurnGate<S>, Request<Incoming>)>>),
    Called(S::ResponseFuture),
}

impl<S: RequestHandler> Future for GatedFuture<S> {
    type Output = Result<Response<S::Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Self::Waiting(waiting) = &mut *self
            && let Some(waits) = waiting.take()
        {
            if !with_buffers(HyperBuffers::take_place_in_turn) {
                *waiting = Some(waits); // the connection's loop polls again
                return Poll::Pending;
            }
            let (gate, request) = *waits;
            *self = Self::Called(gate.0.call(request));
        }
        match &mut *self {
            Self::Called(future) => Pin::new(future).poll(cx),
            Self::Waiting(_) => Poll::Pending,
        }
    }
}

/// The waker that hyper is polled with.
///
/// No wake is lost: both sides change the same word. A wake that finds no poll in progress wakes the task; the end of a poll finds
/// every other wake.
pub(super) struct PollWaker {
    task: Waker,
    state: AtomicU8,
}

/// The bit of a poll in progress.
const POLLING: u8 = 1;

/// The bit of a wake since the last poll began.
const WOKEN: u8 = 2;

impl PollWaker {
    /// The waker of a connection that runs in the task of `task`.
    pub(super) fn new(task: Waker) -> Arc<Self> {
        Arc::new(Self { task, state: AtomicU8::new(0) })
    }

    /// Whether a wake still wakes the task of `waker`.
    pub(super) fn will_wake(&self, waker: &Waker) -> bool {
        self.task.will_wake(waker)
    }

    /// Notes that a poll begins. The caller then polls with this waker.
    pub(super) fn begin_poll(&self) {
        self.state.store(POLLING, Ordering::Release);
    }

    /// Notes that the poll has ended. Returns whether a wake came meanwhile. The caller must poll again after such a wake: the task
    /// is not woken.
    pub(super) fn end_poll(&self) -> bool {
        self.state.swap(0, Ordering::AcqRel) & WOKEN != 0
    }
}

impl Wake for PollWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.fetch_or(WOKEN, Ordering::AcqRel) & POLLING == 0 {
            self.task.wake_by_ref();
        }
    }
}
