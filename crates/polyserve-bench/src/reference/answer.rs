//! The answer of the null servers: copies for all waiting requests, with the present second in the `Date` field.
//!
//! Invariant: all copies have the same length and the same second. Cost: a load and a comparison for each send. A thread
//! wakes once a second and reads the clock, so that no request reads the clock. The next send writes the new second into
//! all copies.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use polyserve::serving::http1::date::Date;
use polyserve::{Shutdown, park_until};

use super::BODY;

/// The present second, kept by a thread until a shutdown begins.
#[derive(Debug)]
pub(super) struct Clock {
    second: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Clock {
    /// Starts it. It ends when `shutdown` begins.
    pub(super) fn start(shutdown: &Shutdown) -> io::Result<Self> {
        let second = Arc::new(AtomicU64::new(since_epoch().as_secs()));
        let (shared, mut begun) = (Arc::clone(&second), shutdown.begun());
        let thread = thread::Builder::new().name("null_clock".into()).spawn(move || {
            loop {
                let now = since_epoch();
                shared.store(now.as_secs(), Ordering::Relaxed);
                let next = Duration::from_secs(1).saturating_sub(Duration::from_nanos(now.subsec_nanos().into()));
                if park_until(Some(Instant::now() + next), |cx| Pin::new(&mut begun).poll(cx)).is_some() {
                    break;
                }
            }
        })?;
        Ok(Self { second, thread })
    }

    fn second(&self) -> u64 {
        self.second.load(Ordering::Relaxed)
    }
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Copies of the answer in a row.
#[derive(Debug)]
pub(super) struct Answers {
    /// A send of `null_uring` has a share of them while it is in flight.
    bytes: Rc<Vec<u8>>,
    /// One copy's length.
    length: usize,
    /// The range of the date's line in a copy.
    date: Range<usize>,
    second: u64,
    clock: Clock,
}

impl Answers {
    /// One copy, with `Connection: close` if each connection has a single answer.
    pub(super) fn new(close: bool, clock: Clock) -> Self {
        let (second, mut bytes) = (clock.second(), Vec::new());
        bytes.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n");
        bytes.extend_from_slice(format!("Content-Length: {}\r\n", BODY.len()).as_bytes());
        if close {
            bytes.extend_from_slice(b"Connection: close\r\n");
        }
        let start = bytes.len();
        bytes.extend_from_slice(date(second).line().as_bytes());
        let date = start..bytes.len();
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(BODY.as_bytes());
        Self { length: bytes.len(), bytes: Rc::new(bytes), date, second, clock }
    }

    /// Returns `count` copies. Copies are made once, and stay.
    pub(super) fn take(&mut self, count: usize) -> &[u8] {
        let length = self.prepare(count);
        &self.bytes[..length]
    }

    /// Returns at least `count` copies, and the length of `count`. If they have to change while they are shared, the others keep them as
    /// they are.
    pub(super) fn share(&mut self, count: usize) -> (Rc<Vec<u8>>, usize) {
        let length = self.prepare(count);
        (Rc::clone(&self.bytes), length)
    }

    /// Makes `count` copies with the present second. Returns their length.
    fn prepare(&mut self, count: usize) -> usize {
        let second = self.clock.second();
        if second != self.second {
            self.renew(second);
        }
        let total_len = count * self.length;
        if self.bytes.len() < total_len {
            let bytes = Rc::make_mut(&mut self.bytes);
            while bytes.len() < total_len {
                bytes.extend_from_within(..self.length);
            }
        }
        total_len
    }

    /// Returns the number of answers that are not completely sent if `unsent` bytes are left.
    pub(super) fn owed(&self, unsent: usize) -> u64 {
        unsent.div_ceil(self.length) as u64
    }

    #[cold]
    fn renew(&mut self, second: u64) {
        let date = date(second);
        for copy in Rc::make_mut(&mut self.bytes).chunks_exact_mut(self.length) {
            copy[self.date.clone()].copy_from_slice(date.line().as_bytes());
        }
        self.second = second;
    }

    /// Waits until the clock's thread has ended. The shutdown must have begun.
    pub(super) fn end(self) {
        let _ = self.clock.thread.join(); // its panic is on standard error, and harms no request
    }
}

/// The date of a second. Its line always has the same length.
fn date(second: u64) -> Date {
    Date::new(UNIX_EPOCH + Duration::from_secs(second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_copy_says_the_second() {
        let shutdown = Shutdown::new();
        let mut answers = Answers::new(true, Clock::start(&shutdown).unwrap());
        assert_eq!(answers.take(3).len(), 3 * answers.length);
        for second in [784_111_777, 784_111_778] {
            answers.renew(second);
            let text = String::from_utf8(answers.bytes.to_vec()).unwrap();
            let expected = format!("Connection: close\r\n{}\r\n{BODY}", date(second).line());
            assert_eq!(text.matches(&expected).count(), 3, "{text}");
        }
        // The next send has the clock's second in every copy.
        let text = String::from_utf8(answers.take(1).to_vec()).unwrap();
        assert!(text.contains(date(answers.second).line()) && answers.second > 784_111_778, "{text}");
        assert_eq!(*answers.bytes, text.repeat(3).as_bytes());
        // What is shared stays as it is.
        let (shared, length) = answers.share(2);
        assert_eq!(shared[..length], *text.repeat(2).as_bytes());
        answers.renew(784_111_777);
        assert_eq!(shared[..length], *text.repeat(2).as_bytes());
        assert_eq!((answers.owed(0), answers.owed(1), answers.owed(answers.length + 1)), (0, 1, 2));
        shutdown.begin(Instant::now());
        answers.end();
    }
}
