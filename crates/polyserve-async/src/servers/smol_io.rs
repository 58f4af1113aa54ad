//! async-io and async-executor, as a [`ServerRuntime`]. A wait for a socket is one shot and level-triggered: it costs a call to
//! the kernel, and it sees what is there already. So a socket that was drained is waited for without another attempt.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use async_executor::Executor;
use async_io::Async;

use super::server_runtime::{AsyncSocket, Direction, ServerRuntime, Transfer};

/// An executor, as its own tasks know it: one that nobody runs any more is to end, and its tasks with it. The sockets
/// are with async-io, of which a process has one.
#[derive(Clone, Debug)]
pub(crate) struct SmolIo(pub(crate) Weak<Executor<'static>>);

impl ServerRuntime for SmolIo {
    type Socket = SmolSocket;

    fn register(socket: TcpStream) -> io::Result<SmolSocket> {
        Ok(SmolSocket { socket: Async::new_nonblocking(socket)?, waits: [const { AtomicBool::new(true) }; 2] })
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(executor) = self.0.upgrade() {
            executor.spawn(task).detach();
        }
    }
}

/// A socket that async-io watches.
#[derive(Debug)]
pub(crate) struct SmolSocket {
    socket: Async<TcpStream>,
    /// For each direction: there was nothing more when somebody looked last, so that the next attempt waits first. As a
    /// socket is watched only once an attempt has failed, it begins so.
    waits: [AtomicBool; 2],
}

impl AsFd for SmolSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsyncSocket for SmolSocket {
    fn poll_io(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        mut attempt: impl FnMut() -> io::Result<Transfer>,
    ) -> Poll<io::Result<usize>> {
        // Only the socket's own task comes here: nobody else changes what it has read.
        let waits = &self.waits[direction as usize];
        loop {
            if waits.load(Ordering::Relaxed) {
                ready!(match direction {
                    Direction::Read => self.socket.poll_readable(cx),
                    Direction::Write => self.socket.poll_writable(cx),
                })?;
                waits.store(false, Ordering::Relaxed);
            }
            match attempt() {
                Ok(Transfer { count, drained }) => {
                    waits.store(drained, Ordering::Relaxed);
                    return Poll::Ready(Ok(count));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => waits.store(true, Ordering::Relaxed),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}
