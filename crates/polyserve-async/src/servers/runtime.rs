//! What a strategy needs of its runtime: to run a task, and to be woken when a socket is ready. Waiting for a time is
//! the roll's.

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::task::{Context, Poll};

/// A runtime, as the connections of a server use it.
pub(crate) trait Runtime: Clone + Send + Sync + Unpin + 'static {
    /// A socket that the runtime watches.
    type Watched: Watched;

    /// Has the runtime watch a socket: a connection, or a listener, for to a poller a socket is a socket. To be called
    /// on the runtime.
    fn watch(socket: TcpStream) -> io::Result<Self::Watched>;

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
pub(crate) struct Moved {
    pub(crate) count: usize,
    /// There is no more at present: the next attempt is to wait for the socket to become ready anew.
    pub(crate) drained: bool,
}

/// A socket that a runtime watches.
pub(crate) trait Watched: AsFd + Debug + Send + Sync + 'static {
    /// Makes `attempt` once the socket may be ready, again and again while it would block.
    fn poll_io(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        attempt: impl FnMut() -> io::Result<Moved>,
    ) -> Poll<io::Result<usize>>;
}
