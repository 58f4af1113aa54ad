//! [`FromTower`]: a `tower::Service` as a [`Service`], on any server.
//!
//! Invariant: the futures of the `tower::Service` are polled and dropped in the context of a tokio runtime, on whichever thread
//! the server polls or drops the answer. The runtime lives at least as long as each answer.
//!
//! Cost: an allocation for the future, and copies of the request's head and body, and of the answer's body. A runtime of its own
//! has a thread for each core; they are idle unless handlers spawn tasks or wait.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use polyserve_core::log::LogThrottles;
use polyserve_core::{Answer, BoxFuture, Reply, Request, ServerConfig, Service};
use polyserve_serving::memory::{MemoryBudget, Reservation};
use tokio::runtime::{Builder, Handle};

use super::target::TowerTarget;
use crate::runtime_threads::try_threads;
use crate::servers::toolkit::OwnedRuntime;
use crate::types::body::{CollectError, collect};
use crate::types::{BoxError, request, response, service_failed, upgrade_refused};

/// Any `tower::Service`, for example an axum `Router`, as a [`Service`]: it then runs on every server, also on those without an
/// async runtime.
///
/// Its futures are polled on the threads of the server, in the context of a tokio runtime. Handlers may therefore sleep, use
/// tokio's sockets and spawn tasks. Spawned tasks run on the threads of the runtime. An answer that is ready at its first poll
/// is [`Answer::Now`].
///
/// The client's address is a [`SocketAddr`](std::net::SocketAddr) among the extensions of the request. A make-service that is called with
/// that address is also accepted: with `router.into_make_service_with_connect_info::<SocketAddr>()`, axum's handlers get it as
/// `ConnectInfo<SocketAddr>`. In a drain, [`DrainBegun`](super::DrainBegun) is among the extensions too.
///
/// # Limits
///
/// * A request's body is complete before the service is called, and an answer is sent once its body is complete. If clients
///   need streams, use `TokioHyper::serve_tower`. Trailers are dropped.
/// * An answer's body has at most 16 MiB: see [`with_max_reply_body`](Self::with_max_reply_body). All that are not complete have
///   a budget of memory: see [`with_memory`](Self::with_memory).
/// * The server sets `Connection`, `Content-Length`, `Date`, `Keep-Alive`, `Server`, `Trailer`, `Transfer-Encoding` and `Upgrade`.
///   In an answer of the service they are left out, except the length of an empty answer to HEAD.
///   A service therefore cannot close its connection.
/// * On `tokio_per_core`, a handler that calls `tokio::task::block_in_place` panics: its runtimes have one thread each.
/// * An upgrade (101) is answered with 501.
/// * A target that the `http` crate refuses is answered with 400.
/// * An error of the service is logged and answered with 500. So is a panic, as that of any [`Service`].
///
/// ```
/// use axum::Router;
/// use axum::routing::get;
/// use polyserve_async::{FromTower, TokioTcp};
/// use polyserve_core::{ServerConfig, ServerExt};
///
/// let router = Router::new().route("/", get(|| async { "hello" }));
/// let server = TokioTcp::new(ServerConfig::default().workers(1))?; // or any other server
/// let running = server.serve("127.0.0.1:0", FromTower::new(router)?)?;
/// assert_eq!(running.shutdown()?.answered, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct FromTower {
    call: Arc<CallFn>,
    runtime: Arc<RuntimeContext>,
    replies: Replies,
}

/// Calls the `tower::Service` with a request.
type CallFn = dyn Fn(http::Request<Full<Bytes>>, Replies) -> BoxFuture<Reply> + Send + Sync;

/// How the answers of a service are collected.
#[derive(Clone, Debug)]
struct Replies {
    /// The limit of a body.
    max_body: usize,
    /// The memory of the bodies that are not complete.
    memory: MemoryBudget,
    /// Limits what is logged.
    failures: Arc<LogThrottles>,
}

/// A runtime. Futures are polled and dropped in its context.
struct RuntimeContext {
    handle: Handle,
    /// Ends with the last answer. It may be dropped on any thread.
    _owned: Option<OwnedRuntime>,
}

/// The default limit of an answer's body, in bytes.
const MAX_REPLY_BODY: usize = 16 * 1024 * 1024;

impl FromTower {
    /// Wraps `target`, with a runtime of its own, and with a limit of 16 MiB for the bodies of answers.
    ///
    /// The runtime has timers and I/O. It ends, without waiting for its tasks, when the service and its answers are dropped.
    ///
    /// # Errors
    ///
    /// Returns an error if the runtime's threads or its descriptors cannot be created.
    pub fn new<T, Kind>(target: T) -> io::Result<Self>
    where
        T: TowerTarget<Full<Bytes>, Kind>,
    {
        try_threads(thread::available_parallelism().map_or(1, NonZeroUsize::get))?;
        let (owned, handle) = OwnedRuntime::build(Builder::new_multi_thread().thread_name("from-tower").enable_all())?;
        Ok(Self::on(target, RuntimeContext { handle, _owned: Some(owned) }))
    }

