//! The interface between the servers' connections and a runtime: a socket that wakes a task when it is ready.
//!
//! Spawning a task is left to each strategy. Deadlines are in the
//! [`ConnectionRegistry`](super::connection_registry::ConnectionRegistry).

use std::fmt::Debug;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::task::{Context, Poll};

/// A socket that is registered with a runtime's poller.
pub(crate) trait AsyncSocket: AsFd + Debug + Send + Sync + Unpin + Sized + 'static {
    /// Registers a socket, which does not block. Takes connections and listeners: a poller treats both alike. To be
    /// called inside the runtime.
    fn register(socket: TcpStream) -> io::Result<Self>;

    /// Calls `attempt` if the socket may be ready. Repeats while `attempt` would block and the socket is ready again.
    /// Pending: `cx` is woken when the socket becomes ready.
    fn poll_io(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        attempt: impl FnMut() -> io::Result<Transfer>,
    ) -> Poll<io::Result<usize>>;
}

/// The direction in which a socket is to be ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// The result of an attempt to read, write or accept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    /// The number of bytes, or of connections.
    pub(crate) count: usize,
    /// The kernel has no more for now: the next attempt is to wait until the socket becomes ready again.
    pub(crate) drained: bool,
}
