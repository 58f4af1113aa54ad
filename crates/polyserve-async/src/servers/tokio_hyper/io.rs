//! The socket, as hyper reads and writes it.
//!
//! Nothing that hyper writes is sent at once: it gathers in the thread's buffer up to [`OUTPUT_BOUND`], and leaves when
//! hyper has been polled. So pipelined answers leave together, and a client that does not read has no more than that
//! waiting. The first read is tried before the runtime watches the socket: a request is there when its connection is
//! accepted, as a rule, and one that is answered and closed at once is never watched.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::rt::{Read, ReadBufCursor, Write};
use polyserve_core::http1::session::OUTPUT_BOUND;
use polyserve_core::net;

use super::line::{Line, Stage};
use super::output::Buffers;
use crate::servers::async_socket::{AsyncSocket as _, Direction, Transfer};

/// One connection's.
pub(crate) struct Io {
    line: Arc<Line>,
    /// What was read before hyper was asked to.
    before: Bytes,
}

impl Io {
    pub(super) fn new(line: Arc<Line>, before: Bytes) -> Self {
        Self { line, before }
    }
}

impl Read for Io {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let Self { line, before } = self.get_mut();
        if !before.is_empty() {
            buffer.put_slice(&before.split_to(before.len().min(buffer.remaining())));
            return Poll::Ready(Ok(()));
        }
        let mut state = line.state();
        let state = &mut *state;
        let room = state.buffers().input.len().min(buffer.remaining());
        let leaves = matches!(state.stage, Stage::Idle | Stage::Done) && line.shared.roll.server.shutdown.is_begun();
        let Some(input) = state.buffers().input.get_mut(..room) else { return Poll::Pending };
        match receive(line, cx, input, leaves) {
            Poll::Ready(Ok(0)) => state.input_ended = true,
            Poll::Ready(Ok(count)) => {
                let input = state.buffers.as_ref().and_then(|buffers| buffers.input.get(..count)).unwrap_or_default();
                state.fresh = count;
                state.tally.read(input);
                buffer.put_slice(input);
                if state.stage == Stage::Idle {
                    state.stage = Stage::Head;
                }
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => {
                state.seen.dry = true;
                state.seen.may_leave = leaves;
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Reads. `leaves`: the connection ends if there is nothing, also where the runtime has not heard of it yet.
fn receive(line: &Line, cx: &mut Context<'_>, input: &mut [u8], leaves: bool) -> Poll<io::Result<usize>> {
    let place = &line.place;
    let mut attempt = || -> io::Result<Transfer> {
        let count = place.with_socket(|socket| net::receive(socket, input))?;
        Ok(Transfer { count, drained: count < input.len() && count > 0 })
    };
    if leaves || place.socket().is_none() {
        loop {
            match attempt() {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && leaves => return Poll::Pending,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                other => return Poll::Ready(other.map(|moved| moved.count)),
            }
        }
        if let Err(error) = place.register() {
            if line.shared.roll.log_throttle.is_due() {
                tracing::warn!(%error, "a connection cannot be watched");
            }
            return Poll::Ready(Err(error));
        }
    }
    match place.socket() {
        Some(watched) => watched.poll_io(cx, Direction::Read, attempt),
        None => Poll::Ready(Err(ErrorKind::NotConnected.into())),
    }
}

impl Write for Io {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.line.state();
        let state = &mut *state;
        let output = &mut state.buffers.get_or_insert_with(|| Box::new(Buffers::new())).output;
        if output.bytes.len() >= OUTPUT_BOUND {
            state.torn |= output.is_partial();
            output.try_send(&self.line, false);
            if output.bytes.len() >= OUTPUT_BOUND {
                state.seen.blocked = true; // whoever polls hyper sends, and then polls again
                return Poll::Pending;
            }
        }
        let taken = bytes.get(..OUTPUT_BOUND).unwrap_or(bytes);
        output.bytes.extend_from_slice(taken);
        Poll::Ready(Ok(taken.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.line.state().flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
