//! Parts of accept loops: the pause after an error, and the connections that wait when a drain begins.

use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use polyserve_core::ServerConfig;

use super::ServerState;
use crate::net;

/// The pause of an accept loop if the system has no descriptor or memory left.
pub const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// Accepts the connections that wait when a drain begins, passes each to `serve`, and closes the listener.
///
/// If the process has no descriptor left, it pauses and retries until the shutdown's deadline: connections that close during
/// the drain free descriptors. So other threads must close them, and idle connections should be closed before this call.
#[allow(clippy::needless_pass_by_value, reason = "it is closed here")]
pub fn drain_backlog(listener: TcpListener, server: &ServerState, mut serve: impl FnMut(TcpStream)) {
    let mut backlog = Backlog::new(&server.config);
    loop {
        match backlog.accept(&listener) {
            BacklogNext::Connection(stream) => serve(stream),
            BacklogNext::Exhausted if !server.is_over() => thread::park_timeout(ACCEPT_BACKOFF),
            BacklogNext::Exhausted | BacklogNext::None => return,
        }
    }
}

/// The backlog of a listener in a drain.
///
/// Clients that connect again and again cannot prolong the drain: at most `backlog` connections are accepted.
#[derive(Debug)]
pub(super) struct Backlog {
    remaining: u32,
}

/// The next connection of a [`Backlog`].
#[derive(Debug)]
pub(super) enum BacklogNext {
    /// A connection. It blocks, unless it inherits the non-blocking mode of the listener, as on some systems.
    Connection(TcpStream),
    /// A connection that cannot be accepted for now, because the process has no descriptor or memory left. To be retried
    /// after [`ACCEPT_BACKOFF`], unless the drain's deadline has passed.
    Exhausted,
    /// Nothing: the listener is to be closed.
    None,
}

impl Backlog {
    /// At most `config.backlog` connections.
    pub(super) fn new(config: &ServerConfig) -> Self {
        Self { remaining: config.backlog }
    }

    /// Accepts the next connection from `listener`, which does not block.
    fn accept(&mut self, listener: &TcpListener) -> BacklogNext {
        self.next(|| listener.accept().map(|(stream, _)| stream))
    }

    pub(super) fn next(&mut self, mut accept: impl FnMut() -> io::Result<TcpStream>) -> BacklogNext {
        while self.remaining > 0 {
            match accept() {
                Ok(stream) => {
                    self.remaining -= 1;
                    return BacklogNext::Connection(stream);
                }
                Err(error) if net::is_connection_error(&error) => self.remaining -= 1,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return BacklogNext::Exhausted,
            }
        }
        BacklogNext::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: a drain that began while the process had no descriptor left closed the listener, which reset
    /// the waiting connections.
    #[test]
    fn a_drain_without_descriptors_retries() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let out_of_descriptors = || Err(io::Error::from_raw_os_error(24));
        let mut backlog = Backlog::new(&ServerConfig::default().backlog(2));
        assert!(matches!(backlog.next(out_of_descriptors), BacklogNext::Exhausted));
        assert!(matches!(backlog.next(out_of_descriptors), BacklogNext::Exhausted));
        let aborted = || Err(ErrorKind::ConnectionAborted.into());
        assert!(matches!(backlog.next(aborted), BacklogNext::None), "the backlog's length bounds a drain");
        let mut backlog = Backlog::new(&ServerConfig::default());
        assert!(matches!(backlog.next(out_of_descriptors), BacklogNext::Exhausted));
        assert!(matches!(backlog.accept(&listener), BacklogNext::Connection(_)));
    }
}
