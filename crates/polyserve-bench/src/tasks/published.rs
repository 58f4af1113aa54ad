//! The published figures, and the names of the contestants in Go.

use serde::Deserialize;

use crate::published::{self, TASKS_GO, TASKS_RUST};

/// The twin in Go.
pub const GO: &str = "go/goroutines";
/// The twin in Go, with every goroutine on a thread of its own.
pub const GO_LOCKED: &str = "go/goroutines_locked";

/// The twin in Go, without the garbage collector.
pub const GO_GC_OFF: &str = "go/goroutines_gc_off";

/// The published listing in Rust. Like [`GO_LISTING`], it has one order of the recurrence: that of the published code.
pub const LISTING: &str = "twin/crossbeam_scope";

/// The published listing in Go.
pub const GO_LISTING: &str = "go/listing";

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
