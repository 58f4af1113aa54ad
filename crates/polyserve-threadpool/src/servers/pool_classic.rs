//! `pool_classic`: the published server. Each connection is one job on a thread pool.
//!
//! ```text
//!  main thread                           a worker of the executor
//!  poll: listener, shutdown, silent      take the connection that has waited for longest
//!  accept -> queue -> execute  ------>   drive: recv, service, send
//!    ^    \-> 503 if full                  until the connection closes
//!    |                                        |
//!    +--- silent connections, and those that linger
//! ```
//!
//! A connection holds its worker until it closes. If others wait for a worker, the next answer says `Connection: close`, and
//! connections that are idle are closed. A connection that has not sent a byte gives its worker up: it waits in the main
//! thread's `poll`, and is queued again with its first byte. So silent connections do not stop the server.
//!
//! Invariant: each connection in `pending` has a job in the executor, which takes the connection that has waited for
//! longest. A connection counts in [`OpenConnections`] from before it is queued until it closes or is silent, so that the
//! drain finds it. Time in the queue counts towards the head timeout, which is judged after the socket was read.
//!
//! Cost: for a connection an `accept4`, a wake-up of a worker, a `recv`, a `send` and a `close`, five uncontended locks and
//! two allocations. A further request on it costs a `poll`, a `recv` and a `send`.
//!
//! Source: the thread pool server of the Rust book's last chapter, and the published entity servers.
//!
//! *Wins when* connections are short and a worker is free: a connection costs one hand-over and no registration with a
//! poller. *Loses when* connections are kept and there are more of them than workers: connections without a worker wait,
//! and kept ones are closed so that others get a worker. No record has it yet; `ci/cost.sh ab` measures it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::http1::Phase;
use polyserve_core::serving::blocking::{PolledSocket, Read, Transport, drive};
use polyserve_core::serving::{
    ACCEPT_BACKOFF, Bound, LingeringSet, LogThrottle, OpenConnection, OpenConnections, SHUTDOWN_SLACK, ServerState,
    bind, drain_backlog, wait, with_buffers,
};
use polyserve_core::sync::lock;
use polyserve_core::{ConfigError, Connections, Drain, Executor, Job, Running, Server, ServerConfig, Service, net};
use rustix::event::PollFlags;

use super::executor_source::ExecutorSource;

/// Connections accepted in a row before the main thread looks at the shutdown and at other connections.
const BATCH: usize = 256;

/// The time that a worker waits for the first byte of a connection if no other connection waits for a worker.
const FIRST_BYTE: Duration = Duration::from_millis(1);

/// The server that runs each connection as one job of an executor.
pub struct PoolClassic {
    config: ServerConfig,
    executor: ExecutorSource,
}

impl PoolClassic {
    /// Creates a server within the limits of `config`. Each run creates an executor with `factory`, and closes it at its
    /// end. The executor's queue bounds the connections that wait, unless it is unbounded.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range.
    pub fn new(
        config: ServerConfig,
        factory: impl Fn(&ServerConfig) -> io::Result<Arc<dyn Executor>> + Send + Sync + 'static,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { config, executor: ExecutorSource::new(factory) })
    }

    /// Creates a server on an executor that may have other work too. The executor is not closed at the end.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range, if `workers` is set to another number than the executor has, or
    /// if the executor's `execute` may wait.
    pub fn on(config: ServerConfig, executor: Arc<dyn Executor>) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { executor: ExecutorSource::shared(&config, executor)?, config })
    }
}

impl Server for PoolClassic {
    fn connections(&self) -> Connections {
        Connections::OnePerThread
    }

    fn max_concurrent(&self) -> Option<usize> {
        let workers = self.executor.workers(&self.config);
        Some(workers.min(self.config.max_connections))
    }

