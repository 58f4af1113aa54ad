//! Waiting for sockets with `poll(2)`. Cost: two allocations, and a check of each socket.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

/// Waits until one of `sockets` is ready for its flags, or `deadline` has passed. Stores in `ready`, for each socket, whether
/// it is ready. If a signal interrupts the wait, none is.
///
/// # Errors
///
/// Returns the error of `poll(2)` if the system has no memory for it.
pub fn wait<'fd>(
    sockets: impl IntoIterator<Item = (BorrowedFd<'fd>, PollFlags)>,
    deadline: Option<Instant>,
    ready: &mut Vec<bool>,
) -> io::Result<()> {
    let mut polled: Vec<_> = sockets.into_iter().map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)).collect();
    match rustix::event::poll(&mut polled, deadline.and_then(timeout).as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    ready.clear();
    ready.extend(polled.iter().map(|fd| !fd.revents().is_empty()));
    Ok(())
}

/// Returns the time until `deadline`, or `None` if it is too long for the system. A timeout of zero does not wait.
fn timeout(deadline: Instant) -> Option<Timespec> {
    deadline.saturating_duration_since(Instant::now()).try_into().ok()
}

/// The milliseconds of `duration`, rounded up.
#[inline]
pub fn millis(duration: Duration) -> u64 {
    // Divides numbers of 32 bits only: each request rounds a deadline.
    duration.as_secs().saturating_mul(1000).saturating_add(u64::from(duration.subsec_nanos().div_ceil(1_000_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_rounded_up() {
        let parts = [(0, 0, 0), (0, 1, 1), (2, 1_000_000, 2001), (2, 1_000_001, 2002), (2, 999_999_999, 3000)];
        for (seconds, nanos, rounded) in parts {
            assert_eq!(millis(Duration::new(seconds, nanos)), rounded);
        }
        assert_eq!(millis(Duration::MAX), u64::MAX);
    }

    /// Regression test: a poll with a deadline that has passed waited for a millisecond. This happened for each answer of the
    /// sequential server.
    #[test]
    fn a_deadline_that_has_passed_is_a_timeout_of_zero() {
        assert_eq!(timeout(Instant::now()), Some(Timespec { tv_sec: 0, tv_nsec: 0 }));
    }
}
