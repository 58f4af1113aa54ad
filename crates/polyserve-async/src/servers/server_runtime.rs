//! What a strategy needs of its runtime: to run a task, and to be woken when a socket is ready. DeadlineKind for a time is
//! the roll's.

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::task::{Context, Poll};

/// A runtime, as the connections of a server use it.
pub(crate) trait ServerRuntime: Clone + Send + Sync + Unpin + 'static {
    /// A socket that the runtime watches.
    type Socket: AsyncSocket;

    /// Has the runtime watch a socket: a connection, or a listener, for to a poller a socket is a socket. To be called
    /// on the runtime.
    fn register(socket: TcpStream) -> io::Result<Self::Socket>;

    /// Runs `task` to its end.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static);
}

/// For what a socket is to be ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// What an attempt to read, write or accept came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) count: usize,
    /// There is no more at present: the next attempt is to wait for the socket to become ready anew.
    pub(crate) drained: bool,
}

/// A socket that a runtime watches.
pub(crate) trait AsyncSocket: AsFd + Debug + Send + Sync + 'static {
    /// Makes `attempt` once the socket may be ready, again and again while it would block.
    fn poll_io(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        attempt: impl FnMut() -> io::Result<Transfer>,
    ) -> Poll<io::Result<usize>>;
}
