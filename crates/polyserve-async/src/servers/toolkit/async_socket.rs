//! A socket that is registered with a runtime's poller: the interface, and its implementations for tokio and async-io.
//!
//! Both kinds of poller report a socket as ready, and the operation is then tried. They differ in what follows:
//!
//! * tokio's poller is edge-triggered. A socket stays ready until an attempt would block. A read that did not fill its
//!   buffer has emptied the socket, so the next read waits for the next edge. That saves an attempt.
//! * async-io's poller is level-triggered, and a wait ends with one event. Each wait costs a system call, and also reports
//!   bytes that arrived before the wait. After a read that did not fill its buffer, the next read waits first.
//!
//! Spawning a task is left to each strategy. Deadlines are in the
//! [`ConnectionTable`](polyserve_serving::ConnectionTable).

use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::AsFd;
#[cfg(feature = "tokio")]
use std::pin::pin;
use std::task::{Context, Poll, ready};

/// A socket that is registered with a runtime's poller.
pub(crate) trait AsyncSocket: AsFd + Debug + Send + Sync + Unpin + Sized + 'static {
    /// Registers a non-blocking socket: a connection or a listener. A poller treats both alike. Must be called inside the
    /// runtime.
    fn register(socket: TcpStream) -> io::Result<Self>;

    /// Calls `attempt` as soon as the socket may be ready. If `attempt` would block, waits again.
    ///
    /// `was_drained`: the last attempt in this direction left nothing, in the same poll. The socket is then most likely not ready.
    ///
    /// Returns the attempt's count. Returns `Pending` while it waits: the task of `cx` is woken when the socket becomes
    /// ready.
    fn poll_io(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        was_drained: bool,
        attempt: impl FnMut() -> io::Result<Transfer>,
    ) -> Poll<io::Result<usize>>;

    /// Wakes the task of `cx` after the runtime has looked at its sockets, so that connections that are ready have their
    /// turn first. Must be called inside the task's poll. A wake by reference is no substitute: a runtime looks at its
    /// sockets once in 61 (tokio) or 200 (async-executor) tasks.
    fn yield_turn(cx: &mut Context<'_>);
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
    /// The kernel has no more for now. The next attempt waits until the socket becomes ready again.
    pub(crate) drained: bool,
}

/// Whether an attempt is to be repeated after `error`.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(feature = "tokio")]
pub(crate) use tokio::net::TcpStream as TokioSocket;

#[cfg(feature = "tokio")]
impl AsyncSocket for TokioSocket {
    /// tokio panics if the runtime has no I/O, and offers no way to check that before.
    fn register(socket: TcpStream) -> io::Result<Self> {
        polyserve_core::panics::isolate(|| Self::from_std(socket))
            .unwrap_or_else(|text| Err(io::Error::other(format!("the runtime cannot watch a socket: {text}"))))
    }

