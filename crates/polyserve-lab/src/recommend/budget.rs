//! How the time of a recommendation is spent: rounds, and what is measured in each.
//!
//! Invariant: at least the rounds that a verdict needs, or none at all. The estimate is on the safe side; what it gets wrong
//! the deadline of the run corrects.

use std::time::Duration;

use super::workload::Workload;
use crate::statistics::LEAST_ROUNDS;

/// Rounds, and a turn's parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// Rounds.
    pub rounds: usize,
    /// How long a turn is verified and warmed up.
    pub warm_up: Duration,
    /// How long it is measured in closed loop.
    pub slice: Duration,
    /// How long it is measured at a fixed rate.
    pub latency_slice: Duration,
}

/// This share of the time is planned with.
const PLANNED: f64 = 0.9;
/// More rounds than a verdict needs: one may fail.
const SPARE_ROUNDS: usize = 2;
const MOST_ROUNDS: usize = 50;
/// The turns that set the rate.
const CALIBRATIONS: usize = 3;
/// A process is started and ended, and a slice begins and ends.
const OVERHEAD: Duration = Duration::from_millis(150);
/// What storing an entity takes, and a byte of it.
const STORED: Duration = Duration::from_micros(20);
const STORED_BYTE: Duration = Duration::from_nanos(4);
const WARM_UP: Duration = Duration::from_millis(60);
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_millis(400);
/// What is measured where every request waits, in waits.
const WARM_UP_WAITS: u32 = 2;
const SLICE_WAITS: u32 = 5;
const LATENCY_WAITS: u32 = 4;
/// What a slice and a latency begin and end with, in waits, all together.
const EDGE_WAITS: u32 = 5;

impl Budget {
    /// How `time` is spent on so many contestants; in so many rounds, where they are given.
    ///
    /// # Errors
    ///
    /// The time that it would take.
    pub fn of(
        time: Duration,
        contestants: usize,
        workload: &Workload,
        rounds: Option<usize>,
    ) -> Result<Self, Duration> {
        let wait = workload.wait();
        let stored = (STORED + STORED_BYTE * u32::try_from(workload.payload_bytes).unwrap_or(u32::MAX))
            .saturating_mul(u32::try_from(workload.keys).unwrap_or(u32::MAX));
        let warm_up = WARM_UP.max(wait * WARM_UP_WAITS);
        let fixed = OVERHEAD + stored + warm_up + wait * EDGE_WAITS;
        let latency = |slice: Duration| (slice / 2).max(wait * LATENCY_WAITS);
        let shortest = SHORTEST.max(wait * SLICE_WAITS);
        let longest = LONGEST.max(shortest);
        let turn = |slice: Duration| fixed + slice + latency(slice);
        let turns = |rounds: usize| (rounds * contestants + CALIBRATIONS) as f64;
        let least_rounds = rounds.unwrap_or(LEAST_ROUNDS);
        let (planned, least) = (time.as_secs_f64() * PLANNED, turn(shortest).as_secs_f64() * turns(least_rounds));
        if planned < least {
            return Err(Duration::from_secs_f64((least / PLANNED).ceil()));
        }
        // Longer turns first, then more rounds.
        let each = planned / turns(rounds.unwrap_or(LEAST_ROUNDS + SPARE_ROUNDS)) - fixed.as_secs_f64();
        let slice = Duration::from_secs_f64((each / 1.5).max(0.0)).clamp(shortest, longest);
        let fit = (planned / turn(slice).as_secs_f64() - CALIBRATIONS as f64) / contestants.max(1) as f64;
        let rounds = rounds.unwrap_or((fit as usize).clamp(LEAST_ROUNDS, MOST_ROUNDS));
        Ok(Self { rounds, warm_up, slice, latency_slice: latency(slice) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::tests::workload;
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_minute_is_enough_for_a_verdict_and_is_not_passed() {
        for (contestants, wait_ms) in [(9, 0.0), (5, 0.0), (5, 5.0), (5, 40.0), (2, 100.0), (3, 0.1)] {
            let workload = Workload { wait_ms, ..workload() };
            let budget = Budget::of(MINUTE, contestants, &workload, None).unwrap();
            assert!((LEAST_ROUNDS..=MOST_ROUNDS).contains(&budget.rounds), "{budget:?}");
            let wait = workload.wait();
            assert!(budget.slice >= wait * SLICE_WAITS && budget.latency_slice >= wait * LATENCY_WAITS, "{budget:?}");
            let turn = budget.warm_up + budget.slice + budget.latency_slice;
            assert!(turn.as_secs_f64() * (budget.rounds * contestants) as f64 <= 60.0, "{budget:?}");
        }
    }

    #[test]
    fn more_time_is_for_longer_turns_then_more_rounds() {
        let of = |minutes| Budget::of(MINUTE * minutes, 9, &workload(), None).unwrap();
        assert!(of(2).slice > of(1).slice || of(2).rounds > of(1).rounds);
        assert_eq!((of(60).rounds, of(60).slice), (MOST_ROUNDS, LONGEST));
        assert_eq!(Budget::of(MINUTE, 9, &workload(), Some(3)).unwrap().rounds, 3);
    }

    #[test]
    fn too_little_time_is_told_with_what_it_would_take() {
        let waiting = Workload { wait_ms: 1000.0, ..workload() };
        for (time, workload) in [(MINUTE, waiting), (Duration::from_secs(1), workload())] {
            let needed = Budget::of(time, 5, &workload, None).unwrap_err();
            assert!(needed > time);
            Budget::of(needed, 5, &workload, None).unwrap();
        }
    }
}
