//! The verdicts on the published claims: `defs/tasks.toml`, judged by the observations.
//!
//! An observation is a single run, so most claims are judged by the median over several numbers of tasks. A contestant
//! has no figures but the numbers of its threads in these cases:
//!
//! * A task alone took less than [`MIN_TASK_MS`], or worked for less than [`MIN_WORK_PCT`] of that time.
//! * A task alone took [`MAX_DRIFT_PCT`] more or less at the end than at the start.
//! * Other processes used more than [`MAX_OTHERS_PCT`] of the cores' time meanwhile.

use crate::claim::{ClaimRow, ClaimSet};
use crate::report::Claim;

use super::figures::Scheduled;
use super::growth::{MeanGrowth, SPLIT, TotalGrowth};
use super::measured::{Measured, MeasuredCell};
use super::published::GO;

/// The min duration of a task. A shorter task has too few time slices of the scheduler to show how they are divided.
pub const MIN_TASK_MS: f64 = 100.0;
/// The min share of its time that a task alone works. Below this share, other programs use its core.
pub const MIN_WORK_PCT: f64 = 90.0;
/// The max drift of a task alone. A larger drift measures changes of the machine.
pub const MAX_DRIFT_PCT: f64 = 10.0;
/// The max share of the cores' time for other processes. A larger share changes the durations.
pub const MAX_OTHERS_PCT: f64 = 10.0;
/// The share of the scatter of the mean durations up to [`SPLIT`] tasks that a growing line must explain. Otherwise there is
/// no growth that could flatten.
const MIN_EXPLAINED: f64 = 0.9;
/// The seed of the intervals.
const SEED: u64 = 0;

/// The claims and their verdicts.
///
/// # Errors
///
/// Returns an error if the definition has one.
pub fn verdicts(measured: &Measured) -> anyhow::Result<Vec<Claim>> {
    let set = ClaimSet::parse("defs/tasks.toml", include_str!("../../defs/tasks.toml"))?;
    let cores = measured.plan.as_ref().map_or(1, |plan| plan.core_count);
    let rows: Vec<ClaimRow> =
        measured.contestants().into_iter().flat_map(|name| contestant_rows(measured, name, cores)).collect();
    Ok(set.verdicts(&rows, SEED, &[]))
}

/// The rows of a contestant: one for each observation, and one for the growth over the numbers of tasks.
fn contestant_rows(measured: &Measured, name: &str, cores: usize) -> Vec<ClaimRow> {
    let disturbance = disturbance(measured, name);
    let cells = measured.cells.iter().filter(|cell| cell.contestant == name);
    let row = |cell| match &disturbance {
        Some(_) => threads(cell, cores),
        None => times(threads(cell, cores), measured, cell, cores),
    };
    let mut rows: Vec<ClaimRow> = cells.map(row).collect();
    match disturbance {
        Some(why) => rows.push(ClaimRow::absent(name, why)),
        None => rows.extend(growth(measured, name, cores)),
    }
    rows
}

/// Why the times of a contestant decide nothing; `None` if they do.
fn disturbance(measured: &Measured, name: &str) -> Option<String> {
    let alone = measured.all_at_once(name).first()?.observed.alone;
    let work_pct = 100.0 * alone.cpu1_ms / alone.d1_ms;
    let others_pct = 100.0 * measured.others(name).unwrap_or(0.0);
    match measured.drift_pct(name) {
        _ if alone.d1_ms < MIN_TASK_MS => Some(format!("a task of {:.0} ms is too short to tell", alone.d1_ms)),
        _ if work_pct < MIN_WORK_PCT => {
            Some(format!("other processes used the cores: a task alone worked for {work_pct:.0} % of its time"))
        }
        _ if others_pct > MAX_OTHERS_PCT => Some(format!("other processes used {others_pct:.0} % of the cores' time")),
        None => Some(String::from("its drift is not known")),
        Some(drift) if drift.abs() > MAX_DRIFT_PCT => Some(format!("it drifted by {drift:+.1} %")),
        Some(_) => None,
    }
}

/// The row of an observation, with the number of threads, which no disturbance changes.
fn threads(cell: &MeasuredCell, cores: usize) -> ClaimRow {
    let row = ClaimRow::new(&cell.contestant, 1)
        .at("tasks", cell.tasks as f64)
        .at("tasks_per_core", cell.tasks as f64 / cores as f64)
        .at("series", cell.series as f64);
    let threads = cell.observed.threads.map(|threads| threads as f64);
    row.with("threads_beyond_cores", threads.map(|threads| threads - cores as f64))
        .with("threads_beyond_tasks", threads.map(|threads| threads - cell.tasks as f64))
}

