//! The socket of a connection and the waker of its task, in the table of connections.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;

use polyserve_core::sync::lock;
use polyserve_core::{Drain, Running};
use polyserve_serving::{ConnectionHandle, ConnectionTable};

use super::async_socket::AsyncSocket;

/// Starts the main thread of a run, called `name`. It supervises the connections until they are drained, and then calls `end`,
/// which ends the threads of the run.
pub(crate) fn start_main<S: AsyncSocket>(
    name: &str,
    local_addr: SocketAddr,
    table: Arc<ConnectionTable<AsyncConnection<S>>>,
    end: impl FnOnce(&Drain) + Send + 'static,
) -> io::Result<Running> {
    let (grace, shutdown) = (table.server.config.drain_grace, table.server.shutdown.clone());
    Running::start(name, local_addr, grace, shutdown, table.counters(), move || {
        let drain = table.supervise();
        end(&drain);
        drain
    })
}

/// A socket, and the task that serves it.
#[derive(Debug)]
pub(crate) struct AsyncConnection<S> {
    /// The socket until it is registered with the runtime.
    unregistered: Mutex<Option<TcpStream>>,
    registered: OnceLock<S>,
    waker: Mutex<Option<Waker>>,
}

impl<S: AsyncSocket> AsyncConnection<S> {
    /// A connection that was accepted. Its socket must be in non-blocking mode.
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self { unregistered: Mutex::new(Some(socket)), registered: OnceLock::new(), waker: Mutex::new(None) }
    }

    /// Registers the socket with the runtime, unless it is registered. Logs an error, unless another was logged a short time
    /// ago. Must be called inside the runtime.
    pub(crate) fn register(&self) -> io::Result<()> {
        let mut unregistered = lock(&self.unregistered);
        match unregistered.take() {
            Some(socket) => drop(self.registered.set(S::register(socket).inspect_err(|error| {
                polyserve_core::throttled!(warn, %error, "a connection cannot be registered with the runtime");
            })?)),
            None if self.registered.get().is_some() => {}
            None => return Err(io::ErrorKind::NotConnected.into()),
        }
        Ok(())
    }

    /// Returns the socket if it is registered with the runtime.
    pub(crate) fn socket(&self) -> Option<&S> {
        self.registered.get()
    }

    /// Sets the waker of the connection's task. To be called before the task checks for a shutdown. So the task either sees
    /// the shutdown or is woken for it.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        *lock(&self.waker) = Some(waker.clone());
    }
}

impl<S: AsyncSocket> ConnectionHandle for AsyncConnection<S> {
    /// Returns [`NotConnected`](io::ErrorKind::NotConnected) if registering the socket has failed.
    fn with_fd<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        if let Some(socket) = self.registered.get() {
            return act(socket.as_fd());
        }
        let unregistered = lock(&self.unregistered); // waits for a registration in progress
        match (&*unregistered, self.registered.get()) {
            (Some(socket), _) => act(socket.as_fd()),
            (None, Some(socket)) => act(socket.as_fd()),
            (None, None) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn wake(&self) {
        let waker = lock(&self.waker).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Drops the waker, because a waker keeps the memory of its task.
    fn removed(&self) {
        drop(lock(&self.waker).take());
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Poll};

    use super::super::async_socket::{Direction, Transfer};
    use super::*;

    static REGISTERS: Barrier = Barrier::new(2);
    static IS_ASKED: AtomicBool = AtomicBool::new(false);

    /// A socket of which the registration goes on until another thread has asked for the connection's socket.
    #[derive(Debug)]
    struct SlowSocket(TcpStream);

    impl AsFd for SlowSocket {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl AsyncSocket for SlowSocket {
        fn register(socket: TcpStream) -> io::Result<Self> {
            REGISTERS.wait();
            while !IS_ASKED.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            (0..1000).for_each(|_| std::thread::yield_now()); // without a lock, the other thread has its answer by now
            Ok(Self(socket))
        }

        fn poll_io(
            &self,
            _: &mut Context<'_>,
            _: Direction,
            _: bool,
            mut attempt: impl FnMut() -> io::Result<Transfer>,
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(attempt().map(|transfer| transfer.count))
        }

        fn yield_turn(cx: &mut Context<'_>) {
            cx.waker().wake_by_ref();
        }
    }

    /// Regression test: while the task of a connection registered its socket, the socket was in neither place. A drain at its
    /// deadline then did not shut it down.
    #[test]
    fn a_socket_is_there_while_it_is_registered() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connection =
            AsyncConnection::<SlowSocket>::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        std::thread::scope(|scope| {
            let registered = scope.spawn(|| connection.register());
            REGISTERS.wait();
            IS_ASKED.store(true, Ordering::SeqCst);
            connection.with_fd(|_| Ok(())).unwrap();
            registered.join().unwrap().unwrap();
        });
    }
}
