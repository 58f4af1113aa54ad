use std::net::TcpListener;
use std::sync::Arc;

use polyserve::catalog::{Catalog, Entry, RepoEntry};
use polyserve::{
    Answer, Condition, Conditional, Entity, EntityRepo, EntityService, Lookup, Put, Removed, RepoAnswer, ServerConfig,
    ServerExt as _, Shutdown, Visit,
};
use polyserve_bench::check::{CheckPlan, CheckReport, CheckRun, CheckSubject, RecordingVerdict, run};
use polyserve_bench::progress::Progress;
use polyserve_conformance::broken::repos::RepoFlaw;

use super::{Dir, array, ended, has, interrupted, json, misused, parsed, printed, serve, sockets, text};

#[test]
fn what_clients_see_of_every_shape_has_an_order() {
    let servers = "sequential,pool_server,leader_followers,tokio_tcp,tokio_hyper,smol";
    let report = json(&format!("check --servers {servers} --ops 1000"));
    assert_eq!((&report["passed"], &report["interrupted"]), (&true.into(), &false.into()), "{report}");
    let runs = array(&report["runs"]);
    assert_eq!(runs.len(), 6);
    for run in runs {
        assert_eq!((&run["verdict"], &run["operations"]), (&"linearizable".into(), &1000.into()), "{run}");
        assert_eq!((&run["keys"], &run["repo"]), (&10.into(), &"sharded".into()), "{run}");
        assert!(run["overlaps"].as_u64() > Some(0), "clients never met: {run}");
    }
}

#[test]
fn every_repo_is_asked_without_a_server() {
    let report = json("check --in-process --repos all --ops 4000 --keys 2 --clients 3");
    let runs = array(&report["runs"]);
    assert_eq!(runs.len(), Catalog::builtin().repos().len());
    for run in runs {
        assert_eq!((&run["verdict"], &run["operations"]), (&"linearizable".into(), &4000.into()), "{run}");
        assert_eq!((&run["server"], &run["unknown"]), (&"in process".into(), &0.into()), "{run}");
    }
}

/// The first server without the setting refused the flag, or ignored it.
#[test]
fn a_flag_applies_to_the_servers_that_have_the_setting() {
    for flag in ["--queue 100", "--workers 3"] {
        printed(&format!("check --servers sequential,pool_server --ops 200 {flag}"));
    }
}

/// Regression test: the table was wider than 120 characters with the longest names.
#[test]
fn a_table_fits_the_terminal() {
    let table = printed("check --server pool_classic/crossbeam_pool --repo copy_on_write --ops 12000");
    has(&table, &["verdict", "check (s)\n", "pool_classic/crossbeam_pool  copy_on_write  linearizable  12000"]);
}

/// Regression test: the error came after the whole recording.
#[test]
fn a_file_that_cannot_be_written_is_an_error_before_the_recording() {
    // It would take hours.
    let error = misused("check --ops 10000000 --out /nonexistent/history.jsonl");
    has(&error, &["--out /nonexistent/history.jsonl", "cannot be written"]);
}

/// A recorded history is checked again. With an impossible answer it is not linearizable.
#[test]
fn a_recorded_history_is_checked_again() {
    let dir = Dir::new("check-again");
    dir.write("history.jsonl", "");
    let table = printed(&format!("check --ops 600 --keys 1 --seed 7 --out {dir}/history.jsonl"));
    has(&table, &["pool_server/mpsc_pool", "sharded", "600", "linearizable", "passed"]);
    let recorded = dir.read("history.jsonl");
    assert!(recorded.starts_with("{") && recorded.lines().next().unwrap().contains("\"clients\":8"), "{recorded}");
    has(&printed(&format!("check --history {dir}/history.jsonl")), &["recorded", "600", "passed"]);

    let lines = [
        r#"{"process":0,"op":"put","key":5,"value":1,"call":10,"return":20,"outcome":"created"}"#,
        r#"{"process":1,"op":"put","key":5,"value":2,"call":30,"return":40,"outcome":"replaced"}"#,
        r#"{"process":2,"op":"get","key":5,"value":1,"call":50,"return":60,"outcome":"found"}"#,
    ];
    dir.write("history.jsonl", format!("{recorded}{}\n", lines.join("\n")));
    let output = text(&ended(1, &format!("check --history {dir}/history.jsonl")).stdout);
    let why = "key 5: client 2's get saw 1, which client 1's put of 2 had replaced";
    has(&output, &["NOT LINEARIZABLE", why, "FAILED"]);
    assert!(output.lines().count() < 20, "small enough to read: {output}");
}

