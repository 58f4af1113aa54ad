//! Growth with the number of tasks at once, of measured and of published durations.
//!
//! Points are `(tasks, milliseconds)`. Cost: a few passes over the points.

use crate::statistics::LinearFit;

/// The number of tasks that divides the lower half of the published numbers from the upper half.
pub(crate) const SPLIT: usize = 20;

/// The growth of a mean duration.
pub(crate) struct MeanGrowth {
    /// A line from the number of cores to [`SPLIT`] tasks.
    pub(crate) before: LinearFit,
    /// A line from [`SPLIT`] tasks on.
    pub(crate) after: LinearFit,
    /// A line from the number of cores on.
    pub(crate) all: LinearFit,
}

impl MeanGrowth {
    /// Returns the lines through `points`, or `None` if one side has fewer than four points.
    pub(crate) fn of(points: &[(usize, f64)], cores: usize) -> Option<Self> {
        let line = |from: usize, to: usize| {
            let selected = points.iter().filter(|(tasks, _)| (from..=to).contains(tasks));
            let selected: Vec<_> = selected.map(|(tasks, ms)| (*tasks as f64, *ms)).collect();
            LinearFit::through(&selected).filter(|_| selected.len() >= 4)
        };
        let (before, after) = (line(cores, SPLIT)?, line(SPLIT, usize::MAX)?);
        Some(Self { before, after, all: line(cores, usize::MAX)? })
    }

    /// The slope from [`SPLIT`] tasks on, as a share of the slope up to it.
    pub(crate) fn ratio(&self) -> f64 {
        self.after.slope / self.before.slope
    }
}

/// The growth of a total duration, from as many tasks as cores on.
pub(crate) struct TotalGrowth {
    /// A line.
    pub(crate) line: LinearFit,
    /// A staircase: it rises by the duration of a task with each further round of the cores.
    pub(crate) steps: LinearFit,
}

impl TotalGrowth {
    /// Returns both fits to `points`, or `None` with fewer than eight points, or fewer than four that are no multiple of
    /// `cores`.
    pub(crate) fn of(points: &[(usize, f64)], cores: usize) -> Option<Self> {
        let full: Vec<_> = points.iter().filter(|(tasks, _)| *tasks >= cores).collect();
        let odd = full.iter().filter(|(tasks, _)| tasks % cores != 0).count();
        if full.len() < 8 || odd < 4 {
            return None;
        }
        let through = |x: fn(usize, usize) -> usize| {
            let points: Vec<_> = full.iter().map(|(tasks, ms)| (x(*tasks, cores) as f64, *ms)).collect();
            LinearFit::through(&points)
        };
        Some(Self { line: through(|tasks, _| tasks)?, steps: through(usize::div_ceil)? })
    }

    /// The squares that the line misses, as a share of those that the staircase misses.
    pub(crate) fn line_to_steps(&self) -> f64 {
        self.line.missed / self.steps.missed.max(f64::MIN_POSITIVE)
    }
}
