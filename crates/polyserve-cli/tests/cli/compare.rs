//! `polyserve compare` and `polyserve bench trial-same`: their records and reports, not their figures.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use polyserve::Shutdown;
use polyserve_bench::bench::mode::ModeKind;
use polyserve_bench::bench::mode::requests::{CellPlan, RequestTurns};
use polyserve_bench::bench::ranking::Ranking;
use polyserve_bench::bench::{BenchPlan, CellEntries, DefinedExperiment, SweepCell};
use polyserve_bench::data::Data;
use polyserve_bench::experiment;
use polyserve_bench::journal::{Header, Journal};
use polyserve_bench::launch::{AddressFrom, Launch};
use polyserve_bench::machine::Environment;
use polyserve_bench::machine::cores::Cores;
use polyserve_bench::turn::{Contestant, Instrument, Role};
use polyserve_load::{Arrivals, Dist, Mix, Traffic, Usage};
use rustix::process::Signal;
use serde_json::Value;

use super::{
    Dir, MAX_WAIT, array, ended, failed, has, json, misused, parsed, printed, run, signalled, text, texts, until,
};

const TINY: &str = "--slice=50ms --warm-up=50ms --connections=4 --keys=50 --seed=7";
const RECORD: &str = "compare.jsonl";

/// The allocator that takes precedence.
const ALLOCATOR: &str = match (cfg!(feature = "jemalloc"), cfg!(feature = "mimalloc")) {
    (true, _) => "jemalloc",
    (false, true) => "mimalloc",
    (false, false) => "the system's",
};

/// The number of lines of a kind.
fn count(lines: &[Value], kind: &str) -> usize {
    lines.iter().filter(|line| line["kind"] == kind).count()
}

/// Every contestant shows a certificate that is made for the run, which the load generator verifies. What does not speak TLS is named.
#[test]
fn contestants_speak_tls() {
    let dir = Dir::new("compare-tls");
    let line = format!("compare --tls {TINY} --servers=pool_server,tokio_hyper --repos=sharded --rounds=1 --out={dir}");
    has(&printed(&line), &["over TLS", "null_epoll", "a reference does not speak TLS"]);
    let lines = dir.lines(RECORD);
    // The baseline twice. Without TLS, or with a certificate that is not trusted, a contestant has no row.
    assert_eq!(count(&lines, "row"), 3, "{lines:?}");
    let definition = printed("compare --tls --print-definition");
    has(&definition, &["tls = true"]);
}

/// Regression test: the bound was that of a server on all cores. A pool has four workers for each core of its own.
#[test]
fn a_bound_is_that_of_the_servers_cores() {
    let tiny = "--slice=30ms --warm-up=30ms --connections=6 --rounds=1 --no-latency";
    let ranking = json(&format!("compare --servers=pool_classic/mpsc_pool --repos=std_mutex --server-cores=0 {tiny}"));
    let [first, ..] = array(&ranking["rows"]) else { panic!("{ranking}") };
    assert_eq!(first["bound"], "10s x 2", "{ranking}");
}

