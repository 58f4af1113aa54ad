//! What is to be sent, and a thread's buffers.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};
use std::time::SystemTime;

use polyserve_core::http1::date::Date;
use polyserve_core::net;

use super::line::Line;
use crate::servers::async_socket::{AsyncSocket as _, Direction, Transfer};

/// Bytes read at once.
const INPUT: usize = 32 * 1024;

/// A larger buffer is given back after use.
const KEPT_CAPACITY: usize = 256 * 1024;

/// Answers that have not left yet, and where each of them ends.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Output {
    /// So many answers end here.
    pub(super) fn end(&mut self, answers: u32) {
        for _ in 0..answers {
            self.ends.push(self.bytes.len());
        }
    }

    /// Takes back what follows the last whole answer; says its status, where it is the head of one.
    pub(super) fn take_back(&mut self) -> Option<u16> {
        let whole = self.ends.last().copied().unwrap_or(0);
        let code = self.bytes.get(whole..)?.get(9..12)?;
        let code = std::str::from_utf8(code).ok()?.parse().ok();
        self.bytes.truncate(whole);
        code
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether a part of an answer follows the last whole one.
    pub(super) fn is_partial(&self) -> bool {
        self.bytes.len() > self.ends.last().copied().unwrap_or(0)
    }

    /// Sends what the kernel takes, and counts the answers in it. An error is met again with the rest.
    pub(super) fn try_send(&mut self, line: &Line, last: bool) {
        if !self.is_empty()
            && let Ok(answered) = line.place.with_socket(|socket| self.send(socket, last))
        {
            line.shared.roll.server.count_answered(answered);
        }
    }

    /// Sends what the kernel takes; says how many answers are now with it.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, last: bool) -> std::io::Result<u64> {
        let count = net::send(socket, &self.bytes, last)?;
        Ok(self.advance(count))
    }

    /// Sends on, once the kernel takes more, until all is sent. False where the client is gone.
    pub(super) fn write_on(&mut self, line: &Line, cx: &mut Context<'_>, last: bool) -> Poll<bool> {
        if line.place.register().is_err() {
            return Poll::Ready(false);
        }
        let Some(watched) = line.place.socket() else { return Poll::Ready(false) };
        while !self.is_empty() {
            let attempt = || {
                let whole = self.bytes.len();
                let answered = line.place.with_socket(|socket| self.send(socket, last))?;
                line.shared.roll.server.count_answered(answered);
                Ok(Transfer { count: whole - self.bytes.len(), drained: !self.is_empty() })
            };
            match watched.poll_io(cx, Direction::Write, attempt) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(count)) if count > 0 => {}
                Poll::Ready(_) => return Poll::Ready(false),
            }
        }
        Poll::Ready(true)
    }

    /// Forgets the first `count` bytes; says how many answers ended in them.
    fn advance(&mut self, count: usize) -> u64 {
        let whole = self.ends.partition_point(|end| *end <= count);
        if count >= self.bytes.len() {
            self.clear();
            if self.bytes.capacity() > KEPT_CAPACITY {
                self.bytes = Vec::new();
            }
        } else {
            self.bytes.drain(..count);
            self.ends.drain(..whole);
            for end in &mut self.ends {
                *end -= count;
            }
        }
        whole as u64
    }
}

/// What a thread has at hand while it serves.
#[derive(Debug)]
pub(super) struct Buffers {
    pub(super) input: Box<[u8]>,
    pub(super) output: Output,
    date: Date,
}

impl Buffers {
    pub(super) fn new() -> Self {
        let date = Date::new(SystemTime::now());
        Self { input: vec![0; INPUT].into_boxed_slice(), output: Output::default(), date }
    }

    /// The output, and the date of now.
    pub(super) fn dated(&mut self) -> (&mut Output, &str) {
        self.date.refresh(SystemTime::now());
        (&mut self.output, self.date.as_str())
    }
}

thread_local! {
    static BUFFERS: Cell<Option<Box<Buffers>>> = const { Cell::new(None) };
}

/// Lends the thread's buffers to a connection while it is served. Foreign code that serves another one meanwhile finds none
/// and makes its own.
pub(super) fn with_buffers<T>(line: &Line, serve: impl FnOnce() -> T) -> T {
    line.state().buffers = BUFFERS.take();
    let served = serve();
    let mut buffers = line.state().buffers.take();
    if let Some(buffers) = &mut buffers {
        buffers.output.clear(); // what a connection that was given up had to say is nobody's
    }
    BUFFERS.set(buffers);
    served
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_count_when_their_last_byte_is_gone() {
        let mut output = Output::default();
        for length in [3, 0, 4] {
            output.bytes.extend(std::iter::repeat_n(b'x', length));
            output.end(1);
        }
        output.bytes.extend(b"HTTP/1.1 400 Bad Request\r\n");
        assert_eq!(output.take_back(), Some(400));
        assert_eq!(output.bytes.len(), 7);
        assert_eq!(output.advance(2), 0);
        assert_eq!(output.advance(1), 2);
        assert_eq!(output.advance(3), 0);
        assert_eq!(output.advance(1), 1);
        assert!(output.is_empty());
    }
}
