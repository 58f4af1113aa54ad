use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Instant;

use polyserve::catalog::{Catalog, Entry, RepoEntry};
use polyserve::service::EntityService;
use polyserve::{Answer, Entity, EntityRef, EntityRepo, Lookup, Put, Removed, RepoError, ServerConfig, Shutdown};
use polyserve_conformance::broken::repos::{DoubleRemove, EarlyAck, LaggingReplica, LostUpdate, StaleCache, TornRead};
use polyserve_lab::check::{CheckPlan, CheckReport, CheckRun, CheckSubject, RecordingVerdict, run};
use polyserve_lab::progress::Progress;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{PATIENCE, Serving, misused, polyserve, printed, text};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("check-{}-{name}.jsonl", std::process::id()))
}

#[test]
fn what_clients_see_of_every_shape_has_an_order() {
    let servers = "sequential,pool_server,leader_followers,tokio_tcp,tokio_hyper,smol";
    let report: Value =
        serde_json::from_str(&printed(&["check", "--servers", servers, "--ops", "1000", "--json"])).unwrap();
    assert_eq!((&report["passed"], &report["interrupted"]), (&true.into(), &false.into()), "{report}");
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 6);
    for run in runs {
        assert_eq!((&run["verdict"], &run["operations"]), (&"linearizable".into(), &1000.into()), "{run}");
        assert_eq!((&run["keys"], &run["repo"]), (&10.into(), &"two_level".into()), "{run}");
        assert!(run["overlaps"].as_u64() > Some(0), "clients never met: {run}");
    }
}

#[test]
fn every_repo_is_asked_without_a_server() {
    let args = ["check", "--in-process", "--repos", "all", "--ops", "4000", "--keys", "2", "--clients", "3", "--json"];
    let report: Value = serde_json::from_str(&printed(&args)).unwrap();
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), Catalog::builtin().repos().len());
    for run in runs {
        assert_eq!((&run["verdict"], &run["operations"]), (&"linearizable".into(), &4000.into()), "{run}");
        assert_eq!((&run["server"], &run["unknown"]), (&"in process".into(), &0.into()), "{run}");
    }
}

/// A flag was refused by the first server without the setting, or ignored.
#[test]
fn a_flag_applies_to_the_servers_that_have_the_setting() {
    for (flag, value) in [("--queue", "100"), ("--workers", "3")] {
        printed(&["check", "--servers", "sequential,pool_server", "--ops", "200", flag, value]);
        let error = misused(&["check", "--servers", "sequential,leader_followers", "--ops", "200", flag, value]);
        assert!(error.contains(flag.trim_start_matches('-')), "{error}");
    }
}

/// It was found out after the whole recording.
#[test]
fn a_file_that_cannot_be_written_is_an_error_before_the_recording() {
    // It would take hours.
    let error = misused(&["check", "--ops", "10000000", "--out", "/nonexistent/history.jsonl"]);
    assert!(error.contains("--out /nonexistent/history.jsonl") && error.contains("cannot be written"), "{error}");
}