#[test]
fn a_foreign_server_is_checked() {
    let serving = serve("--server tokio_tcp");
    // The second check must not see the entities of the first.
    for _ in 0..2 {
        let report = json(&format!("check --url http://{} --ops 500", serving.addr));
        assert_eq!((&report["passed"], &report["runs"][0]["operations"]), (&true.into(), &500.into()), "{report}");
    }
}

/// Regression test: requests named the host `history`, so a server that answers for its own hosts only refused them all.
#[test]
fn a_server_that_knows_its_hosts_is_checked() {
    let serving = serve("--hosts localhost");
    let port = serving.addr.port();
    let report = json(&format!("check --url http://localhost:{port} --ops 500"));
    assert_eq!((&report["passed"], &report["runs"][0]["unknown"]), (&true.into(), &0.into()), "{report}");
    let output = text(&ended(1, &format!("check --url http://{} --ops 500", serving.addr)).stdout);
    has(&output, &["421"]);
}

/// Regression test: the check of a silent server ended after 45 s.
#[test]
fn a_server_that_is_silent_is_an_error_at_once() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free"); // the kernel accepts
    let addr = silent.local_addr().expect("it is bound");
    for (url, why) in [
        (format!("http://{addr}"), "it does not answer one GET within 3s"),
        (format!("https://{addr} --insecure"), "no TLS handshake within 3s"),
    ] {
        let output = text(&ended(1, &format!("check --url {url} --ops 500")).stdout);
        has(&output, &["FAILED", &format!("{addr} cannot be checked: {why}")]);
    }
}

/// What was recorded until then is checked.
#[test]
fn a_signal_ends_it() {
    let output = interrupted("check --ops 10000000 --json", |pid| sockets(pid) >= 8);
    let report = parsed(&output);
    let run = &report["runs"][0];
    let operations = run["operations"].as_u64().unwrap();
    // A short history may have no overlapping operations.
    let is_known = run["verdict"] == "linearizable" || (operations < 1_000 && run["verdict"] == "undecided");
    assert!(is_known && operations < 10_000_000, "{report}\n{}", text(&output.stderr));
    // An interrupted check has not passed, even if all its answers were right.
    assert_eq!((&report["interrupted"], &report["passed"]), (&true.into(), &false.into()), "{report}");
}

/// A history without operations or without overlaps does not pass.
#[test]
fn what_shows_nothing_does_not_pass() {
    let dir = Dir::new("check-alone");
    let by = |process: u32| {
        let put = r#""op":"put","key":5,"value":1,"call":10,"return":20,"outcome":"created"}"#;
        let get = r#""op":"get","key":5,"value":1,"call":30,"return":40,"outcome":"found"}"#;
        format!("{{\"process\":0,{put}\n{{\"process\":{process},{get}\n")
    };
    for (history, why) in [
        (String::new(), "the history has no operation"),
        ("{\"kind\":\"header\",\"format\":1}\n".to_owned(), "the history has no operation"),
        (by(1), "no two operations of a key overlap"),
    ] {
        dir.write("history.jsonl", history);
        let output = text(&ended(1, &format!("check --history {dir}/history.jsonl")).stdout);
        has(&output, &["UNDECIDED", why]);
        assert!(!output.contains("passed"), "{output}");
    }
    // Operations of one client alone never overlap.
    dir.write("history.jsonl", by(0));
    has(&printed(&format!("check --history {dir}/history.jsonl")), &["passed"]);

    let nothing = CheckReport::new(Vec::new(), true);
    assert!(!nothing.passed && nothing.to_string().contains("UNDECIDED: nothing was recorded"), "{nothing}");

    dir.write("history.jsonl", "{\"process\":0}\n");
    let error = misused(&format!("check --history {dir}/history.jsonl"));
    has(&error, &["line 1 of the history: missing field"]);
}

