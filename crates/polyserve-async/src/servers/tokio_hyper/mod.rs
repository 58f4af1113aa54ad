//! hyper's codec on tokio's multi-thread runtime: a connection is a task that any worker may run.
//!
//! It has hyper parse, frame and encode, and handler what every server here handler all the same: what hyper lets pass is
//! valid once more before the service is called, and what hyper refuses is told in this project's words. Deadlines are on
//! the registry that the other servers of this crate use, not hyper's timers.
//!
//! Invariant: an idle connection holds no thread, and after a second no buffer of hyper's: those are the allocator's again.
//! Cost: what hyper takes, a look at the head, a copy of the answer; a read and a write for each batch of requests. A body
//! of known length that is waited for costs two system calls more, and wakes nobody before it is whole or 16 KiB of it are
//! there, however slowly it drips. The allocator keeps for later what connections that were busy in the same second had:
//! the resident memory stays at about 10 KiB for each of them (measured on glibc; 1.8 KiB for each that came after these,
//! within one arena of its).
//!
//! Declared deviations, which the kit expects: a bare LF ends a line of a head; a Content-Length beside
//! `Transfer-Encoding: chunked` is ignored; a chunk may say that it is larger than any body, and have any byte in its
//! extension. Besides, a fragment in a target is dropped; a space after a chunk's size is taken; extensions or trailers of
//! chunks past their bound are a 400, not a 431, and so is, not as a 413, a chunk's size of more than 64 bits; `<` and `>`
//! in a target, a backtick in its path and `"` in its query are a 400. The last answer of a drain says `Connection: close`
//! where all that was read is known to be used: not after a body in chunks, nor where heads are not written as most clients
//! do. There the connection just ends.
//!
//! *Wins when* its service is a `tower::Service`, or HTTP/2 is asked for. *Loses when* a request is cheap: hyper's types
//! cost more than the codec of `tokio_tcp`; see docs/STRATEGIES.md.
//!
//! # Layout
//!
//! * `connection`: one connection as a future that polls hyper's; `io`: its socket as hyper sees it; `line`: what stands
//!   between the two; `mark`: how many bytes wake it; `output`: what is to be sent.
//! * `answering`: a service as hyper calls it; `validate`: what is asked of a request beyond what hyper does;
//!   `http2`: a connection of HTTP/2; `streaming`: a `tower::Service` as hyper calls it; `refusal`: what hyper refuses, in our words; `response`, `body`: an answer as hyper takes it.

mod connection;
mod connection_state;
mod error_response;
#[cfg(feature = "http2")]
mod http2;
mod io;
mod output;
mod request_scanner;
mod response;
mod service_adapter;
#[cfg(feature = "tower")]
mod tower_adapter;
mod validate;

use std::io as std_io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use hyper::server::conn::http1;
use polyserve_core::http1::session::OUTPUT_BOUND;
use polyserve_core::serving::ServerState;
use polyserve_core::{ConfigError, Connections, Running, Server, ServerConfig, Service, net};
use tokio::runtime::Handle;

#[cfg(feature = "tower")]
pub use self::tower_adapter::RequestBody;

use self::connection::{HyperConnection, RequestHandler};
use self::connection_state::{ConnectionState, HyperShared};
use self::service_adapter::ServiceAdapter;
use super::accept_loop::AcceptLoop;
use super::connection_registry::ConnectionRegistry;
use super::tokio_io::TokioIo;
use super::tokio_tcp;

/// A server whose connections are hyper's, each a task of a tokio runtime.
#[derive(Clone, Debug)]
pub struct TokioHyper {
    config: ServerConfig,
    runtime: Option<Handle>,
    #[cfg(feature = "http2")]
    http2: bool,
}

