//! `polyserve compare` and `polyserve trial`: their records and reports, not their figures.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use polyserve::Shutdown;
use polyserve_lab::compare::contestant::{Contestant, Role};
use polyserve_lab::compare::{Comparison, Instrument, Ranking};
use polyserve_lab::data::Data;
use polyserve_lab::experiment::{self, Experiment as _};
use polyserve_lab::journal::{Header, Journal};
use polyserve_lab::launch::{AddressFrom, Launch};
use polyserve_lab::machine::Environment;
use polyserve_lab::machine::cores::Cores;
use polyserve_load::{Dist, Mix, Traffic, Usage};
use rustix::process::Signal;
use serde_json::Value;

use super::{PATIENCE, misused, polyserve, printed, signalled, text};

pub(crate) const TINY: [&str; 5] = ["--slice=50ms", "--warm-up=50ms", "--connections=4", "--keys=50", "--seed=7"];

/// The allocator that takes precedence.
const ALLOCATOR: &str = match (cfg!(feature = "jemalloc"), cfg!(feature = "mimalloc")) {
    (true, _) => "jemalloc",
    (false, true) => "mimalloc",
    (false, false) => "the system's",
};

/// A directory of this test that does not exist yet.
pub(crate) fn fresh(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    dir
}

/// The lines of the record.
pub(crate) fn lines(dir: &Path) -> Vec<Value> {
    let text = fs::read_to_string(dir.join("compare.jsonl")).expect("there is a record");
    assert!(text.ends_with('\n'), "the last line is whole");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

pub(crate) fn kind(line: &Value) -> &str {
    line["kind"].as_str().expect("every line has a kind")
}

#[test]
fn a_tiny_comparison_decides_nothing_and_records_every_sample() {
    let dir = fresh("tiny");
    let pair = ["compare", "--servers=leader_followers", "--repos=two_level,std_mutex", "--rounds=2"];
    let out = format!("--out={}", dir.display());
    let printed_first = printed(&[&pair[..], &TINY, &["--slowed=50", &out]].concat());
    for wanted in ["too few rounds", "A/A", "baseline", "null_epoll", "slowed 50 %", "2 rounds"] {
        assert!(printed_first.contains(wanted), "{wanted} is not in\n{printed_first}");
    }
    let lines = lines(&dir);
    let [environment, samples @ .., others, end] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!((kind(environment), environment["seed"].as_u64()), ("environment", Some(7)));
    for known in ["rustc", "profile", "kernel", "command"] {
        assert!(!environment[known].is_null() && environment[known] != "unknown", "{known}: {environment}");
    }
    // Round 0 has at least three calibrations of the limit and of the baseline. The other rounds have the pair, the baseline
    // again, the slowed contestant and the limit.
    let of_round = |wanted: u64| samples.iter().filter(|sample| sample["round"] == wanted).count();
    assert!(of_round(0) >= 6 && (of_round(1), of_round(2)) == (5, 5), "{samples:?}");
    for sample in samples {
        assert_eq!(kind(sample), "turn");
        assert!(sample["retried"].is_u64() && sample["reconnects"].is_u64(), "{sample}");
        assert!(sample["answered"].is_u64() && sample["server_busy"].as_f64().is_some(), "{sample}");
        assert!(sample["latency"].is_null() || sample["round"] != 0, "{sample}");
        assert_eq!(sample["attempt"].is_u64(), sample["round"] == 0, "{sample}");
    }
    assert_eq!((kind(others), others["share"].is_f64()), ("other_processes", true));
    assert_eq!((kind(end), &end["interrupted"], &end["missing"]), ("end", &Value::Bool(false), &0.into()));
    // A record stays: with another plan it is not resumed; with the same plan nothing is measured again.
    let again = misused(&[&pair[..], &TINY, &[&out]].concat());
    assert!(again.contains("not written over"), "{again}");
    let recorded = fs::read_to_string(dir.join("compare.jsonl")).unwrap();
    let printed_again = printed(&[&pair[..], &TINY, &["--slowed=50", &out]].concat());
    assert_eq!(printed_again, printed_first, "the ranking of the same samples");
    let printed_as_json = printed(&[&pair[..], &TINY, &["--slowed=50", "--json", &out]].concat());
    let ranking: Value = serde_json::from_str(&printed_as_json).unwrap();
    assert_eq!((&ranking["interrupted"], ranking["rows"].as_array().unwrap().len()), (&Value::Bool(false), 5));
    for row in ranking["rows"].as_array().unwrap() {
        let verdict = &row["throughput"]["verdict"];
        assert!(verdict.is_null() || verdict == "too_few_rounds", "{row}");
    }
    let after = fs::read_to_string(dir.join("compare.jsonl")).unwrap();
    let added = after.strip_prefix(&recorded).expect("lines are added only");
    let kinds: Vec<Value> =
        added.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["kind"].clone()).collect();
    assert_eq!(kinds, ["environment", "end"].repeat(2), "nothing was measured again");
}

