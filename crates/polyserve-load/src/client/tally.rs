//! The counts of a client thread.

use hdrhistogram::Histogram;

use crate::clock::Reading;
use crate::load::{Load, Pace, Usage};
use crate::report::{Failures, RequestPhases, histogram};
use crate::retry::RetryReport;

/// The counts of a client thread.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) answered: u64,
    pub(crate) answered_late: u64,
    pub(crate) failed: Failures,
    /// The time and the description of the first failure.
    pub(crate) first_failure: Option<(u64, String)>,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) opened: u64,
    pub(crate) reconnects: u64,
    pub(crate) retried: u64,
    pub(crate) latency: Histogram<u64>,
    pub(crate) lateness: Option<Histogram<u64>>,
    pub(crate) phases: Option<RequestPhases>,
    /// The counts of clients that retry.
    pub(crate) retry: Option<RetryReport>,
    pub(crate) unsent: u64,
    pub(crate) unfinished: u64,
    /// The time at which the last counted request was settled.
    pub(crate) last: u64,
    /// Processor time of the thread in the measured period.
    pub(crate) cpu: u64,
    /// The part of `cpu` in which the thread was awake without work.
    pub(crate) spinning: u64,
    /// The server's processor time at the start and the end of the measured period, if this thread reads it.
    pub(crate) server: [Option<Reading>; 2],
}

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    Wrong,
    Status(u16),
    Timeout,
    Connect,
    Broken,
}

impl Tally {
    pub(crate) fn new(load: &Load) -> Self {
        Self {
            answered: 0,
            answered_late: 0,
            failed: Failures::default(),
            first_failure: None,
            sent: 0,
            received: 0,
            opened: 0,
            reconnects: 0,
            retried: 0,
            latency: histogram(),
            lateness: matches!(load.pace, Pace::Rate(_)).then(histogram),
            phases: (load.usage == Usage::Close).then(RequestPhases::new),
            retry: None,
            unsent: 0,
            unfinished: 0,
            last: 0,
            cpu: 0,
            spinning: 0,
            server: [None; 2],
        }
    }

    /// Counts `count` failures at `now`. Calls `why` only for the first failure.
    pub(crate) fn fail(&mut self, now: u64, kind: FailureKind, count: u64, why: impl FnOnce() -> String) {
        match kind {
            FailureKind::Wrong => self.failed.wrong += count,
            FailureKind::Status(status) => *self.failed.status.entry(status).or_default() += count,
            FailureKind::Timeout => self.failed.timeouts += count,
            FailureKind::Connect => self.failed.connect += count,
            FailureKind::Broken => self.failed.broken += count,
        }
        if self.first_failure.is_none() && count > 0 {
            self.first_failure = Some((now, why()));
        }
    }
}
