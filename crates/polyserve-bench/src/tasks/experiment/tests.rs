//! Faulty contestants: shell scripts that write the lines of a contestant.

use std::path::Path;

use crate::experiment::run;
use crate::fixtures::{self, TestDir};
use crate::journal::{Header, Journal, read};
use crate::launch::AddressFrom;
use crate::machine::Environment;

use super::*;
use crate::tasks::measured::{MissingFigure, SingleRun};
use crate::tasks::sequence::TermOrder;

fn contestant(name: &str, script: &str) -> TaskEntrant {
    TaskEntrant { name: name.into(), launch: Ok(fixtures::script(script, AddressFrom::Json)), is_named: false }
}

/// A contestant that answers every request with these lines.
fn answering(name: &str, lines: &[&str]) -> TaskEntrant {
    let lines: Vec<String> = lines.iter().map(|line| format!("echo '{line}'; ")).collect();
    contestant(name, &format!("while read request; do {} done", lines.concat()))
}

const RAN: &str = r#"{"task":1,"submitted_ns":0,"started_ns":0,"finished_ns":1000000,"cpu_ns":1,"bits":0}"#;
const DONE: &str = r#"{"process_cpu_ns":1}"#;

fn measured(contestants: &[TaskEntrant], stop: &Shutdown) -> anyhow::Result<Measured> {
    Ok(recorded(contestants, None, stop)?.0)
}

/// Runs the experiment with its record in `dir`. Returns everything measured, and whether the command fails.
fn recorded(contestants: &[TaskEntrant], dir: Option<&Path>, stop: &Shutdown) -> anyhow::Result<(Measured, bool)> {
    let cores = Cores::available().unwrap();
    let settings = TaskSettings {
        contestants: contestants.iter().map(|contestant| contestant.name.clone()).collect(),
        task_ms: 1.0,
        steps: None,
        check: false,
        counts: vec![1, 2],
        series: 0,
        seed: 0,
        order: TermOrder::AsDescribed,
        cores: cores.to_string(),
        core_count: cores.count(),
        workers: cores.count(),
    };
    let environment = Environment::of(&cores, [&cores; 2], 0, "any");
    let mut tasks = CpuTasks::new(settings, contestants.to_vec(), cores, stop.clone());
    let header = Header::new(EXPERIMENT, tasks.describe(), environment);
    let mut journal = Journal::open(dir, &header)?;
    let records = run(&mut tasks, &header, &mut journal, stop)?;
    Ok((Measured::of(&records)?, records.is_failed()))
}

fn missing(why: &str) -> TaskEntrant {
    TaskEntrant { name: "missing".into(), launch: Err(why.to_owned()), is_named: false }
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
        missing("it is not there"),
    ];
    let measured = measured(&contestants, &Shutdown::new()).unwrap();
    assert!(measured.cells.is_empty() && measured.singles.is_empty() && !measured.interrupted, "{measured:?}");
    assert_eq!(measured.sequences.len(), 2);
    for (name, why) in [
        ("liar", "the last term of task 1 is"),
        ("dead", "it ended by itself: exit status: 3: why not"),
        ("lazy", "it ran 0 of 1 tasks"),
        ("backwards", "ended before it began"),
        ("refusing", "too tired"),
        ("stranger", "unexpected line \"hello\""),
        ("missing", "it is not there"),
    ] {
        let of = |failed: &&MissingFigure| failed.contestant == name;
        let [failed] = measured.failed.iter().filter(of).collect::<Vec<_>>()[..] else {
            panic!("{name}: {measured:?}")
        };
        assert!(failed.why.contains(why) && failed.wrong == (name != "missing"), "{failed:?}");
    }
}

/// A rerun must not retry a wrong contestant: an answer could be right by chance. It retries a contestant that was not
/// available.
#[test]
fn a_wrong_contestant_stays_out_of_a_rerun() {
    let dir = TestDir::new("tasks");
    let contestants = [answering("liar", &[RAN, DONE]), missing("it is not there")];
    for times in 1..=2 {
        let (measured, is_failed) = recorded(&contestants, Some(&dir), &Shutdown::new()).unwrap();
        let of = |name: &str| measured.failed.iter().find(|failed| failed.contestant == name).unwrap();
        assert_eq!((measured.failed.len(), of("missing").wrong, of("liar").wrong, is_failed), (2, false, true, true));
        assert_eq!(of("liar").single, Some(SingleRun { when: When::Before, run: 1 }));
        assert!(of("liar").why.starts_with("alone, run 1: the last term"), "{measured:?}");
        let lines = read(&dir.join("tasks.jsonl")).unwrap();
        let is_failure = |line: &&Value, name: &str| line["kind"] == "failure" && line["contestant"] == name;
        let count = |name: &str| lines.iter().filter(|line| is_failure(line, name)).count();
        assert_eq!((count("missing"), count("liar")), (1, 1), "run {times}: each failure is recorded once");
    }
}

/// An interrupted build is no failure of the contestant.
#[test]
fn an_interrupted_build_is_no_failure() {
    let stop = Shutdown::new();
    stop.begin(std::time::Instant::now());
    let measured = measured(&[missing("it was interrupted while it was built")], &stop).unwrap();
    assert!(measured.interrupted && measured.failed.is_empty(), "{measured:?}");
}

#[test]
fn a_run_without_a_working_contestant_is_an_error() {
    let error = measured(&[contestant("dead", "exit 3")], &Shutdown::new()).unwrap_err().to_string();
    assert!(error.contains("no contestant can run a task: dead: "), "{error}");
}

#[test]
fn a_contestant_that_is_busy_does_not_hold_up_the_end() {
    let stop = Shutdown::new();
    stop.begin(std::time::Instant::now());
    let measured = measured(&[contestant("slow", "while :; do read request; done")], &stop).unwrap();
    assert!(measured.interrupted && measured.failed.is_empty(), "{measured:?}");
}
