//! The socket, as hyper reads and writes it.
//!
//! Reading passes on what hyper may read: see [`Input`](super::input::Input).
//!
//! Writing collects the output, up to [`OUTPUT_BOUND`]. The connection sends it after it has polled hyper. So pipelined answers
//! are sent together, and the memory for a client that does not read is bounded.

use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use polyserve_serving::http1::OUTPUT_BOUND;

use super::connection_state::{ConnectionState, Stage};

/// The number of bytes of one read.
const INPUT_LENGTH: usize = 32 * 1024;

thread_local! {
    /// The buffer that the connections of a thread read into.
    static INPUT: RefCell<Box<[u8]>> = RefCell::new(vec![0; INPUT_LENGTH].into_boxed_slice());
}

/// The socket of one connection.
pub(crate) struct HyperIo {
    connection: Arc<ConnectionState>,
}

impl HyperIo {
    pub(super) fn new(connection: Arc<ConnectionState>) -> Self {
        Self { connection }
    }

    /// Reads from the socket. `must_read`: even if the runtime has not reported it as ready. `closes_if_empty`: the connection is
    /// closed if the socket is empty, so the task need not be woken for it.
    fn receive(
        &self,
        cx: &mut Context<'_>,
        input: &mut [u8],
        must_read: bool,
        closes_if_empty: bool,
    ) -> Poll<io::Result<usize>> {
        let socket = self.connection.entry.handle();
        let mut past_report = must_read;
        loop {
            match socket.read(cx, input, past_report, &mut false) {
                Poll::Ready(Err(error)) if error.kind() == ErrorKind::Interrupted => {}
                Poll::Pending if past_report && !closes_if_empty => past_report = false,
                polled => return polled,
            }
        }
    }
}

impl Read for HyperIo {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, mut buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let connection = &self.connection;
        let mut state = connection.state();
        let passed = state.pass_on(connection, &mut buffer);
        if passed.is_ready() {
            return passed;
        }
        INPUT.with_borrow_mut(|input| {
            let length = input.len().min(buffer.remaining());
            let Some(input) = input.get_mut(..length) else { return Poll::Pending };
            while state.may_read() {
                if state.tls_events.has_ended {
                    state.input_ended = true;
                    return Poll::Ready(Ok(()));
                }
                let is_at_rest = !state.stage.is_busy() && !state.present.body_is_open && !state.has_tls_part();
                let closes_if_empty = is_at_rest && connection.must_leave(state.stage);
                let must_read = state.must_read || closes_if_empty;
                let task = state.task.take();
                let mut cx = Context::from_waker(task.as_ref().unwrap_or(cx.waker()));
                let received = self.receive(&mut cx, input, must_read, closes_if_empty);
                (state.task, state.events.input_drained) = (task, received.is_pending());
                match received {
                    Poll::Ready(Ok(0)) => {
                        state.input_ended = true;
                        return Poll::Ready(Ok(()));
                    }
                    Poll::Ready(Ok(count)) => {
                        connection.shared.table.set_busy(&connection.entry);
                        let bytes = input.get_mut(..count).unwrap_or_default();
                        let passed = if connection.server().has_tls() {
                            state.received_sealed(connection, bytes, &mut buffer)
                        } else {
                            state.received(connection, bytes, &mut buffer)
                        };
                        if passed.is_ready() {
                            return passed;
                        }
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        state.events.may_close = closes_if_empty;
                        return Poll::Pending;
                    }
                }
            }
            Poll::Pending
        })
    }
}

impl Write for HyperIo {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let connection = &self.connection;
        let state = &mut *connection.state();
        // An answer that hyper has completely is taken whole, so that its end is marked before the next answer begins. Its
        // rest is at most what hyper buffers.
        if state.output.unsent() >= OUTPUT_BOUND && !connection.has_unmarked_end() {
            state.send(connection, false);
            if state.output.unsent() >= OUTPUT_BOUND {
                state.events.output_full = true; // the connection sends, and then polls hyper again
                return Poll::Pending;
            }
        }
        let taken = bytes.get(..OUTPUT_BOUND).unwrap_or(bytes);
        // hyper does not know that it has the whole body, and asks for it (RFC 9110, 10.1.1: a server may leave that out then).
        let unneeded = if state.present.body_has_arrived { state.output.interim_length(taken) } else { 0 };
        state.report.bytes += state.output.push(taken.get(unneeded..).unwrap_or_default());
        // Over HTTP/1, hyper has one buffer, because this type writes no slices. If it is written, every complete answer is in the
        // output, and the flush that follows needs no lock.
        if taken.len() == bytes.len() && state.stage != Stage::Http2 {
            state.mark_ends(connection);
        }
        Poll::Ready(Ok(taken.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.mark_ends();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
