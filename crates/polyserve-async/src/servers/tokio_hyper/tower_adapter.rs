//! A `tower::Service`, as hyper calls it: bodies stream in both directions.
//!
//! Invariant: if a request's body is malformed or too large, the server answers instead of the service, unless a part of
//! the service's answer was sent.
//!
//! Cost: two allocations for each request: its future and its answer's body.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use polyserve_core::panics::text_of;
use polyserve_core::{Reply, Status};
use polyserve_serving::http1::decode::Framing;
use polyserve_serving::memory::{Reservation, out_of_memory_reply};

use super::connection_state::{ConnectionState, RequestState, Stage};
use super::error_response::{INVALID_BODY, OUT_OF_MEMORY, TOO_LARGE, reply_to};
use super::response;
use super::response::{MAX_PIECE, TrackedBody};
use super::validate::validate;
use crate::tower::DrainBegun;
use crate::types::BoxError;
use crate::types::response::{service_failed, upgrade_refused};

/// A request's body, as `TokioHyper::serve_tower` passes it to a `tower::Service`. It ends with an error if it is larger than
/// `max_body`, malformed, or not complete in time.
pub struct RequestBody {
    incoming: Incoming,
    /// The number of bytes that the limit still allows.
    remaining: usize,
    connection: Arc<ConnectionState>,
    /// The number of the request. A service may keep a body after its answer, while the next request is served.
    request: u64,
    ended: bool,
    /// The number of bytes that the service has received.
    received: usize,
    /// The memory of these bytes, until the body ends: a service may collect them.
    reservation: Reservation,
}

