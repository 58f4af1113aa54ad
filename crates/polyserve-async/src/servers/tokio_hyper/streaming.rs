//! A `tower::Service` as hyper calls it: bodies stream both ways.
//!
//! Cost: two allocations for a request, for its future and its answer's body.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use polyserve_core::http1::decode::Framing;
use polyserve_core::http1::session::panicked;
use polyserve_core::server::panic_text;
use polyserve_core::service::Body as ReplyBody;
use polyserve_core::{Reply, Status};

use super::body::{Marked, PIECE};
use super::line::{Line, Stage};
use super::{judging, response};

type BoxError = Box<dyn Error + Send + Sync>;

/// A request's body, as a `tower::Service` gets it from `TokioHyper::serve_tower`. It ends with an error where it is larger
/// than `max_body`, not valid, or not there in time.
pub struct RequestBody {
    incoming: Incoming,
    /// Bytes that may still come.
    room: usize,
    line: Arc<Line>,
    ended: bool,
}

impl RequestBody {
    fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            let mut state = self.line.state();
            state.body_is_open = false;
            if state.stage == Stage::Body {
                state.stage = Stage::Answer;
            }
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
            Poll::Pending if body.line.state().late => Some(Err("the body did not come in time".into())),
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, Bytes::len);
                if let Some(room) = body.room.checked_sub(length) {
                    body.room = room;
                    if body.incoming.is_end_stream() {
                        body.end();
                    }
                    return Poll::Ready(Some(Ok(frame)));
                }
                body.line.state().too_large = true;
                Some(Err("the body is larger than this server takes".into()))
            }
            Poll::Ready(Some(Err(error))) => Some(Err(error.into())),
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
            self.line.state().turn_down();
        }
        self.end();
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").field("room", &self.room).finish_non_exhaustive()
    }
}

/// An answer's body.
pub(crate) struct Streamed {
    body: Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>,
    rest: Bytes,
    line: Arc<Line>,
}

impl Streamed {
    fn next(&mut self) -> Option<Frame<Bytes>> {
        let piece = self.rest.split_to(self.rest.len().min(PIECE));
        (!piece.is_empty()).then(|| Frame::data(piece))
    }
}

impl Body for Streamed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let body = self.get_mut();
        if let Some(piece) = body.next() {
            return Poll::Ready(Some(Ok(piece)));
        }
        let polled = {
            let _calling = Calling::new(&body.line);
            catch_unwind(AssertUnwindSafe(|| body.body.as_mut().poll_frame(cx)))
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
                let text = panic_text(panic.as_ref());
                tracing::warn!(text, "an answer's body panicked");
                Poll::Ready(Some(Err("the answer's body panicked".into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.rest.is_empty() { self.body.size_hint() } else { SizeHint::default() }
    }
}

/// Says that a thread is in the service's code for as long as it lives.
struct Calling<'a>(&'a Line);

impl<'a> Calling<'a> {
    fn new(line: &'a Line) -> Self {
        line.place.set_calling(true);
        Self(line)
    }
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        self.0.place.set_calling(false);
    }
}

/// A body whose errors are boxed.
struct Boxed<B>(Pin<Box<B>>);

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Body for Boxed<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.get_mut().0.as_mut().poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// The service of one connection.
pub(crate) struct Streaming<S> {
    line: Arc<Line>,
    service: S,
}

impl<S> Streaming<S> {
    pub(super) fn new(line: Arc<Line>, service: S) -> Self {
        Self { line, service }
    }
}

impl<S: Clone> Clone for Streaming<S> {
    fn clone(&self) -> Self {
        Self { line: Arc::clone(&self.line), service: self.service.clone() }
    }
}

impl<S, B> hyper::service::Service<Request<Incoming>> for Streaming<S>
where
    S: tower_service::Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<Marked<Streamed>>;
    type Error = Infallible;
    type Future = Work<B>;

    fn call(&self, request: Request<Incoming>) -> Work<B> {
        let (mut parts, incoming) = request.into_parts();
        let line = Arc::clone(&self.line);
        let is_bodiless = incoming.is_end_stream();
        let room = line.shared.roll.server.env.limits.max_body;
        let judged = match judging::judge(&line, &parts, is_bodiless) {
            Err(refusal) => return Work::refused(line, Reply::problem(refusal.status, refusal.detail)),
            Ok(judged) => judged,
        };
        if matches!(judged.framing, Framing::Length(length) if length > room as u64) {
            line.state().turn_down();
            return Work::refused(line, too_large());
        }
        if !is_bodiless {
            line.state().body_is_open = true;
        }
        parts.extensions.remove::<hyper::upgrade::OnUpgrade>();
        let body = RequestBody { incoming, room, line: Arc::clone(&line), ended: is_bodiless };
        let mut service = self.service.clone();
        let future = async move {
            poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
            service.call(Request::from_parts(parts, body)).await.map_err(Into::into)
        };
        Work { line, close: judged.is_last, state: State::Called(Box::pin(future)) }
    }
}

