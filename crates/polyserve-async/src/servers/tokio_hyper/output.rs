//! What is to be sent, and a thread's buffers.

use std::os::fd::BorrowedFd;
use std::time::SystemTime;

use polyserve_core::http1::date::Date;
use polyserve_core::net;

use super::line::Line;

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

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Sends what the kernel takes, and counts the answers in it. An error is met again with the rest.
    pub(super) fn try_send(&mut self, line: &Line, last: bool) {
        if !self.is_empty()
            && let Ok(answered) = line.place.with_socket(|socket| self.send(socket, last))
        {
            line.shared.roll.house.count_answered(answered);
        }
    }

    /// Sends what the kernel takes; says how many answers are now with it.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, last: bool) -> std::io::Result<u64> {
        let count = net::send(socket, &self.bytes, last)?;
        Ok(self.advance(count))
    }

    /// Forgets the first `count` bytes; says how many answers ended in them.
    fn advance(&mut self, count: usize) -> u64 {
        let whole = self.ends.partition_point(|end| *end <= count);
        if count >= self.bytes.len() {
            self.bytes.clear();
            self.ends.clear();
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