    fn serve(&self, addr: SocketAddr, service: Arc<dyn Service>) -> io::Result<Running> {
        let Bound { listener, local_addr, server } = bind(addr, &self.config, service)?;
        let (wake, shutdown) = (server.wake_pipe()?, server.shutdown.clone());
        let (executor, is_own) = self.executor.start(&self.config)?;
        let threads = executor.workers().unwrap_or(usize::MAX).min(self.config.max_connections);
        let (returned_reader, returned_writer) = io::pipe()?;
        let shared = Arc::new(ClassicState {
            server,
            connections: OpenConnections::new(threads),
            pending: Mutex::default(),
            returned: Mutex::default(),
            returned_pipe: returned_writer,
        });
        let main = ClassicMainThread {
            shared,
            executor,
            is_own,
            wake,
            returned_pipe: returned_reader,
            silent: VecDeque::new(),
            lingering: LingeringSet::new(self.config.linger_timeout),
            log_throttle: LogThrottle::new(),
        };
        Running::start("pool-classic", local_addr, self.config.drain_grace, shutdown, move || main.run(listener))
    }
}

impl fmt::Debug for PoolClassic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolClassic")
            .field("config", &self.config)
            .field("executor", &self.executor)
            .finish_non_exhaustive()
    }
}

/// A connection and when it was queued, or accepted.
type Since = (TcpStream, Instant);

/// The state that the main thread and the workers of a run share.
struct ClassicState {
    server: ServerState,
    connections: OpenConnections,
    /// The connections that wait for a worker. They count as waiting in `connections`.
    pending: Mutex<VecDeque<Since>>,
    /// The connections that a worker has returned to the main thread.
    returned: Mutex<Returned>,
    /// Written to when `returned` was empty.
    returned_pipe: PipeWriter,
}

#[derive(Default)]
struct Returned {
    silent: Vec<Since>,
    lingering: Vec<TcpStream>,
}

impl ClassicState {
    /// Serves the connection that has waited for longest, until it closes or turns out to be silent. A worker's job.
    fn serve_next(&self) {
        let Some((stream, queued)) = lock(&self.pending).pop_front() else { return };
        let served = Served { shared: self, connection: Some(self.connections.enter_waiting(stream)) };
        let Some(connection) = &served.connection else { return };
        let mut socket = WorkerSocket {
            polled: PolledSocket::new(connection, &self.connections, &self.server, Duration::ZERO),
            connection,
            shared: self,
            first_byte: FirstByte::Expected,
        };
        let lingers = with_buffers(|buffers| drive(&mut socket, &self.server, buffers, queued));
        let is_silent = matches!(socket.first_byte, FirstByte::Missing);
        match served.end() {
            Some(stream) if lingers => self.give_back(|returned| returned.lingering.push(stream)),
            Some(stream) if is_silent => self.give_back(|returned| returned.silent.push((stream, Instant::now()))),
            _ => {} // dropped: the socket is closed
        }
    }

    fn give_back(&self, add: impl FnOnce(&mut Returned)) {
        let mut returned = lock(&self.returned);
        let was_empty = returned.silent.is_empty() && returned.lingering.is_empty();
        add(&mut returned);
        if was_empty {
            let _ = (&self.returned_pipe).write(&[1]); // one byte fits: the reader takes it before the list is empty again
        }
    }
}

/// Takes a connection out of the open ones, also if its job panics.
struct Served<'a> {
    shared: &'a ClassicState,
    connection: Option<Arc<OpenConnection>>,
}

impl Served<'_> {
    fn end(mut self) -> Option<TcpStream> {
        self.connection.take().and_then(|connection| self.shared.connections.leave(connection))
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.shared.connections.leave(connection);
        }
    }
}

/// Whether a connection has sent anything.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstByte {
    Expected,
    Here,
    Missing,
}

/// A connection on a worker. Its first byte is waited for only shortly.
struct WorkerSocket<'a> {
    polled: PolledSocket<'a>,
    connection: &'a OpenConnection,
    shared: &'a ClassicState,
    first_byte: FirstByte,
}

