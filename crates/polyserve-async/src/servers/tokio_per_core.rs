//! Our codec on a single-threaded tokio runtime for each core. Each core has a listener of its own, and the kernel spreads
//! the connections over them. No task moves to another thread.
//!
//! ```text
//!              ┌─► listener ─► accept loop ─► connections   (thread 0, its runtime)
//!   kernel ────┼─► listener ─► accept loop ─► connections   (thread 1, its runtime)
//!              └─► ...
//!   main thread: deadlines and shutdown of all connections
//! ```
//!
//! The way of a connection is in two files. The accept loop is below: it spawns a `ConnectionTask` for each connection.
//! That task serves the connection until it closes (`connection_task.rs`; `tokio_tcp` and `smol` use it too). The other
//! parts are listed in `toolkit/mod.rs`.
//!
//! Invariant: a connection is served by the thread that accepted it.
//!
//! Cost: for a request a read, a write, and a wake-up without a lock; for a connection an accept, a task, and a registration
//! with the kernel, unless the connection closes before it has to wait.
//!
//! Source: `SO_REUSEPORT` as in `socket(7)`; one runtime for each core as in actix-web and ntex.
//!
//! *Wins when* requests are short and connections many, because no task and no listener is shared between cores. It
//! answers more requests than bare hyper (`compare-get`), by far if they are pipelined (`compare-pipeline`). Records:
//! `docs/results`.
//!
//! *Loses when* connections are few, because the kernel may give most of them to one core; and if a service blocks
//! inside `call`, because every connection of that core waits. No record measures these two.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Instant;

use polyserve_core::{ConfigError, ListenOn, Running, Server, ServerConfig, Service, Shape, Supports};
use polyserve_serving::{ConnectionTable, ServerState, net};
use tokio::runtime::{Builder, Handle};

use super::connection_task::ConnectionTask;
use super::toolkit::{AsyncConnection, AsyncListener, OwnedRuntime, ThreadGroup, TokioSocket, listen_on, start_main};

/// A server with a tokio runtime for each core.
///
/// ```
/// use polyserve_async::TokioPerCore;
/// use polyserve_core::{Reply, Request, ServerConfig, ServerExt};
///
/// let server = TokioPerCore::new(ServerConfig::default().workers(1))?;
/// let running = server.serve("127.0.0.1:0", |_: Request<'_>| Reply::text("hello"))?;
/// assert_eq!(running.shutdown()?.answered, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TokioPerCore {
    config: ServerConfig,
}

const SUPPORTS: Supports = Supports::new("tokio_per_core");

impl TokioPerCore {
    /// A server within the limits of `config`. `workers` is the number of its threads, by default the number of available
    /// cores.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        SUPPORTS.check(&config)?;
        Ok(Self { config })
    }
}

impl Server for TokioPerCore {
    fn shape(&self) -> Shape {
        Shape::Multiplexed
    }

    fn start(&self, on: ListenOn, service: Arc<dyn Service>) -> io::Result<Running> {
        let server = Arc::new(ServerState::new(service, &self.config).listening_on(&on));
        let listeners = net::listen_together(on, self.config.workers_or(1), &self.config)?;
        let local_addr = listeners[0].local_addr()?;
        let table = ConnectionTable::multiplexed(server, listeners.len());
        let threads = start(&table, listeners).inspect_err(|_| table.server.shutdown.begin(Instant::now()))?;
        start_main("per-core-main", local_addr, table, |drain| threads.join(drain.stuck))
    }
}

/// Starts a thread with a runtime for each listener. After an error, the shutdown ends the threads that were started.
fn start(
    table: &Arc<ConnectionTable<AsyncConnection<TokioSocket>>>,
    listeners: Vec<TcpListener>,
) -> io::Result<ThreadGroup> {
    let mut threads = ThreadGroup::new("per-core");
    for (shard, listener) in listeners.into_iter().enumerate() {
        listener.set_nonblocking(true)?;
        let mut builder = Builder::new_current_thread();
        builder.enable_all();
        if table.server.http.admission.is_some() {
            builder.event_interval(1); // by default 61 tasks, in which nothing says since when the others wait
        }
        let (runtime, handle) = OwnedRuntime::build(&mut builder)?;
        let listener = listen_on(&handle, table, listener)?;
        let table = Arc::clone(table);
        threads.spawn(move |end_signal| {
            runtime.block_on(async {
                accept_loop(listener, table, handle, shard).await;
                end_signal.await;
            });
        })?;
    }
    Ok(threads)
}

/// Accepts until a shutdown begins and its backlog is empty. Each connection becomes a task of this thread.
async fn accept_loop(
    mut listener: AsyncListener<TokioSocket>,
    table: Arc<ConnectionTable<AsyncConnection<TokioSocket>>>,
    runtime: Handle,
    shard: usize,
) {
    while let Some(stream) = listener.accept().await {
        if let Some(connection) = ConnectionTask::admit(&table, stream, shard) {
            drop(runtime.spawn(connection));
        }
    }
}
