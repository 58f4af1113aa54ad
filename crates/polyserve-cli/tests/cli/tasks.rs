//! `polyserve bench tasks`: rows, files, and programs in Go. No test asserts a time.

use std::io::Write as _;

use serde_json::Value;

use super::{Dir, array, has, json, parsed, polyserve, run, text, texts};

const TINY: &str =
    "bench tasks --set mode.task=1ms --set sweep.tasks=[1,2,3,4,5] --set sweep.series=[0,2] --set claim=[]";

#[test]
fn every_number_of_tasks_has_a_row_of_each_contestant() {
    let dir = Dir::new("tasks-rows");
    let contestants = r#"["executor:scoped_threads/std","executor:mpsc_pool","executor:rayon"]"#;
    let line = format!("{TINY} --set contestants={contestants} --set baseline=executor:rayon --out={dir}");
    let report = json(&line);
    assert_eq!((&report["failed"], &report["interrupted"]), (&Value::Array(Vec::new()), &false.into()));
    let rows = array(&report["rows"]);
    let names = ["rayon", "rayon (again)", "scoped_threads/std", "mpsc_pool"];
    // Five numbers of tasks at once; 4 is the only larger multiple of 2.
    assert_eq!(rows.len(), names.len() * 6, "{report}");
    for row in rows {
        assert!(names.contains(&row["contestant"].as_str().unwrap()), "{row}");
        let figure = |name: &str| row["figures"][name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
        assert!(figure("total_duration_ms") > 0.0 && figure("mean_duration_ms") <= figure("total_duration_ms") * 1.001);
        assert!(figure("cpu_ms") > 0.0 && figure("cpu_of_process") == 0.0, "{row}");
        assert!((0.0..=1.0).contains(&figure("others_share")), "{row}");
    }
    let recorded = |kind: &str| dir.recorded("tasks.jsonl", kind);
    assert_eq!((recorded("row").len(), recorded("sequence").len(), recorded("single").len()), (24, 5, 4 * 10));
    assert_eq!((recorded("calibration").len(), recorded("schedule").len()), (1, 24));
    for schedule in recorded("schedule") {
        let tasks = array(&schedule["schedule"]);
        assert_eq!(Some(tasks.len() as u64), schedule["cell"]["tasks"].as_u64());
        let time = |task: &Value, name: &str| task[name].as_f64().unwrap();
        assert!(tasks.iter().all(|task| time(task, "submitted_ms") <= time(task, "started_ms")), "{schedule}");
        assert!(tasks.iter().all(|task| time(task, "started_ms") < time(task, "finished_ms")), "{schedule}");
        assert_eq!(tasks.iter().map(|task| time(task, "started_ms")).fold(f64::INFINITY, f64::min), 0.0, "{schedule}");
    }
    let figures = "tasks,mean_duration_ms,std_dev_ms,total_duration_ms,cost_pct,profit_pct,contestant,";
    let schedule = "tasks,task,submitted_ms,started_ms,finished_ms,duration_ms,contestant,";
    for (file, columns, rows) in [("tasks.csv", figures, 24), ("tasks_schedule.csv", schedule, 4 * 19)] {
        let csv = dir.read(file);
        assert!(csv.starts_with(columns) && csv.lines().count() == 1 + rows, "{csv}");
    }
    let output = text(&run(&line).stdout);
    has(
        &output,
        &["5 tasks at once on ", "tasks alone\n", "in batches, and all at once\n", "sequences that converge\n"],
    );
    assert_eq!((recorded("row").len(), recorded("calibration").len()), (24, 1), "nothing is measured again");
    has(&super::misused(&format!("{line} --seed=1")), &["is not overwritten"]);
}

#[test]
fn a_given_number_of_steps_is_not_calibrated() {
    let changes =
        "--set mode.steps=100000 --set sweep.tasks=[1,2] --set sweep.series=[0] --set mode.check_convergence=true";
    let contestants =
        r#"--set contestants=["executor:scoped_threads/std","executor:rayon"] --set baseline=executor:rayon"#;
    let report = json(&format!("bench tasks {changes} {contestants} --set claim=[]"));
    let load = "CPU tasks of 100,000 steps, in the order of the published code, ours with the check for convergence";
    assert_eq!(report["workload"], load);
    assert_eq!(array(&report["rows"]).len(), 6);
}

/// The last terms in Go are equal to ours bit for bit, in both orders. The listing has one order. Its twin in Rust is measured
/// by ci/peers.sh, because its build takes longer.
#[test]
fn go_runs_the_same_tasks() {
    for order in ["as_published", "as_described"] {
        let listing = if order == "as_published" { r#","peer:go/listing""# } else { "" };
        let programs =
            r#""executor:rayon","peer:go/goroutines","peer:go/goroutines_gc_off","peer:go/goroutines_locked""#;
        let changes = format!("--set mode.order={order} --set contestants=[{programs}{listing}]");
        let output = run(&format!("{TINY} --json {changes} --set baseline=executor:rayon"));
        let report = parsed(&output);
        let not_run = array(&report["not_run"]);
        if let Some(why) = texts(not_run, "why").iter().find(|why| why.contains("go is not installed")) {
            let _ = writeln!(std::io::stderr(), "go_runs_the_same_tasks: {why}"); // past the harness's capture
            return;
        }
        assert!(output.status.success(), "{report} {}", text(&output.stderr));
        let names = [("go/goroutines", 1.0), ("go/goroutines_gc_off", 1.0), ("go/goroutines_locked", 0.0)];
        for (name, of_process) in names.into_iter().chain((!listing.is_empty()).then_some(("go/listing", 1.0))) {
            let own: Vec<_> = array(&report["rows"]).iter().filter(|row| row["contestant"] == name).collect();
            assert_eq!(own.len(), 6, "{name}: {report}");
            assert!(own.iter().all(|row| row["figures"]["cpu_of_process"] == of_process), "{name}: {report}");
        }
    }
}

/// Without Go its row has the reason, and the other contestants are measured.
#[test]
fn a_contestant_that_is_not_available_is_named() {
    let contestants = r#"--set contestants=["executor:rayon","peer:go/goroutines"] --set baseline=executor:rayon"#;
    let output = polyserve(&format!("{TINY} {contestants}")).env("PATH", "/nonexistent").output().unwrap();
    has(&text(&output.stdout), &["not run: go/goroutines: go is not installed", "rayon"]);
}
