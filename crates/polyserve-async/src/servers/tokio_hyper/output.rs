//! The output of a connection, and the buffers that a thread lends to it.
//!
//! Invariant: an answer counts as answered once the kernel has its last byte. Cost: a copy of each answer into the buffer.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};
use std::time::SystemTime;

use polyserve_serving::ServerState;
use polyserve_serving::http1::date::Date;
use polyserve_serving::http1::turn::TurnBudget;
use polyserve_serving::memory::Reservation;
use polyserve_serving::net;

use crate::servers::toolkit::{AsyncSocket as _, ConnectionEntry, Direction, TokioSocket, Transfer};

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
            && let Ok(answered) = entry.with_socket(|socket| self.send(socket, last))
        {
            server.count_answered(answered);
        }
    }

    /// Sends the bytes that the kernel takes. Returns the number of answers that are complete with them.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, last: bool) -> std::io::Result<u64> {
        let count = net::send(socket, &self.bytes, last)?;
        Ok(self.advance(count))
    }

    /// Sends all bytes. Waits while the kernel takes no more. Returns false if the client is gone.
    pub(super) fn poll_send(
        &mut self,
        entry: &ConnectionEntry<TokioSocket>,
        server: &ServerState,
        cx: &mut Context<'_>,
        last: bool,
    ) -> Poll<bool> {
        if entry.register().is_err() {
            return Poll::Ready(false);
        }
        let Some(socket) = entry.socket() else { return Poll::Ready(false) };
        while !self.is_empty() {
            let attempt = || {
                let length = self.bytes.len();
                let answered = entry.with_socket(|socket| self.send(socket, last))?;
                server.count_answered(answered);
                Ok(Transfer { count: length - self.bytes.len(), drained: !self.is_empty() })
            };
            match socket.poll_io(cx, Direction::Write, attempt) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(count)) if count > 0 => {}
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

/// The buffers of a thread.
#[derive(Debug)]
pub(super) struct HyperBuffers {
    pub(super) input: Box<[u8]>,
    pub(super) output: Output,
    /// The turn of the connection that has the buffers.
    pub(super) turn: TurnBudget,
    date: Date,
}

impl HyperBuffers {
    pub(super) fn new() -> Self {
        let date = Date::new(SystemTime::now());
        Self {
            input: vec![0; INPUT_LENGTH].into_boxed_slice(),
            output: Output::default(),
            turn: TurnBudget::new(SystemTime::now),
            date,
        }
    }

    /// Begins a turn.
    pub(super) fn in_new_turn(mut self: Box<Self>) -> Box<Self> {
        self.turn = TurnBudget::new(SystemTime::now);
        self
    }

    /// The output, and the line of the present date.
    pub(super) fn dated(&mut self) -> (&mut Output, &str) {
        self.date.refresh(SystemTime::now());
        (&mut self.output, self.date.line())
    }
}

thread_local! {
    static BUFFERS: Cell<Option<Box<HyperBuffers>>> = const { Cell::new(None) };
}

/// Takes the thread's buffers. `None` if they are in use or do not exist yet.
pub(super) fn take_buffers() -> Option<Box<HyperBuffers>> {
    BUFFERS.take()
}

/// Returns the buffers to the thread, without the output that a closed connection left in them.
pub(super) fn keep_buffers(mut buffers: Option<Box<HyperBuffers>>) {
    if let Some(buffers) = &mut buffers {
        buffers.output.clear();
    }
    BUFFERS.set(buffers);
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
