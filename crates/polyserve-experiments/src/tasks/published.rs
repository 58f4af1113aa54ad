//! The published figures, and the names of the contestants in Go.

use polyserve_lab::statistics::Interval;
use serde::Deserialize;

use crate::published::{self, TASKS_GO, TASKS_RUST};

/// The twin in Go.
pub const GO: &str = "go/goroutines";
/// The same with every goroutine on a thread of its own.
pub const GO_LOCKED: &str = "go/goroutines_locked";

/// The same without the garbage collector.
pub const GO_GC_OFF: &str = "go/goroutines_gc_off";

/// The published steps per second of a task in Rust and in Go.
pub const STEPS_PER_S: [f64; 2] = [367e6, 44e6];

/// A row of the published figures; milliseconds and percent.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(super) struct Published {
    pub(super) tasks: usize,
    pub(super) mean_duration_ms: f64,
    pub(super) total_duration_ms: f64,
    pub(super) cost_pct: f64,
    pub(super) profit_pct: f64,
}

/// The published figures of the program in Rust, and of the one in Go. They were measured on 8 cores.
pub(super) fn published() -> anyhow::Result<[Vec<Published>; 2]> {
    Ok([published::rows(TASKS_RUST)?, published::rows(TASKS_GO)?])
}

/// The number of cores of the published figures.
pub const PUBLISHED_CORES: usize = 8;

/// The profit that counts as equal to the published one differs by at most this, as a share of the possible gain of the cores.
pub(super) const PROFIT_MARGIN: f64 = 0.05;
/// The total that counts as equal to the published one differs by at most this, as a share of the ideal total.
pub(super) const TOTAL_MARGIN: f64 = 0.1;
/// The max published number of tasks at once.
pub(super) const TASKS: usize = 40;

/// The published profit as a share of what the cores of that machine can gain.
pub(super) fn published_profit_share() -> f64 {
    0.8 / (1.0 - 1.0 / PUBLISHED_CORES as f64)
}

/// The published total of [`TASKS`] tasks as a share of the ideal total, in Rust and in Go.
pub(super) fn published_totals_to_ideal() -> anyhow::Result<[f64; 2]> {
    Ok(published()?.map(|lines| {
        let total = |tasks: usize| lines.iter().find(|line| line.tasks == tasks).map(|line| line.total_duration_ms);
        let single = total(1).zip(total(TASKS)).map_or(f64::NAN, |(single, all)| all / single);
        single * PUBLISHED_CORES as f64 / TASKS as f64
    }))
}

/// The ratios of the steps per second in Rust to those in Go that count as equal to the published ratio.
pub(super) fn published_speed_ratios() -> Interval {
    let [rust, go] = STEPS_PER_S;
    Interval::equal_to(rust / go)
}

/// The published figures of three claims, as text. The other claims have theirs in their own text, or none.
pub(super) struct PublishedFigures {
    pub(super) profit: String,
    pub(super) total_of_40: String,
    pub(super) steps_per_second: String,
}

impl PublishedFigures {
    /// Reads the published figures.
    ///
    /// # Errors
    ///
    /// Returns an error if a published file cannot be read.
    pub(super) fn read() -> anyhow::Result<Self> {
        let share = published_profit_share();
        let [rust, go] = published_totals_to_ideal()?;
        let [rust_steps, go_steps] = STEPS_PER_S;
        let Interval { low, high } = published_speed_ratios();
        Ok(Self {
            profit: format!(
                "80 % of at most {:.1} % on {PUBLISHED_CORES} cores, a share of {share:.3}; equal within {PROFIT_MARGIN}",
                80.0 / share
            ),
            total_of_40: format!("{go:.2} in Go and {rust:.2} in Rust; equal within {TOTAL_MARGIN}"),
            steps_per_second: format!("ratio {:.2}; equal from {low:.2} to {high:.2}", rust_steps / go_steps),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_figures_are_there() {
        let [rust, go] = published().unwrap();
        for lines in [&rust, &go] {
            assert_eq!(lines.iter().map(|line| line.tasks).collect::<Vec<_>>(), (1..=40).collect::<Vec<_>>());
        }
        let last = Published {
            tasks: 40,
            mean_duration_ms: 3718.0,
            total_duration_ms: 6479.0,
            cost_pct: 78.0,
            profit_pct: 81.0,
        };
        assert_eq!(rust[39], last);
    }
}