#[test]
fn a_connection_a_request_has_both_limits() {
    let args =
        ["compare", "--servers=pool_server", "--repos=std_mutex", "--rounds=1", "--no-keepalive", "--no-latency"];
    let ranking: Value = serde_json::from_str(&printed(&[&args[..], &TINY, &["--json"]].concat())).unwrap();
    let shares = ranking["rows"][0]["shares"].as_array().unwrap();
    let of: Vec<_> = shares.iter().map(|share| share["of"].as_str().unwrap()).collect();
    assert_eq!(of, ["null_epoll", "null_accept"], "{ranking}");
    for share in shares {
        let (throughput, cost) = (&share["throughput"], &share["cost"]);
        assert!(throughput["interval"]["low"].is_f64() && cost["interval"]["high"].is_f64(), "{share}");
        assert!(share["cost_void"]["why"].is_string(), "without latencies no cost counts: {share}");
    }
    assert!(ranking["rows"][0]["bytes_per_connection"].is_null(), "{ranking}");
    let environment = &ranking["environment"];
    assert_eq!((&environment["seed"], &environment["allocator"]), (&Value::from(7), &Value::from(ALLOCATOR)));
    assert!(environment["command"].as_array().unwrap().iter().any(|arg| arg == "--no-keepalive"), "{environment}");
    assert_eq!((&ranking["rate"], &ranking["failed"]), (&Value::Null, &Value::Array(Vec::new())));
}

/// Then the ratios are shares of a limit. The reference has the same mix.
#[test]
fn a_reference_may_be_the_baseline() {
    let args = ["compare", "--servers=pool_server", "--repos=std_mutex", "--rounds=1", "--baseline=null_epoll"];
    let mixed = ["--mix=get=95,put=5", "--json", "--no-latency"];
    let ranking: Value = serde_json::from_str(&printed(&[&args[..], &TINY, &mixed].concat())).unwrap();
    assert_eq!((&ranking["baseline"], &ranking["failed"]), (&Value::from("null_epoll"), &Value::Array(Vec::new())));
    let rows = ranking["rows"].as_array().unwrap();
    let names: BTreeSet<_> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, BTreeSet::from(["null_epoll", "null_epoll (again)", "pool_server/mpsc_pool/std_mutex"]));
    assert_eq!(ranking["asked"], "95 GET to 5 PUT of 50 entities, uniform; 4 connections, kept alive");
}

