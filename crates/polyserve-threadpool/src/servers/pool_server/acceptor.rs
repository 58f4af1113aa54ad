//! The listener, and whether another attempt to accept can succeed.
//!
//! The listener is registered edge-triggered: an event reports that a connection has come since the last attempt that found
//! none. The acceptor stores that in `pending` until an attempt finds none.
//!
//! Cost: one system call for each connection, and one for each batch.

use std::io;
use std::os::fd::AsRawFd as _;
use std::time::Instant;

use mio::net::{TcpListener, TcpStream};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use polyserve_serving::ACCEPT_BACKOFF;
use polyserve_serving::net;

/// The token under which the listener is registered.
pub(super) const LISTENER: Token = Token(usize::MAX - 1);

/// The listener. Only the thread that polls has it.
#[derive(Debug)]
pub(super) struct Acceptor {
    /// None once the drain has closed it.
    listener: Option<TcpListener>,
    /// Connections may wait in the backlog.
    pending: bool,
    /// No attempt is made before this time, because the system had no descriptor or memory left.
    paused_until: Option<Instant>,
}

impl Acceptor {
    /// Registers `listener` as [`LISTENER`].
    ///
    /// # Errors
    ///
    /// Returns the error of `epoll_ctl(2)`.
    pub(super) fn new(listener: TcpListener, registry: &Registry) -> io::Result<Self> {
        registry.register(&mut SourceFd(&listener.as_raw_fd()), LISTENER, Interest::READABLE)?;
        Ok(Self { listener: Some(listener), pending: false, paused_until: None })
    }

    /// Notes that connections may wait.
    pub(super) fn notify(&mut self) {
        self.pending = true;
    }

    /// Returns the time of the next attempt: `now` if a connection may wait, later after an error, `None` if none waits.
    pub(super) fn next_attempt(&self, now: Instant) -> Option<Instant> {
        (self.pending && self.listener.is_some()).then(|| self.paused_until.unwrap_or(now))
    }

    /// Accepts a connection. Does not wait. Returns `None` if there is none, or if the system has no descriptor left.
    pub(super) fn accept(&mut self) -> Option<TcpStream> {
        if self.paused_until.is_some_and(|until| Instant::now() < until) {
            return None;
        }
        self.paused_until = None;
        while self.pending {
            match self.listener.as_ref()?.accept() {
                // On other systems a connection does not inherit the option from the listener.
                Ok((stream, _)) if cfg!(not(target_os = "linux")) && stream.set_nodelay(true).is_err() => {}
                Ok((stream, _)) => return Some(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.pending = false,
                Err(error) if net::is_connection_error(&error) => {}
                Err(error) => {
                    polyserve_core::throttled!(warn, %error, "cannot accept");
                    self.paused_until = Some(Instant::now() + ACCEPT_BACKOFF);
                    return None;
                }
            }
        }
        None
    }

    /// Whether the listener is open and may have more connections.
    pub(super) fn is_pending(&self) -> bool {
        self.pending && self.listener.is_some()
    }

    /// Whether the listener is open.
    pub(super) fn is_open(&self) -> bool {
        self.listener.is_some()
    }

    /// Closes the listener.
    pub(super) fn close(&mut self, registry: &Registry) {
        if let Some(listener) = self.listener.take() {
            let _ = registry.deregister(&mut SourceFd(&listener.as_raw_fd()));
        }
    }
}
