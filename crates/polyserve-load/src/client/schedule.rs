//! The due times of requests, and whether a request counts.
//!
//! Invariant: the due times of an open loop do not depend on the server, and nothing is queued however slow it is. With
//! even arrivals, request `k` of all threads is due at `start + k / rate`. With Poisson arrivals, each thread has a process of its
//! own; together they are one of the whole rate. The same seed, part and rate give the same times. A request that was due
//! before the end of the measured period may be sent for a bounded time after it.
//!
//! Cost: a few additions and comparisons a request, and with Poisson arrivals a logarithm.

use rand_chacha::ChaCha8Rng;

use crate::arrivals::{self, Arrivals};
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
    /// How long the client sends remaining due requests after the end of the measured period. A load that is stopped, or that
    /// retries, waits only so long for answers too.
    pub(crate) grace: u64,
    /// How long the client waits for an answer.
    pub(crate) timeout: u64,
    retries: bool,
    /// No request is sent from this time on: the end of the measured period, or in an open loop without retries the end of the grace.
    until: u64,
    /// Open loop: the time of the last send.
    pub(crate) last_sent: u64,
    is_stopped: bool,
    /// The number of remaining counted requests; `u64::MAX` if the run length is a time.
    left: u64,
    open: Option<OpenLoop>,
}

/// The due times of one thread.
#[derive(Clone, Debug)]
struct OpenLoop {
    start: u64,
    /// The mean interval of this thread's requests, in nanoseconds.
    interval: f64,
    /// The due time of the first request after the start, in nanoseconds.
    first: f64,
    /// The random numbers of Poisson arrivals; `None` if the arrivals are even.
    random: Option<Box<ChaCha8Rng>>,
    /// The number of requests before the next one.
    next: u64,
    /// The time from the start to the next request, in nanoseconds.
    elapsed: f64,
    due: u64,
}

/// The max value of [`Schedule::grace`]: two seconds.
const MAX_GRACE: u64 = 2_000_000_000;
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
                let random = match load.arrivals {
                    Arrivals::Poisson => Some(Box::new(load.traffic.arrival_stream(thread as usize))),
                    Arrivals::Even => None,
                };
                Some(OpenLoop::new(times.start, 1e9 / rate, [thread, threads], random))
            }
        };
        let (timeout, retries) = (clock::nanos(load.timeout), load.retry.is_some());
        let grace = timeout.min(MAX_GRACE);
        let until = if open.is_some() && !retries { times.end.saturating_add(grace) } else { times.end };
        Self { times, grace, timeout, retries, until, last_sent: 0, is_stopped: false, left, open }
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
            open.advance();
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

    /// Returns the time at which the client stops waiting for answers: no request has waited longer than the timeout then. No client
    /// waits for an answer in a load that is stopped, or after the end of one that retries.
    pub(crate) fn abandons_at(&self) -> u64 {
        let wait = if self.is_stopped || self.retries { self.grace } else { self.timeout };
        self.times.end.max(self.last_sent).saturating_add(wait)
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
        let unsent = || self.unsent(self.times.end.min(now));
        let count = unsent().count() as u64;
        let group = count.div_ceil(MAX_GROUPS).max(1);
        let firsts = unsent().zip(0..).filter(move |(_, place)| place % group == 0);
        firsts.map(move |(due, place)| (now.saturating_sub(due), group.min(count - place)))
    }

    /// Open loop: returns the due times of the requests that were due in the measured period before `end` and not taken.
    fn unsent(&self, end: u64) -> impl Iterator<Item = u64> + '_ {
        let mut open = self.open.clone();
        let dues = std::iter::from_fn(move || {
            let open = open.as_mut()?;
            let due = open.due;
            open.advance();
            Some(due)
        });
        let counted = dues.take_while(move |due| *due < end).filter(|due| *due >= self.times.counted);
        counted.take(usize::try_from(self.left).unwrap_or(usize::MAX))
    }
}

impl OpenLoop {
    /// The due times of a thread, from `start` on; `interval` is that of all threads.
    fn new(start: u64, interval: f64, [thread, threads]: [u64; 2], random: Option<Box<ChaCha8Rng>>) -> Self {
        let (thread_interval, first) = (interval * threads as f64, interval * thread as f64);
        let mut open = Self { start, interval: thread_interval, first, random, next: 0, elapsed: 0.0, due: 0 };
        open.find_due();
        open
    }

    /// Goes on to the next request.
    fn advance(&mut self) {
        self.next += 1;
        self.find_due();
    }