#[test]
fn a_tiny_comparison_decides_nothing_and_records_every_sample() {
    let dir = Dir::new("tiny");
    let pair = format!("compare {TINY} --servers=leader_followers --repos=two_level,std_mutex --rounds=2 --out={dir}");
    let slowed = format!("{pair} --slowed=50");
    let printed_first = printed(&slowed);
    has(&printed_first, &["too few rounds", "A/A", "baseline", "null_epoll", "slowed 50 %", "2 rounds"]);
    let lines = dir.lines(RECORD);
    let [environment, measured @ .., others, end] = lines.as_slice() else { panic!("{lines:?}") };
    let (rates, measured): (Vec<&Value>, Vec<&Value>) = measured.iter().partition(|line| line["kind"] == "rate");
    let (calibrations, samples): (Vec<&Value>, Vec<&Value>) =
        measured.into_iter().partition(|line| line["kind"] == "calibration");
    // The slowest of both determines the rate, once for all rounds.
    assert!(rates.len() == 1 && rates[0]["half_of"].as_str().unwrap().starts_with("leader_followers/"), "{rates:?}");
    assert_eq!((&environment["kind"], environment["seed"].as_u64()), (&"environment".into(), Some(7)));
    for known in ["rustc", "profile", "kernel", "command"] {
        assert!(!environment[known].is_null() && environment[known] != "unknown", "{known}: {environment}");
    }
    // At least three calibrations of the baseline come first. The rounds have the pair, the baseline again, the slowed contestant
    // and the limit.
    let of_round = |round: u64| samples.iter().filter(|sample| sample["round"] == round).count();
    assert!(calibrations.len() >= 3 && (of_round(1), of_round(2)) == (5, 5), "{samples:?}");
    for calibration in calibrations {
        assert_eq!(calibration["contestant"], "leader_followers/two_level");
        assert!(calibration["requests_per_s"].is_f64() && calibration["round"].is_null(), "{calibration}");
    }
    for sample in &samples {
        assert_eq!((&sample["kind"], sample["round"].as_u64() >= Some(1)), (&"row".into(), true));
        let is_known = |figure: &&str| sample["figures"][figure].is_f64();
        let figures = ["retried", "reconnects", "answered", "server_busy"];
        assert!(figures.iter().all(is_known), "{sample}");
    }
    assert_eq!((&others["kind"], others["share"].is_f64()), (&"other_processes".into(), true));
    assert_eq!((&end["kind"], &end["interrupted"], &end["missing"]), (&"end".into(), &false.into(), &0.into()));
    // A record stays: with another plan it is not resumed; with the same plan nothing is measured again.
    has(&misused(&pair), &["not overwritten"]);
    let recorded = dir.read(RECORD);
    assert_eq!(printed(&slowed), printed_first, "the ranking of the same samples");
    let ranking = json(&slowed);
    assert_eq!((&ranking["interrupted"], array(&ranking["rows"]).len()), (&false.into(), 5));
    for row in array(&ranking["rows"]) {
        let verdict = &row["throughput"]["verdict"];
        assert!(verdict.is_null() || verdict == "too_few_rounds", "{row}");
    }
    assert!(dir.read(RECORD).starts_with(&recorded), "lines are added only");
    let kinds: Vec<Value> = dir.lines(RECORD)[lines.len()..].iter().map(|line| line["kind"].clone()).collect();
    assert_eq!(kinds, ["environment", "end"].repeat(2), "nothing was measured again");
}