fn recorded(subject: &CheckSubject) -> CheckRun {
    let plan = CheckPlan { operations: 20_000, clients: 8, keys: 3, seed: 1 };
    let mut progress = Progress::counting(plan.operations as usize, "operations");
    run(subject, &plan, None, &Shutdown::new(), &mut progress, 0).unwrap()
}

/// Records until the verdict is found. A broken repo may pass one recording by chance, but not all of them.
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

fn broken<R: EntityRepo>(make: fn() -> R) -> RepoEntry {
    Entry::repo("broken", "wrong in one way", &[], move || Ok(Arc::new(make())))
}

/// A check that no broken repo fails would be worth nothing.
#[test]
fn broken_repos_are_found_out_in_process() {
    for repo in [
        broken(|| RepoFlaw::StaleCache.repo()),
        broken(|| RepoFlaw::EarlyAck.repo()),
        broken(|| RepoFlaw::LaggingReplica.repo()),
        broken(|| RepoFlaw::LostUpdate.repo()),
        broken(|| RepoFlaw::ChecksThenWrites.repo()),
        broken(|| RepoFlaw::DoubleRemove.repo()),
    ] {
        found_out(RecordingVerdict::NotLinearizable, || recorded(&CheckSubject::Repo(repo.clone())));
    }
    found_out(RecordingVerdict::WrongAnswer, || recorded(&CheckSubject::Repo(broken(|| RepoFlaw::TornRead.repo()))));
}

#[test]
fn broken_repos_are_found_out_over_http() {
    let over = |repo: Arc<dyn EntityRepo>| {
        let server = Catalog::builtin().server("pool_server").unwrap().build(&ServerConfig::default()).unwrap();
        let running = server.serve(([127, 0, 0, 1], 0), EntityService::new(repo)).unwrap();
        let run =
            recorded(&CheckSubject::Address { name: "broken".into(), target: running.local_addr().into(), tls: None });
        let _ = running.shutdown().unwrap();
        run
    };
    found_out(RecordingVerdict::NotLinearizable, || over(Arc::new(RepoFlaw::StaleCache.repo())));
    found_out(RecordingVerdict::NotLinearizable, || over(Arc::new(RepoFlaw::EarlyAck.repo())));
    found_out(RecordingVerdict::NotLinearizable, || over(Arc::new(RepoFlaw::DoubleRemove.repo())));
    found_out(RecordingVerdict::WrongAnswer, || over(Arc::new(RepoFlaw::TornRead.repo())));
}

/// Panics at every put.
#[derive(Debug, Default)]
struct Panics;

impl EntityRepo for Panics {
    fn get(&self, _id: &i64, _visit: Visit<'_>) -> RepoAnswer<Lookup> {
        Answer::Now(Ok(Lookup::Absent))
    }
    fn put_if(&self, entity: Entity, _condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        panic!("no room for {}", entity.id)
    }
    fn remove_if(&self, _id: &i64, _condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        Answer::Now(Ok(Conditional::Done(Removed::Absent)))
    }
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        panic!("no room for {}", entity.id)
    }
    fn remove(&self, _id: &i64) -> RepoAnswer<Removed> {
        Answer::Now(Ok(Removed::Absent))
    }
    fn len(&self) -> RepoAnswer<u64> {
        Answer::Now(Ok(0))
    }
}

#[test]
fn a_repo_that_panics_fails_alone() {
    let run = recorded(&CheckSubject::Repo(broken(Panics::default)));
    assert_eq!(run.verdict, RecordingVerdict::Failed, "{run:?}");
    assert!(run.why.contains("it panicked: no room for"), "{run:?}");
}
