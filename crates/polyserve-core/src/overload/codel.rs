//! Controlled delay: refuses requests that have waited for long, while a queue stands.
//!
//! A queue that empties from time to time absorbs bursts, and is good. A queue that stands only adds its delay to every answer. The
//! difference shows in the time that requests have waited: over an interval of 20 times the target, in a standing queue nearly all have
//! waited for longer than the target. Then a read is refused if it has waited for more than three times the target, and a write for more
//! than twice. The queue so stays at about that length, and the answers are late by at most that time.
//!
//! Source: Nichols and Jacobson, "Controlling queue delay", ACM Queue 2012, for the test. There it is the minimum over the interval; here
//! it is the tenth of the requests that waited for the shortest time, because a runtime does not serve its tasks strictly in their order.
//! The paper drops packets at a growing rate, to which TCP adapts. Clients of a server do not adapt, so here all that waited too long are
//! refused, as in Maurer, "Fail at scale", ACM Queue 2015.
//!
//! Invariant: a request that has waited for less than twice the target is never refused. Cost: an uncontended lock.
//!
//! *Wins when* requests wait before they are in work: servers with a bounded number of workers and a service that keeps them. It needs
//! no idea of the capacity, only of a delay that is acceptable.
//!
//! *Loses when* the service defers its answers: the queue is then behind the service, where this policy does not see it. *Loses* also on
//! servers with a thread for each connection, where requests wait for the CPU and not for a worker.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Arrival, OverloadPolicy, OverloadReason};

/// The length of an interval, in targets.
const INTERVAL_TARGETS: u32 = 20;

/// A policy that bounds the time that requests wait.
///
/// ```
/// use polyserve_core::overload::{Arrival, Codel, OverloadPolicy};
/// use std::time::{Duration, Instant};
/// let codel = Codel::new(Duration::from_millis(5));
/// assert!(codel.admit(&Arrival::new(Instant::now())).is_ok());
/// ```
#[derive(Debug)]
pub struct Codel {
    target: Duration,
    interval: Mutex<CodelInterval>,
}

/// The present interval.
#[derive(Debug, Default)]
struct CodelInterval {
    /// `None` before the first request.
    ends: Option<Instant>,
    /// The number of requests, and of those that have waited for longer than the target.
    requests: u32,
    late: u32,
    /// A queue stood in the interval before.
    stands: bool,
}

impl Codel {
    /// A policy with this target of the time that a request waits.
    pub fn new(target: Duration) -> Self {
        Self { target, interval: Mutex::default() }
    }
}

impl CodelInterval {
    /// Begins a new interval at `now`, if this one has ended.
    fn advance(&mut self, now: Instant, length: Duration) {
        let Some(ends) = self.ends.filter(|ends| *ends > now) else {
            // After a pause of the length of an interval there was no queue.
            let is_recent = self.ends.is_some_and(|ends| now.saturating_duration_since(ends) < length);
            let is_late = u64::from(self.late) * 10 >= u64::from(self.requests) * 9;
            let stands = is_recent && self.requests > 0 && is_late;
            *self = Self { ends: Some(now + length), requests: 0, late: 0, stands };
            return;
        };
        self.ends = Some(ends);
    }
}

impl OverloadPolicy for Codel {
    fn admit(&self, arrival: &Arrival) -> Result<(), OverloadReason> {
        let mut interval = self.interval.lock().unwrap_or_else(PoisonError::into_inner);
        interval.advance(arrival.now, self.target * INTERVAL_TARGETS);
        interval.requests = interval.requests.saturating_add(1);
        interval.late = interval.late.saturating_add(u32::from(arrival.waited > self.target));
        let max_wait = self.target * if arrival.is_write { 2 } else { 3 };
        if interval.stands && arrival.waited > max_wait { Err(OverloadReason::Waited) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLIS: Duration = Duration::from_millis(1);

    /// A policy with a target of 5 ms, and a clock.
    struct Driven {
        codel: Codel,
        now: Instant,
    }

    impl Driven {
        fn new() -> Self {
            Self { codel: Codel::new(5 * MILLIS), now: Instant::now() }
        }

        fn admits(&self, waited: Duration, is_write: bool) -> bool {
            let arrival = Arrival { waited, is_write, ..Arrival::new(self.now) };
            self.codel.admit(&arrival).is_ok()
        }

        /// A read each millisecond that has waited for this time. Returns the number that is admitted.
        fn run(&mut self, requests: u32, waited: Duration) -> u32 {
            let mut admitted = 0;
            for _ in 0..requests {
                self.now += MILLIS;
                admitted += u32::from(self.admits(waited, false));
            }
            admitted
        }
    }

    #[test]
    fn a_burst_passes() {
        let mut driven = Driven::new();
        assert_eq!(driven.run(50, Duration::ZERO), 50);
        assert_eq!(driven.run(50, 40 * MILLIS), 50, "half of the interval was a queue");
        assert_eq!(driven.run(100, Duration::ZERO), 100);
    }

    #[test]
    fn a_standing_queue_is_cut_and_writes_first() {
        let mut driven = Driven::new();
        assert_eq!(driven.run(100, 40 * MILLIS), 100, "nothing is known yet");
        assert_eq!(driven.run(100, 40 * MILLIS), 0);
        assert!(driven.admits(15 * MILLIS, false) && !driven.admits(16 * MILLIS, false));
        assert!(driven.admits(10 * MILLIS, true) && !driven.admits(11 * MILLIS, true));
        assert_eq!(driven.run(200, 14 * MILLIS), 200, "a queue of this length is what is left");
        assert!(!driven.admits(16 * MILLIS, false), "it still stands");
    }

    /// A runtime serves some tasks out of order: these do not hide the queue.
    #[test]
    fn a_few_quick_requests_do_not_hide_a_queue() {
        let mut driven = Driven::new();
        for _ in 0..10 {
            driven.run(19, 40 * MILLIS);
            driven.run(1, Duration::ZERO);
        }
        assert!(!driven.admits(40 * MILLIS, false));
    }

    #[test]
    fn it_is_normal_an_interval_after_the_queue_is_gone() {
        let mut driven = Driven::new();
        driven.run(200, 40 * MILLIS);
        assert!(!driven.admits(40 * MILLIS, false));
        driven.run(200, 4 * MILLIS);
        assert!(driven.admits(40 * MILLIS, true));
    }

    #[test]
    fn a_pause_ends_a_queue() {
        let mut driven = Driven::new();
        driven.run(200, 40 * MILLIS);
        driven.now += Duration::from_secs(1);
        assert!(driven.admits(40 * MILLIS, true));
    }
}
