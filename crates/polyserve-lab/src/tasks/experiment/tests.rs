//! Contestants that do not do what they should: shell scripts that talk as one.

use super::*;
use crate::launch::AddressFrom;
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
    let plan = Plan {
        contestants: contestants.iter().map(|one| one.name.clone()).collect(),
        task_ms: 1.0,
        counts: vec![1, 2],
        series: 0,
        seed: 0,
        order: Order::AsDescribed,
        cores: cores.to_string(),
        core_count: cores.count(),
        workers: cores.count(),
    };
    run(&plan, contestants, &cores, &mut Journal::none(), stop)
}

#[test]
fn whoever_does_not_do_what_it_should_has_no_figure_but_a_reason() {
    let missing = Contestant { name: "missing".into(), launch: Err(String::from("not run: it is not there")) };
    let backwards = RAN.replace("\"started_ns\":0", "\"started_ns\":2000000");
    let contestants = [
        saying("liar", &[RAN, DONE]),
        contestant("dead", "read request; echo why not >&2; exit 3"),
        saying("lazy", &[DONE]),
        saying("backwards", &[&backwards, DONE]),
        saying("refusing", &[r#"{"error":"too tired"}"#]),
        saying("stranger", &["hello"]),
        missing,
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
        assert!(failed.why.contains(why), "{failed:?}");
    }
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
