//! Faulty contestants: shell scripts that write the lines of a contestant.

use std::path::Path;
use std::time::Instant;

use super::*;
use crate::bench::mode::ModeKind;
use crate::bench::{BenchPlan, CellEntries, DefinedExperiment};
use crate::experiment::{Absent, run};
use crate::fixtures::{self, TestDir};
use crate::journal::{Header, Journal, read};
use crate::launch::AddressFrom;
use crate::machine::Environment;

fn contestant(name: &str, script: &str) -> TaskEntrant {
    TaskEntrant { name: name.into(), role: Role::Ranked, launch: fixtures::script(script, AddressFrom::Json) }
}

/// A contestant that answers every request with these lines.
fn answering(name: &str, lines: &[&str]) -> TaskEntrant {
    let lines: Vec<String> = lines.iter().map(|line| format!("echo '{line}'; ")).collect();
    contestant(name, &format!("while read request; do {} done", lines.concat()))
}

const RAN: &str = r#"{"task":1,"submitted_ns":0,"started_ns":0,"finished_ns":1000000,"cpu_ns":1,"bits":0}"#;
const DONE: &str = r#"{"process_cpu_ns":1}"#;

/// Runs the experiment with its record in `dir`, and with a contestant that is not there.
fn recorded(entrants: &[TaskEntrant], dir: Option<&Path>, stop: &Shutdown) -> anyhow::Result<Records> {
    let cores = Cores::available().unwrap();
    let environment = Environment::of(&cores, [&cores; 2], 0, "any");
    let names: Vec<String> = entrants.iter().map(|one| one.name.clone()).collect();
    let cell = |tasks: u64| CellEntries {
        cell: SweepCell::from([(SweepAxis::Tasks, tasks.into())]),
        contestants: names.clone(),
    };
    let plan = BenchPlan {
        name: "tasks".into(),
        mode: ModeKind::Tasks,
        compared: "total_duration_ms".into(),
        axes: vec![SweepAxis::Tasks],
        contestants: names.clone(),
        baseline: names[0].clone(),
        rounds: 1,
        ..BenchPlan::default()
    };
    let mode = TasksMode { task: Duration::from_millis(1), ..TasksMode::default() };
    let absence = Absence::not_available("it is not there");
    let absent = vec![Absent { key: no_cell("missing"), absence, excused: false }];
    let turns = TaskTurns::new(mode, entrants.to_vec(), 2, 0, cores, stop.clone());
    let mut experiment = DefinedExperiment::new(plan, vec![cell(1), cell(2)], absent, Box::new(turns));
    let header = Header::new("bench", experiment.describe(), environment);
    let mut journal = Journal::open(dir, &header)?;
    run(&mut experiment, &header, &mut journal, stop)
}

fn failures(recorded: &Records) -> Vec<(String, String, bool)> {
    let absences = recorded.absences();
    absences.map(|(key, absence)| (key.contestant.clone(), absence.why.clone(), absence.is_wrong())).collect()
}

#[test]
fn a_contestant_that_fails_has_a_reason_and_no_figure() {
    let backwards = RAN.replace("\"started_ns\":0", "\"started_ns\":2000000");
    let contestants = [
        answering("liar", &[RAN, DONE]),
        contestant("dead", "read request; echo why not >&2; exit 3"),
        answering("lazy", &[DONE]),
        answering("backwards", &[&backwards, DONE]),
        answering("refusing", &[r#"{"error":"too tired"}"#]),
        answering("stranger", &["hello"]),
    ];
    let recorded = recorded(&contestants, None, &Shutdown::new()).unwrap();
    assert_eq!(recorded.samples().count(), 0);
    assert!(recorded.facts::<Single>(SINGLE).unwrap().is_empty() && !recorded.is_interrupted());
    assert_eq!(recorded.facts::<Sequence>(SEQUENCE).unwrap().len(), 2);
    let failed = failures(&recorded);
    for (name, why) in [
        ("liar", "alone, run 1: the last term of task 1 is"),
        ("dead", "it ended by itself: exit status: 3: why not"),
        ("lazy", "it ran 0 of 1 tasks"),
        ("backwards", "ended before it began"),
        ("refusing", "too tired"),
        ("stranger", "unexpected line \"hello\""),
        ("missing", "it is not there"),
    ] {
        let [(_, found, is_wrong)] = failed.iter().filter(|(of, ..)| of == name).collect::<Vec<_>>()[..] else {
            panic!("{name}: {failed:?}")
        };
        assert!(found.contains(why) && *is_wrong == (name != "missing"), "{name}: {found}");
    }
}

/// A rerun must not retry a wrong contestant: an answer could be right by chance. It retries a contestant that was not
/// available.
#[test]
fn a_wrong_contestant_stays_out_of_a_rerun() {
    let dir = TestDir::new("tasks");
    for times in 1..=2 {
        let recorded = recorded(&[answering("liar", &[RAN, DONE])], Some(&dir), &Shutdown::new()).unwrap();
        assert_eq!((failures(&recorded).len(), recorded.is_failed()), (2, true));
        let lines = read(&dir.join("bench.jsonl")).unwrap();
        let is_failure =
            |line: &&serde_json::Value, name: &str| line["kind"] == "failure" && line["contestant"] == name;
        let count = |name: &str| lines.iter().filter(|line| is_failure(line, name)).count();
        assert_eq!((count("missing"), count("liar")), (1, 1), "run {times}: each failure is recorded once");
    }
}

#[test]
fn a_run_without_a_working_contestant_is_an_error() {
    let error = recorded(&[contestant("dead", "exit 3")], None, &Shutdown::new()).unwrap_err().to_string();
    assert!(error.contains("no contestant can run a task: dead: "), "{error}");
}

/// The run ends before the builds or the contestants do, and no failure is recorded.
#[test]
fn a_contestant_that_is_busy_does_not_hold_up_the_end() {
    let stop = Shutdown::new();
    stop.begin(Instant::now());
    let recorded = recorded(&[contestant("slow", "while :; do read request; done")], None, &stop).unwrap();
    assert!(recorded.is_interrupted() && failures(&recorded).is_empty(), "{recorded:?}");
}
