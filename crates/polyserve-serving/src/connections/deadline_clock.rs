//! Deadlines of many connections: times as numbers that fit in an atomic, and a lower bound of all deadlines.
//!
//! A timer for each connection would take a lock for each request. Instead, a connection stores its deadline in a word of its
//! own, and [`DeadlineClock`] has a lower bound of all these words. When the bound has passed, one thread *sweeps*: it looks at
//! all connections.
//!
//! # No deadline is missed
//!
//! A sweep first resets the bound, and then loads the deadlines. A connection first stores its deadline, and then loads the
//! bound. All four operations are sequentially consistent. So the sweep loads the new deadline, or the connection finds the
//! bound reset, and lowers it. Then it wakes the thread that sweeps.
//!
//! Cost: a load for each wait.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The number that stands for no deadline.
pub(super) const NEVER: u64 = u64::MAX;

/// The time since a server's start, in milliseconds, and a lower bound of the deadlines of its connections.
#[derive(Debug)]
pub struct DeadlineClock {
    pub(super) start: Instant,
    earliest: AtomicU64,
}

impl Default for DeadlineClock {
    fn default() -> Self {
        Self { start: Instant::now(), earliest: AtomicU64::new(NEVER) }
    }
}

impl DeadlineClock {
    /// The milliseconds from the start until now, rounded up.
    pub fn now(&self) -> u64 {
        self.millis_at(Instant::now())
    }

    /// The milliseconds from the start to `instant`, rounded up.
    #[inline]
    pub fn millis_at(&self, instant: Instant) -> u64 {
        millis(self.time_at(instant))
    }

    /// The time from the start to `instant`.
    #[inline]
    pub fn time_at(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.start)
    }

    /// The time that is `millis` after the start.
    #[inline]
    pub fn instant(&self, millis: u64) -> Option<Instant> {
        self.start.checked_add(Duration::from_millis(millis))
    }

    /// The time that is this much after the start.
    #[inline]
    pub fn instant_after(&self, time: Duration) -> Option<Instant> {
        self.start.checked_add(time)
    }

    /// A lower bound of all deadlines; `None` if there is none.
    pub fn earliest(&self) -> Option<Instant> {
        let millis = self.earliest.load(Ordering::SeqCst);
        if millis == NEVER { None } else { self.instant(millis) }
    }

    /// Notes a deadline, which was stored in a sequentially consistent order before. Returns true if it lowers the bound. Then the
    /// thread that sweeps is to be woken.
    #[inline]
    #[must_use]
    pub fn note(&self, deadline: u64) -> bool {
        deadline < self.earliest.load(Ordering::SeqCst)
            && deadline < self.earliest.fetch_min(deadline, Ordering::SeqCst)
    }

    /// Resets the bound. To be called before a sweep loads the deadlines. The sweep [notes](Self::note) the earliest of them at its
    /// end.
    pub fn begin_sweep(&self) {
        self.earliest.store(NEVER, Ordering::SeqCst);
    }
}

/// The last time that a thread has converted to milliseconds of a [`DeadlineClock`]. Many connections begin to wait within the same
/// millisecond, and to see that a time lies in it costs less than to convert it.
#[derive(Debug, Default)]
pub(crate) struct LastMillis(Option<KnownMillis>);

#[derive(Debug)]
struct KnownMillis {
    clock_start: Instant,
    after: Instant,
    until: Instant,
    millis: u64,
}

impl LastMillis {
    /// Returns [`DeadlineClock::millis_at`] of `clock` and `instant`.
    #[inline]
    pub(crate) fn at(&mut self, clock: &DeadlineClock, instant: Instant) -> u64 {
        match &self.0 {
            Some(known) if instant > known.after && instant <= known.until && clock.start == known.clock_start => {
                known.millis
            }
            _ => self.convert(clock, instant),
        }
    }

    #[inline(never)]
    fn convert(&mut self, clock: &DeadlineClock, instant: Instant) -> u64 {
        let millis = clock.millis_at(instant);
        let limits = millis.checked_sub(1).and_then(|before| clock.instant(before)).zip(clock.instant(millis));
        self.0 = limits.map(|(after, until)| KnownMillis { clock_start: clock.start, after, until, millis });
        millis
    }
}

/// The milliseconds of `duration`, rounded up.
#[inline]
pub fn millis(duration: Duration) -> u64 {
    // Divides numbers of 32 bits only: each request rounds a deadline.
    duration.as_secs().saturating_mul(1000).saturating_add(u64::from(duration.subsec_nanos().div_ceil(1_000_000)))
}

/// The nanoseconds of `duration`. They fit for more than 500 years.
#[inline]
pub fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(duration.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_millisecond_is_that_of_the_clock() {
        let (clock, mut last) = (DeadlineClock::default(), LastMillis::default());
        let other = DeadlineClock { start: clock.start + Duration::from_micros(500), ..DeadlineClock::default() };
        for micros in [0, 1, 999, 1000, 1001, 1999, 2000, 2001, 1, 0, 1_000_000] {
            let instant = clock.start + Duration::from_micros(micros);
            for clock in [&clock, &clock, &other] {
                assert_eq!(last.at(clock, instant), clock.millis_at(instant), "{micros}");
            }
        }
    }

    #[test]
    fn milliseconds_are_rounded_up() {
        let parts = [(0, 0, 0), (0, 1, 1), (2, 1_000_000, 2001), (2, 1_000_001, 2002), (2, 999_999_999, 3000)];
        for (seconds, nanos, rounded) in parts {
            assert_eq!(millis(Duration::new(seconds, nanos)), rounded);
        }
        assert_eq!(millis(Duration::MAX), u64::MAX);
    }
}
