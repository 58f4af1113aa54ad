//! A turn of a connection of a multiplexed server: the driver of [`Connection`] that such servers share.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::{ConnectionHandle, ConnectionTable, TableEntry};
use crate::http1::Session;
use crate::{Connection, Step, ThreadBuffers, Turn, discard, net, reject};

/// A socket that never blocks its thread.
pub trait TurnSocket {
    /// Reads once. Returns `Pending` if nothing is there; then the connection is to be served again as soon as bytes come.
    ///
    /// `past_report`: reads even if the socket was not reported as ready.
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8], past_report: bool) -> Poll<io::Result<usize>>;

    /// Writes once. Returns `Pending` if the kernel takes nothing; then the connection is to be served again as soon as it does.
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8], how: WriteKind) -> Poll<io::Result<usize>>;

    /// Closes the writing side.
    ///
    /// # Errors
    ///
    /// Returns an error if the client is gone.
    fn close_writing(&mut self) -> io::Result<()>;

    /// Discards what has arrived, before the close of a connection that cannot linger.
    fn discard(&mut self, buffer: &mut [u8]);
}

/// How the bytes of [`TurnSocket::poll_write`] are written.
#[derive(Clone, Copy, Debug)]
pub struct WriteKind {
    /// The connection is closed next. See [`net::send_flags`].
    pub last: bool,
    /// No part of the bytes was tried to be written before, so the socket usually takes them.
    pub is_new: bool,
    /// Write even if the socket was not reported as ready.
    pub past_report: bool,
}

/// The end of a [turn](ConnectionTable::serve).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum TurnEnd {
    /// The connection waits: for its socket, its answer, or its deadline, for which the table wakes it. The last
    /// [`poll_read`](TurnSocket::poll_read), [`poll_write`](TurnSocket::poll_write) or poll of the answer in the turn has returned
    /// `Pending`. A loop that arms its sockets arms what was pending; in a wait for an answer, nothing.
    Wait,
    /// The connection has more to do. Look at the sockets, serve other connections, and then serve it again.
    Yield,
    /// The connection has ended. Call [`ConnectionTable::close`], which also counts a request that is cut, and drop the socket.
    Close,
}

impl<H: ConnectionHandle> ConnectionTable<H> {
    /// Serves a turn of a connection on a multiplexed server: reads, calls the service, writes, and notes what the connection
    /// waits for. `cx` is woken for a deferred answer.
    #[inline]
    pub fn serve(
        &self,
        entry: &TableEntry<H>,
        connection: &mut Connection,
        socket: &mut impl TurnSocket,
        cx: &mut Context<'_>,
        buffers: &mut ThreadBuffers,
    ) -> TurnEnd {
        self.serve_since(None, entry, connection, socket, cx, buffers)
    }