/// What was recorded is read back, as any other history is; and a line that cannot be makes it one without an order.
#[test]
fn a_recorded_history_is_checked_again() {
    let path = file("again");
    let name = path.to_str().unwrap();
    let table = printed(&["check", "--ops", "600", "--keys", "1", "--seed", "7", "--out", name]);
    for part in ["pool_server/mpsc_pool", "two_level", "600", "linearizable", "passed"] {
        assert!(table.contains(part), "{table}");
    }
    let recorded = fs::read_to_string(&path).unwrap();
    assert!(recorded.starts_with("{") && recorded.lines().next().unwrap().contains("\"clients\":8"), "{recorded}");
    let again = printed(&["check", "--history", name]);
    assert!(again.contains("recorded") && again.contains("600") && again.contains("passed"), "{again}");

    let lines = [
        r#"{"process":0,"op":"put","key":5,"value":1,"call":10,"return":20,"outcome":"created"}"#,
        r#"{"process":1,"op":"put","key":5,"value":2,"call":30,"return":40,"outcome":"replaced"}"#,
        r#"{"process":2,"op":"get","key":5,"value":1,"call":50,"return":60,"outcome":"found"}"#,
    ];
    fs::write(&path, format!("{recorded}{}\n", lines.join("\n"))).unwrap();
    let output = polyserve(&["check", "--history", name]).output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in ["NOT LINEARIZABLE", "key 5: client 2's get saw 1, which client 1's put of 2 had replaced", "FAILED"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(said.lines().count() < 20, "small enough to read: {said}");
}

#[test]
fn a_foreign_server_is_checked() {
    let serving = Serving::start(polyserve(&["serve", "--server", "tokio_tcp", "--listen", "127.0.0.1:0"]));
    let url = format!("http://{}", serving.addr);
    // Twice: what the first one left behind is no part of the second.
    for _ in 0..2 {
        let report: Value =
            serde_json::from_str(&printed(&["check", "--url", &url, "--ops", "500", "--json"])).unwrap();
        assert_eq!((&report["passed"], &report["runs"][0]["operations"]), (&true.into(), &500.into()), "{report}");
    }
}

/// What was recorded until then is checked.
#[test]
fn a_signal_ends_it() {
    let args = ["check", "--ops", "10000000", "--json"];
    let mut child = polyserve(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let sockets = || {
        let descriptors = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
        let targets = descriptors.filter_map(|one| fs::read_link(one.ok()?.path()).ok());
        targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
    };
    let deadline = Instant::now() + PATIENCE;
    while sockets() < 8 {
        if Instant::now() >= deadline {
            let _ = child.kill(); // it would go on for long
            panic!("it gets nowhere");
        }
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let run = &report["runs"][0];
    let operations = run["operations"].as_u64().unwrap();
    // So few that clients may not have met show nothing.
    let is_known = run["verdict"] == "linearizable" || (operations < 1_000 && run["verdict"] == "undecided");
    assert!(is_known && operations < 10_000_000, "{report}\n{}", text(&output.stderr));
    // An interrupted check has not passed, even if all its answers were right.
    assert_eq!((&report["interrupted"], &report["passed"]), (&true.into(), &false.into()), "{report}");
    assert_eq!(output.status.code(), Some(1), "{report}");
}

/// Nothing recorded is nothing shown, whatever the reason.
#[test]
fn what_shows_nothing_does_not_pass() {
    let undecided = |name: &str, why: &str| {
        let output = polyserve(&["check", "--history", name]).output().unwrap();
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("UNDECIDED") && said.contains(why) && !said.contains("passed"), "{said}");
    };
    undecided("/dev/null", "the history has no operation");
    let path = file("alone");
    let name = path.to_str().unwrap();
    fs::write(&path, "{\"kind\":\"header\",\"format\":1}\n").unwrap();
    undecided(name, "the history has no operation");

    let by = |process: u32| {
        let put = r#""op":"put","key":5,"value":1,"call":10,"return":20,"outcome":"created"}"#;
        let get = r#""op":"get","key":5,"value":1,"call":30,"return":40,"outcome":"found"}"#;
        format!("{{\"process\":0,{put}\n{{\"process\":{process},{get}\n")
    };
    fs::write(&path, by(1)).unwrap();
    undecided(name, "no two operations of a key overlap");
    // Operations of one client alone never overlap.
    fs::write(&path, by(0)).unwrap();
    assert!(printed(&["check", "--history", name]).contains("passed"));

    let nothing = CheckReport::new(Vec::new(), true);
    assert!(!nothing.passed && nothing.to_string().contains("UNDECIDED: nothing was recorded"), "{nothing}");
}

#[test]
fn what_cannot_be_is_refused() {
    assert!(misused(&["check", "--server", "nope"]).contains("pool_server/mpsc_pool"));
    assert!(misused(&["check", "--ops", "0"]).contains("--ops"));
    assert!(misused(&["check", "--clients", "101"]).contains("--clients"));
    assert!(misused(&["check", "--servers", "all", "--out", "any"]).contains("--out takes one history"));
    assert!(misused(&["check", "--in-process", "--workers", "3"]).contains("no server is started"));
    assert!(misused(&["check", "--url", "http://127.0.0.1:1/1"]).contains("no path of its own"));
    assert!(misused(&["check", "--history", "/nowhere/at-all"]).contains("/nowhere/at-all"));
    assert!(misused(&["check", "--history", "any", "--ops", "3"]).contains("--ops"));
    let path = file("nonsense");
    fs::write(&path, "{\"process\":0}\n").unwrap();
    assert!(misused(&["check", "--history", path.to_str().unwrap()]).contains("line 1 of the history: missing field"));
}

fn recorded(subject: &CheckSubject) -> CheckRun {
    let plan = CheckPlan { operations: 20_000, clients: 8, keys: 3, seed: 1 };
    let mut progress = Progress::counting(plan.operations as usize, "operations");
    run(subject, &plan, None, &Shutdown::new(), &mut progress, 0).unwrap()
}

/// Every round is a race, which a broken repo may win; it does not win them all.
fn found_out(verdict: RecordingVerdict, record: impl Fn() -> CheckRun) {
    let mut last = None;
    for _ in 0..20 {
        let run = record();
        if run.verdict == verdict {
            return;
        }
        last = Some(run);
    }
    panic!("it passes: {last:?}");
}

fn broken<R: EntityRepo + Default>(_: fn() -> R) -> RepoEntry {
    Entry::repo("broken", "wrong in one way", &[], || Ok(Arc::new(R::default())))
}

/// A check that no broken repo fails would be worth nothing.
#[test]
fn broken_repos_are_found_out_in_process() {
    for repo in [
        broken(StaleCache::default),
        broken(EarlyAck::default),
        broken(LaggingReplica::default),
        broken(LostUpdate::default),
        broken(DoubleRemove::default),
    ] {
        found_out(RecordingVerdict::NotLinearizable, || recorded(&CheckSubject::Repo(repo.clone())));
    }
    found_out(RecordingVerdict::WrongAnswer, || recorded(&CheckSubject::Repo(broken(TornRead::default))));
}

#[test]
fn broken_repos_are_found_out_over_http() {
    let over = |repo: Arc<dyn EntityRepo>| {
        let server = (Catalog::builtin().server("pool_server").unwrap().make)(&ServerConfig::default()).unwrap();
        let running = server.serve(([127, 0, 0, 1], 0).into(), EntityService::shared(repo)).unwrap();
        let run = recorded(&CheckSubject::Address { name: "broken".into(), addr: running.local_addr() });
        let _ = running.shutdown().unwrap();
        run
    };
    found_out(RecordingVerdict::NotLinearizable, || over(Arc::new(StaleCache::default())));
    found_out(RecordingVerdict::NotLinearizable, || over(Arc::new(EarlyAck::default())));
    found_out(RecordingVerdict::NotLinearizable, || over(Arc::new(DoubleRemove::default())));
    found_out(RecordingVerdict::WrongAnswer, || over(Arc::new(TornRead::default())));
}

/// Panics at every put.
#[derive(Debug, Default)]
struct Panics;

impl EntityRepo for Panics {
    fn get(&self, _id: i64, _visit: &mut dyn FnMut(EntityRef<'_>)) -> Answer<Result<Lookup, RepoError>> {
        Answer::Now(Ok(Lookup::Absent))
    }
    fn put(&self, entity: Entity) -> Answer<Result<Put, RepoError>> {
        panic!("no room for {}", entity.id)
    }
    fn remove(&self, _id: i64) -> Answer<Result<Removed, RepoError>> {
        Answer::Now(Ok(Removed::Absent))
    }
    fn len(&self) -> Answer<Result<u64, RepoError>> {
        Answer::Now(Ok(0))
    }
}

#[test]
fn a_repo_that_panics_fails_alone() {
    let run = recorded(&CheckSubject::Repo(broken(Panics::default)));
    assert_eq!(run.verdict, RecordingVerdict::Failed, "{run:?}");
    assert!(run.why.contains("it panicked: no room for"), "{run:?}");
}
