//! How the time of a recommendation is spent: the number of rounds, and the durations in each.
//!
//! Invariant: a budget has enough rounds for a verdict, unless the number of rounds is given. The estimate is conservative; if
//! it is too low, the deadline ends the run.

use std::time::Duration;

use super::workload::Workload;
use crate::statistics::MIN_ROUNDS;

/// The number of rounds, and the durations of a contestant's parts in a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budget {
    /// The number of rounds.
    pub rounds: usize,
    /// The duration of verification and warm-up.
    pub warm_up: Duration,
    /// The duration of the closed loop.
    pub slice: Duration,
    /// The duration of the part at a fixed rate.
    pub latency_slice: Duration,
}

/// The share of the time that is planned.
const PLANNED_SHARE: f64 = 0.9;
/// Rounds beyond those that a verdict needs: a round may fail.
const SPARE_ROUNDS: usize = 2;
/// The max number of rounds.
const MAX_ROUNDS: usize = 50;
/// The calibrations that determine the rate.
const CALIBRATIONS: usize = 3;
/// The time to start and end a process, and to begin and end its slices.
const OVERHEAD: Duration = Duration::from_millis(150);
/// The time to store an entity, without its bytes.
const STORE_TIME: Duration = Duration::from_micros(20);
/// The time to store a byte of an entity.
const STORE_TIME_PER_BYTE: Duration = Duration::from_nanos(4);
/// The shortest warm-up.
const MIN_WARM_UP: Duration = Duration::from_millis(60);
/// The shortest closed loop.
const MIN_SLICE: Duration = Duration::from_millis(100);
/// The longest closed loop, unless requests wait.
const MAX_SLICE: Duration = Duration::from_millis(400);
/// The min warm-up in waits of a request.
pub(crate) const WARM_UP_WAITS: u32 = 2;
/// The min closed loop in waits of a request.
const SLICE_WAITS: u32 = 5;
/// The min part at a fixed rate in waits of a request.
pub(crate) const LATENCY_WAITS: u32 = 4;
/// The min number of requests that are due in a part at a fixed rate: of fewer, a p99 is the slowest request.
const LATENCY_REQUESTS: f64 = 200.0;
/// The start and end of both parts, which do not count, in waits of a request.
const EDGE_WAITS: u32 = 5;

impl Budget {
    /// Divides `time` among `contestants`, in `rounds` rounds if the number is given.
    ///
    /// # Errors
    ///
    /// Returns the time that is enough, if `time` is too short.
    pub fn of(
        time: Duration,
        contestants: usize,
        workload: &Workload,
        rounds: Option<usize>,
    ) -> Result<Self, Duration> {
        let wait = workload.longest_request();
        let stored = (STORE_TIME + STORE_TIME_PER_BYTE * u32::try_from(workload.payload_bytes).unwrap_or(u32::MAX))
            .saturating_mul(u32::try_from(workload.keys).unwrap_or(u32::MAX));
        let warm_up = MIN_WARM_UP.max(wait * WARM_UP_WAITS);
        let fixed = OVERHEAD + stored + warm_up + wait * EDGE_WAITS;
        let shortest_latency =
            workload.rate_per_s.map_or(Duration::ZERO, |per_s| Duration::from_secs_f64(LATENCY_REQUESTS / per_s));
        let latency = |slice: Duration| (slice / 2).max(wait * LATENCY_WAITS).max(shortest_latency);
        let shortest = MIN_SLICE.max(wait * SLICE_WAITS);
        let longest = MAX_SLICE.max(shortest);
        let duration = |slice: Duration| fixed + slice + latency(slice);
        let measurements = |rounds: usize| (rounds * contestants + CALIBRATIONS) as f64;
        let min_rounds = rounds.unwrap_or(MIN_ROUNDS);
        let (planned_s, min_s) =
            (time.as_secs_f64() * PLANNED_SHARE, duration(shortest).as_secs_f64() * measurements(min_rounds));
        if planned_s < min_s {
            return Err(Duration::from_secs_f64((min_s / PLANNED_SHARE).ceil()));
        }
        // Longer slices first, then more rounds.
        let turn_s = planned_s / measurements(rounds.unwrap_or(MIN_ROUNDS + SPARE_ROUNDS)) - fixed.as_secs_f64();
        let slice_s = (turn_s / 1.5).min(turn_s - latency(shortest).as_secs_f64());
        let slice = Duration::from_secs_f64(slice_s.max(0.0)).clamp(shortest, longest);
        let fitting_rounds =
            (planned_s / duration(slice).as_secs_f64() - CALIBRATIONS as f64) / contestants.max(1) as f64;
        let rounds = rounds.unwrap_or((fitting_rounds as usize).clamp(MIN_ROUNDS, MAX_ROUNDS));
        Ok(Self { rounds, warm_up, slice, latency_slice: latency(slice) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::tests::workload;
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_minute_is_enough_for_a_verdict_and_is_not_exceeded() {
        for (contestants, wait_ms) in [(9, 0.0), (5, 0.0), (5, 5.0), (5, 40.0), (2, 100.0), (3, 0.1)] {
            let workload = Workload { wait_ms, ..workload() };
            let budget = Budget::of(MINUTE, contestants, &workload, None).unwrap();
            assert!((MIN_ROUNDS..=MAX_ROUNDS).contains(&budget.rounds), "{budget:?}");
            let wait = workload.wait();
            assert!(budget.slice >= wait * SLICE_WAITS && budget.latency_slice >= wait * LATENCY_WAITS, "{budget:?}");
            let turn = budget.warm_up + budget.slice + budget.latency_slice;
            assert!(turn.as_secs_f64() * (budget.rounds * contestants) as f64 <= 60.0, "{budget:?}");
        }
    }

    #[test]
    fn more_time_is_for_longer_slices_then_more_rounds() {
        let of = |minutes| Budget::of(MINUTE * minutes, 9, &workload(), None).unwrap();
        assert!(of(2).slice > of(1).slice || of(2).rounds > of(1).rounds);
        assert_eq!((of(60).rounds, of(60).slice), (MAX_ROUNDS, MAX_SLICE));
        assert_eq!(Budget::of(MINUTE, 9, &workload(), Some(3)).unwrap().rounds, 3);
    }

    #[test]
    fn too_little_time_returns_the_time_that_is_enough() {
        let waiting = Workload { wait_ms: 1000.0, ..workload() };
        let rare = Workload { rate_per_s: Some(100.0), ..workload() };
        for (time, workload) in [(MINUTE, waiting), (Duration::from_secs(1), workload()), (MINUTE, rare)] {
            let needed = Budget::of(time, 5, &workload, None).unwrap_err();
            assert!(needed > time);
            let budget = Budget::of(needed, 5, &workload, None).unwrap();
            let due = workload.rate_per_s.map_or(LATENCY_REQUESTS, |per_s| per_s * budget.latency_slice.as_secs_f64());
            assert!(due >= LATENCY_REQUESTS, "{due} requests have no p99");
        }
    }
}
