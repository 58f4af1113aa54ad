//! A turn of a connection of a multiplexed server: the driver of [`Connection`] that such servers share.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::{ConnectionHandle, ConnectionTable, ReservedPlace, TableEntry};
use crate::http1::Session;
use crate::{Connection, Step, ThreadBuffers, Turn, net, reject};

/// A socket that never blocks its thread.
pub trait TurnSocket {
    /// Reads once. Returns `Pending` if nothing is there; then the connection is to be served again as soon as bytes come.
    ///
    /// `past_report`: reads even if the socket was not reported as ready.
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8], past_report: bool) -> Poll<io::Result<usize>>;

    /// Writes once. Returns `Pending` if the kernel takes nothing; then the connection is to be served again as soon as it does.
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8], how: WriteKind) -> Poll<io::Result<usize>>;

    /// Polls the answer that `connection` awaits. Returns `Pending` if it is not there yet; then the connection is to be served again as
    /// soon as it is. To be overridden if `cx` does not wake the connection: a loop need not have a waker before the first such answer.
    fn poll_answer(&mut self, cx: &mut Context<'_>, connection: &mut Connection) -> Poll<()> {
        connection.poll_answer(cx)
    }
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
            // A read, a write and a read make up most turns. They are told apart by branches: a processor predicts these better than
            // the jump through a table that a match of all steps would be.
            if let Step::Read { past_report } = step {
                step = match socket.poll_read(cx, &mut turn.buffers.input, past_report) {
                    Poll::Ready(Ok(count)) if count > 0 => {
                        if !connection.is_lingering() {
                            self.note_bytes(entry);
                            turn.is_evicted = entry.is_evicted();
                        }
                        entry.calling(|| connection.on_bytes(&mut turn, count))
                    }
                    Poll::Pending => connection.on_empty(&mut turn),
                    Poll::Ready(Ok(_)) => connection.on_end(&mut turn),
                    Poll::Ready(Err(error)) if error.kind() == ErrorKind::Interrupted => step,
                    Poll::Ready(Err(_)) => connection.on_error(&mut turn),
                };
            }
            if let Step::Write { last, past_report } = step {
                let how = WriteKind { last, is_new: connection.is_new_output(), past_report };
                step = match socket.poll_write(cx, connection.output(turn.buffers), how) {
                    Poll::Ready(Ok(count)) if count > 0 => entry.calling(|| connection.on_written(&mut turn, count)),
                    Poll::Pending => connection.on_blocked(&mut turn),
                    Poll::Ready(Err(error)) if error.kind() == ErrorKind::Interrupted => step,
                    Poll::Ready(_) => connection.on_error(&mut turn),
                };
                continue;
            }
            if let Step::Wait(_) = step {
                self.note_wait(entry, connection, turn.buffers);
                return TurnEnd::Wait;
            }
            step = match step {
                Step::Read { .. } | Step::Write { .. } | Step::Wait(_) => continue,
                Step::Await => match entry.calling(|| socket.poll_answer(cx, connection)) {
                    Poll::Ready(()) => entry.calling(|| connection.on_answer(&mut turn)),
                    Poll::Pending => connection.on_pending(&mut turn),
                },
                Step::Yield => return TurnEnd::Yield,
                Step::Linger if entry.with_fd(|socket| net::end_output(socket)).is_ok() && self.begin_linger(entry) => {
                    connection.on_lingering(&mut turn)
                }
                Step::Linger | Step::Leave => {
                    let _ = entry.with_fd(|socket| net::leave(socket, &mut turn.buffers.input)); // an error: it is lost
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

    /// Adds a connection that was accepted, or [rejects](Self::reject) it at the limit. Returns what the driver is to serve before it
    /// waits for the socket for the first time; `None` if the connection is closed.
    #[inline]
    pub fn admit_or_reject(&self, handle: H, shard: usize) -> Option<(Arc<TableEntry<H>>, Connection)> {
        let peer = handle.peer();
        let place = self.reserve(|| Some(peer?.ip()));
        self.admit_at(place, peer, handle, shard)
    }

    /// Adds a connection with its [reserved](Self::reserve) place, or [rejects](Self::reject) it without one, as
    /// [`admit_or_reject`](Self::admit_or_reject) does. `peer`: the address of its other end, for the service.
    pub fn admit_at(
        &self,
        place: Option<ReservedPlace>,
        peer: Option<SocketAddr>,
        handle: H,
        shard: usize,
    ) -> Option<(Arc<TableEntry<H>>, Connection)> {
        let Some(place) = place else { return self.reject(handle, shard) };
        let entry = self.insert(handle, shard, Some(place.0));
        let connection = Connection::new(Session::from_peer(peer));
        Some((entry, connection))
    }

    /// [Rejects](reject) a connection, which then lingers. Returns `None` if the connection is closed because its client is gone, or
    /// too many linger.
    pub fn reject(&self, handle: H, shard: usize) -> Option<(Arc<TableEntry<H>>, Connection)> {
        handle.with_fd(|socket| reject(&self.server, socket)).ok()?;
        Some((self.admit_rejected(handle, shard).ok()?, Connection::lingering()))
    }
}

/// A socket of an event loop, and the waker that makes the loop serve it. Each read and write is tried, so any kind of readiness
/// will do: at the edge, at the level, or once.
#[derive(Debug)]
pub struct EventSocket {
    /// The socket. It does not block.
    pub stream: TcpStream,
    /// The address of its other end.
    pub peer: Option<SocketAddr>,
    /// Wakes the event loop for this connection.
    pub waker: Waker,
}

impl AsFd for EventSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl ConnectionHandle for EventSocket {
    fn with_fd<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        act(self.stream.as_fd())
    }

    fn wake(&self) {
        self.waker.wake_by_ref();
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }
}

impl TurnSocket for &EventSocket {
    fn poll_read(&mut self, _: &mut Context<'_>, buffer: &mut [u8], _: bool) -> Poll<io::Result<usize>> {
        poll(net::receive(&self.stream, buffer))
    }

    fn poll_write(&mut self, _: &mut Context<'_>, bytes: &[u8], how: WriteKind) -> Poll<io::Result<usize>> {
        poll(net::send(&self.stream, bytes, how.last))
    }
}

fn poll(result: io::Result<usize>) -> Poll<io::Result<usize>> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
        result => Poll::Ready(result),
    }
}
