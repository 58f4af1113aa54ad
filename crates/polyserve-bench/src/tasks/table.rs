//! The tables of the experiment: all contestants at some numbers of tasks, batches against all at once, and published
//! against measured figures.

use crate::experiment;
use crate::report::figures::count;
use crate::report::{EMPTY_CELL, Table, or_empty};
use serde_json::json;

use super::figures::{TaskFigures, round};
use super::measured::{Measured, MeasuredCell, Speed};
use super::published::{GO, PUBLISHED_CORES, Published, STEPS_PER_S, published};
use super::runner::STD_THREADS;

/// The tables of a result, each with its name.
///
/// # Errors
///
/// Returns an error if a published file cannot be read.
pub fn tables(measured: &Measured) -> anyhow::Result<Vec<(String, Table)>> {
    let mut tables: Vec<(String, Table)> = speeds(measured).into_iter().collect();
    for tasks in some_counts(measured) {
        tables.push((format!("{tasks} tasks at once"), all_at_once(measured, tasks)));
    }
    tables.extend(batches(measured).map(|table| (String::from("In batches, and all at once"), table)));
    if !measured.cells.is_empty() {
        let cores = measured.plan.as_ref().map_or(0, |plan| plan.core_count);
        let name = format!("Published on {PUBLISHED_CORES} cores, and here on {cores}");
        tables.push((name, published_and_measured(measured)?));
    }
    if !measured.sequences.is_empty() {
        tables.push((String::from("Sequences that converge"), limits(measured)));
    }
    if !measured.failed.is_empty() {
        let mut table = Table::of_texts(&["contestant", "no figures, because"]);
        measured.failed.iter().for_each(|failed| table.row(vec![failed.contestant.clone(), failed.why.clone()]));
        tables.push((String::from("Without figures"), table));
    }
    Ok(tables)
}

/// The observations as CSV, the published columns first.
pub(super) fn csv(cells: &[MeasuredCell]) -> anyhow::Result<String> {
    const COLUMNS: &str = "\
        tasks,mean_duration_ms,std_dev_ms,total_duration_ms,cost_pct,profit_pct,contestant,series,d1_ms,cpu1_ms,cpu_ms,\
        cpu_of,working_pct,waiting_pct,overhead_pct,threads";
    if cells.is_empty() { Ok(String::new()) } else { experiment::csv(COLUMNS, cells) }
}

/// The schedules as CSV, the published columns first.
pub(super) fn schedules_csv(cells: &[MeasuredCell]) -> anyhow::Result<String> {
    const COLUMNS: &str = "tasks,task,submitted_ms,started_ms,finished_ms,duration_ms,contestant,series,cpu_ms";
    let rows = cells.iter().flat_map(|cell| {
        let MeasuredCell { tasks, contestant, series, observed } = cell;
        observed.schedule.iter().map(move |task| {
            let mut row = json!(task);
            row["duration_ms"] = round(task.duration_ms()).into();
            (row["tasks"], row["contestant"], row["series"]) = ((*tasks).into(), json!(contestant), (*series).into());
            row
        })
    });
    if cells.is_empty() { Ok(String::new()) } else { experiment::csv(COLUMNS, rows) }
}

