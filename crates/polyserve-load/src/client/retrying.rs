//! Clients that send a request again: the requests that wait for their next attempt, and the counts.
//!
//! Invariant: an attempt ends in one way: as an answer, a refusal or a timeout. After the end of the measured period no attempt begins.
//! Cost: an entry of a heap for each request that waits.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use rand_chacha::ChaCha8Rng;

use super::connection::{ClientConnection, Pending};
use super::worker_state::WorkerState;
use crate::arrivals;
use crate::clock;
use crate::load::Load;
use crate::retry::{Retry, RetryReport};

/// The requests of a thread that wait for their next attempt.
#[derive(Debug)]
pub(crate) struct Retrying {
    retry: Retry,
    deadline: u64,
    random: ChaCha8Rng,
    waiting: BinaryHeap<WaitingRequest>,
    report: RetryReport,
}

/// A request that waits. The one that is due first is the greatest.
#[derive(Debug)]
struct WaitingRequest(Pending);

impl Ord for WaitingRequest {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.due.cmp(&self.0.due)
    }
}

impl PartialOrd for WaitingRequest {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for WaitingRequest {
    fn eq(&self, other: &Self) -> bool {
        self.0.due == other.0.due
    }
}

impl Eq for WaitingRequest {}

/// How an attempt has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailedAttempt {
    /// A 503.
    Rejected,
    /// There was no answer in time.
    TimedOut,
}

impl Retrying {
    pub(super) fn new(load: &Load, thread: usize) -> Option<Self> {
        let retry = load.retry?;
        Some(Self {
            retry,
            deadline: clock::nanos(retry.deadline),
            random: load.traffic.pause_stream(thread),
            waiting: BinaryHeap::new(),
            report: RetryReport::new(),
        })
    }

    /// The counts, with requests that no connection was free for.
    pub(super) fn into_report(mut self, unsent: u64) -> RetryReport {
        self.report.offered += unsent;
        self.report
    }

    /// The time at which the next attempt is due.
    pub(super) fn due(&self) -> Option<u64> {
        self.waiting.peek().map(|first| first.0.due)
    }

    /// Takes an attempt that is due.
    pub(super) fn take(&mut self, now: u64) -> Option<Pending> {
        self.due().filter(|due| *due <= now)?;
        self.waiting.pop().map(|first| first.0)
    }

    /// Notes a right answer in the measured period.
    pub(super) fn answered(&mut self, pending: &Pending, now: u64) {
        let time = now.saturating_sub(pending.due);
        self.report.admitted.saturating_record(time.max(1));
        *if time <= self.deadline { &mut self.report.good } else { &mut self.report.late } += 1;
    }

    /// Notes a failed attempt. The request waits for its next one, if it has one.
    fn failed(&mut self, pending: &Pending, how: FailedAttempt, now: u64, is_counting: bool) {
        let count = u64::from(is_counting);
        match how {
            FailedAttempt::Rejected => self.report.rejected += count,
            FailedAttempt::TimedOut => self.report.timeouts += count,
        }
        if pending.attempt >= self.retry.attempts {
            self.report.given_up += count;
            return;
        }
        let pause = self.retry.pause_after(pending.attempt, arrivals::unit(&mut self.random));
        self.report.retries += count;
        let (due, attempt) = (now.saturating_add(pause), pending.attempt + 1);
        self.waiting.push(WaitingRequest(Pending { due, attempt, retries: 0, ..*pending }));
    }
}

impl WorkerState {
    /// Takes a request that is due now. One that no connection was free for in time is not sent.
    pub(super) fn take_due(&mut self) -> Option<Pending> {
        loop {
            let pending = self.take_next()?;
            if self.retrying.is_none() || self.now.saturating_sub(pending.due) <= self.timeout {
                return Some(pending);
            }
            self.attempt_failed(&pending, FailedAttempt::TimedOut);
        }
    }

    fn take_next(&mut self) -> Option<Pending> {
        let is_open = !self.schedule.is_over(self.now);
        let again = self.retrying.as_mut().filter(|_| is_open).and_then(|retrying| retrying.take(self.now));
        if again.is_some() {
            return again;
        }
        let from = self.schedule.peek(self.now)?;
        let (counts, planned) = (self.schedule.take(from), self.next_planned());
        let planned = self.requests.sent_now(planned);
        if let Some(retrying) = self.retrying.as_mut().filter(|_| counts) {
            retrying.report.offered += 1;
        }
        Some(Pending { planned, from, due: from, counts, retries: 0, attempt: 1 })
    }

    /// Ends an attempt without a right answer, if the clients retry. Returns false if they do not.
    pub(super) fn attempt_failed(&mut self, pending: &Pending, how: FailedAttempt) -> bool {
        let Some(retrying) = &mut self.retrying else { return false };
        retrying.failed(pending, how, self.now, self.is_counting);
        true
    }

    /// Ends the attempts of a connection that have had no answer in time, if the clients retry. Returns false if they do not.
    pub(super) fn attempts_timed_out(&mut self, connection: &mut ClientConnection, index: usize) -> bool {
        if self.retrying.is_none() {
            return false;
        }
        for at in connection.next..connection.pending.len() {
            let pending = connection.pending[at];
            self.attempt_failed(&pending, FailedAttempt::TimedOut);
        }
        connection.next = connection.pending.len();
        connection.close(true);
        self.busy -= 1;
        self.resume(connection, index);
        true
    }
}
