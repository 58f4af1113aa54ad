//! The rules of an accept loop, and a listener that does not block. Every server follows the [rules](AcceptRules), and its driver
//! only waits. The accept loops of event loops and of servers with one accepting thread share the listener.
//!
//! The event loop watches the listener and calls [`EventListener::notify`] for each event, also if it reports readiness at the edge:
//! it remembers that connections may wait until an attempt finds none.
//!
//! Cost: one system call for each connection, and one for each batch.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::{EVICTION_GRACE, ServerState, net};

/// The pause of an accept loop if the system has no descriptor or memory left.
pub const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// What an accept loop does after an attempt.
#[derive(Debug)]
pub enum AfterAccept<T = TcpStream> {
    /// Serve the connection, and attempt again.
    Serve(T),
    /// Attempt again at once: the client of a connection is gone.
    Again,
    /// Wait until the listener is readable.
    Wait,
    /// Wait for [`ACCEPT_BACKOFF`], because the system has no descriptor or memory left. Connections that end free descriptors, so
    /// this holds in a drain too.
    BackOff,
    /// Close the listener: a drain has accepted what waited, or the shutdown's deadline has passed.
    End,
}

/// The rules of an accept loop, without its listener and without a wait: it neither fails nor spins, whatever `accept(2)` returns.
#[derive(Debug)]
pub struct AcceptRules {
    /// The number of connections that a drain may still accept: clients that connect again and again cannot prolong it.
    backlog: u32,
    /// Of those, the number that has waited since the begin of the drain. `None` before the drain.
    waiting: Option<u32>,
}

impl AcceptRules {
    /// The rules of a listener. `backlog`: as in the configuration.
    pub fn new(backlog: u32) -> Self {
        Self { backlog, waiting: None }
    }

    /// Notes how many connections wait, at the first call of a drain. [`EVICTION_GRACE`] after the begin of the drain, no others are
    /// accepted: a server that serves connections one by one might never see an empty queue, and one without a free descriptor never
    /// learns that it is empty. Without this call, the backlog is the only bound.
    pub fn drain(&mut self, listener: impl AsFd) {
        self.waiting.get_or_insert_with(|| net::waiting_connections(listener).unwrap_or(u32::MAX));
    }

    /// Makes an attempt, which does not block, and returns what follows. Logs an error of the system, unless another was logged a
    /// short time ago.
    pub fn attempt<T>(&mut self, server: &ServerState, accept: impl FnOnce() -> io::Result<T>) -> AfterAccept<T> {
        let is_draining = server.shutdown.is_begun(); // before the attempt, which then finds what waits
        let is_late = || server.shutdown.begun_at().is_some_and(|begun| begun.elapsed() >= EVICTION_GRACE);
        if is_draining && (self.backlog == 0 || (self.waiting == Some(0) && is_late())) {
            return AfterAccept::End;
        }
        let after = match accept() {
            Ok(stream) => AfterAccept::Serve(stream),
            Err(error) if net::is_connection_error(&error) => AfterAccept::Again,
            Err(error) if error.kind() == ErrorKind::WouldBlock && !is_draining => return AfterAccept::Wait,
            Err(error) if error.kind() == ErrorKind::WouldBlock || server.is_over() => return AfterAccept::End,
            Err(error) => {
                polyserve_core::throttled!(warn, %error, "cannot accept");
                return AfterAccept::BackOff;
            }
        };
        if is_draining {
            self.backlog -= 1;
            self.waiting = self.waiting.map(|waiting| waiting.saturating_sub(1));
        }
        after
    }
}

/// A listener that does not block.
#[derive(Debug)]
pub struct EventListener {
    /// `None` once a drain has closed it.
    listener: Option<Arc<TcpListener>>,
    /// Connections may wait in the backlog.
    is_pending: bool,
    /// No attempt is made before this time, because the system had no descriptor or memory left.
    paused_until: Option<Instant>,
    rules: AcceptRules,
}

impl EventListener {
    /// A listener with connections that may wait. `backlog`: as in the configuration.
    pub fn new(listener: Arc<TcpListener>, backlog: u32) -> Self {
        let rules = AcceptRules::new(backlog);
        Self { listener: Some(listener), is_pending: true, paused_until: None, rules }
    }

    /// Notes that connections may wait.
    pub fn notify(&mut self) {
        self.is_pending = true;
    }

    /// Returns the time until the next attempt: zero if a connection may wait, more after an error, `None` if none waits.
    ///
    /// # Cost
    ///
    /// Reads the clock after an error only.
    pub fn until_attempt(&self) -> Option<Duration> {
        let until = || self.paused_until.map(|until| until.saturating_duration_since(Instant::now()));
        (self.is_pending && self.listener.is_some()).then(|| until().unwrap_or_default())
    }

    /// Accepts a connection, which does not block. Returns `None` if there is none, or if the system has no descriptor left. In a
    /// drain, closes the listener once its backlog is empty, or has only what came late: see [`AcceptRules::drain`].
    pub fn accept(&mut self, server: &ServerState) -> Option<TcpStream> {
        Some(self.accept_from(server)?.0)
    }

    /// Like [`accept`](Self::accept), with the address of the connection's other end.
    pub fn accept_from(&mut self, server: &ServerState) -> Option<(TcpStream, Option<SocketAddr>)> {
        self.accept_by(server, |listener| net::accept_from(listener))
    }