    fn poll_io(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        was_drained: bool,
        mut attempt: impl FnMut() -> io::Result<Transfer>,
    ) -> Poll<io::Result<usize>> {
        let interest = match direction {
            Direction::Read => tokio::io::Interest::READABLE,
            Direction::Write => tokio::io::Interest::WRITABLE,
        };
        let poll_ready = |cx: &mut Context<'_>| match direction {
            Direction::Read => self.poll_read_ready(cx),
            Direction::Write => self.poll_write_ready(cx),
        };
        if was_drained {
            ready!(poll_ready(cx))?;
        }
        loop {
            // Makes the attempt only if the socket was reported as ready. That costs less than the question whether it is, which also
            // stores the waker. So the question is left for the wait.
            let mut transferred = None;
            let tried = self.try_io(interest, || {
                let Transfer { count, drained } = attempt()?;
                transferred = Some(count);
                // On this error tokio forgets that the socket is ready, unless it became ready again since the attempt
                // began.
                if drained { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            match (transferred, tried) {
                (Some(count), _) => return Poll::Ready(Ok(count)),
                (None, Err(error)) if !is_transient(&error) => return Poll::Ready(Err(error)),
                (None, _) => {}
            }
            ready!(poll_ready(cx))?;
        }
    }

    /// tokio defers the wake until its worker has polled the sockets.
    fn yield_turn(cx: &mut Context<'_>) {
        let _ = pin!(tokio::task::yield_now()).poll(cx);
    }
}

#[cfg(feature = "smol")]
pub(crate) use smol::{SmolSocket, block_on};

#[cfg(feature = "smol")]
mod smol {
    use std::cell::RefCell;
    use std::future::poll_fn;
    use std::os::fd::BorrowedFd;
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Waker;

    use async_io::Async;

    use super::*;

    /// A socket that is registered with async-io.
    #[derive(Debug)]
    pub(crate) struct SmolSocket {
        socket: Async<TcpStream>,
        /// For reading and for writing: the kernel had no more at the last attempt. The next attempt then waits until
        /// async-io reports the socket as ready. Both are true at first: a socket is registered after an attempt failed
        /// because it would block.
        drained: [AtomicBool; 2],
    }

    impl AsFd for SmolSocket {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.socket.as_fd()
        }
    }

    impl AsyncSocket for SmolSocket {
        fn register(socket: TcpStream) -> io::Result<Self> {
            Ok(Self { socket: Async::new_nonblocking(socket)?, drained: [const { AtomicBool::new(true) }; 2] })
        }

        fn poll_io(
            &self,
            cx: &mut Context<'_>,
            direction: Direction,
            _: bool, // noted for both directions, from one poll to the next
            mut attempt: impl FnMut() -> io::Result<Transfer>,
        ) -> Poll<io::Result<usize>> {
            // Relaxed is enough: only the socket's own task uses this flag.
            let is_drained = &self.drained[direction as usize];
            loop {
                if is_drained.load(Ordering::Relaxed) {
                    ready!(match direction {
                        Direction::Read => self.socket.poll_readable(cx),
                        Direction::Write => self.socket.poll_writable(cx),
                    })?;
                    is_drained.store(false, Ordering::Relaxed);
                }
                match attempt() {
                    Ok(Transfer { count, drained }) => {
                        is_drained.store(drained, Ordering::Relaxed);
                        return Poll::Ready(Ok(count));
                    }
                    Err(error) if !is_transient(&error) => return Poll::Ready(Err(error)),
                    Err(error) => is_drained.store(error.kind() == ErrorKind::WouldBlock, Ordering::Relaxed),
                }
            }
        }

        /// On a thread of [`block_on`], the wake is deferred until the thread has polled the sockets. On another thread it is
        /// not.
        fn yield_turn(cx: &mut Context<'_>) {
            let is_deferred = DEFERRED
                .with_borrow_mut(|deferred| deferred.as_mut().map(|wakers| wakers.push(cx.waker().clone())).is_some());
            if !is_deferred {
                cx.waker().wake_by_ref();
            }
        }
    }

    thread_local! {
        /// The tasks that have yielded since this thread has polled the sockets. `None` outside of [`block_on`].
        static DEFERRED: RefCell<Option<Vec<Waker>>> = const { RefCell::new(None) };
    }

    /// Runs `run`, which runs an executor, on this thread. Tasks of this thread that yield are woken after the thread has
    /// polled the sockets.
    ///
    /// `async_io::block_on` polls the sockets after each poll of its future that ended with a wake. While tasks are deferred,
    /// the executor soon has no other task, and its poll ends.
    pub(crate) fn block_on<T>(run: impl Future<Output = T>) -> T {
        DEFERRED.set(Some(Vec::new()));
        let mut run = pin!(run);
        let output = async_io::block_on(poll_fn(|cx| {
            wake_deferred();
            let polled = run.as_mut().poll(cx);
            if DEFERRED.with_borrow(|deferred| deferred.as_ref().is_some_and(|wakers| !wakers.is_empty())) {
                cx.waker().wake_by_ref();
            }
            polled
        }));
        wake_deferred();
        DEFERRED.set(None);
        output
    }

    fn wake_deferred() {
        let wakers = DEFERRED.with_borrow_mut(|deferred| deferred.as_mut().map(std::mem::take)).unwrap_or_default();
        wakers.into_iter().for_each(Waker::wake);
    }
}
