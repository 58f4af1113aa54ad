//! Our codec on tokio's multi-thread runtime: a connection is a task that any worker may run.
//!
//! ```text
//!                   accept loop (a task)         connection (a task)
//!   listener ────► accept ─► admit ─► spawn ───► read ─► serve ─► write ─┐
//!                                                 ▲                      │
//!   runtime's poller ── wakes ────────────────────┤◄─────────────────────┘
//!   main thread ── deadlines, shutdown ── wakes ──┘
//! ```
//!
//! The way of a connection is in two files. The accept loop is below: it spawns a `ConnectionTask` for each connection.
//! That task serves the connection until it closes (`connection_task.rs`; `tokio_per_core` and `smol` use it too). The
//! other parts are listed in `toolkit/mod.rs`.
//!
//! Invariant: an idle connection holds no thread and no buffer.
//!
//! Cost: for a request a read, a write, and tokio's wake-up of a task; for a connection an accept, a task, and a
//! registration with the kernel, unless the connection closes before it has to wait.
//!
//! Source: tokio's guide to a server, without a buffer for each connection.
//!
//! *Wins when* answers wait for something else and connections are many: an answer that waits holds no thread, so one
//! thread answers as many requests as `pool_server` with a worker for each connection (`page`). On one core it ties
//! with `tokio_per_core`, and answers more requests than bare hyper (`compare-get`). Records:
//! `docs/results`.
//!
//! *Loses when* a service blocks inside `call`: a worker's newest task waits in a slot from which other workers cannot
//! take it. No record measures that.

use std::io;
use std::sync::Arc;

use polyserve_core::{ConfigError, ListenOn, Running, Server, ServerConfig, Service, Shape, Supports};
use polyserve_serving::ConnectionTable;
use tokio::runtime::Handle;

use super::connection_task::ConnectionTask;
use super::toolkit::{AsyncConnection, AsyncListener, TokioSocket, start_on};

/// A server that runs each connection as a task of a tokio runtime.
///
/// ```
/// use polyserve_async::TokioTcp;
/// use polyserve_core::{Reply, Request, ServerConfig, ServerExt};
///
/// let server = TokioTcp::new(ServerConfig::default().workers(1))?;
/// let running = server.serve("127.0.0.1:0", |_: Request<'_>| Reply::text("hello"))?;
/// assert_eq!(running.shutdown()?.answered, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TokioTcp {
    config: ServerConfig,
    runtime: Option<Handle>,
}

const SUPPORTS: Supports = Supports::new("tokio_tcp");

impl TokioTcp {
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
    /// use polyserve_async::TokioTcp;
    /// use polyserve_core::{Reply, Request, ServerConfig, ServerExt};
    ///
    /// let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    /// let server = TokioTcp::with_handle(ServerConfig::default(), runtime.handle().clone())?;
    /// let running = server.serve("127.0.0.1:0", |_: Request<'_>| Reply::text("hello"))?;
    /// assert_eq!(runtime.block_on(running.drained())?.answered, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_handle(config: ServerConfig, runtime: Handle) -> Result<Self, ConfigError> {
        SUPPORTS.no_workers("the runtime has its own").check(&config)?;
        Ok(Self { config, runtime: Some(runtime) })
    }
}

impl Server for TokioTcp {
    fn shape(&self) -> Shape {
        Shape::Multiplexed
    }

    fn start(&self, on: ListenOn, service: Arc<dyn Service>) -> io::Result<Running> {
        start_on(self.runtime.as_ref(), "tokio-tcp", on, &self.config, service, accept_loop)
    }
}

/// Accepts until a shutdown begins and its backlog is empty. Each connection becomes a task.
async fn accept_loop(
    mut listener: AsyncListener<TokioSocket>,
    table: Arc<ConnectionTable<AsyncConnection<TokioSocket>>>,
    runtime: Handle,
) {
    while let Some(stream) = listener.accept().await {
        if let Some(connection) = ConnectionTask::admit(&table, stream, 0) {
            drop(runtime.spawn(connection));
        }
    }
}
