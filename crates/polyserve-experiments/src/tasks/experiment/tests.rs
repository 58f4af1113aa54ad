//! Contestants that do not do what they should: shell scripts that talk as one.

use polyserve_lab::journal::{Header, of_kind, read};
use polyserve_lab::launch::AddressFrom;
use polyserve_lab::machine::Environment;

use super::*;
use crate::tasks::record::EXPERIMENT;
use crate::tasks::sequence::Order;

fn contestant(name: &str, script: &str) -> Contestant {
    let args = ["-c", script].map(Into::into).to_vec();
    let launch = Launch { program: "/bin/sh".into(), args, env: Vec::new(), address: AddressFrom::Json };
    Contestant { name: name.into(), launch: Ok(launch) }
}

/// What answers every request with these lines.
fn saying(name: &str, lines: &[&str]) -> Contestant {
    let lines: Vec<String> = lines.iter().map(|line| format!("echo '{line}'; ")).collect();
    contestant(name, &format!("while read request; do {} done", lines.concat()))
}

const RAN: &str = r#"{"task":1,"submitted_ns":0,"started_ns":0,"finished_ns":1000000,"cpu_ns":1,"bits":0}"#;
const DONE: &str = r#"{"process_cpu_ns":1}"#;

fn measured(contestants: &[Contestant], stop: &Shutdown) -> anyhow::Result<Measured> {
    let cores = Cores::available().unwrap();
    run(&plan(contestants, &cores), contestants, &cores, &mut Journal::none(), stop)
}

fn plan(contestants: &[Contestant], cores: &Cores) -> Plan {
    Plan {
        contestants: contestants.iter().map(|one| one.name.clone()).collect(),
        task_ms: 1.0,
        counts: vec![1, 2],
        series: 0,
        seed: 0,
        order: Order::AsDescribed,
        cores: cores.to_string(),
        core_count: cores.count(),
        workers: cores.count(),
    }
}

fn missing(why: &str) -> Contestant {
    Contestant { name: "missing".into(), launch: Err(format!("not run: {why}")) }
}

#[test]
fn whoever_does_not_do_what_it_should_has_no_figure_but_a_reason() {
    let backwards = RAN.replace("\"started_ns\":0", "\"started_ns\":2000000");
    let contestants = [
        saying("liar", &[RAN, DONE]),
        contestant("dead", "read request; echo why not >&2; exit 3"),
        saying("lazy", &[DONE]),
        saying("backwards", &[&backwards, DONE]),
        saying("refusing", &[r#"{"error":"too tired"}"#]),
        saying("stranger", &["hello"]),
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
        ("stranger", "it says \"hello\""),
        ("missing", "not run: it is not there"),
    ] {
        let of = |failed: &&Failed| failed.contestant == name;
        let [failed] = measured.failed.iter().filter(of).collect::<Vec<_>>()[..] else {
            panic!("{name}: {measured:?}")
        };
        assert!(failed.why.contains(why) && failed.wrong == (name != "missing"), "{failed:?}");
    }
}

/// Who is asked often enough may be lucky; who was not there may be there now.
#[test]
fn who_did_wrong_stays_out_of_a_rerun() {
    let dir = std::env::temp_dir().join(format!("polyserve-tasks-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let (cores, contestants) =
        (Cores::available().unwrap(), [saying("liar", &[RAN, DONE]), missing("it is not there")]);
    let plan = plan(&contestants, &cores);
    let environment = Environment::of(&cores, [&cores; 2], 0, "any");
    let header = Header::new(EXPERIMENT, serde_json::to_value(&plan).unwrap(), environment);
    for times in 1..=2 {
        let mut journal = Journal::open(Some(&dir), &header).unwrap();
        let measured = run(&plan, &contestants, &cores, &mut journal, &Shutdown::new()).unwrap();
        drop(journal);
        let of = |name: &str| measured.failed.iter().find(|failed| failed.contestant == name).unwrap();
        assert_eq!((measured.failed.len(), of("missing").wrong, of("liar").wrong), (2, false, true));
        assert_eq!(of("liar").single, Some(SingleRun { when: When::Before, run: 1 }));
        assert!(of("liar").why.starts_with("alone, run 1: the last term"), "{measured:?}");
        let lines: Vec<Failed> = of_kind(&read(&dir.join("tasks.jsonl")).unwrap(), "failure").unwrap();
        let count = |name: &str| lines.iter().filter(|line| line.contestant == name).count();
        assert_eq!((count("missing"), count("liar")), (1, 1), "run {times}: each is said once");
    }
    let _ = std::fs::remove_dir_all(&dir);
}

/// To be ended is no failure of whoever was being built meanwhile.
#[test]
fn who_was_interrupted_while_it_was_built_has_not_failed() {
    let stop = Shutdown::new();
    stop.begin(std::time::Instant::now());
    let measured = measured(&[missing("it was interrupted while it was built")], &stop).unwrap();
    assert!(measured.interrupted && measured.failed.is_empty(), "{measured:?}");
}

#[test]
fn nobody_can_run_a_task() {
    let error = measured(&[contestant("dead", "exit 3")], &Shutdown::new()).unwrap_err().to_string();
    assert!(error.contains("nobody can run a task: dead: "), "{error}");
}

#[test]
fn a_contestant_that_is_busy_does_not_hold_up_the_end() {
    let stop = Shutdown::new();
    stop.begin(std::time::Instant::now());
    let measured = measured(&[contestant("slow", "while :; do read request; done")], &stop).unwrap();
    assert!(measured.interrupted && measured.failed.is_empty(), "{measured:?}");
}
