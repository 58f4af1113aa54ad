//! A connection's turn: how many requests one poll of its task serves.
//!
//! hyper serves 16 requests in a poll, and then wakes its task by reference. tokio runs a task that is woken so before it
//! looks at its sockets, 61 times in a row. Two parts prevent that:
//!
//! * [`TurnGate`] passes a request to the service only while the [`Turn`](polyserve_serving::http1::turn::Turn) is not over.
//!   Otherwise the request waits for the next turn.
//! * [`PollWaker`] notes a wake that comes while hyper is polled. The connection's loop then decides when it polls again.
//!
//! Cost: two atomic stores and a swap for each poll of hyper; an allocation for each connection.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use http::{Request, Response};
use hyper::body::Incoming;

use super::connection::RequestHandler;
use super::connection_state::ConnectionState;

/// A handler that passes requests on while the connection's turn is not over.
#[derive(Clone)]
pub(super) struct TurnGate<S> {
    pub(super) connection: Arc<ConnectionState>,
    pub(super) handler: S,
}

impl<S: RequestHandler> hyper::service::Service<Request<Incoming>> for TurnGate<S> {
    type Response = Response<S::Body>;
    type Error = Infallible;
    type Future = GatedFuture<S>;

    fn call(&self, request: Request<Incoming>) -> GatedFuture<S> {
        if self.connection.state().take_place_in_turn() {
            return GatedFuture::Called(self.handler.call(request));
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
            if !waits.0.connection.state().take_place_in_turn() {
                *waiting = Some(waits); // the connection's loop polls again
                return Poll::Pending;
            }
            let (gate, request) = *waits;
            *self = Self::Called(gate.handler.call(request));
        }
        match &mut *self {
            Self::Called(future) => Pin::new(future).poll(cx),
            Self::Waiting(_) => Poll::Pending,
        }
    }
}

/// The waker that hyper is polled with.
///
/// No wake is lost. A wake stores `is_woken` and then loads `is_polling`; the end of a poll stores `is_polling` and then
/// loads `is_woken`. All four are sequentially consistent: one of the two sees the other.
pub(super) struct PollWaker {
    task: Waker,
    is_polling: AtomicBool,
    is_woken: AtomicBool,
}

impl PollWaker {
    /// The waker of a connection that runs in the task of `task`.
    pub(super) fn new(task: Waker) -> Arc<Self> {
        Arc::new(Self { task, is_polling: AtomicBool::new(false), is_woken: AtomicBool::new(false) })
    }

    /// Whether a wake still wakes the task of `waker`.
    pub(super) fn will_wake(&self, waker: &Waker) -> bool {
        self.task.will_wake(waker)
    }

    /// Calls `poll` with a context of this waker. Returns the result, and whether a wake came meanwhile. The caller must poll
    /// again after such a wake: the task is not woken.
    pub(super) fn poll<T>(self: &Arc<Self>, poll: impl FnOnce(&mut Context<'_>) -> T) -> (T, bool) {
        let waker = Waker::from(Arc::clone(self));
        self.is_woken.store(false, Ordering::SeqCst);
        self.is_polling.store(true, Ordering::SeqCst);
        let result = poll(&mut Context::from_waker(&waker));
        self.is_polling.store(false, Ordering::SeqCst);
        (result, self.is_woken.swap(false, Ordering::SeqCst))
    }
}

impl Wake for PollWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        if !self.is_polling.load(Ordering::SeqCst) {
            self.task.wake_by_ref();
        }
    }
}