/// The row with the figures of an observation.
fn times(row: ClaimRow, measured: &Measured, cell: &MeasuredCell, cores: usize) -> ClaimRow {
    let MeasuredCell { tasks, contestant, series, observed } = cell;
    let (figures, schedule) = (&observed.figures, &observed.schedule);
    let (total, tasks_count) = (figures.total_duration_ms, *tasks as f64);
    let to_single = total / observed.alone.d1_ms;
    let ideal_pct = 100.0 * (1.0 - 1.0 / cores as f64);
    let last_start = schedule.iter().map(|task| task.started_ms).fold(0.0, f64::max);
    let at_once = measured.cell(contestant, *tasks, 0).filter(|_| *series > 0);
    row.with("profit_to_ideal", (cores > 1).then(|| figures.profit_pct / ideal_pct))
        .with("total_to_single", to_single)
        .with("total_to_ideal", to_single * cores as f64 / tasks_count)
        .with("total_to_at_once", at_once.map(|once| total / once.observed.figures.total_duration_ms))
        .with("overhead_pct", figures.overhead_pct)
        .with("last_start_pct", 100.0 * last_start / total)
        .with("start_order", in_order(schedule))
        .with("spread_of_starts", spread_of_starts(cell))
        .with("spread_of_durations", figures.std_dev_ms / figures.mean_duration_ms)
}

/// The rows of the growth over the numbers of tasks, and of the speed of a task alone.
fn growth(measured: &Measured, name: &str, cores: usize) -> [ClaimRow; 2] {
    let cells = measured.all_at_once(name);
    let points = |of: fn(&MeasuredCell) -> f64| cells.iter().map(|cell| (cell.tasks, of(cell))).collect::<Vec<_>>();
    let total = TotalGrowth::of(&points(|cell| cell.observed.figures.total_duration_ms), cores);
    let mean = MeanGrowth::of(&points(|cell| cell.observed.figures.mean_duration_ms), cores);
    let speed = |name: &str| Some(measured.speed(name)?.steps_per_s);
    let row = ClaimRow::new(name, 1)
        .at("growth", "whole")
        .with("line_to_steps", total.map(|total| total.line_to_steps()))
        .with("scatter_on_a_line", mean.as_ref().map(|mean| mean.all.explained * f64::from(mean.all.slope > 0.0)))
        .with("steps_to_those_in_go", speed(name).zip(speed(GO)).map(|(own, go)| own / go));
    let grows = |mean: &MeanGrowth| mean.before.slope > 0.0 && mean.before.explained >= MIN_EXPLAINED;
    let halves = match mean {
        None => ClaimRow::absent(name, format!("too few observations on one side of {SPLIT} tasks")),
        Some(mean) if grows(&mean) => ClaimRow::new(name, 1).with("slope_after_to_before", mean.ratio()),
        Some(_) => ClaimRow::absent(name, format!("up to {SPLIT} tasks its mean duration does not grow along a line")),
    };
    [row, halves.at("growth", "halves")]
}

/// The standard deviation of the starts, as a share of the total duration; `None` for one task.
fn spread_of_starts(cell: &MeasuredCell) -> Option<f64> {
    let schedule = &cell.observed.schedule;
    let count = schedule.len() as f64;
    let mean = schedule.iter().map(|task| task.started_ms).sum::<f64>() / count;
    let squares: f64 = schedule.iter().map(|task| (task.started_ms - mean).powi(2)).sum();
    (count > 1.0).then(|| (squares / (count - 1.0)).sqrt() / cell.observed.figures.total_duration_ms)
}

/// Spearman's rank correlation of tasks' numbers and starts: 1 if the tasks start in order, 0 if in any order.
fn in_order(schedule: &[Scheduled]) -> f64 {
    let mut by_start: Vec<&Scheduled> = schedule.iter().collect();
    by_start.sort_by(|one, other| one.started_ms.total_cmp(&other.started_ms));
    let count = schedule.len() as f64;
    let squares: f64 =
        by_start.iter().zip(1..).map(|(task, place)| (task.task as f64 - f64::from(place)).powi(2)).sum();
    if schedule.len() < 2 { 1.0 } else { 1.0 - 6.0 * squares / (count * (count * count - 1.0)) }
}

#[cfg(test)]
pub(super) mod tests;
