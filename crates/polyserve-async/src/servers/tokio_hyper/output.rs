//! The output of a connection, and the buffers that a thread lends to it.
//!
//! Invariant: an answer counts as answered once the kernel has its last byte. Cost: a copy of each answer into the buffer.

use std::cell::RefCell;
use std::task::{Context, Poll};
use std::time::SystemTime;

use polyserve_serving::http1::date::Date;
use polyserve_serving::http1::turn::TurnBudget;
use polyserve_serving::memory::Reservation;
use polyserve_serving::{ServerState, TurnSocket as _, WriteKind, net};

use crate::servers::toolkit::{ConnectionEntry, TokioSocket};

/// The number of bytes of one read.
const INPUT_LENGTH: usize = 32 * 1024;

/// An output buffer with a larger capacity is freed after use.
const KEPT_CAPACITY: usize = 256 * 1024;

/// Answers that have not been sent, and the position at which each of them ends.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) bytes: Vec<u8>,
    ends: Vec<usize>,
    /// The memory of output that waits for the client.
    reservation: Reservation,
}

impl Output {
    /// Marks the end of `answers` answers.
    pub(super) fn mark_ends(&mut self, answers: u32) {
        for _ in 0..answers {
            self.ends.push(self.bytes.len());
        }
    }

    /// Removes the bytes after the last complete answer. If they begin with a status line, returns its status.
    pub(super) fn discard_incomplete(&mut self) -> Option<u16> {
        let end = self.ends.last().copied().unwrap_or(0);
        let code = self.bytes.get(end..)?.get(9..12)?;
        let code = std::str::from_utf8(code).ok()?.parse().ok();
        self.bytes.truncate(end);
        code
    }

    /// Counts the output towards the server's memory, because it waits for the client.
    pub(super) fn keep(mut self, server: &ServerState) -> Box<Self> {
        self.reservation.set(&server.env.memory, self.bytes.capacity());
        Box::new(self)
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether a part of an answer follows the last complete answer.
    pub(super) fn is_partial(&self) -> bool {
        self.bytes.len() > self.ends.last().copied().unwrap_or(0)
    }

    /// Sends the bytes that the kernel takes, and counts the answers that are complete with them. Ignores an error: sending
    /// the rest returns an error too.
    pub(super) fn try_send(&mut self, entry: &ConnectionEntry<TokioSocket>, server: &ServerState, last: bool) {
        if !self.is_empty()
            && let Ok(count) = entry.with_socket(|socket| net::send(socket, &self.bytes, last))
        {
            server.count_answered(self.advance(count));
        }
    }

    /// Sends all bytes. Waits while the kernel takes no more. Returns false if the client is gone.
    pub(super) fn poll_send(
        &mut self,
        entry: &ConnectionEntry<TokioSocket>,
        server: &ServerState,
        cx: &mut Context<'_>,
        last: bool,
    ) -> Poll<bool> {
        let how = WriteKind { is_new: false, last, past_report: false };
        while !self.is_empty() {
            match entry.handle().poll_write(cx, &self.bytes, how) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(count)) if count > 0 => server.count_answered(self.advance(count)),
                Poll::Ready(_) => return Poll::Ready(false),
            }
        }
        Poll::Ready(true)
    }

    /// Removes the first `count` bytes. Returns the number of answers that end in them.
    fn advance(&mut self, count: usize) -> u64 {
        let complete = self.ends.partition_point(|end| *end <= count);
        if count >= self.bytes.len() {
            self.clear();
            if self.bytes.capacity() > KEPT_CAPACITY {
                self.bytes = Vec::new();
            }
        } else {
            self.bytes.drain(..count);
            self.ends.drain(..complete);
            for end in &mut self.ends {
                *end -= count;
            }
        }
        complete as u64
    }
}

/// The buffers of a thread, and what happens in a turn of the connection that has them.
#[derive(Debug)]
pub(super) struct HyperBuffers {
    pub(super) input: Box<[u8]>,
    pub(super) output: Output,
    pub(super) turn: TurnBudget,
    pub(super) events: PollEvents,
    /// A connection has the buffers.
    in_use: bool,
    date: Date,
}

/// The events of one poll of hyper.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PollEvents {
    /// A read found the socket empty.
    pub(super) input_drained: bool,
    /// A read after the shutdown had begun found the socket empty. So the connection may be closed.
    pub(super) may_close: bool,
    /// hyper could not write all its bytes, because the output was full.
    pub(super) output_full: bool,
    /// A request waits for the next turn.
    pub(super) turn_is_over: bool,
}

impl HyperBuffers {
    fn new() -> Self {
        Self {
            input: vec![0; INPUT_LENGTH].into_boxed_slice(),
            output: Output::default(),
            turn: TurnBudget::new(SystemTime::now),
            events: PollEvents::default(),
            in_use: false,
            date: Date::new(SystemTime::now()),
        }
    }

    /// Counts a request in this turn. Returns false if the turn is over.
    pub(super) fn take_place_in_turn(&mut self) -> bool {
        let is_over = self.turn.is_over();
        if !is_over {
            self.turn.count_request();
        }
        self.events.turn_is_over |= is_over;
        !is_over
    }

    /// The output, and the line of the present date.
    pub(super) fn dated(&mut self) -> (&mut Output, &str) {
        self.date.refresh(SystemTime::now());
        (&mut self.output, self.date.line())
    }
}

thread_local! {
    static BUFFERS: RefCell<Option<Box<HyperBuffers>>> = const { RefCell::new(None) };
}

/// Calls `act`, which must not call the service, with the buffers of the connection that is served.
pub(super) fn with_buffers<T>(act: impl FnOnce(&mut HyperBuffers) -> T) -> T {
    BUFFERS.with_borrow_mut(|buffers| act(buffers.get_or_insert_with(|| Box::new(HyperBuffers::new()))))
}

/// Lends the thread's buffers to a connection during `serve`, which is its turn. A connection that is served inside that call, on
/// the same thread, gets other buffers.
pub(super) fn in_turn<T>(serve: impl FnOnce() -> T) -> T {
    /// Returns the buffers to the thread, without the output that a closed connection left in them.
    struct Return(Option<Box<HyperBuffers>>);

    impl Drop for Return {
        fn drop(&mut self) {
            BUFFERS.with_borrow_mut(|buffers| match (self.0.take(), buffers) {
                (Some(outer), buffers) => *buffers = Some(outer),
                (None, Some(buffers)) => {
                    buffers.output.clear();
                    buffers.in_use = false;
                }
                (None, None) => {}
            });
        }
    }

    let _return = Return(BUFFERS.with_borrow_mut(|buffers| buffers.take_if(|buffers| buffers.in_use)));
    with_buffers(|buffers| {
        (buffers.in_use, buffers.events) = (true, PollEvents::default());
        buffers.turn = TurnBudget::new(SystemTime::now);
    });
    serve()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_count_when_their_last_byte_is_gone() {
        let mut output = Output::default();
        for length in [3, 0, 4] {
            output.bytes.extend(std::iter::repeat_n(b'x', length));
            output.mark_ends(1);
        }
        output.bytes.extend(b"HTTP/1.1 400 Bad Request\r\n");
        assert_eq!(output.discard_incomplete(), Some(400));
        assert_eq!(output.bytes.len(), 7);
        assert_eq!(output.advance(2), 0);
        assert_eq!(output.advance(1), 2);
        assert_eq!(output.advance(3), 0);
        assert_eq!(output.advance(1), 1);
        assert!(output.is_empty());
    }
}