/// A contestant that cannot take part is in the record and in the output.
#[test]
fn an_absent_contestant_is_recorded() {
    let dir = fresh("refused");
    let args = ["compare", "--servers=pool_server", "--peers=nginx", "--mix=put=1", "--repos=std_mutex", "--rounds=1"];
    let out = format!("--out={}", dir.display());
    let output = super::run(&[&args[..], &TINY, &["--no-latency", "--json", &out]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let lines = lines(&dir);
    let absent = lines.iter().find(|line| kind(line) == "failure").expect("nginx has a fixed answer");
    assert_eq!((&absent["name"], &absent["reason"]), (&Value::from("nginx"), &Value::from("not_available")));
    let ranking: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    let failed = ranking["failed"].as_array().unwrap();
    assert!(failed.iter().any(|failed| failed["name"] == "nginx"), "{failed:?}");
}

#[test]
fn what_cannot_be_compared_is_named() {
    let error = misused(&["compare", "--servers=leader_follower"]);
    assert!(error.contains("did you mean \"leader_followers\"?"), "{error}");
    assert!(misused(&["compare", "--repos=two_levels"]).contains("did you mean \"two_level\"?"));
    assert!(misused(&["compare", "--baseline=pool_server/nope"]).contains("no repo \"nope\""));
    assert!(misused(&["compare", "--baseline=nope"]).contains("nor a reference such as null_epoll"));
    assert!(misused(&["compare", "--baseline=null_epoll", "--slowed=5"]).contains("needs a server for a baseline"));
    assert!(misused(&["compare", "--server-cores=1000"]).contains("there is no core 1000"));
    assert!(misused(&["compare", "--client-cores=x"]).contains("no list of cores"));
    assert!(misused(&["compare", "--servers=sequential", "--workers=2"]).contains("workers must be 1"));
    assert!(misused(&["compare", "--slowed=0"]).contains("--slowed 0"));
    for wrong in ["--rounds=0", "--slice=0ms", "--warm-up=1us", "--connections=0", "--keys=0", "--mix=get=0,put=0"] {
        misused(&["compare", wrong]);
    }
    assert!(misused(&["compare", "--out=/tmp", "--name=../x"]).contains("is no name of letters"));
    assert!(misused(&["compare", "--name=x"]).contains("--out"));
    assert!(misused(&["trial"]).contains("--same"));
    assert!(misused(&["trial", "--times=3"]).contains("--slowed"));
    assert!(misused(&["trial", "--same=1", "--rounds=9"]).contains("--rounds 10 or more"));
}

#[test]
fn an_unknown_peer_is_refused() {
    let error = misused(&["compare", "--peers=hyper,hypper"]);
    assert!(error.contains("no peer \"hypper\"") && error.contains("hyper, axum, actix-web, ntex, warp"), "{error}");
    assert!(misused(&["compare", "--baseline=peer/nope"]).contains("no peer \"peer/nope\""));
    assert!(misused(&["compare", "--baseline=nginx"]).contains("a baseline runs twice"));
    assert!(misused(&["compare", "--baseline=peer/hyper", "--slowed=5"]).contains("--slowed needs a server of ours"));
    let trial = ["trial", "--same=1", "--rounds=10", "--baseline=peer/hyper"];
    assert!(misused(&trial).contains("only compare has peers"));
}

/// There are no sources to build. The other contestants are measured, but a baseline is essential.
#[test]
fn peers_without_sources_are_named_as_not_run() {
    let nowhere = fresh("no-peers");
    let sources = format!("--peers-dir={}", nowhere.display());
    let go = format!("--go-dir={}", nowhere.display());
    let args = ["compare", "--servers=pool_server", "--repos=std_mutex", "--rounds=1", "--no-latency", "--json"];
    let output = super::run(&[&args[..], &TINY, &["--peers=hyper,all", &sources, &go]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let ranking: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    let failed = ranking["failed"].as_array().unwrap();
    let failed: Vec<&Value> = failed.iter().filter(|failed| failed["name"] != "nginx").collect(); // it needs none
    let names: Vec<_> = failed.iter().map(|failed| failed["name"].as_str().unwrap()).collect();
    let rust =
        ["hyper", "axum", "actix-web", "ntex", "warp", "may_minihttp", "bare_pool"].map(|name| format!("peer/{name}"));
    let go = ["twin-rwmutex", "twin-syncmap", "nethttp", "fasthttp"].map(|name| format!("go/{name}"));
    assert_eq!(names, [&rust[..], &go].concat(), "each once");
    for failed in failed {
        let why = failed["why"].as_str().unwrap();
        assert!(why.contains("holds no "), "{failed}");
    }
    assert!(ranking["rows"].as_array().unwrap().iter().any(|row| row["name"] == "pool_server/mpsc_pool/std_mutex"));
    let output = super::run(&[&args[..], &TINY, &["--baseline=peer/warp", &sources]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("the baseline peer/warp: "), "{}", text(&output.stderr));
}

/// `sequential` serves one connection at a time, so the check closes each before the next.
#[test]
fn a_server_of_ours_holds_all_that_can_be_seen_at_an_address() {
    for server in ["sequential", "pool_server"] {
        let command = ["serve", "--server", server, "--repo", "two_level", "--listen", "127.0.0.1:0"];
        let serving = super::Serving::start(polyserve(&command));
        let report = polyserve_conformance::address::check(serving.addr, PATIENCE);
        assert!(report.failed.is_empty() && report.not_run.is_empty(), "{server} {report}\n{:#?}", report.failed);
    }
}

/// The contract of a foreign server is in the ranking and in the record.
#[test]
fn the_contract_of_a_foreign_server_is_recorded() {
    let dir = fresh("contract");
    let theirs = serve("theirs", Role::Ranked, "pool_server").with(|one| one.checks_contract = true);
    let mut comparison = comparison(vec![serve("base", Role::Baseline, "leader_followers"), theirs]);
    let ranking = compared(Some(&dir), &mut comparison).unwrap();
    let [contract] = ranking.contracts.as_slice() else { panic!("{:?}", ranking.contracts) };
    assert!(contract.keeps_framing && contract.report.failed.is_empty(), "{contract}");
    assert!(ranking.to_string().contains("theirs holds all "), "{ranking}");
    let lines = lines(&dir);
    let line = lines.iter().find(|line| kind(line) == "contract").expect("it is recorded");
    assert_eq!((&line["name"], &line["keeps_framing"]), (&Value::from("theirs"), &Value::Bool(true)));
    assert!(line["held"].as_array().is_some_and(|held| held.len() > 25) && line["failed"] == Value::Array(vec![]));
}

/// The verdict depends on the machine. The counts must match it.
#[test]
fn a_trial_counts_the_verdicts() {
    let args = ["trial", "--same=1", "--servers=pool_server", "--repos=std_mutex", "--rounds=10", "--json"];
    let output = super::run(&[&args[..], &TINY].concat());
    let outcome: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    let same = &outcome["trials"][0]["throughput"];
    let count = |name: &str| same[name].as_u64().unwrap();
    assert_eq!(count("comparisons"), 1, "{outcome}");
    assert_eq!(["faster", "slower", "tie", "too_few_rounds"].map(count).iter().sum::<u64>(), 1, "{outcome}");
    assert_eq!(outcome["passed"], output.status.success(), "{outcome}");
    assert_eq!(outcome["passed"], count("tie") == 1, "{outcome}");
}

/// The command, as a contestant.
pub(crate) fn serve(name: &str, role: Role, server: &str) -> Contestant {
    let args = ["serve", "--json", "--listen=127.0.0.1:0", "--repo=two_level", &format!("--server={server}")];
    contestant(name, role, env!("CARGO_BIN_EXE_polyserve"), &args)
}

fn contestant(name: &str, role: Role, program: &str, args: &[&str]) -> Contestant {
    let args = args.iter().map(Into::into).collect();
    let launch = Launch { program: program.into(), args, env: Vec::new(), address: AddressFrom::Json };
    Contestant::new(name, role, launch)
}

/// Runs a comparison, with its record in `dir`.
pub(crate) fn compared(dir: Option<&Path>, comparison: &mut Comparison) -> anyhow::Result<Ranking> {
    let Instrument { server_cores, client_cores, stop, .. } = &comparison.instrument;
    let environment = Environment::of(server_cores, [server_cores, client_cores], 1, "any");
    let (header, stop) = (Header::new("compare", comparison.describe(), environment), stop.clone());
    let mut journal = Journal::named(dir, "compare", &header)?;
    Ranking::of(&experiment::run(comparison, &header, &mut journal, &stop)?)
}

pub(crate) fn comparison(contestants: Vec<Contestant>) -> Comparison {
    let cores = Cores::available().unwrap();
    let mix = Mix { get: 1, put: 0 };
    let instrument = Instrument {
        server_cores: cores.clone(),
        client_cores: Cores::from(cores.numbers()[0]),
        connections: 2,
        usage: Usage::KeepAlive { pipeline: 1 },
        traffic: Traffic::entities(&Data::new(1), 20, Dist::Uniform, mix, 1).unwrap(),
        limit_traffic: Traffic::one("GET", "/1", None, None).unwrap(),
        asked: String::from("GET"),
        warm_up: Duration::from_millis(20),
        slice: Duration::from_millis(20),
        latency_slice: Duration::from_millis(20),
        stop: Shutdown::new(),
    };
    let mut comparison = Comparison::new(contestants, instrument, 2);
    comparison.latency = false;
    comparison
}

/// One process dies at once, one after it has printed its address, one gives wrong answers. Each is named with its last output and
/// has no row. The other contestants have all samples.
#[test]
fn a_contestant_that_fails_is_named_and_not_ranked() {
    let dir = fresh("failing");
    let mut comparison = comparison(vec![
        serve("base", Role::Baseline, "leader_followers"),
        serve("base again", Role::Same, "leader_followers"),
        contestant("dies", Role::Ranked, "/bin/sh", &["-c", "echo no memory >&2; exit 3"]),
        contestant("leaves", Role::Ranked, "/bin/sh", &["-c", r#"echo '{"listening":"http://127.0.0.1:1"}'; exit 0"#]),
        serve("wrong", Role::Ranked, "null_epoll"),
        serve("good", Role::Ranked, "pool_server"),
    ]);
    let ranking = compared(Some(&dir), &mut comparison).unwrap();
    let rows: BTreeSet<_> = ranking.rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(rows, BTreeSet::from(["base", "base again", "good"]));
    let why =
        |name: &str| ranking.failed.iter().find(|failed| failed.key.name == name).map(|failed| failed.why.clone());
    assert!(why("dies").unwrap().contains("exit status: 3: no memory"), "{:?}", ranking.failed);
    assert!(why("leaves").unwrap().contains("ended by itself"), "{:?}", ranking.failed);
    assert!(why("wrong").is_some() && ranking.failed.len() == 3, "{:?}", ranking.failed);
    let lines = lines(&dir);
    let count = |wanted: &str| lines.iter().filter(|line| kind(line) == wanted).count();
    assert_eq!((count("turn"), count("failure")), (2 * 3, 3), "a contestant that failed is not measured again");
}

#[test]
fn nothing_is_compared_with_a_baseline_that_fails() {
    let broken = contestant("base", Role::Baseline, "/bin/sh", &["-c", "echo no memory >&2; exit 3"]);
    let mut comparison = comparison(vec![broken, serve("good", Role::Ranked, "pool_server")]);
    let error = compared(None, &mut comparison).unwrap_err().to_string();
    let named = "round 1: base failed, and nothing can be compared without it: ";
    assert!(error.starts_with(named) && error.contains("no memory"), "{error}");
}

/// Starts a comparison that would take hours, and sends it this signal when the record has `least` lines and a server runs.
/// Returns the output, and the server's process.
fn long(dir: &Path, signal: Signal, least: usize) -> (Output, u32) {
    let out = format!("--out={}", dir.display());
    let pair = ["compare", "--servers=pool_server", "--repos=two_level", "--rounds=10000", &out];
    let recorded = || fs::read_to_string(dir.join("compare.jsonl")).map_or(0, |text| text.lines().count());
    let server = Cell::new(None);
    let output = signalled(signal, &[&pair[..], &TINY].concat(), |pid| {
        server.set(children(pid).first().copied());
        server.get().is_some() && recorded() >= least
    });
    (output, server.get().expect("a server was running"))
}

/// The children of process `parent`.
fn children(parent: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let all: Vec<u32> =
        lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect();
    all
}

fn wait_until_gone(pid: u32) {
    let deadline = Instant::now() + PATIENCE;
    while Path::new(&format!("/proc/{pid}")).exists() {
        assert!(Instant::now() < deadline, "the server {pid} is still there");
        thread::yield_now();
    }
}

#[test]
fn an_interrupted_run_leaves_whole_lines_and_no_process() {
    let dir = fresh("interrupted");
    let (output, server) = long(&dir, Signal::INT, 6);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(printed.contains("ended early") && printed.contains("pool_server/mpsc_pool/two_level"), "{printed}");
    wait_until_gone(server);
    let lines = lines(&dir);
    let last = lines.last().unwrap();
    assert_eq!((kind(last), &last["interrupted"]), ("end", &Value::Bool(true)));
    assert!(lines.len() >= 7, "{lines:?}");
}

/// After a SIGKILL the servers must end by themselves: their standard input ends.
#[test]
fn servers_end_with_a_comparison_that_is_killed() {
    let (output, server) = long(&fresh("killed"), Signal::KILL, 1);
    assert!(!output.status.success());
    wait_until_gone(server);
}
