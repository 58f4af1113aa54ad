//! Clients that send a request again, after a refusal or without an answer in time: what they do, and the results.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::report::{histogram, quantiles};

/// What clients do after a 503, or without an answer within [`Load::timeout`](crate::Load::timeout): they send
/// the request again. Clients that do so keep a server overloaded (Bronson et al., "Metastable failures in distributed systems",
/// HotOS 2021).
///
/// The deadline counts from the time at which the attempt is due, the timeout from the time at which it is sent. After
/// its timeout a client closes the connection. An attempt also ends if no connection is free for that time. A client does not wait
/// for as long as the `Retry-After` of a refusal asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retry {
    /// The max number of times that a request is sent, with the first. Default 3.
    pub attempts: u32,
    /// The mean pause before the second attempt. Each further one is twice as long. A pause is at random from half to one and a half of
    /// its mean. Default 20 ms.
    pub pause: Duration,
    /// An answer within this time is good. Default 100 ms.
    pub deadline: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        let [pause, deadline] = [20, 100].map(Duration::from_millis);
        Self { attempts: 3, pause, deadline }
    }
}

impl Retry {
    /// These clients, changed.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Returns what is wrong, if a value is out of range.
    pub(crate) fn misuse(&self) -> Option<String> {
        let Self { attempts, pause, deadline, .. } = *self;
        if !(1..=100).contains(&attempts) {
            return Some(format!("{attempts} attempts are not between 1 and 100"));
        }
        let times = Duration::from_micros(1)..=Duration::from_secs(3600);
        let wrong = [("pause", pause), ("deadline", deadline)].into_iter().find(|(_, time)| !times.contains(time));
        wrong.map(|(name, time)| format!("the {name} of a retry, {time:?}, is not between 1 us and 1 h"))
    }

    /// The pause after attempt number `attempt`, from 1, in nanoseconds. `draw` is a number from 0 to 1.
    pub(crate) fn pause_after(&self, attempt: u32, draw: f64) -> u64 {
        let doubled = self.pause.as_nanos() as f64 * f64::from(2_u32.saturating_pow(attempt.saturating_sub(1)));
        (doubled * (0.5 + draw)) as u64
    }
}

/// What clients that retry have measured. All counts are of the measured period.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RetryReport {
    /// Requests that were due for the first time.
    pub offered: u64,
    /// Requests that were due once more, each time.
    pub retries: u64,
    /// Right answers within the deadline.
    pub good: u64,
    /// Right answers after the deadline.
    pub late: u64,
    /// Answers 503.
    pub rejected: u64,
    /// Attempts without an answer within the timeout of the client.
    pub timeouts: u64,
    /// Requests without a further attempt: the last one has failed.
    pub given_up: u64,
    /// The times of right answers from the due time of their attempt on, in nanoseconds.
    #[serde(serialize_with = "quantiles")]
    pub admitted: Histogram<u64>,
}

impl RetryReport {
    pub(crate) fn new() -> Self {
        let [offered, retries, good, late, rejected, timeouts, given_up] = [0; 7];
        Self { offered, retries, good, late, rejected, timeouts, given_up, admitted: histogram() }
    }

    /// Adds the counts of another thread.
    pub(crate) fn add(&mut self, other: &Self) {
        self.offered += other.offered;
        self.retries += other.retries;
        self.good += other.good;
        self.late += other.late;
        self.rejected += other.rejected;
        self.timeouts += other.timeouts;
        self.given_up += other.given_up;
        self.admitted.add(&other.admitted).expect("equal bounds");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_vary_by_half() {
        let retry = Retry::default().with(|retry| retry.pause = Duration::from_nanos(1000));
        let pauses = [(1, 0.0), (1, 1.0), (2, 0.5), (3, 0.5)].map(|(attempt, draw)| retry.pause_after(attempt, draw));
        assert_eq!(pauses, [500, 1500, 2000, 4000]);
        assert!(retry.pause_after(u32::MAX, 0.5) > 0);
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_name() {
        let refused = |change: fn(&mut Retry)| Retry::default().with(change).misuse().unwrap_or_default();
        assert_eq!(refused(|_| ()), "");
        assert!(refused(|retry| retry.attempts = 0).contains("attempts"));
        assert!(refused(|retry| retry.pause = Duration::ZERO).contains("pause"));
        assert!(refused(|retry| retry.deadline = Duration::MAX).contains("deadline"));
    }
}
