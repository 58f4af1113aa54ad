//! [`TokioHyper`]: hyper's HTTP/1 codec on tokio's multi-thread runtime; a connection is a task that any worker may run.
//!
//! ```text
//! accept_loop --accept--> HyperConnection (connection.rs), a task
//!                          |  deadlines, drain, sending, lingering
//!                          |  polls
//!                          v
//!     HyperIo (io.rs) <-- hyper: parses, frames, encodes --> Adapter (adapter.rs)
//!        |  passes on input that the codec accepts,             |  calls the service
//!        |  collects output                                     |
//!        v                                                      v
//!     ConnectionState (connection_state.rs): stage, input, output, turn
//! ```
//!
//! The way of a connection is in two files. `accept_loop` below spawns a `HyperConnection` for each connection. That task
//! polls hyper until the connection closes (`connection.rs`). The 503 past `max_connections` and the lingering close are
//! those of all servers (`serving::ConnectionTable`); `servers/connection_task.rs` drives them.
//!
//! hyper parses heads, frames bodies and encodes answers. Before that, this project's codec decodes each head and follows each body to
//! its end (`input`): hyper gets one request at a time, and no byte that the codec refuses. So both find the same end of a request,
//! and nothing is smuggled past either. Limits, deadlines and the drain are those of the other servers of this crate.
//!
//! Capabilities that the other servers do not have:
//!
//! * It serves a `tower::Service` instead of a [`Service`]: `TokioHyper::serve_tower`, feature `tower`.
//! * It serves HTTP/2, to clients that begin with its preface, or negotiate it by ALPN: `ServerConfig::http2`, feature `http2`.
//!
//! Invariant: an idle connection occupies no thread, and after a second it holds no buffer of hyper's.
//!
//! Cost: that of hyper, plus the codec's decoding of the head and a copy of the answer. A read and a write for each batch of requests. A
//! body of known length that is awaited costs two more system calls, and wakes no task before it is complete or 16 KiB have arrived.
//!
//! Memory: an idle connection is a task without buffers. If many connections were busy in the same second, glibc's
//! allocator keeps the memory of their buffers (`crowd-idle`).
//!
//! Deviation from the contract, which the kit expects (`Deviations`): a URL without a path gets the path `/`, so `OPTIONS` of such a URL
//! does not name the server.
//!
//! Deviation from RFC 9112, 3.2.2: a URL with a percent-encoded byte in its host is 400, because the `http` crate takes none.
//!
//! Deviation from RFC 9110, 10.1.1: over HTTP/2, `Expect: 100-continue` gets no 100, because hyper has no call to send one. A service
//! that refuses by the head answers at once; otherwise a client that waits for the 100 sends its body after a time of its own choice.
//!
//! Deviation from RFC 9113, 5.4.2: over HTTP/2, a CONNECT with a `Content-Length` above zero ends its connection, with the other streams,
//! because hyper ends there.
//!
//! Deviations from RFC 9113, 8.3.1 and 8.1: h2 drops a fragment of `:path` (`/1#a` is `/1`) and pseudo-fields in trailers, and tells
//! nothing of them. Neither reaches a service.
//!
//! Differences that the contract allows: a request that is refused before its body is complete closes the connection, while servers
//! on the codec skip the body; a body that hyper cannot count is answered before the
//! service sees the head; a target of 64 KiB is 414 whatever `max_head` is; chunk extensions of 16 KiB in all are 400 whatever `max_head`
//! is. `tests/hyper/differences.rs` compares the rest with `tokio_tcp`.
//!
//! Source: hyper 1.
//!
//! *Wins when* the service is a `tower::Service`, or HTTP/2 is needed. *Loses when* a request is cheap: it answers
//! fewer requests than `tokio_tcp` for GET (`servers-kept`) and PUT (`compare-put`), and by far fewer pipelined
//! (`compare-pipeline`). Records: `docs/results`.

mod adapter;
mod answer_body;
mod connection;
mod connection_state;
mod error_response;
#[cfg(feature = "http2")]
mod http2;
mod input;
mod io;
mod output;
mod poll_waker;
mod request_body;
mod tls;
#[cfg(feature = "tower")]
mod tower;

