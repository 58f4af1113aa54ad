//! What the mode `tasks` reports besides its rows: tasks alone, batches, limits of sequences, and schedules.

use serde_json::json;

use super::figures::round;
use crate::bench::definition::ChartDefinition;
use crate::bench::derived::steps_per_s;
use crate::bench::figures::TOTAL_DURATION_MS;
use crate::bench::mode::tasks::{
    CALIBRATION, Calibration, SCHEDULE, SEQUENCE, SINGLE, Sequence, Single, TaskSchedule, alone, calibration_of,
    drift_pct,
};
use crate::bench::report::BenchRow;
use crate::bench::sweep::{CellValue, SweepAxis};
use crate::experiment::{self, Records, distinct};
use crate::report::figures::count;
use crate::report::svg::{Chart, Marks, Panel};
use crate::report::{EMPTY_CELL, Table, or_empty};

/// The columns of the schedules, the published ones first.
const SCHEDULE_COLUMNS: &str =
    "tasks,task,submitted_ms,started_ms,finished_ms,duration_ms,contestant,series,round,cpu_ms";

/// The published steps per second of a task in Rust and in Go.
pub(crate) const STEPS_PER_S: [f64; 2] = [367e6, 44e6];

/// The tables of a record.
pub(crate) fn tables(records: &Records, rows: &[BenchRow]) -> anyhow::Result<Vec<(String, Table)>> {
    let tables = [
        ("tasks alone", tasks_alone(&records.facts(SINGLE)?, &records.facts(CALIBRATION)?)),
        ("in batches, and all at once", batches(rows)),
        ("sequences that converge", limits(&records.facts(SEQUENCE)?, &records.facts(CALIBRATION)?)),
    ];
    Ok(tables.into_iter().filter_map(|(name, table)| Some((name.to_owned(), table?))).collect())
}

/// The answer in a sentence: the gain of the largest number of tasks.
pub(crate) fn answer(rows: &[BenchRow]) -> String {
    let number = |row: &&BenchRow, axis| row.cell.get(&axis).and_then(CellValue::number).unwrap_or_default();
    let at_once = rows.iter().filter(|row| row.role.is_ranked() && number(row, SweepAxis::Series) == 0);
    let most = at_once.clone().map(|row| number(&row, SweepAxis::Tasks)).max().unwrap_or_default();
    let own = at_once.filter(|row| number(row, SweepAxis::Tasks) == most);
    let mut profits: Vec<(f64, &BenchRow)> =
        own.filter_map(|row| Some((*row.figures.get("profit_pct")?, row))).collect();
    profits.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let cores = |row: &BenchRow| count(row.figures.get("cores").copied().unwrap_or_default());
    match profits.as_slice() {
        [(least, worst), .., (largest, best)] => format!(
            "{most} tasks at once on {} cores save {least:.1} % (`{}`) to {largest:.1} % (`{}`) of the time of one after the other.",
            cores(worst),
            worst.contestant,
            best.contestant
        ),
        _ => String::from("No contestant has figures."),
    }
}

/// The speed of each contestant's task alone, and its drift.
fn tasks_alone(singles: &[Single], calibrations: &[Calibration]) -> Option<Table> {
    let mut table = Table::of_numbers(&[
        "contestant",
        "steps of a task",
        "alone (ms)",
        "drift (%)",
        "speed (steps/s)",
        "published (steps/s)",
    ]);
    for name in distinct(singles.iter().map(|single| single.contestant.as_str())) {
        let published = ["twin/crossbeam_scope", "go/listing"].iter().position(|listing| *listing == name);
        table.row(vec![
            name.to_owned(),
            or_empty(calibration_of(calibrations, name).map(|one| count(one.steps as f64))),
            or_empty(alone(singles, name, false).map(|alone| format!("{:.1}", alone.d1_ms))),
            or_empty(drift_pct(singles, name).map(|drift| format!("{drift:+.1}"))),
            or_empty(steps_per_s(singles, calibrations, name).map(count)),
            or_empty(published.map(|place| count(STEPS_PER_S[place]))),
        ]);
    }
    table.if_any()
}