impl Transport for WorkerSocket<'_> {
    fn read(&mut self, buffer: &mut [u8], phase: Phase, deadline: Instant) -> io::Result<Read> {
        if self.first_byte == FirstByte::Here || self.shared.server.shutdown.is_begun() {
            return self.polled.read(buffer, phase, deadline); // in a drain, it leaves if nothing is there
        }
        let stream = self.connection.stream();
        for waits in [true, false] {
            match net::receive(stream, buffer) {
                Ok(count) => {
                    self.first_byte = FirstByte::Here;
                    return Ok(if count == 0 { Read::End } else { Read::Bytes(count) });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if !waits || self.others_wait() {
                break;
            }
            wait([(stream.as_fd(), PollFlags::IN)], Some(Instant::now() + FIRST_BYTE), &mut Vec::new())?;
        }
        self.first_byte = FirstByte::Missing;
        Ok(Read::Leave)
    }

    fn write(&mut self, bytes: &[u8], last: bool, deadline: Instant) -> usize {
        self.polled.write(bytes, last, deadline)
    }

    fn others_wait(&self) -> bool {
        self.polled.others_wait()
    }
}

thread_local! {
    /// What became of a job while this thread calls `execute`. A job that runs or is dropped within that call is rejected.
    static SUBMITTING: Cell<Submitted> = const { Cell::new(Submitted::Elsewhere) };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Submitted {
    /// This thread does not submit.
    Elsewhere,
    /// This thread submits, and the job has not run.
    Taken,
    /// The executor ran the job on this thread, which may not serve connections.
    RanHere,
}

/// The job of a connection. If an executor drops it without running it, a connection that waits is closed.
struct ConnectionJob {
    shared: Arc<ClassicState>,
    is_used: bool,
}

impl ConnectionJob {
    fn run(mut self) {
        self.is_used = true;
        match SUBMITTING.get() {
            Submitted::Elsewhere => self.shared.serve_next(),
            Submitted::Taken | Submitted::RanHere => SUBMITTING.set(Submitted::RanHere),
        }
    }
}

impl Drop for ConnectionJob {
    fn drop(&mut self) {
        if !self.is_used && SUBMITTING.get() == Submitted::Elsewhere {
            self.shared.close_next();
        }
    }
}

impl ClassicState {
    /// Closes the connection that has waited for longest. Past the shutdown's deadline, a request that has come counts as
    /// cut. Returns false if none waits.
    fn close_next(&self) -> bool {
        let Some((stream, _)) = lock(&self.pending).pop_front() else { return false };
        if self.server.is_over() && has_input(&stream) {
            self.server.count_cut();
        }
        drop(stream);
        self.connections.cancel_waiting();
        true
    }
}

/// Whether the client has sent something that was not read.
fn has_input(stream: &TcpStream) -> bool {
    stream.peek(&mut [0]).is_ok_and(|count| count > 0)
}

/// The thread that accepts, keeps the silent connections, and drains.
struct ClassicMainThread {
    shared: Arc<ClassicState>,
    executor: Arc<dyn Executor>,
    /// The executor is closed at the end.
    is_own: bool,
    /// Readable once the shutdown has begun.
    wake: PipeReader,
    returned_pipe: PipeReader,
    /// Connections that have not sent a byte, the oldest first.
    silent: VecDeque<Since>,
    lingering: LingeringSet,
    log_throttle: LogThrottle,
}

impl ClassicMainThread {
    fn run(mut self, listener: TcpListener) -> Drain {
        let mut backoff = None;
        while !self.shared.server.shutdown.is_begun() {
            self.wait(&listener, backoff);
            backoff = self.accept(&listener).err().map(|()| Instant::now() + ACCEPT_BACKOFF);
        }
        self.drain(listener)
    }

    /// Waits until something is to be done, or for the end of `backoff` if there is one. Queues silent connections that have
    /// sent something.
    fn wait(&mut self, listener: &TcpListener, backoff: Option<Instant>) {
        let idle_timeout = self.shared.server.config.idle_timeout;
        let oldest = self.silent.front().map(|(_, since)| *since + idle_timeout);
        let deadline = [backoff, self.lingering.deadline(), oldest].into_iter().flatten().min();
        let own = [self.wake.as_fd(), self.returned_pipe.as_fd()].into_iter();
        let listener = backoff.is_none().then(|| listener.as_fd());
        let first_silent = 2 + usize::from(listener.is_some());
        let sockets = own.chain(listener).chain(self.silent.iter().map(|(stream, _)| stream.as_fd()));
        let mut ready = Vec::new();
        if let Err(error) = wait(sockets.map(|fd| (fd, PollFlags::IN)), deadline, &mut ready) {
            self.warn("cannot wait for connections", &error);
            thread::park_timeout(ACCEPT_BACKOFF);
        }
        let silent_ready = ready.get(first_silent..).unwrap_or_default();
        if silent_ready.contains(&true) {
            for ((stream, since), ready) in std::mem::take(&mut self.silent).into_iter().zip(silent_ready) {
                if *ready { self.queue(stream) } else { self.silent.push_back((stream, since)) }
            }
        }
        while self.silent.front().is_some_and(|(_, since)| since.elapsed() >= idle_timeout) {
            self.silent.pop_front();
        }
        if ready.get(1) == Some(&true) {
            self.take_returned();
        }
        self.lingering.sweep();
    }

    fn take_returned(&mut self) {
        let returned = std::mem::take(&mut *lock(&self.shared.returned));
        if returned.silent.is_empty() && returned.lingering.is_empty() {
            return;
        }
        let _ = (&self.returned_pipe).read(&mut [0]); // the byte that was written for these
        self.silent.extend(returned.silent);
        for stream in returned.lingering {
            self.lingering.add(stream);
        }
    }

    /// Accepts the connections that wait. Returns an error if the system has no descriptor or memory left.
    fn accept(&mut self, listener: &TcpListener) -> Result<(), ()> {
        for _ in 0..BATCH {
            match net::accept(listener) {
                Ok(stream) if net::prepare(&stream).is_ok() => self.queue(stream),
                Ok(_) => {} // the client is gone
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if net::is_connection_error(&error) => {}
                Err(error) => {
                    self.warn("cannot accept", &error);
                    return Err(());
                }
            }
        }
        Ok(())
    }

    /// Queues a connection for a worker. Rejects it at the limit, or if the executor's queue is full.
    fn queue(&mut self, stream: TcpStream) {
        let ClassicState { server, connections, pending, .. } = &*self.shared;
        let max = server.config.max_connections;
        while !connections.wait_for_thread_within(max, self.silent.len()) {
            // A connection that has been silent for this long makes room as an idle one does.
            let since = self.silent.front().map(|(_, since)| since.elapsed());
            if since.is_none_or(|since| since < server.config.head_timeout) {
                return self.lingering.reject(stream, server);
            }
            self.silent.pop_front();
        }
        lock(pending).push_back((stream, Instant::now()));
        let job = ConnectionJob { shared: Arc::clone(&self.shared), is_used: false };
        SUBMITTING.set(Submitted::Taken);
        let is_rejected = self.executor.execute(Job::new(move || job.run())).is_err();
        let ran_here = SUBMITTING.replace(Submitted::Elsewhere) == Submitted::RanHere;
        // Each job takes one connection from the front, so the last one is without a job.
        if (is_rejected || ran_here)
            && let Some((stream, _)) = lock(pending).pop_back()
        {
            connections.cancel_waiting();
            self.lingering.reject(stream, server);
        }
    }

    /// Serves what has been accepted or waits to be, and closes idle connections. Cuts the rest at the deadline.
    fn drain(mut self, listener: TcpListener) -> Drain {
        let shared = Arc::clone(&self.shared);
        let ClassicState { server, connections, .. } = &*shared;
        connections.evict_idle();
        drain_backlog(listener, server, |stream| {
            // The listener's sockets block, unless they inherit that it does not.
            if stream.set_nonblocking(true).is_ok() {
                self.queue(stream);
            }
        });
        let deadline = server.shutdown.deadline().unwrap_or_else(Instant::now);
        loop {
            self.take_returned();
            // A silent connection is served if its first byte has arrived, and closed otherwise.
            let silent = std::mem::take(&mut self.silent);
            silent.into_iter().filter(|(stream, _)| has_input(stream)).for_each(|(stream, _)| self.queue(stream));
            let is_late = !connections.wait_until_empty(deadline);
            if is_late || lock(&shared.returned).silent.is_empty() {
                break;
            }
        }
        if !connections.wait_until_empty(deadline) {
            while shared.close_next() {}
            connections.cut();
            connections.wait_until_empty(deadline + SHUTDOWN_SLACK);
        }
        let stuck = if self.is_own { self.executor.close(Some(deadline + SHUTDOWN_SLACK)) } else { connections.len() };
        self.take_returned();
        self.lingering.finish(server);
        server.drained(stuck)
    }

    fn warn(&self, what: &str, error: &io::Error) {
        if self.log_throttle.is_due() {
            tracing::warn!(%error, "{what}");
        }
    }
}
