//! What a client thread has counted.

use hdrhistogram::Histogram;

use crate::clock::Reading;
use crate::load::{Load, Pace, Usage};
use crate::report::{Failures, Parts, histogram};

#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) answered: u64,
    pub(crate) answered_late: u64,
    pub(crate) failed: Failures,
    /// When the first failure was, and what.
    pub(crate) first_failure: Option<(u64, String)>,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) opened: u64,
    pub(crate) reconnects: u64,
    pub(crate) retried: u64,
    pub(crate) latency: Histogram<u64>,
    pub(crate) lateness: Option<Histogram<u64>>,
    pub(crate) parts: Option<Parts>,
    pub(crate) unsent: u64,
    pub(crate) unfinished: u64,
    /// When the last counted request was settled.
    pub(crate) last: u64,
    /// Processor time of the thread in the counted span.
    pub(crate) cpu: u64,
    /// How long of it the thread was awake with nothing to do.
    pub(crate) spinning: u64,
    /// Where this thread reads it: the server's processor time at the counted span's beginning, and at its end.
    pub(crate) server: [Option<Reading>; 2],
}

/// Why a request has no right answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
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
            parts: (load.usage == Usage::Close).then(Parts::new),
            unsent: 0,
            unfinished: 0,
            last: 0,
            cpu: 0,
            spinning: 0,
            server: [None; 2],
        }
    }

    /// Counts `count` failures at `now`; `why` is asked for the first alone.
    pub(crate) fn fail(&mut self, now: u64, kind: Kind, count: u64, why: impl FnOnce() -> String) {
        match kind {
            Kind::Wrong => self.failed.wrong += count,
            Kind::Status(status) => *self.failed.status.entry(status).or_default() += count,
            Kind::Timeout => self.failed.timeouts += count,
            Kind::Connect => self.failed.connect += count,
            Kind::Broken => self.failed.broken += count,
        }
        if self.first_failure.is_none() && count > 0 {
            self.first_failure = Some((now, why()));
        }
    }
}