use std::io as std_io;
use std::sync::Arc;

use http::HeaderValue;
use hyper::server::conn::http1;
#[cfg(feature = "tower")]
use polyserve_core::IntoListenOn;
use polyserve_core::{ConfigError, ListenOn, Running, Server, ServerConfig, Service, Shape, Supports};
use polyserve_serving::ConnectionTable;
use polyserve_serving::http1::OUTPUT_BOUND;
use tokio::runtime::Handle;

#[cfg(feature = "tower")]
pub use self::request_body::RequestBody;

use self::adapter::{Adapter, TowerCall};
use self::connection::HyperConnection;
use self::connection_state::{ConnectionState, HyperShared};
use super::connection_task::ConnectionTask;
use super::toolkit::{AsyncConnection, AsyncListener, TokioSocket, start_on};
#[cfg(feature = "tower")]
use crate::tower::TowerTarget;

/// A server on hyper. Each connection is a task of a tokio runtime.
///
/// ```
/// use polyserve_async::TokioHyper;
/// use polyserve_core::{Reply, Request, ServerConfig, ServerExt};
///
/// let server = TokioHyper::new(ServerConfig::default().workers(1))?;
/// let running = server.serve("127.0.0.1:0", |_: Request<'_>| Reply::text("hello"))?;
/// assert_eq!(running.shutdown()?.answered, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TokioHyper {
    config: ServerConfig,
    runtime: Option<Handle>,
}

#[cfg(feature = "http2")]
const SUPPORTS: Supports = Supports::new("tokio_hyper").http2();
#[cfg(not(feature = "http2"))]
const SUPPORTS: Supports = Supports::new("tokio_hyper");

impl TokioHyper {
    /// A server with a runtime of its own for each run. `workers` is the number of its threads, by default the number of
    /// available cores.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        SUPPORTS.check(&config)?;
        Ok(Self { config, runtime: None })
    }

    /// A server on the runtime of the caller. The runtime must have I/O enabled, else a start fails, and must outlive the
    /// runs. If the service sleeps or has timeouts, the runtime must have timers too: `Builder::enable_all` enables both.
    ///
    /// Await [`Running::drained`] to end a run. [`Running::shutdown`] blocks its thread: call it on a thread of that
    /// runtime only if other threads are left to run the tasks.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range, or if `workers` is set: the runtime has its own threads.
    ///
    /// ```
    /// use polyserve_async::TokioHyper;
    /// use polyserve_core::{Reply, Request, ServerConfig, ServerExt};
    ///
    /// let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    /// let server = TokioHyper::with_handle(ServerConfig::default(), runtime.handle().clone())?;
    /// let running = server.serve("127.0.0.1:0", |_: Request<'_>| Reply::text("hello"))?;
    /// assert_eq!(runtime.block_on(running.drained())?.answered, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_handle(config: ServerConfig, runtime: Handle) -> Result<Self, ConfigError> {
        SUPPORTS.no_workers("the runtime has its own").check(&config)?;
        Ok(Self { config, runtime: Some(runtime) })
    }

    /// Serves a `tower::Service`, for example an axum `Router`, with the limits, timeouts, drain and counts of the other
    /// servers. Bodies stream in both directions. Upgrades are refused. The answer timeout applies until the answer's head.
    /// [`FromTower`](crate::tower::FromTower) runs it on the other servers.
    ///
    /// The client's address is a `SocketAddr` among the extensions of the request. A make-service that is called with that
    /// address is served too: with `router.into_make_service_with_connect_info::<SocketAddr>()`, axum's handlers get it as
    /// `ConnectInfo<SocketAddr>`. In a drain, [`DrainBegun`](crate::tower::DrainBegun) is among the extensions too.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`ServerExt::serve`](polyserve_core::ServerExt::serve), and an error with `http2`.
    ///
    /// ```
    /// use polyserve_async::{AsTower, TokioHyper};
    /// use polyserve_core::{Echo, ServerConfig};
    ///
    /// let server = TokioHyper::new(ServerConfig::default().workers(1))?;
    /// let running = server.serve_tower("127.0.0.1:0", AsTower::new(Echo))?;
    /// assert_eq!(running.shutdown()?.answered, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "tower")]
    pub fn serve_tower<S, Kind>(&self, on: impl IntoListenOn, service: S) -> std_io::Result<Running>
    where
        S: TowerTarget<RequestBody, Kind>,
    {
        #[cfg(feature = "http2")]
        if self.config.http2 {
            return Err(ConfigError::new("http2", "on", "off for serve_tower").into());
        }
        let unused = |_: polyserve_core::Request<'_>| polyserve_core::Reply::empty(http::StatusCode::NOT_FOUND);
        self.serve_with(on.into_listen_on()?, Arc::new(unused), move |connection| {
            Some(tower::call(&service, connection))
        })
    }

    #[cfg(feature = "http2")]
    fn http2(&self, handle: &Handle) -> Option<connection_state::Http2> {
        self.config.http2.then(|| http2::serve(handle, &self.config))
    }

    #[cfg(not(feature = "http2"))]
    fn http2(&self, _: &Handle) -> Option<connection_state::Http2> {
        None
    }

    /// Serves requests with `service`, or with a `tower::Service` that `tower` makes for each connection.
    fn serve_with(
        &self,
        on: ListenOn,
        service: Arc<dyn Service>,
        tower: impl Fn(&ConnectionState) -> Option<TowerCall> + Send + Sync + 'static,
    ) -> std_io::Result<Running> {
        start_on(self.runtime.as_ref(), "tokio-hyper", on, &self.config, service, |listener, table, handle| {
            let shared = HyperShared { http2: self.http2(&handle), ..shared(&table, &self.config) };
            accept_loop(listener, Arc::new(shared), tower, handle)
        })
    }
}

