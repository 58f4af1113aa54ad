//! What every accept loop needs to go on for ever, and to end.

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::ServerState;
use crate::net;

/// How long an accept loop rests when the system has no descriptor or memory left.
pub const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

/// The connections that wait to be accepted when a drain begins; the listener is closed after them. Clients that
/// connect again and again cannot draw it out: no more are taken than could wait at once.
pub fn drain_backlog(listener: TcpListener, server: &ServerState) -> Vec<TcpStream> {
    let mut guests = Vec::new();
    for _ in 0..server.config.backlog {
        match listener.accept() {
            Ok((stream, _)) => guests.push(stream),
            Err(error) if net::is_connection_error(&error) => {}
            Err(_) => break,
        }
    }
    drop(listener);
    guests
}

/// Something that goes wrong again and again, and is logged once a second at the most. Cost: a clock and a swap.
#[derive(Debug)]
pub struct LogThrottle {
    start: Instant,
    /// Seconds since the start of when it was logged last, plus one; 0 before.
    last: AtomicU64,
}

impl Default for LogThrottle {
    fn default() -> Self {
        Self::new()
    }
}

impl LogThrottle {
    /// One that was not made yet.
    pub fn new() -> Self {
        Self { start: Instant::now(), last: AtomicU64::new(0) }
    }

    /// Whether it is to be logged now; then not again within this second.
    pub fn is_due(&self) -> bool {
        self.is_due_after(self.start.elapsed())
    }

    fn is_due_after(&self, elapsed: Duration) -> bool {
        let now = elapsed.as_secs() + 1;
        self.last.swap(now, Ordering::Relaxed) != now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While descriptors were out, each of twenty attempts a second was logged.
    #[test]
    fn a_complaint_is_made_once_a_second() {
        let log_throttle = LogThrottle::new();
        let due = |millis| log_throttle.is_due_after(Duration::from_millis(millis));
        assert_eq!([0, 50, 999, 1000, 1050, 3000].map(due), [true, false, false, true, false, true]);
    }
}
