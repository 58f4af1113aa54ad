//! `thread_per_connection`: the textbook server, which starts a thread for each connection.
//!
//! ```text
//!  main thread                      a thread for each connection
//!  accept -> enter -> spawn   --->  read -> service -> write
//!        \-> 503 at the limit         ^                 |
//!                                     +-----------------+
//!                                   close, linger -> leave -> the thread ends
//! ```
//!
//! A connection goes from accept to close in two files: this one accepts it and starts its thread, and
//! [`serving::blocking`](polyserve_serving::blocking) reads, calls the service, writes and closes. Each read and each
//! write has a timeout.
//!
//! Invariant: a connection is in the [`ConnectionTable`] from before its thread starts until after its last byte is sent, so
//! that the drain finds it. At the limit, the connection that has been idle for longest, and for 50 ms at least, is evicted for
//! a new one. If none is idle, the new one is answered 503. An evicted connection keeps its thread for at most one more request, and
//! counts until that is answered. A lingering connection does not count, but holds its thread for the linger timeout, and longer while
//! its client goes on with a body. At most `max_connections` and at most `MAX_LINGERING` linger without counting; beyond that, an evicted connection does not linger.
//!
//! A request that comes as its connection is evicted is answered with `Connection: close`. After such an answer, and after a 503,
//! all answers of the next 100 ms say `Connection: close`, so that active clients take turns.
//!
//! Cost: starting and ending a thread for each connection; a read and a write for each request on a kept connection; a stack of
//! 512 KiB of address space and at most 16 KiB of buffers for each idle connection.
//!
//! Source: the threaded server of W. R. Stevens, *UNIX Network Programming*, volume 1.
//!
//! *Wins when* there are more kept connections than a pool has workers: it then answers more requests than
//! `pool_classic` (`servers-kept`). *Loses when* connections are short, because each costs a thread: it answers fewer
//! requests than every other server of this project (`servers-close`); and against an event loop on kept connections
//! (`servers-kept`). Records: `docs/results`.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use polyserve_core::{ConfigError, Drain, ListenOn, Running, Server, ServerConfig, Service, Shape, Supports, cores};
use polyserve_serving::blocking::{self, ThreadConnection};
use polyserve_serving::{Bound, ConnectionTable, Incoming, TableEntry, bind, into_stream};

use super::CONNECTION_STACK;

/// The server that starts a thread for each connection.
///
/// ```
/// use polyserve_core::{Reply, Request, ServerConfig, ServerExt};
/// use polyserve_threadpool::ThreadPerConnection;
///
/// let server = ThreadPerConnection::new(ServerConfig::default().max_connections(100))?;
/// let running = server.serve("127.0.0.1:0", |_: Request<'_>| Reply::text("hello"))?;
/// assert_eq!(running.shutdown()?.answered, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ThreadPerConnection {
    config: ServerConfig,
}

const SUPPORTS: Supports =
    Supports::new("thread_per_connection").no_workers("one thread for each connection: set max_connections");

impl ThreadPerConnection {
    /// Creates a server within the limits of `config`.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range, or if `workers` or `queue` is set.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        SUPPORTS.check(&config)?;
        Ok(Self { config })
    }
}

impl Server for ThreadPerConnection {
    fn shape(&self) -> Shape {
        Shape::OnePerThread
    }

    fn max_concurrent(&self) -> Option<usize> {
        Some(self.config.max_connections)
    }

    fn start(&self, on: ListenOn, service: Arc<dyn Service>) -> io::Result<Running> {
        let bound = bind(on, &self.config, service)?;
        let (local_addr, shutdown) = (bound.local_addr, bound.server.shutdown.clone());
        let main = MainThread::new(bound)?;
        let counters = main.connections.counters();
        Running::start("thread-per-conn", local_addr, self.config.drain_grace, shutdown, counters, move || main.run())
    }
}

/// The thread that accepts, and that drains. It serves nothing, so it ends the run even if every other thread is stuck in
/// the service.
struct MainThread {
    connections: Arc<ConnectionTable<ThreadConnection>>,
    incoming: Incoming,
    /// The threads of connections. Some may have ended.
    threads: Vec<JoinHandle<()>>,
    /// The number of connections accepted since the start.
    accepted: usize,
    start_thread: StartThread,
}

/// Starts the thread of a connection, as [`start_thread`] does.
type StartThread =
    fn(Arc<TableEntry<ThreadConnection>>, Arc<ConnectionTable<ThreadConnection>>) -> io::Result<JoinHandle<()>>;

