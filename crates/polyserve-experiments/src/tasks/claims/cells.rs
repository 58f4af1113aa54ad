//! Figures of cells, and combinations of their decisions.

use std::ops::RangeBounds;

use polyserve_lab::statistics::median;

use super::super::figures::Scheduled;
use super::super::measured::MeasuredCell;

/// The min number of observations of a median.
pub const MIN_OBSERVATIONS: usize = 3;

/// The standard deviation of the starts, as a share of the total duration.
pub(super) fn spread_of_starts(cell: &MeasuredCell) -> f64 {
    let count = cell.observed.schedule.len() as f64;
    let mean = cell.observed.schedule.iter().map(|task| task.started_ms).sum::<f64>() / count;
    let squares: f64 = cell.observed.schedule.iter().map(|task| (task.started_ms - mean).powi(2)).sum();
    (squares / (count - 1.0)).sqrt() / cell.observed.figures.total_duration_ms
}

/// The standard deviation of the durations, as a share of their mean.
pub(super) fn spread_of_durations(cell: &MeasuredCell) -> f64 {
    cell.observed.figures.std_dev_ms / cell.observed.figures.mean_duration_ms
}

/// The cells with these numbers of tasks.
pub(super) fn within<'a>(cells: &[&'a MeasuredCell], tasks: impl RangeBounds<usize>) -> Vec<&'a MeasuredCell> {
    cells.iter().copied().filter(|cell| tasks.contains(&cell.tasks)).collect()
}

/// The median of a figure; `None` if there are fewer than [`MIN_OBSERVATIONS`].
pub(super) fn median_figure(cells: &[&MeasuredCell], figure: impl Fn(&MeasuredCell) -> f64) -> Option<f64> {
    let mut values: Vec<f64> = cells.iter().map(|cell| figure(cell)).collect();
    (values.len() >= MIN_OBSERVATIONS).then(|| median(&mut values))
}

/// Whether `value` is above a threshold; `None` if it is within `near` of the threshold.
pub(super) fn above(value: f64, threshold: f64, near: f64) -> Option<bool> {
    let difference = value - threshold;
    (difference.abs() > near).then_some(difference > 0.0)
}

/// Whether all hold: false if one is refuted, otherwise `None` if one is undecided.
pub(super) fn all<const COUNT: usize>(verdicts: [Option<bool>; COUNT]) -> Option<bool> {
    match verdicts.contains(&Some(false)) {
        true => Some(false),
        false => verdicts.iter().all(|verdict| *verdict == Some(true)).then_some(true),
    }
}

/// Spearman's rank correlation of tasks' numbers and starts: 1 if the tasks start in order, 0 if in any order.
pub(super) fn in_order(schedule: &[Scheduled]) -> f64 {
    let mut by_start: Vec<&Scheduled> = schedule.iter().collect();
    by_start.sort_by(|one, other| one.started_ms.total_cmp(&other.started_ms));
    let count = schedule.len() as f64;
    let squares: f64 =
        by_start.iter().zip(1..).map(|(task, place)| (task.task as f64 - f64::from(place)).powi(2)).sum();
    if schedule.len() < 2 { 1.0 } else { 1.0 - 6.0 * squares / (count * (count * count - 1.0)) }
}
