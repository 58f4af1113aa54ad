//! The socket, as hyper reads and writes it, and its low-water mark.
//!
//! Writing collects the output in the thread's buffer, up to [`OUTPUT_BOUND`]. The connection sends it after it has polled
//! hyper. So pipelined answers are sent together, and the memory for a client that does not read is bounded.
//!
//! The first read comes before the socket is registered with the runtime: usually the first request has arrived when its
//! connection is accepted. So a connection that is closed after one answer is never registered.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::rt::{Read, ReadBufCursor, Write};
use polyserve_serving::http1::OUTPUT_BOUND;
use polyserve_serving::net;

use super::connection_state::{ConnectionState, Stage};
use super::output::{HyperBuffers, with_buffers};
use crate::servers::toolkit::{AsyncSocket as _, Direction, Transfer};

/// The socket of one connection.
pub(crate) struct HyperIo {
    connection: Arc<ConnectionState>,
    /// Bytes that were read before and that hyper reads first.
    read_before: Bytes,
}

impl HyperIo {
    pub(super) fn new(connection: Arc<ConnectionState>, read_before: Bytes) -> Self {
        Self { connection, read_before }
    }
}

impl Read for HyperIo {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let Self { connection, read_before } = self.get_mut();
        if !read_before.is_empty() {
            buffer.put_slice(&read_before.split_to(read_before.len().min(buffer.remaining())));
            return Poll::Ready(Ok(()));
        }
        let mut state = connection.state();
        let is_at_rest = matches!(state.stage, Stage::Idle | Stage::Done) && !state.body_is_open;
        let closes_if_empty = is_at_rest && connection.must_leave();
        let must_read = state.must_read || closes_if_empty;
        with_buffers(|HyperBuffers { input, events, .. }| {
            let length = input.len().min(buffer.remaining());
            let Some(input) = input.get_mut(..length) else { return Poll::Pending };
            match receive(connection, cx, input, must_read, closes_if_empty) {
                Poll::Ready(Ok(0)) => state.input_ended = true,
                Poll::Ready(Ok(count)) => {
                    connection.shared.registry.set_busy(&connection.entry);
                    let input = input.get(..count).unwrap_or_default();
                    state.received(input, connection.server());
                    buffer.put_slice(input);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    (events.input_drained, events.may_close) = (true, closes_if_empty);
                    return Poll::Pending;
                }
            }
            Poll::Ready(Ok(()))
        })
    }
}

/// Reads from the socket.
///
/// `must_read`: tries the socket even if the runtime has not reported it as ready. `closes_if_empty`: the connection is
/// closed if the socket is empty, so the socket need not be registered.
fn receive(
    connection: &ConnectionState,
    cx: &mut Context<'_>,
    input: &mut [u8],
    must_read: bool,
    closes_if_empty: bool,
) -> Poll<io::Result<usize>> {
    let entry = &connection.entry;
    let mut attempt = || -> io::Result<Transfer> {
        let count = entry.with_socket(|socket| net::receive(socket, input))?;
        Ok(Transfer { count, drained: count < input.len() && count > 0 })
    };
    if must_read || entry.socket().is_none() {
        loop {
            match attempt() {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && closes_if_empty => return Poll::Pending,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                other => return Poll::Ready(other.map(|transfer| transfer.count)),
            }
        }
        entry.register()?;
    }
    match entry.socket() {
        Some(socket) => socket.poll_io(cx, Direction::Read, attempt),
        None => Poll::Ready(Err(ErrorKind::NotConnected.into())),
    }
}

impl Write for HyperIo {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let connection = &self.connection;
        with_buffers(|HyperBuffers { output, events, .. }| {
            // An answer that hyper has completely is taken whole, so that its end is marked before the next answer begins. Its
            // rest is at most what hyper buffers.
            if output.bytes.len() >= OUTPUT_BOUND && !connection.has_unmarked_end() {
                connection.state().partly_sent |= output.is_partial();
                output.try_send(&connection.entry, connection.server(), false);
                if output.bytes.len() >= OUTPUT_BOUND {
                    events.output_full = true; // the connection sends, and then polls hyper again
                    return Poll::Pending;
                }
            }
            let taken = bytes.get(..OUTPUT_BOUND).unwrap_or(bytes);
            output.bytes.extend_from_slice(taken);
            if connection.server().env.on_answer.is_some() {
                connection.state().report.add(taken);
            }
            Poll::Ready(Ok(taken.len()))
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.mark_ends();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The highest mark. A receive buffer has room for more bytes, so a long body is read in parts while it arrives.
const MAX_MARK: u64 = 16 * 1024;

/// The mark of a new socket.
const MIN_MARK: u64 = 1;

/// The low-water mark of a socket: the number of bytes that must have arrived before the connection's task is woken.
///
/// A task that waits for a body of known length cannot use a part of the body. So the mark is the number of missing bytes,
/// and the parts stay in the kernel. A wake-up is expensive if the connection's memory was not used for a second: hyper's
/// connection covers four or five pages. The end of the input and errors wake the task in any case.
///
/// Invariant: when hyper waits for the socket, the mark is at most the number of bytes of the present request that hyper
/// has not read. Otherwise the task could sleep although the whole request has arrived.
///
/// * The mark is set after a read that found the socket empty. hyper reads only after it has passed on all bytes that it
///   read before. So all missing bytes are still to come.
/// * If hyper did not read in its last poll, the mark may be that of an earlier wait. In this case hyper wakes itself and
///   reads. Then the mark is set again, and the kernel checks whether enough bytes have arrived.
/// * In every other wait the mark is 1.
///
/// Cost: two system calls for a body that is awaited, none for a body that comes with its head.
pub(super) struct LowWaterMark(u64);

impl LowWaterMark {
    /// The mark of a new socket.
    pub(super) fn new() -> Self {
        Self(MIN_MARK)
    }

    /// Sets the mark to `missing`, at most [`MAX_MARK`]. The task is woken when that number of bytes has arrived.
    pub(super) fn await_bytes(&mut self, connection: &ConnectionState, missing: u64) {
        let mark = missing.clamp(MIN_MARK, MAX_MARK);
        // It fails only if the socket is closed. hyper's next read then returns an error.
        let set = || connection.entry.with_socket(|socket| net::set_receive_low_water(socket, mark as usize));
        if self.0 != mark && set().is_ok() {
            self.0 = mark;
        }
    }

    /// Sets the mark to 1: any byte wakes the task.
    pub(super) fn lower(&mut self, connection: &ConnectionState) {
        self.await_bytes(connection, MIN_MARK);
    }
}