impl MainThread {
    fn new(Bound { listener, server, .. }: Bound) -> io::Result<Self> {
        let server = Arc::new(server);
        let incoming = Incoming::new(listener, Arc::clone(&server))?;
        let connections = Arc::new(ConnectionTable::new(server, cores()));
        Ok(Self { connections, incoming, threads: Vec::new(), accepted: 0, start_thread })
    }

    fn run(mut self) -> Drain {
        while let Some(stream) = self.incoming.accept() {
            self.start(stream);
        }
        self.drain()
    }

    /// Starts the thread of a connection. Rejects the connection at the limit, or if no thread can be started.
    fn start(&mut self, stream: TcpStream) {
        self.accepted = self.accepted.wrapping_add(1);
        let connection = match self.connections.admit(ThreadConnection::new(stream), self.accepted) {
            Ok(connection) => connection,
            Err(connection) => return self.incoming.reject(connection.into()),
        };
        match (self.start_thread)(Arc::clone(&connection), Arc::clone(&self.connections)) {
            Ok(thread) => self.threads.push(thread),
            Err(error) => {
                polyserve_core::throttled!(warn, %error, "cannot start a thread");
                self.connections.remove(&connection);
                if let Some(stream) = into_stream(connection) {
                    self.incoming.reject(stream);
                }
            }
        }
        if self.threads.len() > 2 * self.connections.len() + 64 {
            self.threads.retain(|thread| !thread.is_finished());
        }
    }

    /// Serves what has been accepted or waits to be, and closes idle connections. Cuts the rest at the deadline.
    fn drain(mut self) -> Drain {
        self.connections.wake_idle(); // it also frees descriptors for the backlog
        while let Some(stream) = self.incoming.accept_waiting() {
            self.start(stream);
        }
        let stuck = self.connections.finish(|| self.incoming.sweep());
        // A thread that is stuck in the service is left behind. The others end within a few instructions.
        let ended = self.threads.into_iter().filter(|thread| stuck == 0 || thread.is_finished());
        self.connections.server.join(ended.collect()); // panics of the service were caught and logged
        self.incoming.finish();
        self.connections.server.drained(stuck)
    }
}

fn start_thread(
    connection: Arc<TableEntry<ThreadConnection>>,
    connections: Arc<ConnectionTable<ThreadConnection>>,
) -> io::Result<JoinHandle<()>> {
    let accepted = Instant::now();
    thread::Builder::new().name("connection".into()).stack_size(CONNECTION_STACK).spawn(move || {
        // Reads, calls the service and writes until the connection closes. Each wait has its timeout.
        blocking::serve(connection, &connections, accepted);
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use std::net::SocketAddr;
    use std::time::Duration;

    use polyserve_core::Echo;

    use super::*;

    /// If the system cannot start a thread, the client gets a 503. The server serves again once threads can be started.
    #[test]
    fn a_thread_that_cannot_be_started_is_a_503() {
        use std::sync::atomic::{AtomicBool, Ordering};
        static FAILS: AtomicBool = AtomicBool::new(true);
        fn start_or_fail(
            connection: Arc<TableEntry<ThreadConnection>>,
            connections: Arc<ConnectionTable<ThreadConnection>>,
        ) -> io::Result<JoinHandle<()>> {
            if FAILS.load(Ordering::SeqCst) {
                Err(io::ErrorKind::OutOfMemory.into())
            } else {
                start_thread(connection, connections)
            }
        }
        let config = ServerConfig::default().max_connections(1);
        let bound = bind(SocketAddr::from(([127, 0, 0, 1], 0)).into(), &config, Arc::new(Echo)).unwrap();
        let (local_addr, shutdown) = (bound.local_addr, bound.server.shutdown.clone());
        let main = MainThread { start_thread: start_or_fail, ..MainThread::new(bound).unwrap() };
        let main = thread::spawn(move || main.run());
        let ask = || {
            let mut stream = TcpStream::connect(local_addr).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        for _ in 0..3 {
            let answer = ask();
            assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("\r\nRetry-After: "), "{answer}");
        }
        FAILS.store(false, Ordering::SeqCst);
        assert!(ask().starts_with("HTTP/1.1 200 "));
        shutdown.begin(Instant::now() + Duration::from_secs(30));
        assert_eq!(main.join().unwrap(), Drain::new(4, 0, 0));
    }
}
