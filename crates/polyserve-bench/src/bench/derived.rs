//! Figures of several cells, which claims are judged by: growth along an axis, and the ratio of two cells.
//!
//! The figures of one cell, such as cost and profit, are made with the sample. A claim sees the rows of this module in
//! addition, at the axis `growth`: `whole` is all cells of a contestant, `halves` compares few tasks with many.
//!
//! The times of a contestant of the mode `tasks` decide nothing in these cases, and its numbers of threads still count:
//!
//! * A task alone took less than [`MIN_TASK_MS`], or worked for less than [`MIN_WORK_PCT`] of that time.
//! * A task alone took [`MAX_DRIFT_PCT`] more or less at the end than at the start.
//! * Other processes used more than [`MAX_OTHERS_PCT`] of the cores' time meanwhile.

use super::figures::{CPU_US, MEAN_DURATION_MS, TOTAL_DURATION_MS};
use super::mode::tasks::{CALIBRATION, Calibration, SINGLE, Single, alone, calibration_of, drift_pct};
use super::mode::{ModeKind, scenario};
use crate::claim::{AxisValue, ClaimRow};
use crate::contestants::GO;
use crate::experiment::{Records, distinct};
use crate::statistics::LinearFit;

/// The axes that a claim may name in addition to those of the sweep.
pub(crate) const AXES: [&str; 1] = ["growth"];

/// The min duration of a task. A shorter task has too few time slices of the scheduler to show how they are divided.
pub(crate) const MIN_TASK_MS: f64 = 100.0;
/// The min share of its time that a task alone works. Below this share, other programs use its core.
pub(crate) const MIN_WORK_PCT: f64 = 90.0;
/// The max drift of a task alone. A larger drift measures changes of the machine.
pub(crate) const MAX_DRIFT_PCT: f64 = 10.0;
/// The max share of the cores' time for other processes. A larger share changes the durations.
pub(crate) const MAX_OTHERS_PCT: f64 = 10.0;
/// The number of tasks that divides the lower half of the published numbers from the upper half.
const SPLIT: usize = 20;
/// The share of the scatter of the mean durations up to [`SPLIT`] tasks that a growing line must explain. Otherwise there is
/// no growth that could flatten.
const MIN_EXPLAINED: f64 = 0.9;

/// The rows that the claims of a record are judged by.
pub(super) fn rows(mode: ModeKind, rows: Vec<ClaimRow>, records: &Records) -> anyhow::Result<Vec<ClaimRow>> {
    match mode {
        ModeKind::Tasks => Ok(of_tasks(&rows, &records.facts(SINGLE)?, &records.facts(CALIBRATION)?)),
        ModeKind::Scenario => Ok(scenario::claim_rows(rows)),
        _ => Ok(rows.into_iter().map(of_pool).collect()),
    }
}

/// A row with the workers for each core of the server. Published rows have the processor time of a request too.
pub(crate) fn of_pool(row: ClaimRow) -> ClaimRow {
    let figure = |name: &str| row.figures.get(name).copied();
    let per_core = number(&row, "workers").zip(figure("cores")).map(|(workers, cores)| workers / cores);
    let cpu_s = || Some(figure("avg_cpu_pct")? / 100.0 * figure("total_s")? / figure("requests")?);
    let cpu_us = figure(CPU_US).or_else(|| cpu_s().map(|cpu_s| cpu_s * 1e6));
    row.with("workers_per_core", per_core).with(CPU_US, cpu_us)
}

/// The rows of tasks, with those of growth. The times of a disturbed contestant are left out.
pub(super) fn of_tasks(rows: &[ClaimRow], singles: &[Single], calibrations: &[Calibration]) -> Vec<ClaimRow> {
    let names = distinct(rows.iter().filter(|row| row.why.is_none()).map(|row| row.contestant.clone()));
    let first_in_go = names.iter().find(|name| name.starts_with(GO));
    let go_speed = first_in_go.and_then(|name| steps_per_s(singles, calibrations, name));
    let mut all: Vec<ClaimRow> = rows.iter().filter(|row| row.why.is_some()).cloned().collect();
    for name in &names {
        let own: Vec<&ClaimRow> = rows.iter().filter(|row| row.contestant == *name && row.why.is_none()).collect();
        if let Some(why) = disturbance(name, &own, singles) {
            let threads = |row: &&ClaimRow| {
                let mut row = (*row).clone();
                row.figures.retain(|figure, _| figure.starts_with("threads") || figure == "tasks_per_core");
                row
            };
            all.extend(own.iter().map(threads));
            all.push(ClaimRow::absent(name, why));
            continue;
        }
        all.extend(own.iter().map(|row| (*row).clone().with("total_to_at_once", to_at_once(row, &own))));
        let speed = steps_per_s(singles, calibrations, name);
        all.extend(growth(name, &own, speed.zip(go_speed).map(|(own, go)| own / go)));
    }
    all
}

/// The steps per second of a contestant's task alone.
pub(crate) fn steps_per_s(singles: &[Single], calibrations: &[Calibration], contestant: &str) -> Option<f64> {
    let steps = calibration_of(calibrations, contestant)?.steps;
    Some((steps as f64 / alone(singles, contestant, false)?.d1_ms * 1000.0).round())
}