    /// Serves a turn, as [`serve`](Self::serve) does, of a connection that was ready at `ready_since`. An overload policy counts the time
    /// since then. If the driver does not know it, it counts none.
    #[inline]
    pub fn serve_since(
        &self,
        ready_since: Option<Instant>,
        entry: &TableEntry<H>,
        connection: &mut Connection,
        socket: &mut impl TurnSocket,
        cx: &mut Context<'_>,
        buffers: &mut ThreadBuffers,
    ) -> TurnEnd {
        buffers.begin_turn();
        let mut turn = Turn { is_evicted: entry.is_evicted(), ready_since, ..Turn::new(&self.server, buffers) };
        let mut step = entry.calling(|| connection.begin_turn(&mut turn));
        loop {
            step = match step {
                Step::Read { past_report } => match socket.poll_read(cx, &mut turn.buffers.input, past_report) {
                    Poll::Pending => connection.on_empty(&mut turn),
                    Poll::Ready(Ok(0)) => connection.on_end(&mut turn),
                    Poll::Ready(Ok(count)) => {
                        if !connection.is_lingering() {
                            self.note_bytes(entry);
                            turn.is_evicted = entry.is_evicted();
                        }
                        entry.calling(|| connection.on_bytes(&mut turn, count))
                    }
                    Poll::Ready(Err(error)) if error.kind() == ErrorKind::Interrupted => step,
                    Poll::Ready(Err(_)) => connection.on_error(&mut turn),
                },
                Step::Write { last, past_report } => {
                    let how = WriteKind { last, is_new: connection.is_new_output(), past_report };
                    match socket.poll_write(cx, connection.output(turn.buffers), how) {
                        Poll::Pending => connection.on_blocked(&mut turn),
                        Poll::Ready(Ok(count)) if count > 0 => {
                            entry.calling(|| connection.on_written(&mut turn, count))
                        }
                        Poll::Ready(Err(error)) if error.kind() == ErrorKind::Interrupted => step,
                        Poll::Ready(_) => connection.on_error(&mut turn),
                    }
                }
                Step::Await => match entry.calling(|| connection.poll_answer(cx)) {
                    Poll::Ready(()) => entry.calling(|| connection.on_answer(&mut turn)),
                    Poll::Pending => connection.on_pending(&mut turn),
                },
                Step::Wait(_) => {
                    self.note_wait(entry, connection);
                    return TurnEnd::Wait;
                }
                Step::Yield => return TurnEnd::Yield,
                Step::Linger => {
                    let lingers = socket.close_writing().is_ok() && self.begin_linger(entry);
                    if lingers {
                        connection.on_lingering(&mut turn)
                    } else {
                        socket.discard(&mut turn.buffers.input);
                        Step::Close
                    }
                }
                Step::Leave => {
                    if socket.close_writing().is_ok() {
                        socket.discard(&mut turn.buffers.input);
                    }
                    return TurnEnd::Close;
                }
                Step::Close => return TurnEnd::Close,
            };
        }
    }

    /// Removes a connection that has ended or is given up, and counts its request if that is cut.
    pub fn close(&self, entry: &TableEntry<H>, connection: &mut Connection) {
        let _ = connection.abandon(&self.server);
        if connection.take_cut() {
            self.count_cut(entry);
        }
        self.remove(entry);
    }
}

impl ConnectionTable<EventSocket> {
    /// Adds a connection that was accepted, or [rejects](reject) it at the limit. A rejected connection lingers. Returns what an
    /// event loop is to serve before it waits for the first event of the socket; `None` if the connection is closed because its
    /// client is gone, or too many linger.
    pub fn admit_or_reject(
        &self,
        socket: EventSocket,
        shard: usize,
    ) -> Option<(Arc<TableEntry<EventSocket>>, Connection)> {
        match self.admit(socket, shard) {
            Ok(entry) => {
                let connection = Connection::new(Session::from_peer(net::peer(&entry.stream)));
                Some((entry, connection))
            }
            Err(rejected) => {
                reject(&self.server, &rejected.stream).ok()?;
                Some((self.admit_rejected(rejected, shard).ok()?, Connection::lingering()))
            }
        }
    }
}

/// A socket of an event loop, and the waker that makes the loop serve it. Each read and write is tried, so any kind of readiness
/// will do: at the edge, at the level, or once.
#[derive(Debug)]
pub struct EventSocket {
    /// The socket. It does not block.
    pub stream: TcpStream,
    /// Wakes the event loop for this connection.
    pub waker: Waker,
}

impl AsFd for EventSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl ConnectionHandle for EventSocket {
    fn has_input(&self) -> bool {
        net::has_input(&self.stream)
    }

    fn wake(&self) {
        self.waker.wake_by_ref();
    }

    fn shut_down(&self) {
        let _ = self.stream.shutdown(Shutdown::Both); // an error: the client is gone
    }
}

impl TurnSocket for &EventSocket {
    fn poll_read(&mut self, _: &mut Context<'_>, buffer: &mut [u8], _: bool) -> Poll<io::Result<usize>> {
        poll(net::receive(&self.stream, buffer))
    }

    fn poll_write(&mut self, _: &mut Context<'_>, bytes: &[u8], how: WriteKind) -> Poll<io::Result<usize>> {
        poll(net::send(&self.stream, bytes, how.last))
    }

    fn close_writing(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    fn discard(&mut self, buffer: &mut [u8]) {
        discard(&self.stream, buffer);
    }
}

fn poll(result: io::Result<usize>) -> Poll<io::Result<usize>> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
        result => Poll::Ready(result),
    }
}
