//! An async listener: a task awaits the next connection. It follows the [rules](AcceptRules) of all accept loops.
//!
//! Cost: one `accept(2)` for each connection.

use std::future::{IntoFuture as _, poll_fn};
use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use polyserve_core::{ShutdownBegun, timer};
use polyserve_serving::{ACCEPT_BACKOFF, AcceptRules, AfterAccept, ConnectionTable, net};

use super::async_connection::AsyncConnection;
use super::async_socket::{AsyncSocket, Direction, Transfer};

/// The maximum number of connections that are accepted in a row before other tasks run.
const MAX_BATCH: usize = 64;

/// A listener of a run. Dropping it counts its accept loop as ended.
pub(crate) struct AsyncListener<S: AsyncSocket> {
    table: Arc<ConnectionTable<AsyncConnection<S>>>,
    socket: Arc<S>,
    shutdown: ShutdownBegun,
    /// The number of connections that were accepted since other tasks ran.
    accepted: usize,
    rules: AcceptRules,
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
    pub(crate) fn new(table: &Arc<ConnectionTable<AsyncConnection<S>>>, listener: TcpListener) -> io::Result<Self> {
        let socket = Arc::new(S::register(OwnedFd::from(listener).into())?);
        table.register_listener(&socket);
        Ok(Self {
            table: Arc::clone(table),
            socket,
            shutdown: table.server.shutdown.begun(),
            accepted: 0,
            rules: AcceptRules::new(table.server.config.backlog),
            _end: EndGuard(Arc::clone(table)),
        })
    }

    /// Returns the next connection, in non-blocking mode. After a shutdown has begun, returns the connections that wait in
    /// the kernel's queue, and then `None`.
    pub(crate) async fn accept(&mut self) -> Option<TcpStream> {
        loop {
            match poll_fn(|cx| self.poll_accept(cx)).await {
                AfterAccept::Serve(stream) => return Some(stream),
                AfterAccept::Again | AfterAccept::Wait => {}
                AfterAccept::BackOff => self.back_off().await,
                AfterAccept::End => return None,
            }
        }
    }

    /// Polls for a connection. In a drain, attempts at once.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<AfterAccept> {
        let Self { table, socket, rules, .. } = self;
        if table.server.shutdown.is_begun() {
            rules.drain(socket.as_ref());
            return Poll::Ready(rules.attempt(&table.server, || net::accept(socket.as_ref())));
        }
        let mut accepted = None;
        let attempt = || {
            accepted = Some(net::accept(socket.as_ref())?);
            Ok(Transfer { count: 1, drained: false })
        };
        if self.accepted >= MAX_BATCH {
            S::yield_turn(cx);
        } else if let Poll::Ready(result) = socket.poll_io(cx, Direction::Read, false, attempt) {
            self.accepted += 1;
            let result = result.and_then(|_| accepted.ok_or_else(|| ErrorKind::WouldBlock.into()));
            return Poll::Ready(rules.attempt(&table.server, || result));
        }
        self.accepted = 0;
        Pin::new(&mut self.shutdown).poll(cx).map(|()| AfterAccept::Again)
    }

    /// Waits for [`ACCEPT_BACKOFF`], or until a shutdown begins.
    async fn back_off(&mut self) {
        let mut pause = timer::after(ACCEPT_BACKOFF).into_future();
        let is_draining = self.table.server.shutdown.is_begun();
        poll_fn(|cx| {
            let begins = !is_draining && Pin::new(&mut self.shutdown).poll(cx).is_ready();
            if Pin::new(&mut pause).poll(cx).is_ready() || begins { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