/// Why the times of a contestant decide nothing; `None` if they do.
fn disturbance(name: &str, rows: &[&ClaimRow], singles: &[Single]) -> Option<String> {
    let Some(alone) = alone(singles, name, false) else { return Some(String::from("there is no task alone")) };
    let work_pct = 100.0 * alone.cpu1_ms / alone.d1_ms;
    let others: Vec<f64> = rows.iter().filter_map(|row| row.figures.get("others_share").copied()).collect();
    let others_pct = 100.0 * others.iter().sum::<f64>() / others.len().max(1) as f64;
    match drift_pct(singles, name) {
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

fn number(row: &ClaimRow, axis: &str) -> Option<f64> {
    match row.cell.get(axis) {
        Some(AxisValue::Number(number)) => Some(*number),
        _ => None,
    }
}

/// The total duration of tasks in batches, as a share of that of the same tasks at once.
fn to_at_once(row: &ClaimRow, rows: &[&ClaimRow]) -> Option<f64> {
    number(row, "series").filter(|series| *series > 0.0)?;
    let at_once = rows.iter().find(|other| {
        other.round == row.round
            && number(other, "series") == Some(0.0)
            && number(other, "tasks") == number(row, "tasks")
    })?;
    Some(row.figures.get(TOTAL_DURATION_MS)? / at_once.figures.get(TOTAL_DURATION_MS)?)
}

/// The rows of the growth over the numbers of tasks, and of the speed of a task alone.
fn growth(name: &str, rows: &[&ClaimRow], speed_to_go: Option<f64>) -> [ClaimRow; 2] {
    let cores = rows.iter().find_map(|row| row.figures.get("cores").copied()).unwrap_or(1.0) as usize;
    let points = |figure: &str| -> Vec<(usize, f64)> {
        let at_once = rows.iter().filter(|row| number(row, "series").unwrap_or(0.0) == 0.0);
        let mut points: Vec<(usize, f64)> =
            at_once.filter_map(|row| Some((number(row, "tasks")? as usize, *row.figures.get(figure)?))).collect();
        points.sort_by_key(|(tasks, _)| *tasks);
        points
    };
    let total = TotalGrowth::of(&points(TOTAL_DURATION_MS), cores);
    let mean = MeanGrowth::of(&points(MEAN_DURATION_MS), cores);
    let whole = ClaimRow::new(name, 1)
        .at("growth", "whole")
        .with("line_to_steps", total.map(|total| total.line_to_steps()))
        .with("scatter_on_a_line", mean.as_ref().map(|mean| mean.all.explained * f64::from(mean.all.slope > 0.0)))
        .with("steps_to_those_in_go", speed_to_go);
    let grows = |mean: &MeanGrowth| mean.before.slope > 0.0 && mean.before.explained >= MIN_EXPLAINED;
    let halves = match mean {
        None => ClaimRow::absent(name, format!("too few observations on one side of {SPLIT} tasks")),
        Some(mean) if grows(&mean) => ClaimRow::new(name, 1).with("slope_after_to_before", mean.ratio()),
        Some(_) => ClaimRow::absent(name, format!("up to {SPLIT} tasks its mean duration does not grow along a line")),
    };
    [whole, halves.at("growth", "halves")]
}

/// The growth of a mean duration. Points are `(tasks, milliseconds)`.
struct MeanGrowth {
    /// A line from the number of cores to [`SPLIT`] tasks.
    before: LinearFit,
    /// A line from [`SPLIT`] tasks on.
    after: LinearFit,
    /// A line from the number of cores on.
    all: LinearFit,
}

impl MeanGrowth {
    /// Returns the lines through `points`, or `None` if one side has fewer than four points.
    fn of(points: &[(usize, f64)], cores: usize) -> Option<Self> {
        let line = |from: usize, to: usize| {
            let selected = points.iter().filter(|(tasks, _)| (from..=to).contains(tasks));
            let selected: Vec<_> = selected.map(|(tasks, ms)| (*tasks as f64, *ms)).collect();
            LinearFit::through(&selected).filter(|_| selected.len() >= 4)
        };
        let (before, after) = (line(cores, SPLIT)?, line(SPLIT, usize::MAX)?);
        Some(Self { before, after, all: line(cores, usize::MAX)? })
    }

    /// The slope from [`SPLIT`] tasks on, as a share of the slope up to it.
    fn ratio(&self) -> f64 {
        self.after.slope / self.before.slope
    }
}

/// The growth of a total duration, from as many tasks as cores on.
struct TotalGrowth {
    /// A line.
    line: LinearFit,
    /// A staircase: it rises by the duration of a task with each further round of the cores.
    steps: LinearFit,
}

impl TotalGrowth {
    /// Returns both fits to `points`, or `None` with fewer than eight points, or fewer than four that are no multiple of
    /// `cores`.
    fn of(points: &[(usize, f64)], cores: usize) -> Option<Self> {
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
    fn line_to_steps(&self) -> f64 {
        self.line.missed / self.steps.missed.max(f64::MIN_POSITIVE)
    }
}

#[cfg(test)]
mod tests;