/// The totals of batches, with those of the same tasks at once.
fn batches(rows: &[BenchRow]) -> Option<Table> {
    let number = |row: &BenchRow, axis| row.cell.get(&axis).and_then(CellValue::number).unwrap_or_default();
    let total = |row: &BenchRow| row.figures.get(TOTAL_DURATION_MS).copied();
    let pair = |row: &&BenchRow| {
        let at_once = rows.iter().find(|other| {
            other.contestant == row.contestant
                && number(other, SweepAxis::Series) == 0
                && number(other, SweepAxis::Tasks) == number(row, SweepAxis::Tasks)
        })?;
        let (batches, once) = (total(row)?, total(at_once)?);
        let [tasks, series] = [SweepAxis::Tasks, SweepAxis::Series].map(|axis| number(row, axis).to_string());
        let totals = [format!("{once:.1}"), format!("{batches:.1}"), format!("{:.3}", batches / once)];
        Some([vec![row.contestant.clone(), tasks, series], totals.to_vec()].concat())
    };
    let in_batches = rows.iter().filter(|row| number(row, SweepAxis::Series) > 0);
    let header = ["contestant", "tasks", "batch", "total at once (ms)", "total in batches (ms)", "ratio"];
    let mut table = Table::of_numbers(&header);
    in_batches.filter_map(|row| pair(&row)).for_each(|line| table.row(line));
    table.if_any()
}

/// The sequences that converge, of the first language.
fn limits(sequences: &[Sequence], calibrations: &[Calibration]) -> Option<Table> {
    let steps = calibrations.first()?.steps;
    let own: Vec<&Sequence> = sequences.iter().filter(|sequence| sequence.steps == steps).collect();
    let step = format!("step (of {})", count(steps as f64));
    let mut table = Table::of_numbers(&["task", "limit", step.as_str()]);
    let found: Vec<_> = own.iter().filter_map(|sequence| Some((sequence.task, sequence.limit?))).collect();
    for (task, limit) in &found {
        table.row(vec![task.to_string(), limit.limit.to_string(), count(limit.step as f64)]);
    }
    table.row(vec![format!("{} of {}", found.len(), own.len()), String::from(EMPTY_CELL), String::from(EMPTY_CELL)]);
    (!own.is_empty()).then_some(table)
}

/// The schedules of a record. A cell that was measured again has its last one.
fn schedules(records: &Records) -> anyhow::Result<Vec<TaskSchedule>> {
    let mut all: Vec<TaskSchedule> = records.facts(SCHEDULE)?;
    all.reverse();
    let mut kept: Vec<TaskSchedule> = Vec::new();
    for one in all {
        if records.sample(&one.key).is_some() && kept.iter().all(|other| other.key != one.key) {
            kept.push(one);
        }
    }
    kept.reverse();
    Ok(kept)
}

/// The times of all tasks as CSV.
pub(crate) fn schedules_csv(records: &Records) -> anyhow::Result<String> {
    let all = schedules(records)?;
    let rows = all.iter().flat_map(|TaskSchedule { key, schedule }| {
        schedule.iter().map(move |task| {
            let mut row = json!(task);
            row["duration_ms"] = round(task.duration_ms()).into();
            (row["contestant"], row["round"]) = (json!(key.contestant), json!(key.round));
            key.cell.iter().for_each(|(axis, value)| row[axis.to_string()] = json!(value));
            row
        })
    });
    experiment::csv(SCHEDULE_COLUMNS, rows)
}

