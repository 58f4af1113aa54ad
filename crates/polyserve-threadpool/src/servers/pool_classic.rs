//! `pool_classic`: the published server. Each connection is one job on a thread pool.
//!
//! ```text
//!  main thread                           a worker of the executor
//!  poll: listener, shutdown, poller      take the connection that has waited for longest
//!  accept -> queue -> execute  ------>   drive: recv, service, send
//!    ^    \-> 503 if full                  until the connection closes
//!    |                                        |
//!    +--- silent connections, and those that linger
//! ```
//!
//! A connection goes from accept to close in two files: this one accepts, queues and rejects it, and
//! [`serving::blocking`](polyserve_serving::blocking) reads, calls the service and writes.
//!
//! A connection holds its worker until it closes. If others wait for a worker, or several did in the last 100 ms, the next
//! answer says `Connection: close`. If others wait, connections that have been idle for 50 ms are closed, and linger. A
//! connection that has not sent a byte gives its worker up. It waits in the main thread's poller, and is queued again with
//! its first byte. So silent connections do not stop the server.
//!
//! Invariant: each connection that waits has a job in the executor, which takes the connection that has waited for
//! longest. A connection is in the table of [`PoolConnections`] from before it is queued until it closes, so that the limit holds
//! and the drain finds it. Time in the queue counts towards the head timeout, which is judged after the socket was read.
//!
//! Cost: for a connection an `accept4`, a wake-up of a worker, a `recv`, a `send` and a `close`, five uncontended locks and
//! two allocations. A further request on it costs a `poll`, a `recv` and a `send`. A silent connection costs two calls of the
//! poller, whatever the number of others. A worker has a pipe, by which an eviction wakes it.
//!
//! Source: the thread pool server of the Rust book's last chapter, and the published entity servers.
//!
//! *Wins when* connections are short: it answers more requests than `thread_per_connection` (`servers-close`), because
//! no thread is made for a connection. *Loses when* connections are kept and there are more of them than workers: kept
//! ones are closed so that others get a worker, and it answers by far fewer requests than `tokio_tcp` (`servers-kept`).
//! Records: `docs/results`.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use polyserve_core::sync::lock;
use polyserve_core::{Drain, Executor, Running, ServerConfig, Shape, Supports};
use polyserve_serving::blocking::{PoolConnections, PoolEntry, Served};
use polyserve_serving::executor::PoolConfig;
use polyserve_serving::{Accepted, Bound, Incoming, SHUTDOWN_SLACK};

use super::executor_server::{ExecutorServer, ExecutorStrategy, ServerJob, submit};
use super::silent_connections::{FIRST_BYTE_WAIT, SilentConnections};

/// The server that runs each connection as one job of an executor.
///
/// ```
/// use polyserve_core::{Reply, Request, ServerConfig, ServerExt};
/// use polyserve_threadpool::PoolClassic;
///
/// let server = PoolClassic::mpsc(ServerConfig::default().workers(4))?;
/// let running = server.serve("127.0.0.1:0", |_: Request<'_>| Reply::text("hello"))?;
/// assert_eq!(running.shutdown()?.answered, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The executor's queue bounds the connections that wait, unless it is unbounded. If `workers` is not set, a factory is called
/// with four workers for each core.
pub type PoolClassic = ExecutorServer<Classic>;

/// Each connection is a job.
#[derive(Debug)]
pub struct Classic;

impl ExecutorStrategy for Classic {
    const NAME: &'static str = "PoolClassic";
    const SUPPORTS: Supports = Supports::new("pool_classic").queue();
    const SHAPE: Shape = Shape::OnePerThread;

    fn with_defaults(config: ServerConfig) -> ServerConfig {
        // Other executors may have one thread for each core by default. That is too few if each job is a connection.
        let workers = PoolConfig::from(&config).workers;
        config.workers(workers)
    }

    fn start(bound: Bound, executor: Arc<dyn Executor>, is_own: bool) -> io::Result<Running> {
        let Bound { listener, local_addr, server } = bound;
        let (shutdown, grace) = (server.shutdown.clone(), server.config.drain_grace);
        let server = Arc::new(server);
        let incoming = Incoming::new(listener, Arc::clone(&server))?;
        let threads = executor.workers().unwrap_or(usize::MAX).min(server.config.max_connections);
        let shared = Arc::new(ClassicState {
            connections: PoolConnections::new(server, threads),
            silent: SilentConnections::new()?,
            lingering: Mutex::default(),
            lost_jobs: AtomicUsize::new(0),
        });
        let main = ClassicMainThread { shared: Arc::clone(&shared), executor, is_own, incoming };
        let (counters, connections) = (shared.connections.table.counters(), Arc::clone(&shared));
        let counters = move || {
            let mut counters = counters();
            counters.queued = connections.connections.waiting() as u64;
            counters
        };
        Running::start("pool-classic", local_addr, grace, shutdown, counters, move || main.run())
    }
}

/// The state that the main thread and the workers of a run share.
struct ClassicState {
    connections: PoolConnections,
    /// The connections that have not sent a byte.
    silent: SilentConnections,
    /// The connections that have sent their last answers, until the main thread lets them linger. They are in the table until then.
    lingering: Mutex<Vec<PoolEntry>>,
    /// The number of jobs that were lost as they were submitted. Each of them leaves a connection without a job.
    lost_jobs: AtomicUsize,
}