/// The definition is what is measured: `bench` runs the printed one with the same contestants, requests and goal.
#[test]
fn the_definition_of_a_comparison_runs() {
    let default = printed("compare --print-definition");
    has(&default, &["keys = 1\n", r#"mix = "get=1,put=0""#, "connections = 64", "rounds = 50", "reference:null_epoll"]);
    let dir = Dir::new("definition");
    let flags =
        "--servers=tokio_tcp --repos=std_mutex,sharded --baseline=tokio_tcp/sharded --mix=get=95,put=5 --rate=100";
    let definition = printed(&format!("compare {flags} {TINY} --rounds=1 --goal=p99=1h --print-definition"));
    has(&definition, &[r#"kind = "compare""#, "rounds = 1", "keys = 50", r#"p99 = "1h""#, "rate = 100.0"]);
    dir.write("own.toml", definition);
    let ranking = json(&format!("bench {dir}/own.toml --seed=7"));
    assert_eq!(ranking["asked"], "95 GET to 5 PUT of 50 entities, uniform; 4 connections, kept alive");
    assert_eq!((&ranking["baseline"], &ranking["failed"]), (&"tokio_tcp/sharded".into(), &Value::Array(Vec::new())));
    let names = BTreeSet::from_iter(texts(array(&ranking["rows"]), "name"));
    let pair = ["tokio_tcp/sharded", "tokio_tcp/sharded (again)", "tokio_tcp/std_mutex", "null_epoll"];
    assert_eq!(names, BTreeSet::from(pair));
    assert_eq!((&ranking["goal_us"], &ranking["rate"]["requests_per_s"]), (&3.6e9.into(), &100.0.into()));
}

/// A quick comparison takes two repos that suit the workload, and says why.
#[test]
fn a_quick_comparison_takes_repos_by_the_workload() {
    let available = Cores::available().unwrap();
    let two = available.numbers().iter().take(2).map(ToString::to_string).collect::<Vec<_>>().join(",");
    let both = format!("--server-cores={two} --client-cores={two}");
    let mut workloads = vec![("get=95,put=5", "", "std_rwlock", "one lock is the fastest")];
    if available.count() > 1 {
        workloads.push(("get=95,put=5", &both, "scc", "a lock for each bucket"));
        workloads.push(("get=50,put=50", &both, "packed", "if at least half of the requests write"));
    }
    for (mix, cores, second, why) in workloads {
        let args = format!("--quick --rounds=1 --no-latency --servers=tokio_tcp --mix={mix} {cores}");
        let output = ended(0, &format!("compare {args} {TINY}"));
        has(&text(&output.stderr), &["sharded is a candidate", &format!("{second} is a candidate"), why]);
        has(&text(&output.stdout), &["tokio_tcp/sharded", &format!("tokio_tcp/{second}")]);
    }
}

/// A quick comparison leaves out the repos that need more memory than the limit, and says so.
#[test]
fn a_quick_comparison_keeps_to_the_memory() {
    let tiny = TINY.replace("--keys=50", "--keys=10000");
    let quick = format!("compare --quick --rounds=1 --no-latency --servers=tokio_tcp {tiny}");
    let output = ended(0, &format!("{quick} --store-memory=512KiB"));
    has(
        &text(&output.stderr),
        &["packed is a candidate: it is the smallest", "sharded is left out", "the limit is 512 KiB"],
    );
    let ranked = text(&output.stdout);
    has(&ranked, &["tokio_tcp/packed"]);
    assert!(!ranked.contains("tokio_tcp/sharded"), "{ranked}");
    has(&misused(&format!("{quick} --store-memory=1KiB")), &["packed is left out"]);
    let unused = "--store-memory is for the choice of repos by --quick without --repos";
    has(&misused(&format!("{quick} --repos=sharded --store-memory=1MiB")), &[unused]);
    has(&misused(&format!("compare --servers=tokio_tcp {TINY} --store-memory=1MiB")), &[unused]);
}

/// As after a crash: the last round is not whole, and is measured again. Earlier rounds are kept, and so is the rate.
#[test]
fn a_comparison_resumes_after_its_last_whole_round() {
    let dir = Dir::new("goes-on");
    let line = format!("compare --servers=pool_server --repos=two_level,std_mutex --rounds=2 --name=get-1 --out={dir}");
    let line = format!("{line} {TINY}");
    printed(&line);
    let all = dir.lines("get-1.jsonl");
    let is_of = |line: &&Value, round: u64| line["kind"] == "row" && line["round"] == round;
    let first = all.iter().position(|line| is_of(&line, 2)).unwrap();
    let kept: String = dir.read("get-1.jsonl").split_inclusive('\n').take(first + 1).collect();
    dir.write("get-1.jsonl", format!("{kept}{{\"kind\":\"row\",\"rou"));
    let ranking = json(&line);
    assert_eq!((&ranking["rounds"], &ranking["interrupted"]), (&2.into(), &false.into()));
    assert!(array(&ranking["rows"]).iter().all(|row| row["throughput"]["rounds"] == 2), "{ranking}");
    assert!(dir.read("get-1.jsonl").starts_with(&kept), "what was recorded stays");
    let after = dir.lines("get-1.jsonl");
    let added = &after[first + 1..];
    let of = |round: u64| added.iter().filter(|line| is_of(line, round)).count();
    assert_eq!((of(0), of(1), of(2)), (0, 0, 4), "{added:?}");
    let second = all[first..].iter().chain(added).filter(|line| is_of(line, 2));
    let rates: Vec<_> = second.map(|line| &line["figures"]["rate_per_s"]).collect();
    assert!(rates[0].is_f64() && rates.iter().all(|rate| *rate == rates[0]), "{rates:?}");
}

#[test]
fn a_connection_a_request_has_both_limits() {
    let args = "--servers=pool_server --repos=std_mutex --rounds=1 --no-keepalive --no-latency";
    let ranking = json(&format!("compare {args} {TINY}"));
    let shares = array(&ranking["rows"][0]["shares"]);
    assert_eq!(texts(shares, "of"), ["null_epoll", "null_accept"], "{ranking}");
    for share in shares {
        let (throughput, cost) = (&share["throughput"], &share["cost"]);
        assert!(throughput["interval"]["low"].is_f64() && cost["interval"]["high"].is_f64(), "{share}");
        assert!(share["cost_void"]["why"].is_string(), "without latencies no cost counts: {share}");
    }
    assert!(ranking["rows"][0]["bytes_per_connection"].is_null(), "{ranking}");
    let environment = &ranking["environment"];
    assert_eq!((&environment["seed"], &environment["allocator"]), (&7.into(), &ALLOCATOR.into()));
    assert!(array(&environment["command"]).iter().any(|arg| arg == "--no-keepalive"), "{environment}");
    assert_eq!((&ranking["rate"], &ranking["failed"]), (&Value::Null, &Value::Array(Vec::new())));
}

/// With a reference as the baseline, ratios are shares of a limit. The reference has the same mix.
#[test]
fn a_reference_may_be_the_baseline() {
    let args = "--servers=pool_server --repos=std_mutex --rounds=1 --baseline=null_epoll --mix=get=95,put=5";
    let ranking = json(&format!("compare {args} --no-latency {TINY}"));
    assert_eq!((&ranking["baseline"], &ranking["failed"]), (&"null_epoll".into(), &Value::Array(Vec::new())));
    let names = BTreeSet::from_iter(texts(array(&ranking["rows"]), "name"));
    assert_eq!(names, BTreeSet::from(["null_epoll", "null_epoll (again)", "pool_server/mpsc_pool/std_mutex"]));
    assert_eq!(ranking["asked"], "95 GET to 5 PUT of 50 entities, uniform; 4 connections, kept alive");
}

/// A contestant that cannot take part is in the record and in the output.
#[test]
fn an_absent_contestant_is_recorded() {
    let dir = Dir::new("refused");
    let args = "--servers=pool_server --peers=nginx --mix=put=1 --repos=std_mutex --rounds=1 --no-latency --json";
    let ranking = parsed(&ended(1, &format!("compare {args} {TINY} --out={dir}")));
    let absent = &dir.recorded(RECORD, "failure")[0]; // nginx has a fixed answer
    assert_eq!((&absent["contestant"], &absent["reason"]), (&"nginx".into(), &"not_available".into()));
    let failed = &ranking["failed"][0];
    assert!(failed["name"] == "nginx" && failed["why"].as_str().unwrap().contains("keeps nothing that is put"));
}

/// A file in which each of these servers is built from a directory that does not exist.
fn without_sources(dir: &Dir, names: &[&str], keys: &str) -> String {
    let entry = |name: &&str| {
        format!(
            "[[contestant]]\nname = \"{name}\"\ndirectory = \"/nowhere\"\nprogram = \"x\"\nready = \"json\"\n{keys}"
        )
    };
    dir.write("nowhere.toml", names.iter().map(entry).collect::<String>());
    format!("--contestants={dir}/nowhere.toml --peers={}", names.join(","))
}

/// A thread of such a pool never leaves a kept connection, so it would leave some clients without an answer.
#[test]
fn a_pool_that_would_starve_clients_does_not_take_part() {
    let dir = Dir::new("starves");
    let keys = "workers_arg = \"--workers={workers}\"\nshape = \"one_per_thread\"\nmax_concurrent = { per_core = 1 }\n";
    let pool = without_sources(&dir, &["bare"], keys);
    let args = "--servers=pool_server --repos=std_mutex --rounds=1 --no-latency --json";
    let why = |usage: &str| {
        let ranking = parsed(&ended(1, &format!("compare {args} {TINY} {pool} {usage}")));
        ranking["failed"][0]["why"].as_str().expect("it does not take part").to_owned()
    };
    assert_eq!(why("--workers=1"), "it serves 1 of 4 kept connections, and the others never");
    has(&why("--workers=1 --no-keepalive"), &["holds no "]); // not built
    has(&why("--workers=4"), &["holds no "]);
}

/// There are no sources to build. The other contestants are measured, but a baseline is essential.
#[test]
fn peers_without_sources_are_named_as_not_run() {
    let dir = Dir::new("nowhere");
    let names = ["peer/hyper", "peer/warp", "go/nethttp"];
    let peers = without_sources(&dir, &names, "");
    let args = "--servers=pool_server --repos=std_mutex --rounds=1 --no-latency --json";
    let ranking = parsed(&ended(1, &format!("compare {args} {TINY} {peers},hyper")));
    assert_eq!(texts(array(&ranking["failed"]), "name"), names, "each once");
    let why = texts(array(&ranking["failed"]), "why");
    assert!(why.iter().all(|why| why.contains("holds no ")), "{ranking}");
    assert!(texts(array(&ranking["rows"]), "name").contains(&"pool_server/mpsc_pool/std_mutex"));
    let output = ended(1, &format!("compare {args} {TINY} {peers} --baseline=peer/warp"));
    has(&text(&output.stderr), &["the baseline peer/warp: "]);
}

/// `sequential` serves one connection at a time, so the check closes a connection before it opens the next.
#[test]
fn a_server_of_ours_holds_all_that_can_be_seen_at_an_address() {
    for server in ["sequential", "pool_server"] {
        let serving = super::serve(&format!("--server {server} --repo two_level"));
        let report = polyserve_conformance::address::check_within(serving.addr, MAX_WAIT, 10 * MAX_WAIT);
        assert!(report.failed.is_empty() && report.not_run.is_empty(), "{server} {report}\n{:#?}", report.failed);
    }
}

/// The contract of a foreign server is in the ranking and in the record.
#[test]
fn the_contract_of_a_foreign_server_is_recorded() {
    let dir = Dir::new("contract");
    let theirs = serve("theirs", Role::Ranked, "pool_server").with(|one| one.checks_contract = true);
    let ranking = compared(Some(&dir), vec![serve("base", Role::Baseline, "leader_followers"), theirs]).unwrap();
    let [contract] = ranking.contracts.as_slice() else { panic!("{:?}", ranking.contracts) };
    assert!(contract.keeps_framing && contract.report.failed.is_empty(), "{contract}");
    has(&ranking.to_string(), &["theirs holds all "]);
    let line = &dir.recorded(RECORD, "contract")[0];
    assert_eq!((&line["name"], &line["keeps_framing"]), (&"theirs".into(), &true.into()));
    assert!(array(&line["held"]).len() > 25 && array(&line["failed"]).is_empty());
}

/// Nine rounds are never enough, so the run has all of them.
#[test]
fn a_comparison_that_stops_when_it_is_sure_says_so() {
    let dir = Dir::new("sure");
    let args = "--servers=leader_followers --repos=two_level,std_mutex --no-latency --rounds=2 --stop-when-sure";
    let shown = printed(&format!("compare {TINY} {args} --out={dir}"));
    has(&shown, &["2 rounds, until sure", "geometric mean of the baseline's two entries", "too few rounds"]);
    let lines = dir.lines(RECORD);
    assert_eq!(lines[0]["plan"]["definition"]["mode"]["stops_when_sure"], true);
    let end = lines.last().unwrap();
    assert_eq!((&end["missing"], &end["planned"]), (&0.into(), &8.into()), "{end}");
}

/// The verdict depends on the machine. The exit code must match it.
#[test]
fn a_trial_counts_the_verdicts() {
    let mode = "--set mode.slice=30ms --set mode.warm_up=20ms --set rounds=1 --set workload.connections=4";
    let names = r#"--set contestants=["catalog:pool_server/std_mutex"]"#;
    let output = run(&format!("bench trial-same {mode} {names} --json"));
    let outcome = parsed(&output);
    let rows = array(&outcome["rows"]);
    assert_eq!((rows.len(), &rows[0]["rounds"]), (1, &1.into()), "{outcome}");
    let figure = |name: &str| rows[0]["figures"][name].as_f64();
    assert!(figure("throughput_ratio") > Some(0.0) && figure("comparison_rounds") == Some(10.0), "{outcome}");
    let verdict = figure("throughput_verdict");
    assert!(verdict.is_none_or(|verdict| [-1.0, 0.0, 1.0].contains(&verdict)), "{outcome}");
    assert_eq!(output.status.success(), verdict == Some(0.0), "{outcome}");
    assert_eq!(outcome["passed"], output.status.success(), "{outcome}");
    assert_eq!(output.status.success(), outcome["answer"].as_str().unwrap().starts_with("Passed"), "{outcome}");
}

/// The command, as a contestant.
fn serve(name: &str, role: Role, server: &str) -> Contestant {
    let args = ["serve", "--json", "--listen=127.0.0.1:0", "--repo=two_level", &format!("--server={server}")];
    contestant(name, role, env!("CARGO_BIN_EXE_polyserve"), &args)
}

fn contestant(name: &str, role: Role, program: &str, args: &[&str]) -> Contestant {
    let args = args.iter().map(Into::into).collect();
    let launch =
        Launch { program: program.into(), args, env: Vec::new(), address: AddressFrom::Json, files: Vec::new() };
    Contestant::new(name, role, launch)
}

/// Runs a comparison of two rounds without latencies, with its record in `dir`.
fn compared(dir: Option<&Dir>, contestants: Vec<Contestant>) -> anyhow::Result<Ranking> {
    let cores = Cores::available().unwrap();
    let (client_cores, stop) = (Cores::from(cores.numbers()[0]), Shutdown::new());
    let environment = Environment::of(&cores, [&cores, &client_cores], 1, "any");
    let instrument = Instrument {
        server_cores: cores,
        client_cores,
        connections: 2,
        usage: Usage::KeepAlive { pipeline: 1 },
        arrivals: Arrivals::default(),
        traffic: Traffic::entities(&Data::new(1), 20, Dist::Uniform, Mix { get: 1, put: 0 }, 1).unwrap(),
        limit_traffic: Traffic::one("GET", "/1", None, None).unwrap(),
        asked: String::from("GET"),
        warm_up: Duration::from_millis(20),
        slice: Duration::from_millis(20),
        latency_slice: Duration::from_millis(20),
        stop: stop.clone(),
    };
    let (names, cell): (Vec<String>, _) = (contestants.iter().map(|one| one.name.clone()).collect(), SweepCell::new());
    let entries = vec![CellEntries { cell: cell.clone(), contestants: names.clone() }];
    let cell = CellPlan { cell, contestants, instrument, rate: None, latency: false };
    let (baseline, mode) = (names[0].clone(), ModeKind::Compare);
    let plan = BenchPlan { mode, contestants: names, baseline, rounds: 2, ..BenchPlan::default() };
    let turns = RequestTurns::new(vec![cell], None);
    let mut comparison = DefinedExperiment::new(plan, entries, Vec::new(), Box::new(turns));
    let header = Header::new("bench", comparison.describe(), environment);
    let mut journal = Journal::named(dir.map(|dir| dir.path("")).as_deref(), "compare", &header)?;
    Ranking::of(&experiment::run(&mut comparison, &header, &mut journal, &stop)?)
}

/// One process exits at once, one exits after it has printed its address, one sends wrong answers. Each is listed with
/// the reason and has no row. The other contestants have all samples.
#[test]
fn a_contestant_that_fails_is_named_and_not_ranked() {
    let dir = Dir::new("failing");
    let contestants = vec![
        serve("base", Role::Baseline, "leader_followers"),
        serve("base again", Role::Same, "leader_followers"),
        contestant("dies", Role::Ranked, "/bin/sh", &["-c", "echo no memory >&2; exit 3"]),
        contestant("leaves", Role::Ranked, "/bin/sh", &["-c", r#"echo '{"listening":"http://127.0.0.1:1"}'; exit 0"#]),
        serve("wrong", Role::Ranked, "null_epoll"),
        serve("good", Role::Ranked, "pool_server"),
    ];
    let ranking = compared(Some(&dir), contestants).unwrap();
    let rows: BTreeSet<_> = ranking.rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(rows, BTreeSet::from(["base", "base again", "good"]));
    let why = |name: &str| ranking.failed.iter().find(|failed| failed.name == name).map(|failed| failed.why.clone());
    assert!(why("dies").unwrap().contains("exit status: 3: no memory"), "{:?}", ranking.failed);
    assert!(why("leaves").unwrap().contains("ended by itself"), "{:?}", ranking.failed);
    assert!(why("wrong").is_some() && ranking.failed.len() == 3, "{:?}", ranking.failed);
    let lines = dir.lines(RECORD);
    assert_eq!((count(&lines, "row"), count(&lines, "failure")), (2 * 3, 3), "what failed is not measured again");
}

#[test]
fn nothing_is_compared_with_a_baseline_that_fails() {
    let broken = contestant("base", Role::Baseline, "/bin/sh", &["-c", "echo no memory >&2; exit 3"]);
    let error = compared(None, vec![broken, serve("good", Role::Ranked, "pool_server")]).unwrap_err().to_string();
    let named = "round 1: base failed, and nothing can be compared without it: ";
    assert!(error.starts_with(named) && error.contains("no memory"), "{error}");
}

/// Starts a comparison that would take hours, and sends it this signal when the record has `min_lines` lines and a server
/// runs. Returns the output. The server's process has ended.
fn signalled_comparison(dir: &Dir, signal: Signal, min_lines: usize) -> Output {
    let args = "--servers=pool_server --repos=two_level --rounds=10000";
    let recorded = || fs::read_to_string(dir.path(RECORD)).map_or(0, |text| text.lines().count());
    let server = Cell::new(None);
    let output = signalled(signal, &format!("compare {args} {TINY} --out={dir}"), |pid| {
        server.set(child(pid));
        server.get().is_some() && recorded() >= min_lines
    });
    let server = server.get().expect("a server was running");
    until("the server is still there", || !Path::new(&format!("/proc/{server}")).exists());
    output
}

/// A child of process `parent`.
fn child(parent: u32) -> Option<u32> {
    let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let mut lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.find_map(|list| list.split_whitespace().next()?.parse().ok())
}

#[test]
fn an_interrupted_run_leaves_whole_lines_and_no_process() {
    let dir = Dir::new("interrupted");
    let output = signalled_comparison(&dir, Signal::INT, 6);
    assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
    has(&text(&output.stdout), &["ended early", "pool_server/mpsc_pool/two_level"]);
    let lines = dir.lines(RECORD);
    let last = lines.last().unwrap();
    assert_eq!((&last["kind"], &last["interrupted"]), (&"end".into(), &true.into()));
    assert!(lines.len() >= 7, "{lines:?}");
}

/// After a SIGKILL the servers must end by themselves: their standard input ends.
#[test]
fn servers_end_with_a_comparison_that_is_killed() {
    assert!(!signalled_comparison(&Dir::new("killed"), Signal::KILL, 1).status.success());
}

/// Requests to `echo`, which answers with the body.
const REQUESTS: &str = r#"# two lines
{"url": "/a/{id}", "id": "1-5", "weight": 3}
{"url": "/b", "method": "POST", "body": "x{id}", "id": "7-9", "status": 200}
"#;

/// A service of one's own has its own requests, no store and no null server. The first line is the answer.
#[test]
fn a_service_of_ones_own_is_ranked_by_its_requests() {
    let dir = Dir::new("service");
    dir.write("shop.requests", REQUESTS);
    let tiny = "--slice=500ms --warm-up=50ms --connections=4 --rounds=1";
    let args = format!("{tiny} --service=echo --requests={dir}/shop.requests --servers=tokio_tcp,pool_server");
    let ranking = json(&format!("compare {args} --goal=p99=1h --rate=20 --out={dir}"));
    assert_eq!(ranking["failed"], Value::Array(Vec::new()), "{ranking}");
    let rows = array(&ranking["rows"]);
    let names = BTreeSet::from_iter(texts(rows, "name"));
    assert_eq!(names, BTreeSet::from(["tokio_tcp", "tokio_tcp (again)", "pool_server/mpsc_pool"]));
    let asked = format!("the requests of {dir}/shop.requests to the service echo; 4 connections, kept alive");
    assert_eq!((&ranking["asked"], &ranking["baseline"]), (&asked.into(), &"tokio_tcp".into()));
    for row in rows.iter().filter(|row| row["role"] != "same") {
        assert_eq!(
            (&row["rank"], &row["meets_goal"], &row["shares"]),
            (&1.into(), &true.into(), &Value::Array(vec![]))
        );
    }
    assert_eq!(ranking["rate"]["requests_per_s"], 20.0);
    let lines = &dir.lines(RECORD)[0]["plan"]["requests"]["lines"];
    assert_eq!((&lines[0]["request"], &lines[1]["ids"][1]), (&"GET /a/{id}".into(), &9.into()), "{lines}");
    let shown = printed(&format!("compare {args} --baseline=pool_server --goal=p99=1h"));
    assert!(shown.starts_with("too few rounds for a verdict: 1 of 10; the highest throughput so far has `"), "{shown}");
    has(&shown, &["baseline pool_server/mpsc_pool, 1 round", " req/s ", "<= 3600"]);
}

#[test]
fn what_is_wrong_with_the_requests_of_a_service_is_named() {
    let dir = Dir::new("service-wrong");
    let file = format!("{dir}/shop.requests");
    let tiny = format!("compare {TINY} --servers=tokio_tcp --rounds=1").replace(" --keys=50", "");
    dir.write("shop.requests", REQUESTS);
    for (args, why) in [
        (format!("--service=nothing --requests={file}"), "no service \"nothing\""),
        (String::from("--service=echo"), "--requests <FILE>"),
        (format!("--requests={file}"), "--service <NAME>"),
        (format!("--service=echo --requests={file} --keys=5"), "--keys, --mix and --dist are for entities"),
        (
            format!("--service=echo --requests={file} --peers=hyper"),
            "the entry of peer:hyper has no serves = { service = \"echo\" }",
        ),
        (format!("--service=echo --requests={file} --goal=10ms"), "a goal is p99=TIME"),
        (String::from("--service=echo --requests=/nowhere"), "/nowhere"),
    ] {
        has(&misused(&format!("{tiny} {args}")), &[why]);
    }
    for (line, why) in [
        (r#"{"url": "http://127.0.0.1:9/a"}"#, "use a path such as /a"),
        (r#"{"url": "/{id}"}"#, "add \"id\": \"1-1000\""),
        (r#"{"url": "/", "id": "1-5"}"#, "no {id} in its target or body"),
        (r#"{"url": "/{id}", "id": "5-1"}"#, "no range of numbers"),
        (r#"{"url": "/", "status": "ok"}"#, "status is neither a number"),
        (r#"{"url": "/", "status": 100}"#, "status is not from 200 to 599"),
    ] {
        dir.write("shop.requests", format!("# one\n{line}\n"));
        has(&misused(&format!("{tiny} --service=echo --requests={file}")), &[&format!("{file}:2: "), why]);
    }
    // The status of the answer is not the expected one.
    dir.write("shop.requests", r#"{"url": "/a", "status": 404}"#);
    let error = failed(&format!("{tiny} --service=echo --requests={file}"));
    has(&error, &[&file, "the answers cannot be discovered on tokio_tcp", "GET /a: status 200"]);
}
