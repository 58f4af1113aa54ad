//! One connection as a task, from accept to close, on our codec and any runtime.
//!
//! [`ConnectionTable::serve`](polyserve_serving::ConnectionTable::serve) runs a turn, in which [`Connection`] decides what is done
//! next and how long it waits. This file reads, writes and waits on a socket of a runtime.
//!
//! The first read comes before the socket is registered with the runtime: usually the first request has arrived when its
//! connection is accepted. So a connection that is answered and closed at once is never registered.
//!
//! The buffers belong to the thread, so an idle connection has none.
//!
//! Invariant: a task that waits is woken by its socket, its answer, its deadline or a shutdown. After the process was stopped,
//! the runtime may not have reported the bytes in the socket. So at a deadline the socket is read without asking the runtime.
//!
//! Fairness: a poll is a turn. A task that has more to do yields, so that the runtime looks at its sockets before the task goes
//! on.
//!
//! Cost: a read and a write for each batch of requests; a clock read for each wait.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use polyserve_serving::net;
use polyserve_serving::{
    Connection, ConnectionHandle as _, ConnectionTable, TableEntry, ThreadBuffers, TurnEnd, TurnSocket, WriteKind,
    with_buffers,
};

use super::toolkit::{AsyncConnection, AsyncSocket, Direction, TaskWaker, Transfer};

/// A connection that was accepted. Polling it serves the connection.
pub(crate) struct ConnectionTask<S: AsyncSocket> {
    table: Arc<ConnectionTable<AsyncConnection<S>>>,
    entry: Arc<TableEntry<AsyncConnection<S>>>,
    connection: Connection,
    waker: TaskWaker,
    /// When the connection was accepted, until its first turn.
    accepted: Option<Instant>,
}

impl<S: AsyncSocket> ConnectionTask<S> {
    /// The task of a connection that is in the table.
    pub(crate) fn new(
        table: Arc<ConnectionTable<AsyncConnection<S>>>,
        entry: Arc<TableEntry<AsyncConnection<S>>>,
        connection: Connection,
    ) -> Self {
        Self { table, entry, connection, waker: TaskWaker::default(), accepted: None }
    }

    /// Adds an accepted connection to the table, and returns its task: see [`ConnectionTable::admit_or_reject`].
    pub(crate) fn admit(
        table: &Arc<ConnectionTable<AsyncConnection<S>>>,
        stream: TcpStream,
        shard: usize,
    ) -> Option<Self> {
        let (entry, connection) = table.admit_or_reject(AsyncConnection::new(stream), shard)?;
        let mut task = Self::new(Arc::clone(table), entry, connection);
        task.accepted = table.server.http.admission.as_ref().map(|_| Instant::now());
        Some(task)
    }

    /// Serves a turn.
    fn run(&mut self, cx: &mut Context<'_>, buffers: &mut ThreadBuffers) -> Poll<()> {
        let Self { table, entry, connection, waker, accepted } = self;
        let is_new = waker.renew(cx.waker(), table.server.http.admission.is_some());
        let ready_since = accepted.take().or_else(|| waker.woken());
        let waker = waker.waker().unwrap_or(cx.waker());
        if is_new {
            entry.set_waker(waker);
        }
        let cx = &mut Context::from_waker(waker);
        let mut socket = TaskSocket { connection: entry.handle(), was_drained: false };
        match table.serve_since(ready_since, entry, connection, &mut socket, cx, buffers) {
            TurnEnd::Wait => Poll::Pending,
            TurnEnd::Yield => {
                S::yield_turn(cx);
                Poll::Pending
            }
            TurnEnd::Close => Poll::Ready(()),
        }
    }
}

/// The socket of a task in a turn.
struct TaskSocket<'a, S> {
    connection: &'a AsyncConnection<S>,
    /// The last read has emptied the socket. So the next one asks the runtime first.
    was_drained: bool,
}

impl<S: AsyncSocket> TurnSocket for TaskSocket<'_, S> {
    #[inline]
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8], past_report: bool) -> Poll<io::Result<usize>> {
        self.connection.read(cx, buffer, past_report, &mut self.was_drained)
    }

    #[inline]
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8], how: WriteKind) -> Poll<io::Result<usize>> {
        self.connection.write(cx, bytes, how)
    }
}

impl<S: AsyncSocket> AsyncConnection<S> {
    /// Reads once. If nothing is there, the socket is registered with the runtime. `drained`: the last read has emptied the socket.
    #[inline]
    pub(super) fn read(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        past_report: bool,
        drained: &mut bool,
    ) -> Poll<io::Result<usize>> {
        let was_drained = *drained;
        let mut attempt = || {
            let count = self.with_fd(|socket| net::receive(socket, buffer))?;
            *drained = count < buffer.len() && count > 0;
            Ok(Transfer { count, drained: *drained })
        };
        if past_report || self.socket().is_none() {
            let tried = try_once(&mut attempt);
            if past_report || tried.is_ready() {
                return tried;
            }
            self.register()?;
        }
        match self.socket() {
            Some(socket) => socket.poll_io(cx, Direction::Read, was_drained, attempt),
            None => Poll::Ready(Err(ErrorKind::NotConnected.into())),
        }
    }

    /// Writes once. If the kernel takes nothing, the socket is registered with the runtime. A socket usually takes new output, so
    /// the runtime is not asked.
    #[inline]
    pub(super) fn write(&self, cx: &mut Context<'_>, bytes: &[u8], how: WriteKind) -> Poll<io::Result<usize>> {
        let attempt = || {
            let count = self.with_fd(|socket| net::send(socket, bytes, how.last))?;
            Ok(Transfer { count, drained: count < bytes.len() })
        };
        if how.is_new || how.past_report {
            let tried = try_once(attempt);
            if how.past_report || tried.is_ready() {
                return tried;
            }
        }
        self.register()?;
        match self.socket() {
            Some(socket) => socket.poll_io(cx, Direction::Write, false, attempt),
            None => Poll::Ready(Err(ErrorKind::NotConnected.into())),
        }
    }
}

/// Makes one attempt, whether or not the runtime has reported the socket as ready. Returns `Pending`, and sets no waker, if
/// the attempt would block.
fn try_once(attempt: impl FnOnce() -> io::Result<Transfer>) -> Poll<io::Result<usize>> {
    match attempt() {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
        result => Poll::Ready(result.map(|transfer| transfer.count)),
    }
}

impl<S: AsyncSocket> Future for ConnectionTask<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        with_buffers(|buffers| self.get_mut().run(cx, buffers))
    }
}

impl<S: AsyncSocket> Drop for ConnectionTask<S> {
    fn drop(&mut self) {
        self.table.close(&self.entry, &mut self.connection); // a runtime that ends drops its tasks
    }
}

#[cfg(all(test, feature = "tokio"))]
mod tests;
