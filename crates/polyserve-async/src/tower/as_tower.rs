//! A [`Service`] as a `tower::Service`.
//!
//! Invariant: it never fails, and a panic in the service is a 500. Cost: an allocation for the future, one for the body
//! where it came in several pieces, one for the answer's body.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::{Future, IntoFuture as _, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::request::Parts;
use http_body::{Frame, SizeHint};
use polyserve_core::http1::session::panicked;
use polyserve_core::service::Body;
use polyserve_core::{Answer, Head, Method, Reply, Request, Service, Status};

use crate::types::{head, reply};

/// Any [`Service`] as a `tower::Service`, for axum's `nest_service` and `fallback_service` among others.
///
/// It reads a request's body to its end, within a limit, and calls the service. Timeouts are the server's that it runs
/// in, and so is what an HTTP server checks of a request.
///
/// ```
/// use polyserve_async::tower::AsTower;
/// use polyserve_core::service::Welcome;
/// let welcome = AsTower::new(std::sync::Arc::new(Welcome)).with_max_body(64 * 1024);
/// ```
#[derive(Clone)]
pub struct AsTower {
    service: Arc<dyn Service>,
    max_body: usize,
}

/// Bytes of body, unless another limit is set.
const MAX_BODY: usize = 1024 * 1024;

impl AsTower {
    /// This service, with bodies of at most 1 MiB.
    pub fn new(service: Arc<dyn Service>) -> Self {
        Self { service, max_body: MAX_BODY }
    }

    /// With another limit; a larger body is answered with 413.
    #[must_use]
    pub fn with_max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    async fn answer<B>(self, request: http::Request<B>) -> (Reply, Vec<u8>)
    where
        B: http_body::Body<Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        let (parts, body) = request.into_parts();
        let Some(method) = Method::parse(parts.method.as_str()) else {
            return alone(Reply::problem(Status::NOT_IMPLEMENTED, "The method is not known here."));
        };
        let body = match self.read(&parts, method, body).await {
            Ok(body) => body,
            Err(reply) => return alone(reply),
        };
        let mut in_place = Vec::new();
        let answer =
            self.ask(&parts, method, |service, head| service.call(Request { head, body: &body }, &mut in_place));
        match answer {
            Answer::Now(reply) => (reply, in_place),
            Answer::Later(future) => alone(caught(Answer::Later(future)).await),
        }
    }

    /// The whole body; or an answer that does without it.
    async fn read<B>(&self, parts: &Parts, method: Method, body: B) -> Result<Vec<u8>, Reply>
    where
        B: http_body::Body<Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        if body.is_end_stream() {
            return Ok(Vec::new());
        }
        let too_large = || Reply::problem(Status::CONTENT_TOO_LARGE, "The body is larger than this server takes.");
        let mut refused = None;
        let asked = self.ask(parts, method, |service, head| {
            refused = service.head(&head);
            Answer::Now(Reply::empty(Status::OK))
        });
        if let Answer::Now(reply) = asked
            && reply.status() != Status::OK
        {
            return Err(reply); // it panicked
        }
        if let Some(reply) = refused {
            return Err(reply);
        }
        if body.size_hint().lower() > self.max_body as u64 {
            return Err(too_large());
        }
        let mut body = pin!(body);
        let mut whole = Vec::new();
        while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            let Ok(frame) = frame else {
                return Err(Reply::problem(Status::BAD_REQUEST, "The body is not valid, or not whole."));
            };
            let Ok(mut data) = frame.into_data() else { continue };
            if whole.len().saturating_add(data.remaining()) > self.max_body {
                return Err(too_large());
            }
            while data.has_remaining() {
                let chunk = data.chunk();
                whole.extend_from_slice(chunk);
                let count = chunk.len();
                data.advance(count);
            }
        }
        Ok(whole)
    }

    /// Shows the head to the service; a panic is an answer.
    fn ask(
        &self,
        parts: &Parts,
        method: Method,
        ask: impl FnOnce(&dyn Service, Head<'_>) -> Answer<Reply>,
    ) -> Answer<Reply> {
        head::show(parts, |line, headers| {
            let head = Head { method, target: line.target, version: line.version, headers };
            let asked = catch_unwind(AssertUnwindSafe(|| ask(self.service.as_ref(), head)));
            asked.unwrap_or_else(|panic| Answer::Now(panicked(panic.as_ref())))
        })
    }
}

fn alone(reply: Reply) -> (Reply, Vec<u8>) {
    (reply, Vec::new())
}

/// An answer that came later; a panic is one too.
async fn caught(answer: Answer<Reply>) -> Reply {
    let mut future = answer.into_future();
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut future).poll(cx)));
        polled.unwrap_or_else(|panic| Poll::Ready(panicked(panic.as_ref())))
    })
    .await
}

fn response(given: Reply, in_place: Vec<u8>) -> http::Response<ReplyBody> {
    let mut response = http::Response::new(ReplyBody(None));
    *response.status_mut() = reply::status(&given);
    reply::fill(response.headers_mut(), &given);
    let bytes = match given.into_body() {
        Body::InPlace => Bytes::from(in_place),
        Body::Static(bytes) => Bytes::from_static(bytes),
        Body::Owned(bytes) => Bytes::from(bytes),
    };
    *response.body_mut() = ReplyBody::of(bytes);
    response
}

impl<B> tower_service::Service<http::Request<B>> for AsTower
where
    B: http_body::Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>> + Send> + Send + 'static,
{
    type Response = http::Response<ReplyBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let asked = self.clone();
        Box::pin(async move {
            let (reply, in_place) = asked.answer(request).await;
            Ok(response(reply, in_place))
        })
    }
}

impl fmt::Debug for AsTower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsTower").field("max_body", &self.max_body).finish_non_exhaustive()
    }
}

/// An answer's body, of one piece.
#[derive(Debug)]
pub struct ReplyBody(Option<Bytes>);

impl ReplyBody {
    /// This one.
    pub(crate) fn of(bytes: Bytes) -> Self {
        Self(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

impl http_body::Body for ReplyBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.get_mut().0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