    /// Wraps `target`, with the runtime of the caller. The runtime must outlive the service and its answers. If the handlers
    /// sleep or use sockets, it must have timers and I/O: `Builder::enable_all` enables both. A current-thread runtime
    /// works only while a thread runs it.
    ///
    /// ```
    /// use axum::Router;
    /// use polyserve_async::FromTower;
    ///
    /// let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    /// let _service = FromTower::with_handle(Router::new(), runtime.handle().clone()).with_max_reply_body(64 * 1024);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn with_handle<T, Kind>(target: T, runtime: Handle) -> Self
    where
        T: TowerTarget<Full<Bytes>, Kind>,
    {
        Self::on(target, RuntimeContext { handle: runtime, _owned: None })
    }

    fn on<T, Kind>(target: T, runtime: RuntimeContext) -> Self
    where
        T: TowerTarget<Full<Bytes>, Kind>,
    {
        let call = move |request: http::Request<_>, replies| -> BoxFuture<Reply> {
            let peer = request.extensions().get().copied();
            Box::pin(answer(target.for_peer(peer), request, replies))
        };
        let memory = MemoryBudget::new(ServerConfig::default().memory_or_default());
        let replies = Replies { max_body: MAX_REPLY_BODY, memory, failures: Arc::default() };
        Self { call: Arc::new(call), runtime: Arc::new(runtime), replies }
    }

    /// Sets the limit for the bodies of answers, in bytes. A larger body is logged and answered with 500.
    #[must_use]
    pub fn with_max_reply_body(mut self, bytes: usize) -> Self {
        self.replies.max_body = bytes;
        self
    }

    /// Sets the limit for the memory of all bodies that are not complete yet, in bytes: by default a quarter of the memory of the
    /// machine or of the cgroup. Beyond it, an answer to a safe method becomes a 503.
    #[must_use]
    pub fn with_memory(mut self, bytes: usize) -> Self {
        self.replies.memory = MemoryBudget::new(bytes);
        self
    }
}

impl Service for FromTower {
    fn call(&self, request: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        let request = match request::convert(&request) {
            Ok(request) => request,
            Err(error) => {
                let detail = format!("The target or a header field is not valid here: {error}.");
                return Reply::problem(StatusCode::BAD_REQUEST, detail).into();
            }
        };
        let _context = self.runtime.handle.enter();
        match Answer::polled((self.call)(request, self.replies.clone())) {
            Answer::Later(future) => {
                Answer::later(InContext { future: Some(future), runtime: Arc::clone(&self.runtime) })
            }
            now => now,
        }
    }
}

impl fmt::Debug for FromTower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromTower").field("max_reply_body", &self.replies.max_body).finish_non_exhaustive()
    }
}

/// A future that is polled and dropped in the context of a runtime.
struct InContext {
    /// `None` while it is dropped.
    future: Option<BoxFuture<Reply>>,
    runtime: Arc<RuntimeContext>,
}

impl Future for InContext {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        let this = &mut *self;
        let _context = this.runtime.handle.enter();
        match &mut this.future {
            Some(future) => future.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

impl Drop for InContext {
    fn drop(&mut self) {
        let _context = self.runtime.handle.enter();
        drop(self.future.take()); // it may panic, as a future of any service: the server catches that
    }
}

/// Calls `service`, and reads the body of its answer.
async fn answer<S, B>(mut service: S, request: http::Request<Full<Bytes>>, replies: Replies) -> Reply
where
    S: tower_service::Service<http::Request<Full<Bytes>>, Response = Response<B>, Error: Into<BoxError>>,
    B: Body<Data = Bytes, Error: Into<BoxError>>,
{
    let Replies { max_body, memory, failures } = replies;
    let (is_head, is_safe) = (request.method() == Method::HEAD, request.method().is_safe());
    let answered = async {
        poll_fn(|cx| service.poll_ready(cx)).await?;
        service.call(request).await
    };
    let (parts, body) = match answered.await {
        Ok(response) => response.into_parts(),
        Err(error) => return service_failed(&failures, &*error.into()),
    };
    if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        return upgrade_refused();
    }
    let mut reservation = Reservation::default();
    let reserve = |bytes: &Vec<u8>| {
        let has_room = reservation.try_set(&memory, bytes.capacity());
        if !has_room && !is_safe {
            reservation.set(&memory, bytes.capacity()); // the answer to a write is sent in any case
        }
        has_room || !is_safe
    };
    let reply = match collect(body, max_body, reserve).await {
        Ok(bytes) => response::convert(parts, bytes, is_head),
        Err(CollectError::Body(error)) => Err(error.into()),
        Err(CollectError::OutOfMemory) => return memory.refuse(),
        Err(CollectError::TooLarge) => {
            polyserve_core::throttled!(of failures, warn, max_body, "the body of an answer is past the limit of FromTower");
            return Reply::problem(
                StatusCode::INTERNAL_SERVER_ERROR,
                format_args!("The answer has more than {max_body} bytes, the limit of this server."),
            );
        }
    };
    reply.unwrap_or_else(|error| service_failed(&failures, &*error))
}
