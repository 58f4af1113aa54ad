//! The two published files: the published columns first, then ours.

use serde::Serialize;

use super::figures::round;
use super::measured::MeasuredCell;
use super::record::CpuScope;

/// A row of `tasks.csv`.
#[derive(Serialize)]
struct TaskRow<'a> {
    tasks: usize,
    mean_duration_ms: f64,
    std_dev_ms: f64,
    total_duration_ms: f64,
    cost_pct: f64,
    profit_pct: f64,
    contestant: &'a str,
    series: usize,
    d1_ms: f64,
    cpu1_ms: f64,
    cpu_ms: f64,
    cpu_of: CpuScope,
    working_pct: f64,
    waiting_pct: f64,
    overhead_pct: f64,
    threads: Option<u64>,
}

/// A row of `tasks_schedule.csv`.
#[derive(Serialize)]
struct ScheduleRow<'a> {
    tasks: usize,
    task: usize,
    submitted_ms: f64,
    started_ms: f64,
    finished_ms: f64,
    duration_ms: f64,
    contestant: &'a str,
    series: usize,
    cpu_ms: Option<f64>,
}

/// The text of `tasks.csv`, the published columns first.
pub(super) fn rows_csv(cells: &[MeasuredCell]) -> anyhow::Result<String> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    for MeasuredCell { tasks, contestant, series, figures, alone, cpu_of, threads, schedule: _ } in cells {
        let row = TaskRow {
            tasks: *tasks,
            mean_duration_ms: figures.mean_duration_ms,
            std_dev_ms: figures.std_dev_ms,
            total_duration_ms: figures.total_duration_ms,
            cost_pct: figures.cost_pct,
            profit_pct: figures.profit_pct,
            contestant,
            series: *series,
            d1_ms: alone.d1_ms,
            cpu1_ms: alone.cpu1_ms,
            cpu_ms: figures.cpu_ms,
            cpu_of: *cpu_of,
            working_pct: figures.working_pct,
            waiting_pct: figures.waiting_pct,
            overhead_pct: figures.overhead_pct,
            threads: *threads,
        };
        csv.serialize(row)?;
    }
    Ok(String::from_utf8(csv.into_inner()?)?)
}

/// The text of `tasks_schedule.csv`, the published columns first.
pub(super) fn schedules_csv(cells: &[MeasuredCell]) -> anyhow::Result<String> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    for cell in cells {
        for task in &cell.schedule {
            let row = ScheduleRow {
                tasks: cell.tasks,
                task: task.task,
                submitted_ms: task.submitted_ms,
                started_ms: task.started_ms,
                finished_ms: task.finished_ms,
                duration_ms: round(task.duration_ms()),
                contestant: &cell.contestant,
                series: cell.series,
                cpu_ms: task.cpu_ms,
            };
            csv.serialize(row)?;
        }
    }
    Ok(String::from_utf8(csv.into_inner()?)?)
}
