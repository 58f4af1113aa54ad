//! Our codec on smol's parts: a connection is a task of one async-executor, which several threads run. Its socket is
//! registered with async-io.
//!
//! ```text
//!   listener ─► accept loop ─► admit ─► spawn ─┐
//!                                              ▼
//!   threads ── run ──► executor's queue of tasks: connections
//!      │                                       ▲
//!      └─ one at a time ── async-io's poller ──┘ wakes
//! ```
//!
//! The way of a connection is in two files. The accept loop is below: it spawns a `ConnectionTask` for each connection.
//! That task serves the connection until it closes (`connection_task.rs`; `tokio_tcp` and `tokio_per_core` use it too).
//! The other parts are listed in `toolkit/mod.rs`.
//!
//! A thread without a task waits for sockets, one thread at a time. async-io starts a thread of its own with the first
//! socket of the process. That thread waits for sockets if no other thread does.
//!
//! Invariant: an idle connection holds no thread and no buffer.
//!
//! Cost: for a request a read, a write, a system call to wait again, and the executor's one queue; for a connection an
//! accept, a task, and a registration with the kernel, unless the connection closes before it has to wait.
//!
//! Source: smol's documented way to several threads, without its macros. The published comparisons used async-std, which
//! is not maintained and names smol as its successor.
//!
//! *Wins when* memory counts: an idle connection takes less than with `tokio_tcp` (`crowd-idle`). *Loses when*
//! connections are kept, because each wait is a system call: it answers fewer requests than `tokio_tcp` for GET
//! (`servers-kept`), for PUT (`compare-put`), and pipelined (`compare-pipeline`). With a connection for each request it
//! does not (`servers-close`). Records: `docs/results`.

use std::io;
use std::sync::{Arc, Weak};

use async_executor::Executor;
use polyserve_core::{ConfigError, ListenOn, Running, Server, ServerConfig, Service, Shape, Supports};
use polyserve_serving::{Bound, ConnectionTable, bind};

use super::connection_task::ConnectionTask;
use super::toolkit::{AsyncConnection, AsyncListener, SmolSocket, ThreadGroup, block_on, start_main};

/// A server that runs each connection as a task of an async-executor.
///
/// ```
/// use polyserve_async::Smol;
/// use polyserve_core::{Reply, Request, ServerConfig, ServerExt};
///
/// let server = Smol::new(ServerConfig::default().workers(1))?;
/// let running = server.serve("127.0.0.1:0", |_: Request<'_>| Reply::text("hello"))?;
/// assert_eq!(running.shutdown()?.answered, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Smol {
    config: ServerConfig,
    executor: Option<Arc<Executor<'static>>>,
}

const SUPPORTS: Supports = Supports::new("smol");

impl Smol {
    /// A server with an executor of its own for each run. `workers` is the number of its threads, by default the number of
    /// available cores.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        SUPPORTS.check(&config)?;
        Ok(Self { config, executor: None })
    }

    /// A server on the executor of the caller. The caller runs the executor for as long as the runs last: no connection is
    /// served while the executor is not run. A connection that yields after its turn goes on before the sockets are polled
    /// if the executor has no other task; only the server's own threads poll them first.
    ///
    /// Await [`Running::drained`] to end a run. [`Running::shutdown`] blocks its thread: call it on a thread that runs the
    /// executor only if other threads run it too.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range, or if `workers` is set: the caller runs the executor.
    ///
    /// ```
    /// use polyserve_async::Smol;
    /// use polyserve_core::ServerConfig;
    /// use std::sync::Arc;
    ///
    /// let executor = Arc::new(async_executor::Executor::new());
    /// let server = Smol::with_executor(ServerConfig::default(), Arc::clone(&executor))?;
    /// # Ok::<(), polyserve_core::ConfigError>(())
    /// ```
    pub fn with_executor(config: ServerConfig, executor: Arc<Executor<'static>>) -> Result<Self, ConfigError> {
        SUPPORTS.no_workers("others run the executor").check(&config)?;
        Ok(Self { config, executor: Some(executor) })
    }
}

impl Server for Smol {
    fn shape(&self) -> Shape {
        Shape::Multiplexed
    }

    fn start(&self, on: ListenOn, service: Arc<dyn Service>) -> io::Result<Running> {
        let Bound { listener, local_addr, server } = bind(on, &self.config, service)?;
        let table = ConnectionTable::multiplexed(Arc::new(server), 1);
        let executor = self.executor.clone().unwrap_or_default();
        let mut threads = ThreadGroup::new("smol");
        let workers = if self.executor.is_some() { 0 } else { self.config.workers_or(1) };
        for _ in 0..workers {
            let executor = Arc::clone(&executor);
            // The executor catches the panic of a task.
            threads.spawn(move |end_signal| block_on(executor.run(end_signal.into_future())))?;
        }
        let listener = AsyncListener::new(&table, listener)?;
        executor.spawn(accept_loop(listener, Arc::clone(&table), Arc::downgrade(&executor))).detach();
        start_main("smol-main", local_addr, table, |drain| threads.join(drain.stuck))
    }
}

/// Accepts until a shutdown begins and its backlog is empty. Each connection becomes a task.
///
/// The executor owns this task, so this task holds the executor weakly. Otherwise an executor that its owner drops would
/// not end.
async fn accept_loop(
    mut listener: AsyncListener<SmolSocket>,
    table: Arc<ConnectionTable<AsyncConnection<SmolSocket>>>,
    executor: Weak<Executor<'static>>,
) {
    while let Some(stream) = listener.accept().await {
        if let (Some(executor), Some(connection)) = (executor.upgrade(), ConnectionTask::admit(&table, stream, 0)) {
            executor.spawn(connection).detach();
        }
    }
}
