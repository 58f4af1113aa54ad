//! `thread_per_connection`: the textbook server, which starts a thread for each connection.
//!
//! ```text
//!  main thread                     a thread per connection
//!  poll: listener, shutdown        drive: recv, service, send
//!  accept -> enter -> spawn  --->    until the connection closes
//!        \-> 503 at the limit      leave -> the thread ends
//! ```
//!
//! Invariant: a connection is in [`OpenConnections`] from before its thread starts until after its last byte is sent, so
//! that the drain finds it. At the limit, the connection that has been idle for longest is evicted for a new
//! one; if none is idle, the new one is answered 503. The thread of an evicted connection ends soon, after at most one
//! request, so there are briefly more threads than `max_connections`.
//!
//! Cost: starting and ending a thread for each connection; a poll, a read and a write for each request on a kept
//! connection; a stack of 128 KiB of address space and at most 16 KiB of buffers for each idle connection.
//!
//! Source: the threaded server of W. R. Stevens, *UNIX Network Programming*, volume 1.
//!
//! *Wins when* the code is to be read: it is the baseline that the other servers are compared with. *Loses when*
//! connections are short, because each costs a thread. It has not been measured yet.

use std::io::{self, ErrorKind, PipeReader};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polyserve_core::serving::blocking::{PolledSocket, drive};
use polyserve_core::serving::{
    ACCEPT_BACKOFF, Bound, LingeringSet, LogThrottle, OpenConnection, OpenConnections, SHUTDOWN_SLACK, ServerState,
    bind, discard, drain_backlog, wait, with_buffers,
};
use polyserve_core::{ConfigError, Connections, Drain, Running, Server, ServerConfig, Service, net};
use rustix::event::PollFlags;

/// The stack of a connection's thread. It is enough for the loop, the parser's header fields and an ordinary service.
const STACK: usize = 128 * 1024;

/// A new connection cannot be evicted for this long, because its first request is on its way as a rule.
const FIRST_BYTE_GRACE: Duration = Duration::from_millis(100);

/// Connections accepted in a row before the main thread looks at the shutdown and at the rejected connections.
const BATCH: usize = 256;

/// The server that starts a thread for each connection.
#[derive(Clone, Debug)]
pub struct ThreadPerConnection {
    config: ServerConfig,
}

impl ThreadPerConnection {
    /// Creates a server within the limits of `config`.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range, or if `workers` or `queue` is set.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        config.refuse_queue("thread_per_connection")?;
        match config.workers {
            None => Ok(Self { config }),
            Some(_) => Err(ConfigError::unsupported(
                "workers",
                "workers cannot be set for thread_per_connection, which has one for each connection: set max_connections",
            )),
        }
    }
}

impl Server for ThreadPerConnection {
    fn connections(&self) -> Connections {
        Connections::OnePerThread
    }

    fn max_concurrent(&self) -> Option<usize> {
        Some(self.config.max_connections)
    }

    fn serve(&self, addr: SocketAddr, service: Arc<dyn Service>) -> io::Result<Running> {
        let Bound { listener, local_addr, server } = bind(addr, &self.config, service)?;
        let wake = server.wake_pipe()?;
        let shutdown = server.shutdown.clone();
        let connections = OpenConnections::new(self.config.max_connections);
        let main = MainThread {
            shared: Arc::new(ConnectionThreadsState { server, connections }),
            wake,
            threads: Vec::new(),
            start_thread,
            lingering: LingeringSet::new(self.config.linger_timeout),
            log_throttle: LogThrottle::new(),
        };
        Running::start("thread-per-conn", local_addr, self.config.drain_grace, shutdown, move || main.run(listener))
    }
}

/// The state that all threads of a run share.
struct ConnectionThreadsState {
    server: ServerState,
    connections: OpenConnections,
}

/// The thread that accepts, and that drains.
struct MainThread {
    shared: Arc<ConnectionThreadsState>,
    /// Readable once the shutdown has begun.
    wake: PipeReader,
    /// The threads of connections. Some may have ended.
    threads: Vec<JoinHandle<()>>,
    start_thread: StartThread,
    /// The rejected connections, until their clients have read the 503.
    lingering: LingeringSet,
    log_throttle: LogThrottle,
}

/// Starts the thread of a connection, as [`start_thread`] does.
type StartThread = fn(Arc<ConnectionThreadsState>, Arc<OpenConnection>) -> io::Result<JoinHandle<()>>;

impl MainThread {
    fn run(mut self, listener: TcpListener) -> Drain {
        let mut backoff = None;
        while !self.shared.server.shutdown.is_begun() {
            self.wait(&listener, backoff);
            backoff = self.accept(&listener).err().map(|()| Instant::now() + ACCEPT_BACKOFF);
        }
        self.drain(listener)
    }

    /// Waits for a connection, or for the end of `backoff` if there is one, or for the shutdown.
    fn wait(&mut self, listener: &TcpListener, backoff: Option<Instant>) {
        let listener = backoff.is_none().then(|| listener.as_fd());
        let sockets = [self.wake.as_fd()].into_iter().chain(listener).map(|fd| (fd, PollFlags::IN));
        let deadline = [backoff, self.lingering.deadline()].into_iter().flatten().min();
        if let Err(error) = wait(sockets, deadline, &mut Vec::new()) {
            self.warn("cannot wait for connections", &error);
            thread::park_timeout(ACCEPT_BACKOFF);
        }
        self.lingering.sweep();
    }