impl RequestBody {
    fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.reservation = Reservation::default();
            self.note(|state| {
                state.body_is_open = false;
                if state.stage == Stage::Body {
                    state.stage = Stage::Answer;
                }
            });
        }
    }

    /// Changes the state of the connection, if this is the body of its present request.
    fn note(&self, change: impl FnOnce(&mut RequestState)) {
        let mut state = self.connection.state();
        if state.requests == self.request {
            change(&mut state);
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let body = self.get_mut();
        if body.ended {
            return Poll::Ready(None);
        }
        let polled = Pin::new(&mut body.incoming).poll_frame(cx);
        Poll::Ready(match polled {
            Poll::Pending if body.connection.state().timed_out => Some(Err("the body did not come in time".into())),
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, Bytes::len);
                body.received += length;
                body.note(|state| state.body_received = body.received as u64);
                if !body.reservation.try_set(&body.connection.server().env.memory, body.received) {
                    body.note(|state| state.body_refusal = Some(OUT_OF_MEMORY));
                    return Poll::Ready(Some(Err("the memory of the server is used up".into())));
                }
                if let Some(remaining) = body.remaining.checked_sub(length) {
                    body.remaining = remaining;
                    if body.incoming.is_end_stream() {
                        body.end();
                    }
                    return Poll::Ready(Some(Ok(frame)));
                }
                body.note(|state| state.body_refusal = Some(TOO_LARGE));
                Some(Err("the body is larger than this server takes".into()))
            }
            Poll::Ready(Some(Err(error))) => {
                body.note(|state| state.body_refusal = (!state.input_ended).then_some(INVALID_BODY));
                Some(Err(error.into()))
            }
            Poll::Ready(None) => {
                body.end();
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.ended {
            self.note(RequestState::reply_early);
        }
        self.end();
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").field("remaining", &self.remaining).finish_non_exhaustive()
    }
}

/// An answer's body.
pub(crate) struct StreamedBody {
    body: UnsyncBoxBody<Bytes, BoxError>,
    rest: Bytes,
    connection: Arc<ConnectionState>,
}

impl StreamedBody {
    fn next(&mut self) -> Option<Frame<Bytes>> {
        let piece = self.rest.split_to(self.rest.len().min(MAX_PIECE));
        (!piece.is_empty()).then(|| Frame::data(piece))
    }
}

impl Body for StreamedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let body = self.get_mut();
        if let Some(piece) = body.next() {
            return Poll::Ready(Some(Ok(piece)));
        }
        let polled = {
            let _calling = ServiceCall::new(&body.connection);
            catch_unwind(AssertUnwindSafe(|| Pin::new(&mut body.body).poll_frame(cx)))
        };
        match polled {
            Ok(Poll::Ready(Some(Ok(frame)))) => Poll::Ready(Some(match frame.into_data() {
                Ok(data) => {
                    body.rest = data;
                    Ok(body.next().unwrap_or_else(|| Frame::data(Bytes::new())))
                }
                Err(frame) => Ok(frame),
            })),
            Ok(other) => other,
            Err(panic) => {
                body.connection.server().count_panic();
                polyserve_core::throttled!(warn, text = text_of(panic), "an answer's body panicked");
                Poll::Ready(Some(Err("the answer's body panicked".into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let exact = self.body.size_hint().exact().map(|length| SizeHint::with_exact(length + self.rest.len() as u64));
        exact.unwrap_or_else(|| if self.rest.is_empty() { self.body.size_hint() } else { SizeHint::default() })
    }
}

/// Notes that a thread runs the service's code, for as long as this value lives.
struct ServiceCall<'a>(&'a ConnectionState);

impl<'a> ServiceCall<'a> {
    fn new(connection: &'a ConnectionState) -> Self {
        connection.entry.set_calling(true);
        Self(connection)
    }
}

impl Drop for ServiceCall<'_> {
    fn drop(&mut self) {
        self.0.entry.set_calling(false);
    }
}

/// The service of one connection.
pub(crate) struct TowerAdapter<S> {
    connection: Arc<ConnectionState>,
    service: S,
}

impl<S> TowerAdapter<S> {
    pub(super) fn new(connection: Arc<ConnectionState>, service: S) -> Self {
        Self { connection, service }
    }
}

impl<S: Clone> Clone for TowerAdapter<S> {
    fn clone(&self) -> Self {
        Self { connection: Arc::clone(&self.connection), service: self.service.clone() }
    }
}

impl<S, B> hyper::service::Service<Request<Incoming>> for TowerAdapter<S>
where
    S: tower_service::Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<TrackedBody<StreamedBody>>;
    type Error = Infallible;
    type Future = TowerFuture<B>;

    fn call(&self, request: Request<Incoming>) -> TowerFuture<B> {
        let (mut parts, incoming) = request.into_parts();
        let connection = Arc::clone(&self.connection);
        let (is_bodiless, is_safe) = (incoming.is_end_stream(), parts.method.is_safe());
        let remaining = connection.server().env.limits.max_body;
        let valid = match validate(&connection, &parts, is_bodiless) {
            Err(refusal) => return TowerFuture::refused(connection, Reply::problem(refusal.status, refusal.detail)),
            Ok(valid) => valid,
        };
        if matches!(valid.framing, Framing::Length(length) if length > remaining as u64) {
            connection.state().reply_early();
            return TowerFuture::refused(connection, Reply::problem(TOO_LARGE.status, TOO_LARGE.detail));
        }
        let request = {
            let mut state = connection.state();
            (state.body_is_open, state.body_refusal) = (!is_bodiless, None);
            state.requests
        };
        parts.extensions.remove::<hyper::upgrade::OnUpgrade>();
        if let Some(peer) = connection.peer {
            parts.extensions.insert(peer);
        }
        if connection.server().shutdown.is_begun() {
            parts.extensions.insert(DrainBegun);
        }
        let body = RequestBody {
            incoming,
            remaining,
            connection: Arc::clone(&connection),
            request,
            ended: is_bodiless,
            received: 0,
            reservation: Reservation::default(),
        };
        let mut service = self.service.clone();
        let future = async move {
            poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
            service.call(Request::from_parts(parts, body)).await.map_err(Into::into)
        };
        TowerFuture { connection, close: valid.is_last, is_safe, state: TowerState::Called(Box::pin(future)) }
    }
}

type BoxedCall<B> = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

/// The future of one answer.
pub(crate) struct TowerFuture<B> {
    connection: Arc<ConnectionState>,
    close: bool,
    /// The request changes nothing, so its answer may be refused.
    is_safe: bool,
    state: TowerState<B>,
}

enum TowerState<B> {
    Refused(Reply),
    Called(BoxedCall<B>),
    /// hyper has the response.
    Taken,
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static> TowerFuture<B> {
    fn refused(connection: Arc<ConnectionState>, reply: Reply) -> Self {
        connection.state().must_linger = true;
        Self { connection, close: true, is_safe: false, state: TowerState::Refused(reply) }
    }

    /// Makes an answer of the server, in place of an answer of the service.
    fn server_reply(&self, reply: Reply, close: bool) -> Response<TrackedBody<StreamedBody>> {
        let (parts, body) = response::head(&self.connection.shared, reply, close, HeaderMap::new());
        let bytes = match body.into_bytes(Vec::new()) {
            Cow::Borrowed(bytes) => Bytes::from_static(bytes),
            Cow::Owned(bytes) => Bytes::from(bytes),
        };
        self.begin_sending(Response::from_parts(parts, crate::tower::ReplyBody::of(bytes)), Reservation::default())
    }

    fn begin_sending<T>(&self, response: Response<T>, reservation: Reservation) -> Response<TrackedBody<StreamedBody>>
    where
        T: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        self.connection.begin_sending(response.status());
        let connection = Arc::clone(&self.connection);
        response.map(|body| {
            let body = body.map_err(Into::into).boxed_unsync();
            let body = StreamedBody { body, rest: Bytes::new(), connection: Arc::clone(&connection) };
            TrackedBody::new(connection, body, reservation)
        })
    }

    /// Makes the response: the service's answer, or an answer of the server if the service failed or the body was refused.
    fn response(&self, result: Result<Response<B>, BoxError>) -> Response<TrackedBody<StreamedBody>> {
        let close = self.close || self.connection.is_last();
        let refusal = self.connection.state().body_refusal.take();
        if let Some(refusal) = refusal {
            return self.server_reply(reply_to(refusal), true);
        }
        match result {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                self.server_reply(upgrade_refused(), true)
            }
            Ok(mut response) => {
                let Some(reservation) = response::reserve(&self.connection, self.is_safe, response.body()) else {
                    return self.server_reply(out_of_memory_reply(), close);
                };
                response::finish(&self.connection.shared, response.headers_mut(), close);
                self.begin_sending(response, reservation)
            }
            Err(error) => self.server_reply(service_failed(&*error), close),
        }
    }

    fn timeout_reply(&self) -> Response<TrackedBody<StreamedBody>> {
        let in_body = self.connection.state().stage == Stage::Body;
        self.connection.state().reply_early();
        self.server_reply(
            if in_body {
                Reply::problem(Status::REQUEST_TIMEOUT, "The body did not come in time.")
            } else {
                Reply::problem(Status::SERVICE_UNAVAILABLE, "The answer did not come in time.")
            },
            true,
        )
    }

    fn poll_called(
        &mut self,
        cx: &mut Context<'_>,
        mut future: BoxedCall<B>,
    ) -> Poll<Response<TrackedBody<StreamedBody>>> {
        if self.connection.state().timed_out {
            let answer = self.timeout_reply();
            self.abandon(future);
            return Poll::Ready(answer);
        }
        let polled = {
            let _calling = ServiceCall::new(&self.connection);
            catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)))
        };
        let answer = match polled {
            Ok(Poll::Pending) => {
                self.state = TowerState::Called(future);
                return Poll::Pending;
            }
            Ok(Poll::Ready(given)) => self.response(given),
            Err(panic) => self.server_reply(self.connection.panicked(panic), self.close),
        };
        self.abandon(future);
        Poll::Ready(answer)
    }
}

impl<B> TowerFuture<B> {
    /// Drops a future of the service. Its destructor may panic.
    fn abandon(&self, future: BoxedCall<B>) {
        let _calling = ServiceCall::new(&self.connection);
        self.connection.abandon(future);
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static> Future for TowerFuture<B> {
    type Output = Result<Response<TrackedBody<StreamedBody>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let work = self.get_mut();
        match std::mem::replace(&mut work.state, TowerState::Taken) {
            TowerState::Refused(reply) => Poll::Ready(Ok(work.server_reply(reply, true))),
            TowerState::Called(future) => work.poll_called(cx, future).map(Ok),
            TowerState::Taken => Poll::Pending, // hyper does not poll again
        }
    }
}

impl<B> Drop for TowerFuture<B> {
    fn drop(&mut self) {
        if let TowerState::Called(future) = std::mem::replace(&mut self.state, TowerState::Taken) {
            self.abandon(future);
        }
    }
}
