//! `polyserve tasks`: rows, files and resumed runs. No test asserts a time.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{misused, polyserve, printed, run, text};

const TINY: [&str; 4] = ["tasks", "--task=1ms", "--most=5", "--series=2"];
const OURS: &str = "--contestants=scoped_threads/std,mpsc_pool,rayon";

/// A directory for one test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tasks-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        Self(dir)
    }

    fn flag(&self) -> String {
        format!("--out={}", self.0.display())
    }

    fn lines(&self, name: &str) -> Vec<String> {
        fs::read_to_string(self.0.join(name)).unwrap().lines().map(str::to_owned).collect()
    }

    /// The number of recorded lines of a kind.
    fn count(&self, kind: &str) -> usize {
        self.lines("tasks.jsonl").iter().filter(|line| line.starts_with(&format!("{{\"kind\":{kind:?}"))).count()
    }

    /// The number of recorded cells with this field: `tasks` of observations, `when` of single runs.
    fn cells(&self, field: &str) -> usize {
        let is_one = |line: &&String| line.starts_with("{\"kind\":\"cell\"") && line.contains(&format!("{field:?}:"));
        self.lines("tasks.jsonl").iter().filter(is_one).count()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn tasks(args: &[&str]) -> Value {
    let said = printed(&[&TINY[..], &["--json"], args].concat());
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn every_number_of_tasks_has_a_row_of_each_contestant_and_a_rerun_measures_nothing_anew() {
    let dir = Dir::new("rows");
    let measured = tasks(&[OURS, &dir.flag()]);
    assert_eq!((&measured["failed"], &measured["interrupted"]), (&Value::Array(Vec::new()), &false.into()));
    let cells = measured["cells"].as_array().unwrap();
    let wanted = [(1, 0), (2, 0), (3, 0), (4, 0), (4, 2), (5, 0)];
    let wanted = wanted.iter().flat_map(|at| ["scoped_threads/std", "mpsc_pool", "rayon"].map(|name| (*at, name)));
    let number = |cell: &Value, name: &str| cell[name].as_u64().unwrap();
    let are: Vec<_> = (cells.iter())
        .map(|cell| ((number(cell, "tasks"), number(cell, "series")), cell["contestant"].as_str().unwrap()))
        .collect();
    assert_eq!(are, wanted.collect::<Vec<_>>());
    for cell in cells {
        let schedule = cell["schedule"].as_array().unwrap();
        assert_eq!(schedule.len() as u64, number(cell, "tasks"));
        let time = |task: &Value, name: &str| task[name].as_f64().unwrap();
        let all = || schedule.iter();
        assert!(all().all(|task| time(task, "submitted_ms") <= time(task, "started_ms")), "{cell}");
        assert!(all().all(|task| time(task, "started_ms") < time(task, "finished_ms")), "{cell}");
        assert_eq!(all().map(|task| time(task, "started_ms")).fold(f64::INFINITY, f64::min), 0.0, "{cell}");
        let total = all().map(|task| time(task, "finished_ms")).fold(0.0, f64::max);
        assert_eq!(cell["total_duration_ms"], total, "{cell}");
        assert_eq!(cell["cpu_of"], "tasks");
    }
    assert_eq!(measured["sequences"].as_array().unwrap().len(), 5);
    assert_eq!(measured["singles"].as_array().unwrap().len(), 3 * 10);
    assert_eq!(measured["claims"].as_array().unwrap().len(), 8);
    assert_eq!(measured["plan"]["core_count"], measured["environment"]["cores"]);

    let columns = "tasks,mean_duration_ms,std_dev_ms,total_duration_ms,cost_pct,profit_pct,contestant";
    let rows = dir.lines("tasks.csv");
    assert!(rows[0].starts_with(&format!("{columns},")) && rows.len() == 1 + 18, "{rows:?}");
    let columns = "tasks,task,submitted_ms,started_ms,finished_ms,duration_ms,contestant";
    let rows = dir.lines("tasks_schedule.csv");
    assert!(rows[0].starts_with(&format!("{columns},")) && rows.len() == 1 + 3 * 19, "{rows:?}");

    let again = tasks(&[OURS, &dir.flag()]);
    for field in ["calibration", "sequences", "singles", "cells", "claims"] {
        assert_eq!(again[field], measured[field], "{field}");
    }
    assert_eq!((dir.count("environment"), dir.count("calibration"), dir.cells("tasks")), (2, 1, 18));
    let other = misused(&[&TINY[..], &[OURS, "--seed=1", &dir.flag()]].concat());
    assert!(other.contains("is not written over"), "{other}");
}

/// A record that ends in the middle of a line is resumed, with the same number of steps in a task.
#[test]
fn a_run_that_was_cut_off_goes_on() {
    let dir = Dir::new("on");
    let args = ["--contestants=scoped_threads/crossbeam,tokio_tasks", &dir.flag()];
    let whole = tasks(&args);
    let path = dir.0.join("tasks.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let keep = text.match_indices("\n{\"kind\":\"cell\"").nth(14).unwrap().0 + 20;
    fs::write(&path, &text[..keep]).unwrap();
    assert_eq!((dir.cells("tasks"), dir.cells("when")), (4, 10));
    let on = tasks(&args);
    assert_eq!(on["calibration"], whole["calibration"]);
    assert_eq!(on["cells"].as_array().unwrap().len(), 12);
    let [first, rest] = [&on, &whole].map(|run| run["cells"].as_array().unwrap()[..4].to_vec());
    assert_eq!(first, rest, "what was recorded is not measured again");
    assert_eq!((dir.cells("tasks"), dir.cells("when"), dir.count("sequence")), (12, 20, 5));
}

/// The last terms in Go are equal to ours bit for bit, in both orders.
#[test]
fn go_runs_the_same_tasks() {
    for order in [&[][..], &["--as-published"]] {
        let args = [&["--contestants=rayon,go/goroutines,go/goroutines_locked", "--json"], order].concat();
        let output = run(&[&TINY[..], &args].concat());
        let measured: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{error}: {} {}", text(&output.stdout), text(&output.stderr));
        });
        let failed = measured["failed"].as_array().unwrap();
        if let Some(why) =
            failed.iter().filter_map(|failed| failed["why"].as_str()).find(|why| why.contains("go is not installed"))
        {
            assert_eq!(output.status.code(), Some(1), "it was asked for by its name");
            let _ = std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("go_runs_the_same_tasks: {why}\n").as_bytes(),
            );
            return;
        }
        assert!(output.status.success() && failed.is_empty(), "{failed:?} {}", text(&output.stderr));
        let cells = measured["cells"].as_array().unwrap();
        let of = |name: &str| cells.iter().filter(|cell| cell["contestant"] == name).collect::<Vec<_>>();
        let (free, locked) = (of("go/goroutines"), of("go/goroutines_locked"));
        assert_eq!((free.len(), locked.len()), (6, 6));
        assert!(free.iter().all(|cell| cell["cpu_of"] == "process"), "{free:?}");
        assert!(locked.iter().all(|cell| cell["cpu_of"] == "tasks"), "{locked:?}");
    }
}

/// Without Go its row has the reason, and the other contestants are measured.
#[test]
fn a_contestant_that_is_not_available_is_named() {
    let args = ["tasks", "--task=1ms", "--most=2", "--contestants=rayon,go/goroutines"];
    let output = polyserve(&args).env("PATH", "/nonexistent").output().unwrap();
    let said = text(&output.stdout);
    assert!(said.contains("go/goroutines") && said.contains("go is not installed"), "{said}");
    assert!(said.contains("2 tasks at once\n") && said.contains("rayon"), "{said}");
    assert_eq!(output.status.code(), Some(1), "it was asked for by its name");
}

#[test]
fn what_cannot_be_done_is_a_misuse() {
    for (args, why) in [
        (&["--contestants=missing"][..], "no contestant \"missing\""),
        (&["--task=1us"], "--task 1"),
        (&["--task=2h"], "--task 7200s"),
        (&["--most=0"], "--most"),
        (&["--most=1001"], "--most"),
        (&["--series=2000"], "--series"),
        (&["--workers=0"], "--workers"),
        (&["--cores=1000"], "there is no core 1000"),
    ] {
        let said = misused(&[&["tasks"], args].concat());
        assert!(said.contains(why), "{args:?}: {said}");
    }
}
