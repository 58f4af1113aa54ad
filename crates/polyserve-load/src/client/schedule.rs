//! The due times of requests, and whether a request counts.
//!
//! Invariant: in an open loop, request `k` of all threads is due at `start + k / rate`. The time is computed from `k`
//! alone, so errors do not add up, and nothing is queued however slow the server is. A request that was due before the end
//! of the measured period may be sent for a bounded time after it. Cost: a few additions and comparisons a request.

use crate::clock;
use crate::load::{Load, Pace, RunLength};

/// The times of a run, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// The time of the first request.
    pub(crate) start: u64,
    /// The start of the measured period.
    pub(crate) counted: u64,
    /// The end of the measured period; `u64::MAX` if the run length is a number of requests.
    pub(crate) end: u64,
}

#[derive(Debug)]
pub(crate) struct Schedule {
    pub(crate) times: Times,
    /// How long the client waits for answers after the end of the measured period.
    pub(crate) grace: u64,
    /// No request is sent from this time on: the end of the measured period, or in an open loop the end of the grace.
    until: u64,
    /// Open loop: the time of the last send.
    pub(crate) last_sent: u64,
    is_stopped: bool,
    /// The number of remaining counted requests; `u64::MAX` if the run length is a time.
    left: u64,
    open: Option<Open>,
}

/// The due times of one thread.
#[derive(Debug)]
struct Open {
    interval: f64,
    thread: u64,
    threads: u64,
    /// The next request of this thread.
    next: u64,
    due: u64,
}

/// The max value of [`Schedule::grace`]: two seconds.
const LONGEST_GRACE: u64 = 2_000_000_000;
/// The max number of groups of waits of unsent requests.
const MAX_GROUPS: u64 = 1024;

impl Schedule {
    pub(crate) fn new(load: &Load, thread: usize, times: Times) -> Self {
        let (thread, threads) = (thread as u64, load.threads as u64);
        let left = match load.length {
            RunLength::Time(_) => u64::MAX,
            RunLength::Requests(all) => share(all, thread, threads),
        };
        let open = match load.pace {
            Pace::Closed => None,
            Pace::Rate(rate) => {
                let mut open = Open { interval: 1e9 / rate, thread, threads, next: 0, due: 0 };
                open.due = open.at(times.start, 0);
                Some(open)
            }
        };
        let grace = clock::of(load.patience).min(LONGEST_GRACE);
        let until = if open.is_some() { times.end.saturating_add(grace) } else { times.end };
        Self { times, grace, until, last_sent: 0, is_stopped: false, left, open }
    }

    /// Returns the start of the next request's latency if a request may be sent now.
    #[inline]
    pub(crate) fn peek(&self, now: u64) -> Option<u64> {
        if now >= self.until || self.left == 0 {
            return None;
        }
        match &self.open {
            None => Some(now),
            Some(open) => (open.due <= now && open.due < self.times.end).then_some(open.due),
        }
    }

    /// Takes the request that [`peek`](Self::peek) has returned. Returns whether it counts.
    #[inline]
    pub(crate) fn take(&mut self, from: u64) -> bool {
        if let Some(open) = &mut self.open {
            open.next += 1;
            open.due = open.at(self.times.start, open.next);
        }
        let counts = from >= self.times.counted;
        if counts && self.left != u64::MAX {
            self.left -= 1;
        }
        counts
    }

    /// Open loop: returns the due time of the next request, if it is before the end.
    pub(crate) fn due(&self) -> Option<u64> {
        let open = self.open.as_ref().filter(|open| open.due < self.times.end && self.left > 0);
        open.map(|open| open.due)
    }

    /// Whether no more request will be sent.
    pub(crate) fn is_over(&self, now: u64) -> bool {
        self.left == 0 || now >= self.until || (now >= self.times.end && self.due().is_none())
    }

    /// Returns the time at which the client stops waiting. A request that is sent after the end has the same grace.
    pub(crate) fn abandons_at(&self) -> u64 {
        self.times.end.max(self.last_sent).saturating_add(self.grace)
    }

    /// Whether the load was stopped before its end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Whether the run length is a time.
    pub(crate) fn is_timed(&self) -> bool {
        self.left == u64::MAX
    }

    /// Stops the schedule: no request is sent from `now` on.
    pub(crate) fn stop(&mut self, now: u64) {
        self.times.end = self.times.end.min(now);
        (self.until, self.is_stopped) = (self.times.end, true);
    }

    /// Open loop: returns the waits until `now` of the requests that were due in the measured period and not taken, each with
    /// its count. If there are many, neighbours are grouped under the longest wait of the group.
    pub(crate) fn unsent_waits(&self, now: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (first, count) = self.unsent(self.times.end.min(now));
        let group = count.div_ceil(MAX_GROUPS).max(1);
        let due = move |k| self.open.as_ref().map_or(now, |open| open.at(self.times.start, k));
        let starts = (0..count.div_ceil(group)).map(move |at| at * group);
        starts.map(move |k| (now.saturating_sub(due(first + k)), group.min(count - k)))
    }