    fn find_due(&mut self) {
        self.elapsed = match &mut self.random {
            Some(random) => self.elapsed + arrivals::interval(random, self.interval),
            // From the number alone, so that errors do not add up.
            None => self.first + self.next as f64 * self.interval,
        };
        self.due = self.start.saturating_add(self.elapsed as u64);
    }
}

/// Returns the share of `all` for thread number `thread` of `threads`.
pub(crate) fn share(all: u64, thread: u64, threads: u64) -> u64 {
    let before = |thread: u64| (u128::from(all) * u128::from(thread) / u128::from(threads.max(1))) as u64;
    before(thread + 1) - before(thread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Traffic;
    use std::time::Duration;

    const SECOND: u64 = 1_000_000_000;

    fn load(pace: Pace, length: RunLength) -> Load {
        let traffic = Traffic::one("GET", "/", None, None).unwrap();
        Load::new(([127, 0, 0, 1], 1).into(), traffic).with(|load| {
            (load.pace, load.length) = (pace, length);
            load.arrivals = Arrivals::Even;
        })
    }

    /// The first unsent request, and their number.
    fn unsent(schedule: &Schedule, end: u64) -> (Option<u64>, usize) {
        (schedule.unsent(end).next(), schedule.unsent(end).count())
    }

    /// The due times of all threads in one second.
    fn dues(rate: f64, threads: usize, part: u64) -> Vec<u64> {
        let load = load(Pace::Rate(rate), RunLength::Time(Duration::from_secs(1))).with(|load| {
            (load.threads, load.arrivals) = (threads, Arrivals::Poisson);
            load.traffic = load.traffic.part(part);
        });
        let times = Times { start: 5, counted: 5, end: 5 + SECOND };
        let mut all = Vec::new();
        for thread in 0..threads {
            let mut schedule = Schedule::new(&load, thread, times);
            let announced: Vec<u64> = schedule.unsent(times.end).collect();
            let before = all.len();
            while let Some(due) = schedule.peek(times.end - 1) {
                assert!(schedule.take(due));
                all.push(due);
            }
            assert_eq!(announced, all[before..], "what is unsent is what would have been sent");
        }
        all.sort_unstable();
        all
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_scatter_of_a_poisson_process() {
        for threads in [1, 3] {
            let all = dues(100_000.0, threads, 0);
            // Five standard deviations of a count with a mean of 100,000.
            assert!(all.len().abs_diff(100_000) < 1_581, "{}", all.len());
            // Of exponential intervals the share that is longer than the mean is 1/e, and than three means is 1/e^3.
            for (means, share) in [(1.0, 0.3679), (3.0, 0.0498)] {
                let longer = all.windows(2).filter(|pair| (pair[1] - pair[0]) as f64 > means * 1e4).count();
                let measured = longer as f64 / all.len() as f64;
                assert!((measured - share).abs() < 0.008, "{measured} of the intervals exceed {means} means");
            }
        }
        assert_eq!(dues(1000.0, 2, 7), dues(1000.0, 2, 7));
        assert_ne!(dues(1000.0, 2, 7), dues(1000.0, 2, 8));
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
            assert_eq!(schedule.unsent(times.end).count(), 0);
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
        assert_eq!(unsent(&schedule, SECOND), (Some(SECOND / 2), 500));
        for _ in 1..600 {
            let due = schedule.peek(SECOND - 1).unwrap();
            schedule.take(due);
        }
        assert_eq!(unsent(&schedule, SECOND), (Some(SECOND * 6 / 10), 400));
        assert_eq!(schedule.peek(2 * SECOND), Some(SECOND * 6 / 10), "what was due before the end is sent after it");
        assert!(!schedule.is_over(2 * SECOND) && schedule.is_over(3 * SECOND));
        assert_eq!(schedule.peek(3 * SECOND), None, "nothing is sent after the grace");
        let waits: Vec<_> = schedule.unsent_waits(3 * SECOND).collect();
        assert_eq!((waits.len(), waits[0]), (400, (3 * SECOND - SECOND * 6 / 10, 1)));
        assert!(waits.windows(2).all(|pair| pair[0].0 > pair[1].0) && waits[399].0 > 2 * SECOND);
        schedule.stop(SECOND * 8 / 10);
        assert_eq!(unsent(&schedule, SECOND * 8 / 10), (Some(SECOND * 6 / 10), 200));
        assert_eq!(schedule.peek(SECOND * 8 / 10), None);
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
