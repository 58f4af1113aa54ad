//! [`AsTower`]: a [`Service`] as a `tower::Service`.
//!
//! Invariant: it never fails, and a panic in the service is answered with 500.
//!
//! Cost: an allocation for the future, one for a request's body, one for the answer's body.

use std::any::Any;
use std::borrow::Cow;
use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::future::{Future, poll_fn};
use std::iter;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, LOCATION};
use http::request::Parts;
use http::{Extensions, HeaderValue, Method, StatusCode};
use http_body::{Frame, SizeHint};
use http_body_util::LengthLimitError;
use polyserve_core::log::LogThrottles;
use polyserve_core::{Answer, Body, BoxFuture, ConfigError, Head, Reply, Request, Service, known_method};
#[cfg(feature = "http2")]
use polyserve_serving::http1::HttpState;
use polyserve_serving::http1::panicked;
use polyserve_serving::memory::{MemoryBudget, Reservation, out_of_memory_reply};

use crate::types::body::{CollectError, collect};
use crate::types::head;

/// Any [`Service`] as a `tower::Service`, for example for axum's `nest_service` and `fallback_service`.
///
/// It reads a request's body to its end, within a limit, and calls the service. The server around it is responsible for
/// timeouts and for the validity of requests.
///
/// A request's peer is the [`SocketAddr`] among the extensions of the `http::Request`, which `TokioHyper::serve_tower` puts
/// there. [`with_peer`](Self::with_peer) finds it elsewhere, for other servers. In a drain, [`DrainBegun`] is among the extensions.
///
/// A layer that changes the body, such as a compression, must also change a strong `ETag`: two bodies must not have the same strong
/// tag (RFC 9110, 8.8.3.3). The compression of `tower-http` does not, so put it around a service without entity tags.
///
/// A router that nests a service removes the service's path from the request, and does not add it to the `Location` of the
/// answer. [`under`](Self::under) sets that path, and it is then put before each `Location`.
///
/// ```
/// use polyserve_async::AsTower;
/// use polyserve_core::Echo;
/// let echo = AsTower::new(Echo).with_max_body(64 * 1024);
/// ```
#[derive(Clone)]
pub struct AsTower {
    service: Arc<dyn Service>,
    max_body: usize,
    prefix: Option<Arc<str>>,
    peer: fn(&Extensions) -> Option<SocketAddr>,
    /// The budget that an incomplete body counts towards.
    memory: Option<MemoryBudget>,
    /// Limits what is logged about the service.
    failures: Arc<LogThrottles>,
}

/// The extension of an `http::Request` that came in a drain: a service then gets a request that is
/// [`draining`](Request::draining). `TokioHyper::serve_tower` puts it there; another server may do the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainBegun;

/// The default limit of a body, in bytes.
const MAX_BODY: usize = 1024 * 1024;

/// The address of the client, as `TokioHyper` adds it to the extensions of a request.
fn own_address(extensions: &Extensions) -> Option<SocketAddr> {
    extensions.get().copied()
}

impl AsTower {
    /// Wraps `service`, with a limit of 1 MiB for bodies.
    pub fn new(service: impl Service) -> Self {
        Self {
            service: service.into_shared(),
            max_body: MAX_BODY,
            prefix: None,
            peer: own_address,
            memory: None,
            failures: Arc::default(),
        }
    }

    /// Wraps the service of a server with this state, which has the limit for bodies, the budget that incomplete ones count
    /// towards, and the limits of the log. Allocates nothing: HTTP/2 wraps the service for each request.
    #[cfg(feature = "http2")]
    pub(crate) fn of_server(service: Arc<dyn Service>, state: &HttpState) -> Self {
        Self {
            service,
            max_body: state.limits.max_body,
            prefix: None,
            peer: own_address,
            memory: Some(state.memory.clone()),
            failures: Arc::clone(&state.failures),
        }
    }