    /// Open loop: returns the first request that was due in the measured period before `end` and not taken, and their count.
    fn unsent(&self, end: u64) -> (u64, u64) {
        let Some(open) = &self.open else { return (0, 0) };
        let due_before = |time: u64| {
            let intervals = time.saturating_sub(self.times.start) as f64 / open.interval;
            ((intervals - open.thread as f64) / open.threads as f64).ceil().max(0.0) as u64
        };
        let first = open.next.max(due_before(self.times.counted));
        (first, due_before(end).saturating_sub(first).min(self.left))
    }
}

impl Open {
    fn at(&self, start: u64, k: u64) -> u64 {
        let place = k.saturating_mul(self.threads).saturating_add(self.thread);
        start.saturating_add((place as f64 * self.interval) as u64)
    }
}

/// Returns the share of `all` for thread number `thread` of `threads`.
pub(crate) fn share(all: u64, thread: u64, threads: u64) -> u64 {
    let upto = |thread: u64| (u128::from(all) * u128::from(thread) / u128::from(threads.max(1))) as u64;
    upto(thread + 1) - upto(thread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Traffic;
    use std::time::Duration;

    const SECOND: u64 = 1_000_000_000;

    fn load(pace: Pace, length: RunLength) -> Load {
        let traffic = Traffic::one("GET", "/", None, None).unwrap();
        Load::new(([127, 0, 0, 1], 1).into(), traffic).with(|load| (load.pace, load.length) = (pace, length))
    }

    #[test]
    fn due_times_are_even_over_all_threads() {
        let load = load(Pace::Rate(1000.0), RunLength::Time(Duration::from_secs(1))).with(|load| load.threads = 2);
        let times = Times { start: 5, counted: 5, end: 5 + SECOND };
        let mut all = Vec::new();
        for thread in 0..2 {
            let mut schedule = Schedule::new(&load, thread, times);
            while let Some(due) = schedule.peek(u64::MAX - 1).or(schedule.peek(times.end - 1)) {
                assert!(schedule.take(due));
                all.push(due);
            }
            assert_eq!(schedule.unsent(times.end).1, 0);
        }
        all.sort_unstable();
        assert_eq!(all.len(), 1000);
        assert!(all.iter().zip(0..).all(|(due, k)| due.abs_diff(5 + k * SECOND / 1000) <= 1));
    }

    #[test]
    fn what_was_due_and_not_sent_is_known() {
        let load = load(Pace::Rate(1000.0), RunLength::Time(Duration::from_secs(1)));
        let times = Times { start: 0, counted: SECOND / 2, end: SECOND };
        let mut schedule = Schedule::new(&load, 0, times);
        assert_eq!(schedule.peek(0), Some(0));
        assert!(!schedule.take(0), "the warm-up does not count");
        assert_eq!(schedule.peek(0), None, "the next is due in a millisecond");
        assert_eq!(schedule.unsent(SECOND), (500, 500));
        for _ in 1..600 {
            let due = schedule.peek(SECOND - 1).unwrap();
            schedule.take(due);
        }
        assert_eq!(schedule.unsent(SECOND), (600, 400));
        assert_eq!(schedule.peek(2 * SECOND), Some(SECOND * 6 / 10), "what was due before the end is sent after it");
        assert!(!schedule.is_over(2 * SECOND) && schedule.is_over(3 * SECOND));
        assert_eq!(schedule.peek(3 * SECOND), None, "nothing is sent after the grace");
        let waits: Vec<_> = schedule.unsent_waits(3 * SECOND).collect();
        assert_eq!((waits.len(), waits[0]), (400, (3 * SECOND - SECOND * 6 / 10, 1)));
        assert!(waits.windows(2).all(|pair| pair[0].0 > pair[1].0) && waits[399].0 > 2 * SECOND);
        schedule.stop(SECOND * 8 / 10);
        assert_eq!((schedule.unsent(SECOND * 8 / 10), schedule.peek(SECOND * 8 / 10)), ((600, 200), None));
    }

    /// If there are many waits, they are grouped: the count is exact, and no wait is shortened.
    #[test]
    fn waits_of_what_was_never_sent_are_bounded_in_number() {
        let load = load(Pace::Rate(1e6), RunLength::Time(Duration::from_secs(1)));
        let schedule = Schedule::new(&load, 0, Times { start: 0, counted: 0, end: SECOND });
        let waits: Vec<_> = schedule.unsent_waits(2 * SECOND).collect();
        assert!(waits.len() <= MAX_GROUPS as usize && waits[0].0 == 2 * SECOND);
        assert_eq!(waits.iter().map(|(_, count)| count).sum::<u64>(), 1_000_000);
        assert!(waits.iter().all(|(wait, _)| *wait > SECOND));
    }

    #[test]
    fn at_most_the_given_number_of_requests_counts() {
        for pace in [Pace::Closed, Pace::Rate(1000.0)] {
            let load = load(pace, RunLength::Requests(10)).with(|load| load.threads = 3);
            let times = Times { start: 0, counted: SECOND, end: u64::MAX };
            let mut counted = 0;
            for thread in 0..3 {
                let mut schedule = Schedule::new(&load, thread, times);
                let from = schedule.peek(SECOND - 1).unwrap();
                assert!(!schedule.take(from));
                while let Some(from) = schedule.peek(3 * SECOND) {
                    counted += u64::from(schedule.take(from));
                }
                assert!(schedule.is_over(0));
            }
            assert_eq!(counted, 10, "{pace:?}");
        }
    }
}
