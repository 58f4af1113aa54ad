//! The accept loop for servers in which the main thread accepts and rejects connections, and serves none itself.

use std::io::{self, ErrorKind, PipeReader};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use rustix::event::PollFlags;

use super::accepting::{Backlog, Waiting};
use super::{ACCEPT_BACKOFF, LingeringSet, LogThrottle, ServerState, wait};
use crate::net;

/// The incoming connections of a run. Rejected connections linger here.
///
/// Invariant: it looks at the shutdown before each accept, also if every connection is rejected.
#[derive(Debug)]
pub struct Incoming {
    /// `None` once the drain has closed it.
    listener: Option<TcpListener>,
    server: Arc<ServerState>,
    wake: PipeReader,
    backlog: Backlog,
    lingering: LingeringSet,
    log_throttle: LogThrottle,
}

impl Incoming {
    /// The connections of `listener`, which does not block.
    ///
    /// # Errors
    ///
    /// Returns an error if the process has no descriptor left.
    pub fn new(listener: TcpListener, server: Arc<ServerState>) -> io::Result<Self> {
        let wake = server.wake_pipe()?;
        let (backlog, lingering) = (Backlog::new(&server.config), LingeringSet::new(server.config.linger_timeout));
        Ok(Self { listener: Some(listener), server, wake, backlog, lingering, log_throttle: LogThrottle::new() })
    }

    /// Waits for a connection. Returns `None` once a shutdown has begun. The stream does not block.
    pub fn accept(&mut self) -> Option<TcpStream> {
        while !self.server.shutdown.is_begun() {
            self.lingering.sweep();
            match net::accept(self.listener.as_ref()?) {
                Ok(stream) if net::prepare(&stream).is_ok() => return Some(stream),
                Ok(_) => {} // the client is gone
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(None),
                Err(error) if net::is_connection_error(&error) => {}
                Err(error) => {
                    self.warn("cannot accept", &error);
                    self.wait(Some(Instant::now() + ACCEPT_BACKOFF));
                }
            }
        }
        None
    }

    /// In a drain, returns the next connection that waits. Returns `None` when none waits any more, and the listener is
    /// closed. If the process has no descriptor left, it pauses and retries until the shutdown's deadline; so idle
    /// connections should be closed before.
    pub fn accept_waiting(&mut self) -> Option<TcpStream> {
        while let Some(listener) = &self.listener {
            self.lingering.sweep();
            match self.backlog.next(|| net::accept(listener)) {
                Waiting::Connection(stream) if net::prepare(&stream).is_ok() => return Some(stream),
                Waiting::Connection(_) => {} // the client is gone
                Waiting::Exhausted if !self.server.is_over() => thread::park_timeout(ACCEPT_BACKOFF),
                Waiting::Exhausted | Waiting::None => self.listener = None,
            }
        }
        None
    }

    /// Answers 503 on a connection that is over a limit.
    pub fn reject(&mut self, stream: TcpStream) {
        self.lingering.reject(stream, &self.server);
    }

    /// Waits until no rejected connection lingers, or the shutdown's deadline has passed.
    pub fn finish(mut self) {
        self.lingering.finish(&self.server);
    }

    /// Waits for a connection, the shutdown, or the next sweep; with `backoff`, until that, and for no connection.
    fn wait(&mut self, backoff: Option<Instant>) {
        let listener = self.listener.as_ref().filter(|_| backoff.is_none()).map(AsFd::as_fd);
        let sockets = [self.wake.as_fd()].into_iter().chain(listener).map(|fd| (fd, PollFlags::IN));
        let deadline = [backoff, self.lingering.deadline()].into_iter().flatten().min();
        if let Err(error) = wait(sockets, deadline, &mut Vec::new()) {
            self.warn("cannot wait for connections", &error);
            thread::park_timeout(ACCEPT_BACKOFF);
        }
    }

    fn warn(&self, what: &str, error: &io::Error) {
        if self.log_throttle.is_due() {
            tracing::warn!(%error, "{what}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::time::Duration;

    use crate::ServerConfig;
    use crate::service::Echo;
    use crate::serving::{Bound, bind};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// An accept loop that only rejects ran on through a shutdown, for as long as clients came.
    #[test]
    fn a_loop_that_only_rejects_ends_with_the_shutdown() {
        let Bound { listener, local_addr, server } =
            bind(([127, 0, 0, 1], 0).into(), &ServerConfig::default(), Arc::new(Echo)).unwrap();
        let server = Arc::new(server);
        let mut incoming = Incoming::new(listener, Arc::clone(&server)).unwrap();
        let clients = thread::spawn(move || {
            let mut answers = 0;
            while let Ok(mut client) = TcpStream::connect(local_addr) {
                client.set_read_timeout(Some(PATIENCE)).unwrap();
                let mut answer = String::new();
                let _ = client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                if client.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 503 ") {
                    answers += 1;
                }
            }
            answers
        });
        let mut rejected = 0;
        while let Some(stream) = incoming.accept() {
            incoming.reject(stream);
            rejected += 1;
            if rejected == 100 {
                server.shutdown.begin(Instant::now() + PATIENCE);
            }
        }
        assert_eq!(rejected, 100);
        while let Some(stream) = incoming.accept_waiting() {
            incoming.reject(stream);
        }
        incoming.finish();
        assert!(clients.join().unwrap() >= 100);
    }
}
