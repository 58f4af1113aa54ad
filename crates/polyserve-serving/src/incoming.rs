//! The accept loop for servers in which one thread accepts and rejects connections. As a rule it serves none itself.

use std::io::{self, PipeReader};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use rustix::event::PollFlags;

use super::{ACCEPT_BACKOFF, EventListener, LingeringSet, ServerState, wait};

/// The incoming connections of a run. Rejected connections linger here. So do closed connections that the caller adds.
///
/// Call [`accept`](Self::accept) until it returns `None`, then [`accept_waiting`](Self::accept_waiting) until it returns `None`, and
/// then [`finish`](Self::finish) if connections were rejected or added. Drop it, which closes the listener, before
/// [`ConnectionTable::accept_loop_ended`](crate::ConnectionTable::accept_loop_ended).
///
/// Invariant: it checks for the shutdown before each accept, also if every connection is rejected.
#[derive(Debug)]
pub struct Incoming {
    listener: EventListener,
    server: Arc<ServerState>,
    wake: PipeReader,
    lingering: LingeringSet,
    /// Connections accepted since this thread has waited or returned [`Accepted::Other`].
    in_a_row: usize,
}

/// The next event of [`Incoming::accept_or`].
#[derive(Debug)]
pub enum Accepted {
    /// A connection. It does not block.
    Connection(TcpStream),
    /// The caller must check its other descriptor and its deadline. It is possible that neither is due.
    Other,
}

/// Connections accepted in a row before the caller checks its other descriptor.
const MAX_IN_A_ROW: usize = 256;

impl Incoming {
    /// The connections of `listener`, which does not block.
    ///
    /// # Errors
    ///
    /// Returns an error if the process has no descriptor left.
    pub fn new(listener: TcpListener, server: Arc<ServerState>) -> io::Result<Self> {
        let wake = server.wake_pipe()?;
        let listener = EventListener::new(Arc::new(listener), server.config.backlog);
        let lingering = LingeringSet::new(Arc::clone(&server));
        Ok(Self { listener, server, wake, lingering, in_a_row: 0 })
    }

    /// Waits for a connection. Returns `None` once a shutdown has begun. The stream does not block.
    pub fn accept(&mut self) -> Option<TcpStream> {
        loop {
            if let Accepted::Connection(stream) = self.next(None, None)? {
                return Some(stream);
            }
        }
    }

    /// Waits for a connection, until `other` is readable, or until `deadline`. Returns `None` once a shutdown has begun.
    ///
    /// While connections wait, it returns [`Accepted::Other`] after each 256 of them.
    pub fn accept_or(&mut self, other: BorrowedFd<'_>, deadline: Option<Instant>) -> Option<Accepted> {
        self.next(Some(other), deadline)
    }

    fn next(&mut self, other: Option<BorrowedFd<'_>>, deadline: Option<Instant>) -> Option<Accepted> {
        while !self.server.shutdown.is_begun() {
            self.lingering.sweep();
            if self.in_a_row < MAX_IN_A_ROW
                && let Some(stream) = self.try_accept()
            {
                self.in_a_row += 1;
                return Some(Accepted::Connection(stream));
            }
            let is_full_batch = std::mem::take(&mut self.in_a_row) == MAX_IN_A_ROW;
            if is_full_batch || self.wait_for_other(other, deadline) {
                return Some(Accepted::Other);
            }
        }
        None
    }

    /// Accepts the next connection, without waiting. Returns `None` if none waits, or if the system has no descriptor or memory
    /// left. The stream does not block.
    pub fn try_accept(&mut self) -> Option<TcpStream> {
        self.listener.notify();
        self.listener.accept(&self.server)
    }

    /// Whether a connection waits.
    pub fn has_waiting(&self) -> bool {
        let listener = self.listener.as_fd().map(|listener| (listener, PollFlags::IN));
        let mut ready = Vec::new();
        wait(listener, Some(Instant::now()), &mut ready).is_ok() && ready == [true]
    }