/// The schedules of the first round at the cells of a chart, in the order of the starts: a panel for each contestant and cell.
pub(crate) fn schedule_chart(records: &Records, chart: &ChartDefinition) -> anyhow::Result<Option<(String, Chart)>> {
    let all = schedules(records)?;
    let is_shown = |one: &&TaskSchedule| {
        let at = |(axis, value): (&SweepAxis, &CellValue)| one.key.cell.get(axis) == Some(value);
        one.key.round == 1
            && chart.at.iter().all(at)
            && (chart.contestants.is_empty() || chart.contestants.contains(&one.key.contestant))
    };
    let mut shown: Vec<&TaskSchedule> = all.iter().filter(is_shown).collect();
    shown.sort_by_key(|one| {
        let place = chart.contestants.iter().position(|name| *name == one.key.contestant);
        (one.key.cell.clone(), place)
    });
    let panel = |one: &&TaskSchedule| {
        let mut tasks: Vec<(f64, f64)> = one.schedule.iter().map(|task| (task.started_ms, task.finished_ms)).collect();
        tasks.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let series = one.key.cell.get(&SweepAxis::Series).and_then(CellValue::number).filter(|series| *series > 0);
        let batches = series.map_or_else(String::new, |series| format!(", in batches of {series}"));
        Panel { name: format!("{}{batches}", one.key.contestant), tasks }
    };
    let panels: Vec<Panel> = shown.iter().map(panel).collect();
    let at: Vec<String> = chart.at.iter().map(|(axis, value)| format!("{axis} {value}")).collect();
    let name = format!("schedule, {}", at.join(", "));
    let title = format!("When each task runs: {}", at.join(", "));
    let names: Vec<&str> = panels.iter().map(|panel| panel.name.as_str()).collect();
    let about = format!("Chart: a bar from the start to the end of each task, {}: {}", at.join(", "), names.join("; "));
    let axis = String::from("ms from the first start");
    Ok((!panels.is_empty()).then_some((name, Chart { title, about, axis, marks: Marks::Schedules(panels) })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::figures::Scheduled;
    use crate::turn::Role;

    /// The bars of a panel are those of the record, by their starts. A cell that was measured again has its last ones.
    #[test]
    fn a_schedule_has_a_panel_for_each_contestant_and_cell() {
        let lines = |name: &str, series: usize, starts: [f64; 2]| {
            let cell = json!({"tasks": 2, "series": series});
            let times = |(task, start): (usize, f64)| Scheduled {
                task,
                submitted_ms: 0.0,
                started_ms: start,
                finished_ms: start + 4.0,
                cpu_ms: None,
            };
            let schedule: Vec<_> = [1, 2].into_iter().zip(starts).map(times).collect();
            [
                json!({"kind": "row", "contestant": name, "cell": cell, "round": 1, "role": "ranked", "figures": {}}),
                json!({"kind": "schedule", "contestant": name, "cell": cell, "round": 1, "schedule": schedule}),
            ]
        };
        let all = [
            lines("b", 0, [0.0, 7.0]),
            lines("a", 2, [0.0, 1.0]),
            lines("a", 0, [8.0, 9.0]),
            lines("other", 0, [0.0, 1.0]),
            lines("a", 0, [5.0, 0.0]),
        ];
        let records = crate::fixtures::records(&crate::fixtures::header("bench", json!({})), &all.concat()).unwrap();
        let chart = "kind = \"schedule\"\nat = { tasks = 2 }\ncontestants = [\"a\", \"b\"]";
        let (name, drawn) = schedule_chart(&records, &toml::from_str(chart).unwrap()).unwrap().unwrap();
        assert_eq!(name, "schedule, tasks 2");
        let Marks::Schedules(panels) = drawn.marks else { panic!("{drawn:?}") };
        let panels: Vec<_> = panels.iter().map(|panel| (panel.name.as_str(), panel.tasks.clone())).collect();
        let expected = [
            ("a", vec![(0.0, 4.0), (5.0, 9.0)]),
            ("b", vec![(0.0, 4.0), (7.0, 11.0)]),
            ("a, in batches of 2", vec![(0.0, 4.0), (1.0, 5.0)]),
        ];
        assert_eq!(panels, expected);
    }

    /// The second entry of the baseline was named as the best contestant.
    #[test]
    fn a_second_entry_is_no_contestant_of_its_own() {
        let row = |name: &str, role: Role, profit: f64| BenchRow {
            contestant: name.into(),
            cell: [(SweepAxis::Tasks, 4.into()), (SweepAxis::Series, 0.into())].into(),
            role,
            rank: None,
            rounds: 1,
            figures: [("profit_pct".to_owned(), profit), ("cores".to_owned(), 2.0)].into(),
            compared: None,
        };
        let rows =
            [row("twin", Role::Baseline, 40.0), row("twin (again)", Role::Same, 49.0), row("pool", Role::Ranked, 45.0)];
        let expected =
            "4 tasks at once on 2 cores save 40.0 % (`twin`) to 45.0 % (`pool`) of the time of one after the other.";
        assert_eq!(answer(&rows), expected);
    }
}