impl Server for TokioHyper {
    fn shape(&self) -> Shape {
        Shape::Multiplexed
    }

    fn start(&self, on: ListenOn, service: Arc<dyn Service>) -> std_io::Result<Running> {
        self.serve_with(on, service, |_| None)
    }
}

/// The number of bytes of trailers that the codec does not count towards `max_head`, and hyper does: three for each of 100 fields,
/// two at the end. hyper takes one byte less than its limit.
const MAX_TRAILER_FRAMING: usize = 3 * ServerConfig::MAX_HEADERS + 3;

fn shared(table: &Arc<ConnectionTable<AsyncConnection<TokioSocket>>>, config: &ServerConfig) -> HyperShared {
    let mut builder = http1::Builder::new();
    builder
        .half_close(true)
        .header_read_timeout(None)
        .max_header_size(config.max_head.saturating_add(MAX_TRAILER_FRAMING))
        .max_buf_size(config.max_head.max(OUTPUT_BOUND));
    HyperShared {
        table: Arc::clone(table),
        builder,
        http2: None,
        server_header: config
            .server_header
            .as_deref()
            .and_then(|server_header| HeaderValue::from_str(server_header).ok()),
        max_requests: config.requests_per_connection.unwrap_or(u64::MAX),
    }
}

/// Accepts until a shutdown begins and its backlog is empty. Each connection becomes a task.
async fn accept_loop(
    mut listener: AsyncListener<TokioSocket>,
    shared: Arc<HyperShared>,
    tower: impl Fn(&ConnectionState) -> Option<TowerCall>,
    runtime: Handle,
) {
    while let Some(stream) = listener.accept().await {
        match shared.table.admit(AsyncConnection::new(stream), 0) {
            Ok(entry) => {
                let connection = ConnectionState::new(Arc::clone(&shared), entry);
                let tower = tower(&connection);
                drop(runtime.spawn(HyperConnection::new(Adapter { connection, tower })));
            }
            Err(rejected) => {
                if let Some((entry, connection)) = shared.table.reject(rejected, 0) {
                    drop(runtime.spawn(ConnectionTask::new(Arc::clone(&shared.table), entry, connection)));
                }
            }
        }
    }
}
