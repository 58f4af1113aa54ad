//! The server's clock, the earliest deadline, and how workers share the turns.
//!
//! Times are milliseconds since the server's start, so that a slot can store them in an atomic number.
//!
//! Invariant: no deadline of a connection that waits is earlier than [`Clock::earliest`], except while the supervisor is
//! being woken. Cost: a load for each wait, and one reading of the clock for each turn.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use polyserve_serving::millis;

/// The service is slow if turns take longer than this on average, in microseconds.
const SLOW_TURN: u64 = 200;

/// A longer turn counts as this number of microseconds: its thread may have been preempted.
const MAX_SAMPLE: u64 = 1_000;

/// A worker submits another job if it would take longer than this to serve the connections that wait, in microseconds.
const HELP_AFTER: u64 = 100;

/// The time since the server's start, and the earliest deadline.
#[derive(Debug)]
pub(super) struct Clock {
    start: Instant,
    earliest: AtomicU64,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), earliest: AtomicU64::new(u64::MAX) }
    }

    pub(super) fn now(&self) -> u64 {
        self.millis_at(Instant::now())
    }

    /// Milliseconds from the server's start to `instant`, rounded up.
    pub(super) fn millis_at(&self, instant: Instant) -> u64 {
        millis(instant.saturating_duration_since(self.start))
    }

    /// The time that is `millis` after the server's start.
    pub(super) fn instant(&self, millis: u64) -> Option<Instant> {
        self.start.checked_add(Duration::from_millis(millis))
    }

    /// The earliest deadline; `None` if there is none.
    pub(super) fn earliest(&self) -> Option<Instant> {
        let millis = self.earliest.load(Ordering::SeqCst);
        (millis < u64::MAX).then(|| self.instant(millis))?
    }

    /// Whether a deadline may have passed at `now`.
    pub(super) fn may_be_late(&self, now: u64) -> bool {
        self.earliest.load(Ordering::SeqCst) < now
    }

    /// Notes a deadline. Returns true if it is the earliest: the supervisor is to be woken.
    #[must_use]
    pub(super) fn note(&self, deadline: u64) -> bool {
        deadline < self.earliest.load(Ordering::SeqCst)
            && deadline < self.earliest.fetch_min(deadline, Ordering::SeqCst)
    }

    /// Forgets the earliest deadline. Called before a sweep reads the deadlines of all slots.
    pub(super) fn begin_sweep(&self) {
        self.earliest.store(u64::MAX, Ordering::SeqCst);
    }

    /// Notes the earliest deadline that a sweep has read.
    pub(super) fn end_sweep(&self, earliest: u64) {
        self.earliest.fetch_min(earliest, Ordering::SeqCst);
    }
}

/// The average duration of about the last eight turns, in microseconds.
#[derive(Debug, Default)]
pub(super) struct TurnTime(AtomicU64);

/// How workers share the load at the moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct DispatchPolicy {
    /// The service is slow: the supervisor polls, and each connection is a job.
    pub(super) dispatch: bool,
    /// A worker submits another job if more than this number of connections wait.
    pub(super) help_beyond: usize,
}

impl TurnTime {
    /// Notes the duration of a turn.
    pub(super) fn note(&self, duration: Duration) {
        let sample = u64::try_from(duration.as_micros()).unwrap_or(MAX_SAMPLE).min(MAX_SAMPLE);
        let before = self.0.load(Ordering::Relaxed);
        self.0.store((before * 7 + sample) / 8, Ordering::Relaxed);
    }

    pub(super) fn policy(&self) -> DispatchPolicy {
        let average = self.0.load(Ordering::Relaxed).max(1);
        DispatchPolicy {
            dispatch: average > SLOW_TURN,
            help_beyond: usize::try_from(HELP_AFTER / average).unwrap_or(0),
        }
    }
}
