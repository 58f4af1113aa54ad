//! The socket of a connection of an event loop, as other threads use it.
//!
//! It has no address and no waker of its own: most connections are idle, and need neither. The session of a connection knows the address.
//!
//! Cost: an allocation for the first answer of a connection that comes later.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll, Waker};

use polyserve_serving::{Connection, ConnectionHandle, WokenList};

/// A socket, and how its loop is woken to serve it.
#[derive(Debug)]
pub(crate) struct LoopSocket {
    pub(crate) stream: TcpStream,
    /// The connections that the loop has to serve.
    pub(crate) woken: WokenList,
    /// The number of the connection in its loop.
    pub(crate) number: usize,
}

impl ConnectionHandle for LoopSocket {
    fn with_fd<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        act(self.stream.as_fd())
    }

    fn wake(&self) {
        self.woken.wake(self.number);
    }
}

/// Wakes the loop for the answers of a connection. Made for the first of them.
#[derive(Debug, Default)]
pub(crate) struct AnswerWaker(Option<Waker>);

impl AnswerWaker {
    /// Polls the answer that `connection` awaits.
    #[inline(never)]
    pub(crate) fn poll_answer(&mut self, socket: &LoopSocket, connection: &mut Connection) -> Poll<()> {
        let waker = self.0.get_or_insert_with(|| socket.woken.waker(socket.number));
        connection.poll_answer(&mut Context::from_waker(waker))
    }
}
