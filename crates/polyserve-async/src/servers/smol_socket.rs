//! async-io's sockets as [`AsyncSocket`]s.
//!
//! async-io waits one-shot and level-triggered: each wait costs a system call, and sees what has arrived already. So a
//! socket that was drained waits without another attempt.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use async_io::Async;

use super::async_socket::{AsyncSocket, Direction, Transfer};

/// A socket that is registered with async-io.
#[derive(Debug)]
pub(crate) struct SmolSocket {
    socket: Async<TcpStream>,
    /// For each direction: the last attempt drained the socket, so the next one waits first. Initially true, because a
    /// socket is registered only after an attempt that would block.
    must_wait: [AtomicBool; 2],
}

impl AsFd for SmolSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsyncSocket for SmolSocket {
    fn register(socket: TcpStream) -> io::Result<Self> {
        Ok(Self { socket: Async::new_nonblocking(socket)?, must_wait: [const { AtomicBool::new(true) }; 2] })
    }

    fn poll_io(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        mut attempt: impl FnMut() -> io::Result<Transfer>,
    ) -> Poll<io::Result<usize>> {
        // Relaxed is enough: only the socket's own task uses this flag.
        let must_wait = &self.must_wait[direction as usize];
        loop {
            if must_wait.load(Ordering::Relaxed) {
                ready!(match direction {
                    Direction::Read => self.socket.poll_readable(cx),
                    Direction::Write => self.socket.poll_writable(cx),
                })?;
                must_wait.store(false, Ordering::Relaxed);
            }
            match attempt() {
                Ok(Transfer { count, drained }) => {
                    must_wait.store(drained, Ordering::Relaxed);
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => must_wait.store(true, Ordering::Relaxed),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}