/// The shown numbers of tasks: the number of cores, five times this number, and the max.
fn some_counts(measured: &Measured) -> Vec<usize> {
    let measured_counts: Vec<usize> =
        measured.cells.iter().filter(|cell| cell.series == 0).map(|cell| cell.tasks).collect();
    let cores = measured.plan.as_ref().map_or(1, |plan| plan.core_count);
    let mut counts: Vec<usize> =
        [Some(cores), Some(cores * 5), measured_counts.iter().copied().max()].into_iter().flatten().collect();
    counts.retain(|count| measured_counts.contains(count));
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// The measured and the published steps per second of a task alone; `None` without single runs.
fn speeds(measured: &Measured) -> Option<(String, Table)> {
    let (speeds, plan) = (measured.speeds(), measured.plan.as_ref()?);
    let published = |speed: &Speed| {
        let place = [STD_THREADS, GO].iter().position(|name| speed.contestant == *name);
        or_empty(place.map(|place| count(STEPS_PER_S[place])))
    };
    let table = Table::of_columns(
        &speeds,
        &[
            ("contestant", &|speed| speed.contestant.clone()),
            ("steps of a task", &|speed| count(speed.steps as f64)),
            ("speed (steps/s)", &|speed| count(speed.steps_per_s)),
            ("published (steps/s)", &|speed| published(speed)),
        ],
    );
    let check = if plan.check { "with" } else { "without" };
    let name = format!("Steps per second, on {} cores, {check} the check for convergence", plan.core_count);
    (!speeds.is_empty()).then_some((name, table))
}

fn all_at_once(measured: &Measured, tasks: usize) -> Table {
    let cells = measured.contestants().into_iter().filter_map(|name| measured.cell(name, tasks, 0));
    let (ms, percent) = (|ms: f64| format!("{ms:.1} ms"), |share: f64| format!("{share:.1} %"));
    let drift = |cell: &MeasuredCell| measured.drift_pct(&cell.contestant).map(|drift| format!("{drift:+.1} %"));
    Table::of_columns(
        cells,
        &[
            ("contestant", &|cell| cell.contestant.clone()),
            ("alone", &|cell| ms(cell.observed.alone.d1_ms)),
            ("drift", &|cell| or_empty(drift(cell))),
            ("threads", &|cell| or_empty(cell.observed.threads.map(|threads| threads.to_string()))),
            ("mean", &|cell| ms(cell.observed.figures.mean_duration_ms)),
            ("std dev", &|cell| ms(cell.observed.figures.std_dev_ms)),
            ("total", &|cell| ms(cell.observed.figures.total_duration_ms)),
            ("profit", &|cell| percent(cell.observed.figures.profit_pct)),
            ("cost", &|cell| percent(cell.observed.figures.cost_pct)),
            ("working", &|cell| percent(cell.observed.figures.working_pct)),
            ("waiting", &|cell| percent(cell.observed.figures.waiting_pct)),
            ("overhead", &|cell| percent(cell.observed.figures.overhead_pct)),
        ],
    )
}

/// `None` if nothing ran in batches.
fn batches(measured: &Measured) -> Option<Table> {
    let mut table = Table::of_numbers(&["contestant", "tasks", "batch", "total at once", "total in batches", "ratio"]);
    let mut is_empty = true;
    for name in measured.contestants() {
        for cell in measured.cells.iter().filter(|cell| cell.series > 0 && cell.contestant == name) {
            let Some(once) = measured.cell(name, cell.tasks, 0) else { continue };
            let (batches, once) = (cell.observed.figures.total_duration_ms, once.observed.figures.total_duration_ms);
            is_empty = false;
            table.row(vec![
                name.to_owned(),
                cell.tasks.to_string(),
                cell.series.to_string(),
                format!("{once:.1} ms"),
                format!("{batches:.1} ms"),
                format!("{:.3}", batches / once),
            ]);
        }
    }
    (!is_empty).then_some(table)
}

/// Every published number of tasks that was measured too, with every published figure and ours.
fn published_and_measured(measured: &Measured) -> anyhow::Result<Table> {
    let [rust, go] = published()?;
    let mut table = Table::of_numbers(&[
        "tasks (published / here)",
        "Rust's mean ms",
        "total ms",
        "cost %",
        "profit %",
        "Go's mean ms",
        "total ms",
        "cost %",
        "profit %",
    ]);
    for (rust, go) in rust.iter().zip(&go) {
        let ours = [STD_THREADS, GO].map(|name| measured.cell(name, rust.tasks, 0).map(|cell| cell.observed.figures));
        if ours.iter().all(Option::is_none) {
            continue;
        }
        let cells = [rust, go].into_iter().zip(ours).flat_map(|(published, own)| published_columns(published, own));
        table.row(std::iter::once(rust.tasks.to_string()).chain(cells).collect());
    }
    Ok(table)
}

/// The cells with the published and the measured figures. Published figures are whole milliseconds and per cent.
fn published_columns(published: &Published, measured: Option<TaskFigures>) -> [String; 4] {
    let Published { tasks: _, mean_duration_ms, total_duration_ms, cost_pct, profit_pct } = *published;
    let pair = |published: f64, figure: fn(&TaskFigures) -> f64| {
        let measured = or_empty(measured.as_ref().map(|figures| format!("{:.1}", figure(figures))));
        format!("{published:.0} / {measured}")
    };
    [
        pair(mean_duration_ms, |figures| figures.mean_duration_ms),
        pair(total_duration_ms, |figures| figures.total_duration_ms),
        pair(cost_pct, |figures| figures.cost_pct),
        pair(profit_pct, |figures| figures.profit_pct),
    ]
}

fn limits(measured: &Measured) -> Table {
    let steps = measured.calibration.as_ref().map_or(0, |calibration| calibration.steps);
    let step = format!("step (of {})", count(steps as f64));
    let mut table = Table::of_numbers(&["task", "limit", &step]);
    for sequence in &measured.sequences {
        if let Some((limit, step)) = sequence.limit.zip(sequence.step) {
            table.row(vec![sequence.task.to_string(), limit.to_string(), count(step as f64)]);
        }
    }
    let found = measured.sequences.iter().filter(|sequence| sequence.limit.is_some()).count();
    let all = measured.sequences.len();
    table.row(vec![format!("{found} of {all}"), String::from(EMPTY_CELL), String::from(EMPTY_CELL)]);
    table
}

#[cfg(test)]
mod tests {
    use super::super::claims::tests::{Simulated, lines, measured};
    use super::*;
    use crate::tasks::report::Report;

    #[test]
    fn a_record_has_tables() {
        let lines = lines(&Simulated::fair());
        let tables = tables(&measured(&lines)).unwrap();
        let names: Vec<&str> = tables.iter().map(|(name, _)| name.as_str()).collect();
        let expected = [
            "Steps per second, on 2 cores, without the check for convergence",
            "2 tasks at once",
            "10 tasks at once",
            "40 tasks at once",
            "In batches, and all at once",
            "Published on 8 cores, and here on 2",
            "Sequences that converge",
            "Without figures",
        ];
        assert_eq!(names, expected);
        let text = |place: usize| tables[place].1.wide();
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let speeds: Vec<String> = text(0).lines().skip(1).map(words).collect();
        // Rust: 1000 steps in 500 ms. Go: 125 steps.
        assert_eq!(speeds[..2], ["scoped_threads/std 1,000 2,000 367,000,000", "go/goroutines 125 250 44,000,000"]);
        assert!(text(3).contains("scoped_threads/std") && text(3).contains("go/goroutines"), "{}", text(3));
        assert!(text(4).contains("1.000"), "{}", text(4));
        // Every published number of tasks, with every column; ours are made up.
        assert_eq!(text(5).lines().count(), 1 + 40, "{}", text(5));
        let last = text(5).lines().last().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        let own = |name| {
            let figures = measured(&lines).cell(name, 40, 0).unwrap().observed.figures;
            [figures.mean_duration_ms, figures.total_duration_ms, figures.cost_pct, figures.profit_pct]
        };
        let theirs = [[3718, 6479, 78, 81], [5015, 7028, 76, 85]].concat();
        let pairs = theirs.iter().zip([own(STD_THREADS), own(GO)].concat());
        let expected = pairs.fold(String::from("40"), |row, (then, now)| format!("{row} {then} / {now:.1}"));
        assert_eq!(last, expected);
        assert!(text(6).contains("1 of 2"), "{}", text(6));
        assert!(text(7).contains("rayon") && text(7).contains("no time"), "{}", text(7));
        let text = Report::of(measured(&lines)).unwrap().to_string();
        assert!(text.contains("alone") && text.contains("confirmed: "), "{text}");
    }
}