    /// Accepts the connections that wait. Returns an error if the system has no descriptor or memory left.
    fn accept(&mut self, listener: &TcpListener) -> Result<(), ()> {
        for _ in 0..BATCH {
            match net::accept(listener) {
                Ok(stream) => self.start(stream),
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

    /// Starts the thread of a connection. Rejects the connection at the limit, or if no thread can be started.
    fn start(&mut self, stream: TcpStream) {
        if net::prepare(&stream).is_err() {
            return; // the client is gone
        }
        let ConnectionThreadsState { server, connections } = &*self.shared;
        let connection = match connections.enter(stream) {
            Ok(connection) => connection,
            Err(stream) => return self.lingering.reject(stream, server),
        };
        match (self.start_thread)(Arc::clone(&self.shared), Arc::clone(&connection)) {
            Ok(thread) => {
                if self.threads.len() > 2 * connections.len() + 64 {
                    self.threads.retain(|thread| !thread.is_finished());
                }
                self.threads.push(thread);
            }
            Err(error) => {
                if let Some(stream) = connections.leave(connection) {
                    self.lingering.reject(stream, server);
                }
                self.warn("cannot start a thread", &error);
            }
        }
    }

    /// Serves what has been accepted or waits to be, and closes idle connections. Cuts the rest at the deadline.
    fn drain(mut self, listener: TcpListener) -> Drain {
        let shared = Arc::clone(&self.shared);
        let ConnectionThreadsState { server, connections } = &*shared;
        // Their threads were told by nothing but this. It also frees descriptors for the backlog.
        connections.evict_idle();
        drain_backlog(listener, server, |stream| {
            // The listener's sockets block, unless they inherit that it does not.
            if stream.set_nonblocking(true).is_ok() {
                self.start(stream);
            }
        });
        let deadline = server.shutdown.deadline().unwrap_or_else(Instant::now);
        if !connections.wait_until_empty(deadline) {
            connections.cut();
            connections.wait_until_empty(deadline + SHUTDOWN_SLACK);
        }
        let stuck = connections.len();
        // A thread that is stuck in the service is left behind. The others end within a few instructions.
        for thread in self.threads.drain(..).filter(|thread| stuck == 0 || thread.is_finished()) {
            let _ = thread.join(); // an error: it panicked, and the panic was reported
        }
        self.lingering.finish(server);
        server.drained(stuck)
    }

    fn warn(&self, what: &str, error: &io::Error) {
        if self.log_throttle.is_due() {
            tracing::warn!(%error, "{what}");
        }
    }
}

fn start_thread(shared: Arc<ConnectionThreadsState>, connection: Arc<OpenConnection>) -> io::Result<JoinHandle<()>> {
    let accepted = Instant::now();
    thread::Builder::new().name("connection".into()).stack_size(STACK).spawn(move || {
        let _leave = LeaveOnDrop { shared: &shared, connection: Arc::clone(&connection) };
        let ConnectionThreadsState { server, connections } = &*shared;
        let mut socket = PolledSocket::new(&connection, connections, server, FIRST_BYTE_GRACE);
        if with_buffers(|buffers| drive(&mut socket, server, buffers, accepted)) {
            linger(connection.stream(), server);
        }
    })
}

/// Takes the connection out of the open ones when its thread ends, however it ends.
struct LeaveOnDrop<'a> {
    shared: &'a ConnectionThreadsState,
    connection: Arc<OpenConnection>,
}

impl Drop for LeaveOnDrop<'_> {
    fn drop(&mut self) {
        self.shared.connections.leave(Arc::clone(&self.connection));
    }
}

/// Closes the writing side, and reads until the client closes or the linger timeout has passed. Otherwise the kernel could
/// reset the connection before the client has read the last answer.
fn linger(stream: &TcpStream, server: &ServerState) {
    let deadline = Instant::now() + server.config.linger_timeout;
    if stream.shutdown(Shutdown::Write).is_err() {
        return;
    }
    while with_buffers(|buffers| discard(stream, &mut buffers.input)) && Instant::now() < server.within(deadline) {
        if wait([(stream.as_fd(), PollFlags::IN)], Some(server.within(deadline)), &mut Vec::new()).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use polyserve_core::service::Echo;

    use super::*;

    /// A system that has no thread left costs clients a 503, and the server serves again once there are threads.
    #[test]
    fn a_thread_that_cannot_be_started_is_a_503() {
        use std::sync::atomic::{AtomicBool, Ordering};
        static FAILS: AtomicBool = AtomicBool::new(true);
        fn start_or_fail(
            shared: Arc<ConnectionThreadsState>,
            connection: Arc<OpenConnection>,
        ) -> io::Result<JoinHandle<()>> {
            if FAILS.load(Ordering::SeqCst) {
                Err(ErrorKind::OutOfMemory.into())
            } else {
                start_thread(shared, connection)
            }
        }
        let config = ServerConfig::default();
        let Bound { listener, local_addr, server } =
            bind("127.0.0.1:0".parse().unwrap(), &config, Arc::new(Echo)).unwrap();
        let (wake, shutdown) = (server.wake_pipe().unwrap(), server.shutdown.clone());
        let connections = OpenConnections::new(1);
        let main = MainThread {
            shared: Arc::new(ConnectionThreadsState { server, connections }),
            wake,
            threads: Vec::new(),
            start_thread: start_or_fail,
            lingering: LingeringSet::new(config.linger_timeout),
            log_throttle: LogThrottle::new(),
        };
        let main = thread::spawn(move || main.run(listener));
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
        assert_eq!(main.join().unwrap(), Drain { answered: 4, cut: 0, stuck: 0 });
    }
}