impl TokioHyper {
    /// A server with a runtime of its own for each run; `workers` are its threads, the available cores by default.
    ///
    /// # Errors
    ///
    /// Where a limit is none.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self::of(config, None))
    }

    /// A server on a runtime of yours, which must have its I/O enabled (else `serve` fails) and outlive the runs; end them
    /// by awaiting [`Running::drained`]. [`Running::shutdown`] waits, so on that runtime's own threads it may only be called where
    /// others are left to do the work.
    ///
    /// # Errors
    ///
    /// Where a limit is none, or a number of workers is asked for: the runtime has its own.
    pub fn on(runtime: Handle, config: ServerConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        if config.workers.is_some() {
            return Err(ConfigError::new("workers cannot be set for tokio_hyper on a runtime that has its own"));
        }
        Ok(Self::of(config, Some(runtime)))
    }

    fn of(config: ServerConfig, runtime: Option<Handle>) -> Self {
        Self {
            config,
            runtime,
            #[cfg(feature = "http2")]
            http2: false,
        }
    }

    /// Has it serve HTTP/2 as well, to clients that know so before (they begin with its preface), without encryption.
    #[cfg(feature = "http2")]
    #[must_use]
    pub fn with_http2(mut self) -> Self {
        self.http2 = true;
        self
    }

    /// Serves a `tower::Service`, an axum `Router` for one, with the limits, timeouts, drain and counts of every server
    /// here. Bodies stream both ways; upgrades are refused. The answer timeout ends with the answer's head.
    ///
    /// # Errors
    ///
    /// As [`Server::serve`]; also after `with_http2`, which is for [`Server::serve`] alone.
    #[cfg(feature = "tower")]
    pub fn serve_tower<S, B>(&self, addr: SocketAddr, service: S) -> std_io::Result<Running>
    where
        S: tower_service::Service<http::Request<RequestBody>, Response = http::Response<B>>
            + Clone
            + Send
            + Sync
            + Unpin
            + 'static,
        S::Future: Send,
        S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        B: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        #[cfg(feature = "http2")]
        if self.http2 {
            return Err(ConfigError::new("http2 is not served to a tower::Service").into());
        }
        let server = ServerState::new(Arc::new(UnusedService), &self.config);
        self.serve_with(addr, server, move |connection| {
            tower_adapter::TowerAdapter::new(Arc::clone(connection), service.clone())
        })
    }

    #[cfg(feature = "http2")]
    fn http2(&self, handle: &Handle) -> Option<connection_state::Http2> {
        self.http2.then(|| http2::serve(handle, &self.config))
    }

    #[cfg(not(feature = "http2"))]
    fn http2(&self, _: &Handle) -> Option<connection_state::Http2> {
        None
    }

    /// Serves with `handler` for each connection.
    fn serve_with<A: RequestHandler>(
        &self,
        addr: SocketAddr,
        server: ServerState,
        handler: impl Fn(&Arc<ConnectionState>) -> A + Send + Sync + 'static,
    ) -> std_io::Result<Running> {
        let listener = net::listen(addr, &self.config)?;
        listener.set_nonblocking(true)?;
        let local_addr = listener.local_addr()?;
        let registry = ConnectionRegistry::new(server, 1);
        let (own, handle) = tokio_tcp::runtime(self.runtime.as_ref(), "tokio-hyper", &self.config)?;
        let shared = HyperShared { http2: self.http2(&handle), ..shared(&registry, &self.config) };
        start(&handle, &registry, listener, Arc::new(shared), handler)?;
        let (grace, shutdown) = (self.config.drain_grace, registry.server.shutdown.clone());
        Running::start("tokio-hyper-main", local_addr, grace, shutdown, move || tokio_tcp::end(&registry, own))
    }
}

/// Stands where a service would be asked that a `tower::Service` is asked in place of.
#[cfg(feature = "tower")]
struct UnusedService;

#[cfg(feature = "tower")]
impl Service for UnusedService {
    fn call(&self, _: polyserve_core::Request<'_>, _: &mut Vec<u8>) -> polyserve_core::Answer<polyserve_core::Reply> {
        polyserve_core::Reply::empty(polyserve_core::Status::NOT_FOUND).into()
    }
}

impl Server for TokioHyper {
    fn connections(&self) -> Connections {
        Connections::Multiplexed
    }

    fn serve(&self, addr: SocketAddr, service: Arc<dyn Service>) -> std_io::Result<Running> {
        self.serve_with(addr, ServerState::new(service, &self.config), |connection| {
            ServiceAdapter(Arc::clone(connection))
        })
    }
}

fn shared(registry: &Arc<ConnectionRegistry<TokioIo>>, config: &ServerConfig) -> HyperShared {
    let mut builder = http1::Builder::new();
    builder
        .half_close(true)
        .header_read_timeout(None)
        .max_header_size(config.max_head)
        .max_buf_size(config.max_head.max(OUTPUT_BOUND));
    HyperShared {
        registry: Arc::clone(registry),
        builder,
        http2: None,
        server_header: config
            .server_header
            .as_deref()
            .and_then(|server_header| HeaderValue::from_str(server_header).ok()),
        max_requests: if config.requests_per_connection == 0 { u64::MAX } else { config.requests_per_connection },
    }
}

fn start<A: RequestHandler>(
    handle: &Handle,
    registry: &Arc<ConnectionRegistry<TokioIo>>,
    listener: TcpListener,
    shared: Arc<HyperShared>,
    handler: impl Fn(&Arc<ConnectionState>) -> A + Send + Sync + 'static,
) -> std_io::Result<()> {
    let _context = handle.enter();
    let receive = move |_: &Arc<ConnectionRegistry<TokioIo>>, runtime: &TokioIo, place| {
        let connection = ConnectionState::new(Arc::clone(&shared), place);
        let service = handler(&connection);
        super::server_runtime::ServerRuntime::spawn(runtime, HyperConnection::new(connection, service));
    };
    let accepting = AcceptLoop::new(registry, &TokioIo(handle.clone()), listener, 0, receive)?;
    drop(handle.spawn(accepting.run()));
    Ok(())
}