    /// Sets the limit for bodies. A larger body is answered with 413.
    #[must_use]
    pub fn with_max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Sets how the client's address is found among the extensions of a request. `axum::serve` puts a `ConnectInfo` there.
    ///
    /// ```
    /// use axum::Router;
    /// use axum::extract::ConnectInfo;
    /// use polyserve_async::AsTower;
    /// use polyserve_core::Echo;
    /// use std::net::SocketAddr;
    ///
    /// async fn serve(listener: tokio::net::TcpListener) -> std::io::Result<()> {
    ///     let echo = AsTower::new(Echo)
    ///         .with_peer(|extensions| extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0));
    ///     let router = Router::new().fallback_service(echo);
    ///     axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>()).await
    /// }
    /// ```
    #[must_use]
    pub fn with_peer(mut self, peer: fn(&Extensions) -> Option<SocketAddr>) -> Self {
        self.peer = peer;
        self
    }

    /// Sets the path at which a router nests the service, for example `/entities`. The path is put before every `Location`
    /// that is an absolute path (`/1`). A `Location` with a host (`http://..`, `//..`) and a relative one stay as they are.
    /// A slash at the end of `prefix` is ignored.
    ///
    /// # Errors
    ///
    /// Returns an error if `prefix` is not an absolute path of a URI (RFC 3986, 3.3). A router's parameters (`/{tenant}`)
    /// are not allowed.
    ///
    /// ```
    /// use polyserve_async::AsTower;
    /// use polyserve_core::Echo;
    ///
    /// let nested = AsTower::new(Echo).under("/echo")?;
    /// assert!(AsTower::new(Echo).under("echo").is_err());
    /// # Ok::<(), polyserve_core::ConfigError>(())
    /// ```
    pub fn under(mut self, prefix: &str) -> Result<Self, ConfigError> {
        let stays = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:@/".contains(byte);
        if !prefix.starts_with('/') || prefix.starts_with("//") || !prefix.as_bytes().iter().all(stays) {
            return Err(ConfigError::new(
                "prefix",
                format_args!("{prefix:?}"),
                "a path to nest under, such as /entities",
            ));
        }
        self.prefix = Some(prefix.trim_end_matches('/').into());
        Ok(self)
    }

    /// Puts the prefix before a `Location`.
    fn placed(&self, mut response: http::Response<ReplyBody>) -> http::Response<ReplyBody> {
        let Some(prefix) = &self.prefix else { return response };
        if let Some(location) = response.headers_mut().get_mut(LOCATION)
            && let Ok(path) = location.to_str()
            && path.starts_with('/')
            && !path.starts_with("//")
            && let Ok(placed) = HeaderValue::from_str(&format!("{prefix}{path}"))
        {
            *location = placed;
        }
        response
    }

