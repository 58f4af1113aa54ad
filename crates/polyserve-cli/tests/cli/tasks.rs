//! `polyserve tasks`: rows, files and resumed runs. No test asserts a time.

use std::io::Write as _;

use serde_json::Value;

use super::{Dir, array, has, json, misused, parsed, polyserve, printed, run, text};

const TINY: &str = "tasks --task=1ms --most=5 --series=2";
const RECORD: &str = "tasks.jsonl";

/// The number of recorded cells with this field: `tasks` of observations, `when` of single runs.
fn cells(dir: &Dir, field: &str) -> usize {
    dir.recorded(RECORD, "cell").iter().filter(|cell| cell.get(field).is_some()).count()
}

#[test]
fn every_number_of_tasks_has_a_row_of_each_contestant_and_a_rerun_measures_nothing_anew() {
    let dir = Dir::new("tasks-rows");
    let line = format!("{TINY} --contestants=scoped_threads/std,mpsc_pool,rayon --out={dir}");
    let measured = json(&line);
    assert_eq!((&measured["failed"], &measured["interrupted"]), (&Value::Array(Vec::new()), &false.into()));
    let cells_printed = array(&measured["cells"]);
    let expected = [(1, 0), (2, 0), (3, 0), (4, 0), (4, 2), (5, 0)];
    let expected = expected.iter().flat_map(|at| ["scoped_threads/std", "mpsc_pool", "rayon"].map(|name| (*at, name)));
    let number = |cell: &Value, name: &str| cell[name].as_u64().unwrap();
    let actual: Vec<_> = (cells_printed.iter())
        .map(|cell| ((number(cell, "tasks"), number(cell, "series")), cell["contestant"].as_str().unwrap()))
        .collect();
    assert_eq!(actual, expected.collect::<Vec<_>>());
    for cell in cells_printed {
        let schedule = array(&cell["schedule"]);
        assert_eq!(schedule.len() as u64, number(cell, "tasks"));
        let time = |task: &Value, name: &str| task[name].as_f64().unwrap();
        let all = || schedule.iter();
        assert!(all().all(|task| time(task, "submitted_ms") <= time(task, "started_ms")), "{cell}");
        assert!(all().all(|task| time(task, "started_ms") < time(task, "finished_ms")), "{cell}");
        assert_eq!(all().map(|task| time(task, "started_ms")).fold(f64::INFINITY, f64::min), 0.0, "{cell}");
        let total = all().map(|task| time(task, "finished_ms")).fold(0.0, f64::max);
        assert_eq!(cell["total_duration_ms"], total, "{cell}");
        assert_eq!(cell["cpu_of"], "tasks");
        assert!(cell["others"].as_f64().is_some_and(|share| (0.0..=1.0).contains(&share)), "{cell}");
    }
    for (field, count) in [("sequences", 5), ("singles", 3 * 10), ("claims", 18)] {
        assert_eq!(array(&measured[field]).len(), count, "{field}");
    }
    assert_eq!(measured["plan"]["core_count"], measured["environment"]["cores"]);

    let figures = "tasks,mean_duration_ms,std_dev_ms,total_duration_ms,cost_pct,profit_pct,contestant,";
    let schedule = "tasks,task,submitted_ms,started_ms,finished_ms,duration_ms,contestant,";
    for (file, columns, rows) in [("tasks.csv", figures, 18), ("tasks_schedule.csv", schedule, 3 * 19)] {
        let csv = dir.read(file);
        assert!(csv.starts_with(columns) && csv.lines().count() == 1 + rows, "{csv}");
    }

    let again = json(&line);
    for field in ["calibration", "sequences", "singles", "cells", "claims"] {
        assert_eq!(again[field], measured[field], "{field}");
    }
    let count = |kind: &str| dir.recorded(RECORD, kind).len();
    assert_eq!((count("environment"), count("calibration"), cells(&dir, "tasks")), (2, 1, 18));
    has(&misused(&format!("{line} --seed=1")), &["is not overwritten"]);
}

#[test]
fn a_given_number_of_steps_is_not_calibrated() {
    let line = "tasks --steps=100000 --most=2 --series=0 --contestants=scoped_threads/std,rayon --check-convergence";
    let (measured, output) = (json(line), printed(line));
    let cores = &measured["plan"]["core_count"];
    has(&output, &["a task is 100,000 steps: ", "367,000,000", &format!("cores: {cores}\n")]);
    has(&output, &[&format!("Steps per second, on {cores} cores, with the check for convergence\n")]);
    let speeds = array(&measured["speeds"]);
    let of: Vec<_> = speeds.iter().map(|speed| (speed["contestant"].as_str().unwrap(), &speed["steps"])).collect();
    assert_eq!(of, [("scoped_threads/std", &100_000.into()), ("rayon", &100_000.into())]);
    assert!(speeds.iter().all(|speed| speed["steps_per_s"].as_f64().unwrap() > 0.0), "{speeds:?}");
}

/// The last terms in Go are equal to ours bit for bit, in both orders.
#[test]
fn go_runs_the_same_tasks() {
    for order in ["", "--as-published", "--check-convergence"] {
        // The listing has one order. Its twin in Rust is measured by ci/peers.sh, because its build takes longer.
        let listing = if order == "--as-published" { ",go/listing" } else { "" };
        let contestants = format!("rayon,go/goroutines,go/goroutines_gc_off,go/goroutines_locked{listing}");
        let output = run(&format!("{TINY} --contestants={contestants} --json {order}"));
        let measured = parsed(&output);
        let failed = array(&measured["failed"]);
        let mut reasons = failed.iter().filter_map(|failed| failed["why"].as_str());
        if let Some(why) = reasons.find(|why| why.contains("go is not installed")) {
            assert_eq!(output.status.code(), Some(1), "it was asked for by its name");
            let _ = writeln!(std::io::stderr(), "go_runs_the_same_tasks: {why}"); // past the harness's capture
            return;
        }
        assert!(output.status.success() && failed.is_empty(), "{failed:?} {}", text(&output.stderr));
        for (name, cpu_of) in
            [("go/goroutines", "process"), ("go/goroutines_gc_off", "process"), ("go/goroutines_locked", "tasks")]
                .into_iter()
                .chain((!listing.is_empty()).then_some(("go/listing", "process")))
        {
            let cells = array(&measured["cells"]).iter().filter(|cell| cell["contestant"] == name);
            assert_eq!(cells.clone().count(), 6);
            assert!(cells.clone().all(|cell| cell["cpu_of"] == cpu_of), "{name}: {measured}");
        }
    }
}

#[test]
fn a_listing_has_the_published_order_only() {
    has(&misused("tasks --contestants=twin/crossbeam_scope"), &["twin/crossbeam_scope", "--as-published"]);
}

/// Without Go its row has the reason, and the other contestants are measured.
#[test]
fn a_contestant_that_is_not_available_is_named() {
    let line = "tasks --task=1ms --most=2 --contestants=rayon,go/goroutines";
    let output = polyserve(line).env("PATH", "/nonexistent").output().unwrap();
    has(&text(&output.stdout), &["go/goroutines", "go is not installed", "2 tasks at once\n", "rayon"]);
    assert_eq!(output.status.code(), Some(1), "it was asked for by its name");
}
