//! The socket of a connection and the waker of its task, in the table of connections.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, OnceLock};
use std::task::Waker;

use polyserve_core::sync::lock;
use polyserve_serving::{ConnectionHandle, ConnectionTable, TableEntry, net};

use super::async_socket::AsyncSocket;

/// The open connections of one run of a server.
pub(crate) type ConnectionRegistry<S> = ConnectionTable<AsyncConnection<S>>;

/// A connection in the [`ConnectionRegistry`].
pub(crate) type ConnectionEntry<S> = TableEntry<AsyncConnection<S>>;

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

    /// Calls `act`, which must not block, with the socket.
    ///
    /// # Errors
    ///
    /// Returns the error of `act`. Returns [`NotConnected`](io::ErrorKind::NotConnected) if registering the socket has
    /// failed.
    pub(crate) fn with_socket<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        if let Some(socket) = self.registered.get() {
            return act(socket.as_fd());
        }
        match &*lock(&self.unregistered) {
            Some(socket) => act(socket.as_fd()),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Returns the address of the connection's other end.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.with_socket(|socket| Ok(net::peer(socket))).ok().flatten()
    }

    /// Registers the socket with the runtime, unless it is registered. Logs an error, unless another was logged a short time
    /// ago. Must be called inside the runtime.
    pub(crate) fn register(&self) -> io::Result<()> {
        match lock(&self.unregistered).take() {
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
    fn has_input(&self) -> bool {
        self.with_socket(|socket| Ok(net::has_input(socket))).unwrap_or(false)
    }

    fn wake(&self) {
        let waker = lock(&self.waker).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn shut_down(&self) {
        let _ = self.with_socket(|socket| net::shutdown(socket, Shutdown::Both)); // fails if the client is gone
    }

    /// Drops the waker, because a waker keeps the memory of its task.
    fn removed(&self) {
        drop(lock(&self.waker).take());
    }
}
