//! The limit on the work of one turn, so that a connection that pipelines without a pause does not keep others waiting.
//!
//! A turn is what a thread does for one connection before it looks at the other ones. The server begins it; a session that
//! has more to do at its end says so with [`SessionStep::Yield`](super::SessionStep::Yield). Only the start of a further request ends a
//! turn: the first request of a turn is always served.
//!
//! A thread that serves one connection has turns too ([`TurnBudget::of_thread`]). At the end of such a turn, it looks whether other
//! connections wait for the thread.
//!
//! Cost: an addition for each request, and a clock read for every fourth and after a large one. In a turn of a thread, a clock read
//! for every sixteenth and after a large one.

use std::time::{Duration, Instant};

/// Max requests of one turn.
pub const MAX_TURN_REQUESTS: u32 = 16;

/// A turn that has taken this long ends before its next request. The clock is read at every fourth request and after a large one,
/// so a turn may take longer by the time of three small requests.
pub const MAX_TURN_TIME: Duration = Duration::from_millis(1);

/// The bits of the number of requests that are zero when the clock is read: at every fourth.
const CLOCK_MASK: u32 = 3;

/// The same in a turn of a thread: at every sixteenth.
const THREAD_CLOCK_MASK: u32 = 15;

/// The clock is read after a request with a body or an answer of this length: it may take as long as many small ones.
const LARGE_BYTES: usize = 16 * 1024;

/// A turn that has begun.
#[derive(Debug)]
pub struct TurnBudget {
    clock: fn() -> Instant,
    /// When the turn has started. `None` until the clock is read or [`note_time`](Self::note_time) is called.
    started: Option<Instant>,
    /// When it is over. Calculated for the second time that is noted: most turns have one request.
    end: Option<Instant>,
    /// Number of requests served.
    served: u32,
    /// The turn goes on, without a look at the rules, before this number of requests is served.
    next_look: u32,
    max_requests: u32,
    clock_mask: u32,
    /// A large request was served since the clock was read.
    was_large: bool,
    is_late: bool,
}

impl TurnBudget {
    /// Begins a turn that reads `clock`.
    #[inline]
    pub const fn new(clock: fn() -> Instant) -> Self {
        let (max_requests, clock_mask) = (MAX_TURN_REQUESTS, CLOCK_MASK);
        let (was_large, is_late) = (false, false);
        Self { clock, started: None, end: None, served: 0, next_look: 1, max_requests, clock_mask, was_large, is_late }
    }

    /// Begins a turn of a thread that serves one connection. It ends by its time only, which is looked at less often: a turn of
    /// quick requests is as long as the output, so that their answers leave in few writes.
    #[inline]
    pub const fn of_thread(clock: fn() -> Instant) -> Self {
        Self { max_requests: u32::MAX, clock_mask: THREAD_CLOCK_MASK, ..Self::new(clock) }
    }

    /// Notes the time, if the caller has read the clock anyway. The first time is the start of the turn.
    #[inline]
    pub fn note_time(&mut self, now: Instant) {
        match self.started {
            None => self.started = Some(now),
            Some(started) => self.compare(now, started),
        }
    }

    #[inline(never)]
    fn compare(&mut self, now: Instant, started: Instant) {
        let end = *self.end.get_or_insert_with(|| started.checked_add(MAX_TURN_TIME).unwrap_or(started));
        if now >= end {
            self.is_late = true;
            self.next_look = 1;
        }
    }

    /// Counts a request that is served in this turn.
    #[inline]
    pub fn count_request(&mut self) {
        self.served = self.served.saturating_add(1);
    }

    /// Notes the length of a body or of an answer of this turn.
    #[inline]
    pub fn note_bytes(&mut self, length: usize) {
        if length >= LARGE_BYTES {
            self.note_large();
        }
    }

    /// Notes a large answer in this turn.
    pub fn note_large(&mut self) {
        self.was_large = true;
        self.next_look = 1;
    }

    /// Whether the turn ends before a further request.
    ///
    /// # Cost
    ///
    /// A clock read after every fourth request and after a large one, and one after the first if [`note_time`](Self::note_time) was
    /// not called. In a turn of a thread, every sixteenth in place of every fourth. Without a known start, a large request ends the turn.
    #[inline]
    pub fn is_over(&mut self) -> bool {
        self.served >= self.next_look && self.look()
    }

    /// Does the same by the rules, if at least one request was served.
    #[inline(never)]
    fn look(&mut self) -> bool {
        if self.served >= self.max_requests {
            return true;
        }
        let was_large = std::mem::take(&mut self.was_large);
        if self.started.is_none() && was_large {
            return true; // how long it took is not known
        }
        self.next_look = (self.served | self.clock_mask).saturating_add(1).min(self.max_requests);
        if self.started.is_none() || was_large || self.served & self.clock_mask == 0 {
            self.note_time((self.clock)());
        }
        if self.is_late {
            self.next_look = 1;
        }
        self.is_late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// Milliseconds since the start, and the number of reads.
        static CLOCK: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
        static START: Instant = Instant::now();
    }

    fn now() -> Instant {
        let (millis, reads) = CLOCK.get();
        CLOCK.set((millis, reads + 1));
        START.with(|start| *start + Duration::from_millis(millis))
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

    /// Regression test: four expensive requests of a client that pipelines were served before the time was looked at.
    #[test]
    fn the_clock_is_read_after_a_large_request() {
        let mut turn = TurnBudget::new(now);
        turn.note_time(now());
        serve(&mut turn, 1);
        CLOCK.set((1, 0));
        turn.note_bytes(LARGE_BYTES - 1);
        assert!(!turn.is_over() && reads() == 0);
        turn.note_bytes(LARGE_BYTES);
        assert!(turn.is_over() && reads() == 1);
        let mut turn = TurnBudget::new(now);
        serve(&mut turn, 1);
        turn.note_bytes(LARGE_BYTES);
        assert!(turn.is_over() && reads() == 1, "its start is not known");
    }

    #[test]
    fn a_turn_of_a_thread_ends_by_its_time_only() {
        let mut turn = TurnBudget::of_thread(now);
        turn.note_time(now());
        let before = reads();
        serve(&mut turn, 100);
        assert!(!turn.is_over());
        assert_eq!(reads() - before, 6);
        CLOCK.set((1, 0));
        serve(&mut turn, 12);
        assert!(turn.is_over());
    }
}
