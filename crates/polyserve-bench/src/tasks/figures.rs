//! The figures of an observation, computed from the times of its tasks.
//!
//! Invariant: `cost = 1 - t d1 / sum(d)` and `profit = 1 - total / (t d1)`, as published; the standard deviation is the
//! real one. The published overhead is divided: either a task waits for a core, or a core works for the task.

use serde::{Deserialize, Serialize};

/// A task of an observation; times are from its first task's start.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Scheduled {
    /// The number of the task.
    pub task: usize,
    /// When it was submitted; this may be before the first task's start.
    pub submitted_ms: f64,
    /// When it began.
    pub started_ms: f64,
    /// When it ended.
    pub finished_ms: f64,
    /// CPU time of its thread; `None` if a task can change threads.
    pub cpu_ms: Option<f64>,
}

impl Scheduled {
    /// From its start to its end.
    pub(crate) fn duration_ms(&self) -> f64 {
        self.finished_ms - self.started_ms
    }
}

/// The duration and the CPU time of a task that runs alone: medians of single runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Alone {
    /// The duration, in milliseconds.
    pub d1_ms: f64,
    /// The CPU time, in milliseconds.
    pub cpu1_ms: f64,
}

/// The figures of an observation, to three digits behind the point. Percentages are of the sum of the durations, except the
/// profit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskFigures {
    /// The mean of the durations.
    pub mean_duration_ms: f64,
    /// Their standard deviation, `sqrt(sum of squares / (n - 1))`; 0 for one task.
    pub std_dev_ms: f64,
    /// From the first start to the last end.
    pub total_duration_ms: f64,
    /// The growth of the durations: 1 - t d1 / sum(d).
    pub cost_pct: f64,
    /// The time saved compared with running the tasks in sequence: 1 - total / (t d1).
    pub profit_pct: f64,
    /// The share of the durations in which a core worked for the tasks.
    pub working_pct: f64,
    /// The share of the durations in which the tasks waited for a core.
    pub waiting_pct: f64,
    /// The overhead: the additional work of the cores compared with as many single tasks.
    pub overhead_pct: f64,
    /// The CPU time of the tasks.
    pub cpu_ms: f64,
}

impl TaskFigures {
    /// Returns the figures of tasks with this CPU time together. `tasks` is not empty.
    pub(crate) fn of(tasks: &[Scheduled], cpu_ms: f64, alone: Alone) -> Self {
        let count = tasks.len() as f64;
        let durations = || tasks.iter().map(Scheduled::duration_ms);
        let sum: f64 = durations().sum();
        let mean = sum / count;
        let squares: f64 = durations().map(|duration| (duration - mean).powi(2)).sum();
        let first = tasks.iter().map(|task| task.started_ms).fold(f64::INFINITY, f64::min);
        let end = tasks.iter().map(|task| task.finished_ms).fold(f64::NEG_INFINITY, f64::max);
        let Alone { d1_ms, cpu1_ms } = alone;
        let total = end - first;
        let working_pct = 100.0 * cpu_ms / sum;
        Self {
            mean_duration_ms: round(mean),
            std_dev_ms: if tasks.len() > 1 { round((squares / (count - 1.0)).sqrt()) } else { 0.0 },
            total_duration_ms: round(total),
            cost_pct: round(100.0 * (1.0 - count * d1_ms / sum)),
            profit_pct: round(100.0 * (1.0 - total / (count * d1_ms))),
            working_pct: round(working_pct),
            waiting_pct: round(100.0 - working_pct),
            overhead_pct: round(100.0 * (cpu_ms - count * cpu1_ms) / sum),
            cpu_ms: round(cpu_ms),
        }
    }
}

/// Rounds to a thousandth: milliseconds to microseconds.
pub(crate) fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The standard deviation of the starts; `None` for one task.
pub(crate) fn deviation_of_starts(schedule: &[Scheduled]) -> Option<f64> {
    let count = schedule.len() as f64;
    let mean = schedule.iter().map(|task| task.started_ms).sum::<f64>() / count;
    let squares: f64 = schedule.iter().map(|task| (task.started_ms - mean).powi(2)).sum();
    (count > 1.0).then(|| (squares / (count - 1.0)).sqrt())
}

/// Spearman's rank correlation of tasks' numbers and starts: 1 if the tasks start in order, 0 if in any order.
pub(crate) fn start_order(schedule: &[Scheduled]) -> f64 {
    let mut by_start: Vec<&Scheduled> = schedule.iter().collect();
    by_start.sort_by(|one, other| one.started_ms.total_cmp(&other.started_ms));
    let count = schedule.len() as f64;
    let squares: f64 =
        by_start.iter().zip(1..).map(|(task, place)| (task.task as f64 - f64::from(place)).powi(2)).sum();
    if schedule.len() < 2 { 1.0 } else { 1.0 - 6.0 * squares / (count * (count * count - 1.0)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(task: usize, started_ms: f64, finished_ms: f64) -> Scheduled {
        Scheduled { task, submitted_ms: 0.0, started_ms, finished_ms, cpu_ms: None }
    }

    #[test]
    fn two_tasks_that_share_a_core() {
        let figures = TaskFigures::of(
            &[task(1, 0.0, 180.0), task(2, 10.0, 230.0)],
            220.0,
            Alone { d1_ms: 100.0, cpu1_ms: 100.0 },
        );
        assert_eq!((figures.mean_duration_ms, figures.total_duration_ms), (200.0, 230.0));
        assert!((figures.std_dev_ms - 28.284).abs() < 1e-9, "{figures:?}");
        assert_eq!((figures.cost_pct, figures.working_pct, figures.waiting_pct), (50.0, 55.0, 45.0));
        assert!((figures.profit_pct + 15.0).abs() < 1e-9 && (figures.overhead_pct - 5.0).abs() < 1e-9, "{figures:?}");
        // The growth of the durations is the sum of the waits and of the additional CPU time.
        assert!((figures.cost_pct - figures.waiting_pct - figures.overhead_pct).abs() < 1e-9);
    }

    #[test]
    fn the_order_of_starts() {
        let at = |starts: &[f64]| -> Vec<Scheduled> {
            starts.iter().zip(1..).map(|(start, number)| task(number, *start, start + 1.0)).collect()
        };
        assert_eq!(start_order(&at(&[0.0, 1.0, 2.0])), 1.0);
        assert_eq!(start_order(&at(&[2.0, 1.0, 0.0])), -1.0);
        assert_eq!((start_order(&at(&[0.0])), deviation_of_starts(&at(&[0.0]))), (1.0, None));
        assert_eq!(deviation_of_starts(&at(&[0.0, 2.0, 4.0])), Some(2.0));
    }

    #[test]
    fn one_task_costs_nothing_and_gains_nothing() {
        let figures = TaskFigures::of(&[task(1, 0.0, 100.0)], 100.0, Alone { d1_ms: 100.0, cpu1_ms: 100.0 });
        assert_eq!((figures.std_dev_ms, figures.cost_pct, figures.profit_pct), (0.0, 0.0, 0.0));
    }
}
