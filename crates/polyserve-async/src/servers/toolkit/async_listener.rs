//! An async listener: a task awaits the next connection.
//!
//! Invariant: it neither fails nor spins, whatever `accept(2)` returns.
//!
//! Cost: one `accept(2)` for each connection.

use std::future::{IntoFuture as _, poll_fn};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use polyserve_core::{ShutdownBegun, timer};
use polyserve_serving::{ACCEPT_BACKOFF, ConnectionTable, net};

use super::async_connection::AsyncConnection;
use super::async_socket::{AsyncSocket, Direction, Transfer};

/// The maximum number of connections that are accepted in a row before other tasks run.
const MAX_BATCH: usize = 64;

/// A listener of a run. Dropping it counts its accept loop as ended.
pub(crate) struct AsyncListener<S: AsyncSocket> {
    registry: Arc<ConnectionTable<AsyncConnection<S>>>,
    socket: Arc<S>,
    shutdown: ShutdownBegun,
    /// The number of connections that were accepted since other tasks ran.
    accepted: usize,
    /// The number of connections that a drain may still accept.
    backlog: u32,
    /// The last field, so that it is dropped after `socket` is closed.
    _end: EndGuard<S>,
}

/// Reports the end of an accept loop when it is dropped.
struct EndGuard<S: AsyncSocket>(Arc<ConnectionTable<AsyncConnection<S>>>);

impl<S: AsyncSocket> Drop for EndGuard<S> {
    fn drop(&mut self) {
        self.0.accept_loop_ended();
    }
}

impl<S: AsyncSocket> AsyncListener<S> {
    /// Registers a non-blocking listener. Must be called inside the runtime.
    pub(crate) fn new(registry: &Arc<ConnectionTable<AsyncConnection<S>>>, listener: TcpListener) -> io::Result<Self> {
        let socket = Arc::new(S::register(OwnedFd::from(listener).into())?);
        registry.register_listener(&socket);
        Ok(Self {
            registry: Arc::clone(registry),
            socket,
            shutdown: registry.server.shutdown.begun(),
            accepted: 0,
            backlog: registry.server.config.backlog,
            _end: EndGuard(Arc::clone(registry)),
        })
    }

    /// Returns the next connection, in non-blocking mode. After a shutdown has begun, returns the connections that wait in
    /// the kernel's queue, and then `None`.
    pub(crate) async fn accept(&mut self) -> Option<TcpStream> {
        while !self.registry.server.shutdown.is_begun() {
            match poll_fn(|cx| self.poll_accept(cx)).await {
                Some(Ok(stream)) if net::prepare(&stream).is_ok() => return Some(stream),
                Some(Ok(_)) => {} // The client is gone already.
                Some(Err(error)) => {
                    polyserve_core::throttled!(warn, %error, "cannot accept");
                    self.back_off().await;
                }
                None => break,
            }
        }
        self.accept_backlog().await
    }

    /// Polls for a connection. Returns the connection or an error of the system, or `None` once a shutdown has begun.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<TcpStream>>> {
        loop {
            if self.accepted >= MAX_BATCH {
                self.accepted = 0;
                S::yield_turn(cx);
                return Pin::new(&mut self.shutdown).poll(cx).map(|()| None);
            }
            let mut accepted = None;
            let attempt = || {
                accepted = Some(net::accept(self.socket.as_ref())?);
                Ok(Transfer { count: 1, drained: false })
            };
            match self.socket.poll_io(cx, Direction::Read, attempt) {
                Poll::Ready(result) => {
                    self.accepted += 1;
                    match (accepted, result) {
                        (Some(stream), _) => return Poll::Ready(Some(Ok(stream))),
                        (None, Err(error)) if !net::is_connection_error(&error) => {
                            return Poll::Ready(Some(Err(error)));
                        }
                        (None, _) => {}
                    }
                }
                Poll::Pending => {
                    self.accepted = 0;
                    return Pin::new(&mut self.shutdown).poll(cx).map(|()| None);
                }
            }
        }
    }

    /// Waits for [`ACCEPT_BACKOFF`], or until a shutdown begins.
    async fn back_off(&mut self) {
        let mut pause = timer::after(ACCEPT_BACKOFF).into_future();
        poll_fn(|cx| {
            let is_over = Pin::new(&mut pause).poll(cx).is_ready() || Pin::new(&mut self.shutdown).poll(cx).is_ready();
            if is_over { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Accepts the connections that wait when a drain begins. Clients that connect again and again cannot prolong the
    /// drain: at most `backlog` connections are accepted.
    ///
    /// If the process has no descriptor left, it retries until the shutdown's deadline. Connections that end in the drain
    /// free their descriptors.
    async fn accept_backlog(&mut self) -> Option<TcpStream> {
        while self.backlog > 0 {
            match net::accept(self.socket.as_ref()) {
                Ok(stream) => {
                    self.backlog -= 1;
                    if net::prepare(&stream).is_ok() {
                        return Some(stream);
                    }
                }
                Err(error) if net::is_connection_error(&error) => self.backlog -= 1,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock || self.registry.server.is_over() => break,
                Err(_) => timer::after(ACCEPT_BACKOFF).await,
            }
        }
        None
    }
}