impl ClassicState {
    /// Serves the connection that has waited for longest, until it closes or turns out to be silent. A worker's job.
    fn serve_next(&self) {
        match self.connections.serve_next(FIRST_BYTE_WAIT, &()) {
            Some(Served::Closed) | None => {}
            Some(Served::Silent(entry, since)) => match self.silent.add(Arc::clone(&entry), since) {
                Ok(is_first) => self.wake_main(is_first),
                Err(_) => self.connections.table.remove(&entry),
            },
            Some(Served::Lingering(entry)) => {
                let mut lingering = lock(&self.lingering);
                lingering.push(entry);
                self.wake_main(lingering.len() == 1);
            }
        }
    }

    /// Makes the main thread take the connections that are silent and those that linger. Outside a drain, it need be woken for
    /// the first of them only.
    fn wake_main(&self, is_first: bool) {
        if is_first {
            self.silent.wake();
        }
        if self.connections.table.server.shutdown.is_begun() {
            self.connections.table.wake_main();
        }
    }
}

/// The job of a connection. If an executor drops it later without running it, a connection that waits is closed.
impl ServerJob for Arc<ClassicState> {
    fn run(self) {
        self.serve_next();
    }

    fn lost(self, in_submit: bool) {
        if in_submit {
            self.lost_jobs.fetch_add(1, Ordering::Relaxed); // on the main thread, which reads it
        } else {
            self.connections.close_next();
        }
    }
}

/// The thread that accepts, queues, and drains.
struct ClassicMainThread {
    shared: Arc<ClassicState>,
    executor: Arc<dyn Executor>,
    /// The executor is closed at the end.
    is_own: bool,
    incoming: Incoming,
}

impl ClassicMainThread {
    fn run(mut self) -> Drain {
        let shared = Arc::clone(&self.shared);
        let timeout = shared.connections.table.server.config.first_byte_timeout;
        while let Some(accepted) = {
            let deadline = shared.silent.oldest().map(|since| since + timeout);
            self.incoming.accept_or(shared.silent.as_fd(), deadline)
        } {
            match accepted {
                Accepted::Connection(stream) => self.accept(stream),
                Accepted::Other => {
                    shared.silent.queue_ready(&shared.connections, |entry| self.queue(entry));
                    self.take_lingering();
                }
            }
        }
        self.drain()
    }

    fn take_lingering(&mut self) {
        let lingering = std::mem::take(&mut *lock(&self.shared.lingering));
        let streams = lingering.into_iter().filter_map(|entry| self.shared.connections.take_out(entry));
        streams.for_each(|stream| self.incoming.linger(stream));
    }

    /// Queues a new connection. At the limit on connections, it takes the place of one that is silent or idle. If there is
    /// none, it is rejected.
    fn accept(&mut self, stream: TcpStream) {
        let shared = Arc::clone(&self.shared);
        let ClassicState { connections, silent, .. } = &*shared;
        let make_room = || {
            self.take_lingering();
            let evicted = silent.make_room(connections, |entry| self.queue(entry));
            evicted.into_iter().for_each(|stream| self.incoming.linger(stream));
            !connections.table.is_full()
        };
        match connections.admit(stream, make_room) {
            Ok(entry) => self.queue(entry),
            Err(stream) => self.incoming.reject(stream),
        }
    }

    /// Queues a connection that is new or has sent its first byte. Rejects one connection for each job that the executor
    /// loses during the call. If the executor's queue is full, it loses the job of this connection.
    fn queue(&mut self, entry: PoolEntry) {
        let connections = &self.shared.connections;
        connections.queue(entry, Instant::now());
        submit(&*self.executor, Arc::clone(&self.shared));
        // Each job takes one connection from the front, so the last connections have no job.
        for _ in 0..self.shared.lost_jobs.swap(0, Ordering::Relaxed) {
            if let Some(stream) = connections.take_last() {
                connections.table.server.count_full_queue();
                self.incoming.reject(stream);
            }
        }
    }

    /// Serves what has been accepted or waits to be, and closes idle connections. Cuts the rest at the deadline.
    fn drain(mut self) -> Drain {
        let shared = Arc::clone(&self.shared);
        let ClassicState { connections, silent, .. } = &*shared;
        let table = &connections.table;
        table.wake_idle();
        while let Some(stream) = self.incoming.accept_waiting() {
            self.accept(stream);
        }
        let left = table.finish(|| {
            silent.drain(connections, |entry| self.queue(entry));
            while silent.await_first_bytes(connections, |entry| self.queue(entry)) {
                silent.drain(connections, |entry| self.queue(entry));
            }
            self.take_lingering();
            self.incoming.sweep()
        });
        let deadline = table.server.shutdown.deadline().unwrap_or_else(Instant::now);
        let stuck = if self.is_own { self.executor.close(Some(deadline + SHUTDOWN_SLACK)) } else { left };
        self.take_lingering();
        self.incoming.finish();
        table.server.drained(stuck)
    }
}