    fn accept_by<T>(
        &mut self,
        server: &ServerState,
        mut accept: impl FnMut(&TcpListener) -> io::Result<T>,
    ) -> Option<T> {
        if server.shutdown.is_begun() {
            self.is_pending = true;
            self.rules.drain(self.listener.as_ref()?);
        }
        if self.paused_until.is_some_and(|until| Instant::now() < until) && !server.is_over() {
            return None;
        }
        self.paused_until = None;
        while self.is_pending {
            let listener = self.listener.as_ref()?;
            match self.rules.attempt(server, || accept(listener)) {
                AfterAccept::Serve(stream) => return Some(stream),
                AfterAccept::Again => {}
                AfterAccept::Wait => self.is_pending = false,
                AfterAccept::BackOff => {
                    self.paused_until = Some(Instant::now() + ACCEPT_BACKOFF);
                    break;
                }
                AfterAccept::End => self.close(),
            }
        }
        None
    }

    /// In a drain, returns the next connection that waits. Returns `None` when none waits any more, and the listener is closed.
    ///
    /// If the process has no descriptor left, it pauses and retries until the shutdown's deadline: connections that close during
    /// the drain free descriptors. So other threads must close them, and idle connections should be closed before this call. Calls
    /// `on_attempt` before each attempt.
    pub fn accept_waiting(&mut self, server: &ServerState, mut on_attempt: impl FnMut()) -> Option<TcpStream> {
        while self.is_open() {
            on_attempt();
            match self.accept(server) {
                None if self.is_open() => thread::park_timeout(ACCEPT_BACKOFF),
                accepted => return accepted,
            }
        }
        None
    }

    /// The descriptor, for a loop that names its sockets at each wait. `None` once the listener is closed.
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    /// The time of the next attempt, if the last one has failed.
    pub(crate) fn paused_until(&self) -> Option<Instant> {
        self.paused_until
    }

    /// Whether the listener is open.
    pub fn is_open(&self) -> bool {
        self.listener.is_some()
    }

    /// Closes the listener.
    pub fn close(&mut self) {
        self.listener = None;
    }
}

#[cfg(test)]
mod tests {
    use polyserve_core::{Echo, ServerConfig};

    use super::*;

    /// Regression test: a drain that began while the process had no descriptor left closed the listener, which reset
    /// the waiting connections.
    #[test]
    fn a_drain_without_descriptors_retries() {
        let server = ServerState::new(Arc::new(Echo), &ServerConfig::default());
        server.shutdown.begin(Instant::now() + Duration::from_secs(60));
        let bound = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        let _client = TcpStream::connect(bound.local_addr().unwrap()).unwrap();
        let mut listener = EventListener::new(Arc::clone(&bound), 2);
        for _ in 0..2 {
            let out_of_descriptors = |_: &_| Err::<(), _>(io::Error::from_raw_os_error(24));
            assert!(listener.accept_by(&server, out_of_descriptors).is_none() && listener.is_open());
            assert!(listener.accept(&server).is_none(), "it pauses");
            listener.paused_until = None;
        }
        assert!(listener.accept(&server).is_some());
        let mut listener = EventListener::new(bound, 2);
        let aborted = |_: &_| Err::<(), _>(ErrorKind::ConnectionAborted.into());
        assert!(listener.accept_by(&server, aborted).is_none());
        assert!(!listener.is_open(), "the backlog's length bounds a drain");
    }

    /// A drain accepts what waits, at most a backlog, and then closes the listener.
    #[test]
    fn a_drain_accepts_the_backlog_and_closes_the_listener() {
        for backlog in [9, 2] {
            let server = ServerState::new(Arc::new(Echo), &ServerConfig::default());
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            let addr = listener.local_addr().unwrap();
            let mut acceptor = EventListener::new(Arc::new(listener), backlog);
            assert!(acceptor.accept(&server).is_none() && acceptor.until_attempt().is_none());
            let _clients = [(); 3].map(|()| TcpStream::connect(addr).unwrap());
            assert!(acceptor.accept(&server).is_none(), "no event was reported");
            server.shutdown.begin(Instant::now() + Duration::from_secs(60));
            let accepted = std::iter::from_fn(|| acceptor.accept(&server)).count();
            assert_eq!(accepted, backlog.min(3) as usize);
            assert!(!acceptor.is_open() && TcpStream::connect(addr).is_err());
        }
    }

    /// Regression test: clients that connected again and again prolonged the drain of a server of one connection, up to its deadline.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_drain_does_not_accept_what_comes_late() {
        let server = ServerState::new(Arc::new(Echo), &ServerConfig::default());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let addr = listener.local_addr().unwrap();
        let mut acceptor = EventListener::new(Arc::new(listener), 9);
        let _waiting = [(); 2].map(|()| TcpStream::connect(addr).unwrap());
        server.shutdown.begin(Instant::now() + Duration::from_secs(60));
        assert!(acceptor.accept(&server).is_some());
        let late = TcpStream::connect(addr).unwrap();
        while server.shutdown.begun_at().unwrap().elapsed() < EVICTION_GRACE {
            thread::yield_now();
        }
        assert!(acceptor.accept(&server).is_some());
        assert!(acceptor.accept(&server).is_none() && !acceptor.is_open());
        drop(late);
    }
}
