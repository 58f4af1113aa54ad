//! Answers that are to be sent, and the position at which each of them ends.
//!
//! Invariant: an answer counts as answered once the kernel has its last byte. Cost: a copy of each answer into the buffer.

use std::task::{Context, Poll};

use polyserve_serving::memory::Reservation;
use polyserve_serving::{ServerState, TurnSocket as _, WriteKind, net};

use crate::servers::toolkit::{ConnectionEntry, TokioSocket};

/// A buffer with a larger capacity is freed after use.
const KEPT_CAPACITY: usize = 16 * 1024;

/// The output of a connection.
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

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether a part of an answer follows the last complete answer.
    pub(super) fn is_partial(&self) -> bool {
        self.bytes.len() > self.ends.last().copied().unwrap_or(0)
    }

    /// Sends the bytes that the kernel takes, and counts the answers that are complete with them. The rest waits for the client,
    /// and counts towards the server's memory. Ignores an error: sending the rest returns an error too.
    pub(super) fn try_send(&mut self, entry: &ConnectionEntry<TokioSocket>, server: &ServerState, last: bool) {
        if self.is_empty() {
            return;
        }
        if let Ok(count) = entry.with_socket(|socket| net::send(socket, &self.bytes, last)) {
            server.count_answered(self.advance(count));
        }
        if !self.is_empty() {
            self.reservation.set(&server.env.memory, self.bytes.capacity());
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
            self.bytes.clear();
            self.ends.clear();
            self.reservation = Reservation::default();
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