type Called<B> = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

/// A request's answer, in the making.
pub(crate) struct Work<B> {
    line: Arc<Line>,
    close: bool,
    state: State<B>,
}

enum State<B> {
    Refused(Reply),
    Called(Called<B>),
    Gone,
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static> Work<B> {
    fn refused(line: Arc<Line>, reply: Reply) -> Self {
        line.state().client_stays = true;
        Self { line, close: true, state: State::Refused(reply) }
    }

    /// An answer of the server's own, in place of the service's.
    fn own(&self, reply: Reply, close: bool) -> Response<Marked<Streamed>> {
        let (parts, body) = response::head(&self.line.shared, reply, close, HeaderMap::new());
        let bytes = match body {
            ReplyBody::InPlace => Bytes::new(),
            ReplyBody::Static(bytes) => Bytes::from_static(bytes),
            ReplyBody::Owned(bytes) => Bytes::from(bytes),
        };
        self.begun(Response::from_parts(parts, crate::tower::ReplyBody::of(bytes)))
    }

    fn begun<T>(&self, response: Response<T>) -> Response<Marked<Streamed>>
    where
        T: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        self.line.state().stage = Stage::Sending;
        let line = Arc::clone(&self.line);
        response.map(|body| {
            let body = Streamed { body: Box::pin(Boxed(Box::pin(body))), rest: Bytes::new(), line: Arc::clone(&line) };
            Marked::new(line, body)
        })
    }

    /// The service's own answer, or what must be said instead.
    fn given(&self, given: Result<Response<B>, BoxError>) -> Response<Marked<Streamed>> {
        let close = self.close || self.line.is_last();
        if std::mem::take(&mut self.line.state().too_large) {
            return self.own(too_large(), true);
        }
        match given {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                self.own(Reply::problem(Status::NOT_IMPLEMENTED, "This server changes no protocols."), true)
            }
            Ok(mut response) => {
                response::finish(&self.line.shared, response.headers_mut(), close);
                self.begun(response)
            }
            Err(error) => {
                tracing::warn!(%error, "a service failed");
                self.own(Reply::problem(Status::INTERNAL_SERVER_ERROR, "The service failed."), close)
            }
        }
    }

    fn late(&self) -> Response<Marked<Streamed>> {
        let in_body = self.line.state().stage == Stage::Body;
        self.line.state().turn_down();
        self.own(
            if in_body {
                Reply::problem(Status::REQUEST_TIMEOUT, "The body did not come in time.")
            } else {
                Reply::problem(Status::SERVICE_UNAVAILABLE, "The answer did not come in time.")
            },
            true,
        )
    }

    fn poll_called(&mut self, cx: &mut Context<'_>, mut future: Called<B>) -> Poll<Response<Marked<Streamed>>> {
        if self.line.state().late {
            let answer = self.late();
            self.abandon(future);
            return Poll::Ready(answer);
        }
        let polled = {
            let _calling = Calling::new(&self.line);
            catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)))
        };
        let answer = match polled {
            Ok(Poll::Pending) => {
                self.state = State::Called(future);
                return Poll::Pending;
            }
            Ok(Poll::Ready(given)) => self.given(given),
            Err(panic) => self.own(panicked(panic), self.close),
        };
        self.abandon(future);
        Poll::Ready(answer)
    }
}

impl<B> Work<B> {
    /// Drops the service's future, which is foreign code.
    fn abandon(&self, future: Called<B>) {
        let _calling = Calling::new(&self.line);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(future))) {
            tracing::warn!(text = panic_text(panic.as_ref()), "an answer panicked as it was dropped");
        }
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static> Future for Work<B> {
    type Output = Result<Response<Marked<Streamed>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let work = self.get_mut();
        match std::mem::replace(&mut work.state, State::Gone) {
            State::Refused(reply) => Poll::Ready(Ok(work.own(reply, true))),
            State::Called(future) => work.poll_called(cx, future).map(Ok),
            State::Gone => Poll::Pending, // hyper does not ask twice
        }
    }
}

impl<B> Drop for Work<B> {
    fn drop(&mut self) {
        if let State::Called(future) = std::mem::replace(&mut self.state, State::Gone) {
            self.abandon(future);
        }
    }
}

fn too_large() -> Reply {
    Reply::problem(Status::CONTENT_TOO_LARGE, "The body is larger than this server takes.")
}