    /// In a drain, returns the next connection that waits, as [`EventListener::accept_waiting`] does.
    pub fn accept_waiting(&mut self) -> Option<TcpStream> {
        self.listener.accept_waiting(&self.server, || self.lingering.sweep())
    }

    /// Answers 503 on a connection that is over a limit.
    pub fn reject(&mut self, stream: TcpStream) {
        self.lingering.reject(stream, &self.server);
    }

    /// Lets a connection linger.
    pub fn linger(&mut self, stream: TcpStream) {
        self.lingering.add(stream);
    }

    /// Discards what lingering connections have received. Returns the time of the next call; `None` if no connection lingers.
    pub fn sweep(&mut self) -> Option<Instant> {
        self.lingering.sweep();
        self.lingering.deadline()
    }

    /// Waits until no connection lingers, or the shutdown's deadline has passed.
    pub fn finish(&mut self) {
        self.lingering.finish(&self.server);
    }

    /// Waits for one of `sockets`, the shutdown, the next sweep, or `deadline`; if `accepts`, for a connection too. Stores in
    /// `ready` whether each of the sockets is ready. Returns whether [`try_accept`](Self::try_accept) or [`sweep`](Self::sweep) has
    /// something to do. To be called only until the shutdown begins.
    ///
    /// # Errors
    ///
    /// Returns the error of [`wait`].
    pub fn wait<'fd>(
        &'fd self,
        sockets: impl IntoIterator<Item = (BorrowedFd<'fd>, PollFlags)>,
        accepts: bool,
        deadline: Option<Instant>,
        ready: &mut Vec<bool>,
    ) -> io::Result<bool> {
        let backoff = self.listener.paused_until().filter(|_| accepts);
        let listener = self.listener.as_fd().filter(|_| accepts && backoff.is_none());
        let own = [Some(self.wake.as_fd()), listener].into_iter().flatten().map(|fd| (fd, PollFlags::IN));
        let due = [backoff, self.lingering.deadline()].into_iter().flatten().min();
        wait(sockets.into_iter().chain(own), [deadline, due].into_iter().flatten().min(), ready)?;
        let has_connection = listener.is_some() && ready.pop() == Some(true);
        ready.pop(); // the shutdown
        Ok(has_connection || due.is_some_and(|due| Instant::now() >= due))
    }

    /// Like [`wait`](Self::wait), for a connection too. Returns whether `other` is readable or `deadline` has passed.
    fn wait_for_other(&self, other: Option<BorrowedFd<'_>>, deadline: Option<Instant>) -> bool {
        let mut ready = Vec::new();
        if let Err(error) = self.wait(other.map(|fd| (fd, PollFlags::IN)), true, deadline, &mut ready) {
            polyserve_core::throttled!(warn, %error, "cannot wait for connections");
            thread::park_timeout(ACCEPT_BACKOFF);
        }
        let is_other = other.is_some() && ready.first() == Some(&true);
        is_other || deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::time::Duration;

    use polyserve_core::{Echo, ServerConfig};

    use super::*;
    use crate::{Bound, bind};

    const MAX_WAIT: Duration = Duration::from_secs(60);

    /// An accept loop that only rejects ran on through a shutdown, for as long as clients came.
    #[test]
    fn a_loop_that_only_rejects_ends_with_the_shutdown() {
        let Bound { listener, local_addr, server } =
            bind(std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into(), &ServerConfig::default(), Arc::new(Echo))
                .unwrap();
        let server = Arc::new(server);
        let mut incoming = Incoming::new(listener, Arc::clone(&server)).unwrap();
        let clients = thread::spawn(move || {
            let mut answers = 0;
            while let Ok(mut client) = TcpStream::connect(local_addr) {
                client.set_read_timeout(Some(MAX_WAIT)).unwrap();
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
                server.shutdown.begin(Instant::now() + MAX_WAIT);
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
