//! The limit on the work of one turn, so that a connection that pipelines without a pause does not keep others waiting.
//!
//! A turn is what a thread does for one connection before it looks at the other ones. The server begins it; a session that
//! has more to do at its end says so with [`Want::Yield`](super::Want::Yield). Only the start of a further request ends a
//! turn: the first request of a turn is always served.
//!
//! Cost: an addition for each request, and a clock read for every fourth.

use std::time::{Duration, SystemTime};

/// Max requests of one turn.
pub const MAX_TURN_REQUESTS: u32 = 16;

/// A turn that has taken this long ends before its next request. The clock is read at most at every
/// fourth request, so a turn may take longer by the time of three requests.
pub const MAX_TURN_TIME: Duration = Duration::from_millis(1);

/// The number of requests between two clock reads.
const CLOCK_INTERVAL: u32 = 4;

/// A turn that has begun.
#[derive(Debug)]
pub struct TurnBudget {
    clock: fn() -> SystemTime,
    /// `None` until the clock is read or [`note_time`](Self::note_time) is called.
    started: Option<SystemTime>,
    /// Number of requests served.
    served: u32,
    is_late: bool,
}

impl TurnBudget {
    /// Begins a turn that reads `clock`.
    #[inline]
    pub const fn new(clock: fn() -> SystemTime) -> Self {
        Self { clock, started: None, served: 0, is_late: false }
    }

    /// Notes the time, if the caller has read the clock anyway. The first time is the start of the turn.
    #[inline]
    pub fn note_time(&mut self, now: SystemTime) {
        match self.started {
            None => self.started = Some(now),
            // A clock that was set back does not prolong the turn.
            Some(started) => self.is_late |= now.duration_since(started).map_or(true, |time| time >= MAX_TURN_TIME),
        }
    }

    /// Counts a request that is served in this turn.
    #[inline]
    pub fn count_request(&mut self) {
        self.served = self.served.saturating_add(1);
    }

    /// Whether the turn ends before a further request.
    ///
    /// # Cost
    ///
    /// A clock read after every fourth request, and one after the first if [`note_time`](Self::note_time) was not called.
    #[inline]
    pub fn is_over(&mut self) -> bool {
        if self.served == 0 || self.served >= MAX_TURN_REQUESTS {
            return self.served > 0;
        }
        if self.started.is_none() || self.served.is_multiple_of(CLOCK_INTERVAL) {
            self.note_time((self.clock)());
        }
        self.is_late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// Milliseconds since the epoch, and the number of reads.
        static CLOCK: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
    }

    fn now() -> SystemTime {
        let (millis, reads) = CLOCK.get();
        CLOCK.set((millis, reads + 1));
        SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
    }

    fn reads() -> u32 {
        CLOCK.get().1
    }

    fn serve(turn: &mut TurnBudget, requests: u32) {
        for _ in 0..requests {
            assert!(!turn.is_over());
            turn.count_request();
        }
    }

    #[test]
    fn a_turn_has_sixteen_requests_and_reads_the_clock_thrice() {
        let mut turn = TurnBudget::new(now);
        turn.note_time(now());
        let before = reads();
        serve(&mut turn, 16);
        assert!(turn.is_over());
        assert_eq!(reads() - before, 3);
    }

    #[test]
    fn a_turn_of_one_request_reads_no_clock() {
        let mut turn = TurnBudget::new(now);
        serve(&mut turn, 1);
        assert_eq!(reads(), 0);
    }

    #[test]
    fn a_turn_ends_after_a_millisecond_but_not_before_its_first_request() {
        let mut turn = TurnBudget::new(now);
        turn.note_time(now());
        CLOCK.set((1, 0));
        turn.note_time(now());
        serve(&mut turn, 1);
        assert!(turn.is_over());
        let mut turn = TurnBudget::new(now);
        serve(&mut turn, 4);
        CLOCK.set((2, 0));
        assert!(turn.is_over(), "the start is known since the second request");
        assert_eq!(reads(), 1);
    }

    #[test]
    fn a_clock_that_is_set_back_ends_the_turn() {
        CLOCK.set((10, 0));
        let mut turn = TurnBudget::new(now);
        serve(&mut turn, 4);
        CLOCK.set((9, 0));
        assert!(turn.is_over());
    }
}