    async fn answer<B>(self, request: http::Request<B>) -> http::Response<ReplyBody>
    where
        B: http_body::Body<Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        let (parts, body) = request.into_parts();
        match self.read(&parts, body, |_| ()).await {
            Ok((body, _reservation)) => match self.call_with(&parts, &body) {
                Ok(response) => self.placed(response),
                Err(later) => {
                    let reply = caught(later, |panic| panicked(&self.failures, panic)).await;
                    self.placed(response(reply, Vec::new(), &parts.method))
                }
            },
            Err(reply) => self.placed(response(reply, Vec::new(), &parts.method)),
        }
    }

    /// Calls the service. Returns `Err` with a future if the answer is deferred.
    pub(crate) fn call_with(&self, parts: &Parts, body: &[u8]) -> Result<http::Response<ReplyBody>, BoxFuture<Reply>> {
        let mut in_place = Vec::new();
        let peer = (self.peer)(&parts.extensions);
        let draining = parts.extensions.get::<DrainBegun>().is_some();
        let answer = self.ask(parts, |service, head| {
            let request = Request::new(head, body).with_peer(peer).with_draining(draining);
            service.call(request.with_max_body(self.max_body), &mut in_place)
        });
        match answer {
            Answer::Now(reply) => Ok(response(reply, in_place, &parts.method)),
            Answer::Later(future) => Err(future),
        }
    }

    /// Reads the body. Returns it with the memory that is reserved for it. Returns `Err` with an answer if the request is
    /// answered without its body. Calls `received` with the number of bytes that have arrived.
    pub(crate) async fn read<B>(
        &self,
        parts: &Parts,
        body: B,
        received: impl Fn(usize),
    ) -> Result<(Vec<u8>, Reservation), Reply>
    where
        B: http_body::Body<Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        if known_method(parts.method.as_str()).is_none() {
            return Err(Reply::problem(StatusCode::NOT_IMPLEMENTED, "The method is not known here."));
        }
        if body.is_end_stream() {
            return Ok((Vec::new(), Reservation::default()));
        }
        let too_large = || Reply::problem(StatusCode::PAYLOAD_TOO_LARGE, "The body is larger than this server takes.");
        let mut refused = None;
        let asked = self.ask(parts, |service, head| {
            refused = service.head(&head);
            Answer::Now(Reply::empty(StatusCode::OK))
        });
        if let Answer::Now(reply) = asked
            && reply.status() != StatusCode::OK
        {
            return Err(reply); // the service panicked, or did not get the head
        }
        if let Some(reply) = refused {
            return Err(reply);
        }
        let mut kept = Reservation::default();
        let reserve = |bytes: &Vec<u8>| {
            received(bytes.len());
            self.memory.as_ref().is_none_or(|memory| kept.try_set(memory, bytes.capacity()))
        };
        let bytes = collect(body, self.max_body, reserve).await.map_err(|error| match error {
            CollectError::TooLarge => too_large(),
            CollectError::OutOfMemory => match &self.memory {
                Some(memory) => memory.refuse(),
                None => out_of_memory_reply(),
            },
            CollectError::Body(error) => match is_past_a_limit(&*error.into()) {
                true => too_large(),
                false => Reply::problem(StatusCode::BAD_REQUEST, "The body is not valid, or not whole."),
            },
        })?;
        Ok((bytes, kept))
    }

    /// Calls the service with the head. A panic becomes an answer, and so do more fields than a service may get.
    fn ask(&self, parts: &Parts, ask: impl FnOnce(&dyn Service, Head<'_>) -> Answer<Reply>) -> Answer<Reply> {
        let asked = head::convert(parts, |line, headers| {
            let head = Head {
                method: &parts.method,
                target: line.target,
                version: line.version,
                headers,
                certificate: parts.extensions.get(),
            };
            let asked = catch_unwind(AssertUnwindSafe(|| ask(self.service.as_ref(), head)));
            asked.unwrap_or_else(|panic| Answer::Now(panicked(&self.failures, panic)))
        });
        asked.unwrap_or_else(Answer::Now)
    }
}

/// Whether a body was cut off by a limit around this service, such as `tower-http`'s or axum's.
fn is_past_a_limit(error: &(dyn Error + 'static)) -> bool {
    iter::successors(Some(error), |&error| error.source()).any(<dyn Error>::is::<LengthLimitError>)
}

/// Awaits a deferred answer. `panicked` makes an answer of a panic.
pub(crate) async fn caught(mut future: BoxFuture<Reply>, panicked: impl Fn(Box<dyn Any + Send>) -> Reply) -> Reply {
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        polled.unwrap_or_else(|panic| Poll::Ready(panicked(panic)))
    })
    .await
}

/// Makes the response to a request with this method. One to HEAD has the length that the body would have.
pub(crate) fn response(reply: Reply, in_place: Vec<u8>, method: &Method) -> http::Response<ReplyBody> {
    let is_head = method == Method::HEAD;
    let reply = reply.correction(is_head).unwrap_or(reply);
    let has_length = is_head && !reply.is_bodiless() && !matches!(reply.body(), Body::Omitted(_));
    let mut response = http::Response::new(ReplyBody(None));
    *response.status_mut() = reply.status();
    let bytes = match reply.move_headers(response.headers_mut()).into_bytes(in_place) {
        Cow::Borrowed(bytes) => Bytes::from_static(bytes),
        Cow::Owned(bytes) => Bytes::from(bytes),
    };
    if has_length {
        response.headers_mut().insert(CONTENT_LENGTH, bytes.len().into());
    }
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
        Box::pin(async move { Ok(asked.answer(request).await) })
    }
}

impl fmt::Debug for AsTower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsTower")
            .field("max_body", &self.max_body)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// An answer's body, in one piece. The default is an empty one: middleware that answers in place of the service needs it.
#[derive(Debug, Default)]
pub struct ReplyBody(Option<Bytes>);

impl ReplyBody {
    /// A body of `bytes`.
    pub(crate) fn of(bytes: Bytes) -> Self {
        Self(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }

    /// The number of bytes that are left.
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, Bytes::len)
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
        SizeHint::with_exact(self.len() as u64)
    }
}
