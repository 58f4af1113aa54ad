//! `polyserve crowd`: the counts add up. No speeds.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::{descriptors, interrupted, misused, printed, run, text};

const TINY: [&str; 6] = ["--good=4", "--rounds=2", "--slice=20ms", "--warm-up=20ms", "--time=300ms", "--rate=200"];

/// The figures of a row with the crowd, compared with those without it.
#[derive(Deserialize)]
struct Comparison {
    beside: Value,
}

fn crowd(args: &[&str]) -> Value {
    let said = printed(&[&["crowd", "--json"], &TINY[..], args].concat());
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn an_idle_crowd_is_held_and_every_slice_recorded() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("crowd-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    let out = format!("--out={}", dir.display());
    let servers = "--servers=pool_server,leader_followers";
    let report = crowd(&["--kind=idle", "--connections=50", servers, "--seed=7", &out]);
    assert_eq!((&report["environment"]["seed"], &report["interrupted"]), (&7.into(), &false.into()));
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!((&row["outcome"], &row["kind"], &row["crowd_of"]), (&"idle".into(), &"idle".into(), &50.into()));
        for counts in [&row["crowd"], &row["arrived"]] {
            assert_eq!((&counts["opened"], &counts["held"], &counts["answered"]), (&50.into(), &50.into(), &50.into()));
            assert_eq!((&counts["refused"], &counts["cut"], &counts["unreachable"]), (&0.into(), &0.into(), &0.into()));
        }
        let memory = &row["memory"];
        let bytes = |name: &str| memory[name].as_f64().unwrap_or_else(|| panic!("{name}: {memory}"));
        let grown = bytes("with_bytes") - bytes("before_bytes");
        assert!((bytes("bytes_per_connection") * 50.0 - grown).abs() < 1.0, "{memory}");
        let compared: Comparison = serde_json::from_value(row.clone()).unwrap();
        for figure in ["throughput", "cost"] {
            let verdict = &compared.beside[figure]["verdict"];
            assert!(verdict.is_null() || verdict == "too_few_rounds", "{row}");
        }
    }
    let record = fs::read_to_string(dir.join("crowd.jsonl")).unwrap();
    let lines: Vec<Value> = record.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).count();
    assert_eq!((lines[0]["kind"].as_str(), count("row"), count("end")), (Some("environment"), 2, 1));
    for place in ["with", "without", "again"] {
        for row in &lines[1..3] {
            let slices = row["slices"].as_array().unwrap();
            assert_eq!(slices.iter().filter(|slice| slice["place"] == place).count(), 2, "{row}");
        }
    }
    let again = misused(&["crowd", &out]);
    assert!(again.contains("not written over"), "{again}");
    // The last row was not recorded: only it is measured again.
    let kept: Vec<&str> = record.lines().take(2).collect();
    fs::write(dir.join("crowd.jsonl"), kept.join("\n") + "\n").unwrap();
    let same = crowd(&["--kind=idle", "--connections=50", servers, "--seed=7", &out]);
    assert_eq!((&same["rows"][0], same["rows"].as_array().unwrap().len()), (&rows[0], 2));
    let after = fs::read_to_string(dir.join("crowd.jsonl")).unwrap();
    let added = after.strip_prefix(&(kept.join("\n") + "\n")).unwrap();
    let added: Vec<Value> = added.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = |kind: &str| added.iter().filter(|line| line["kind"] == kind).count();
    assert_eq!((count("environment"), count("row"), count("end")), (1, 1, 1), "{added:?}");
}

#[test]
fn what_the_server_refuses_is_counted() {
    let few = ["--max-connections=20", "--servers=pool_server", "--kind=idle", "--connections=30"];
    let output = run(&[&["crowd", "--json"], &TINY[..], &few].concat());
    assert_eq!(output.status.code(), Some(1), "the server is full: {}", text(&output.stderr));
    let report: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    assert!(report["rows"][0]["unserved"].is_string(), "{report}");
    let counts = &report["rows"][0]["crowd"];
    let count = |name: &str| counts[name].as_u64().unwrap();
    assert!(count("refused") > 0 && count("held") < 30, "{counts}");
    assert_eq!(count("held") + count("refused") + count("cut") + count("unreachable"), 30, "{counts}");
}

#[test]
fn a_good_client_is_served_during_a_slow_crowd() {
    let kinds = "--kind=slow-heads,slow-bodies,slow-readers";
    let report = crowd(&[kinds, "--connections=10", "--servers=pool_server", "--head-timeout=100ms"]);
    let rows = report["rows"].as_array().unwrap();
    let of: Vec<_> = rows.iter().map(|row| row["kind"].as_str().unwrap()).collect();
    assert_eq!(of, ["slow-heads", "slow-bodies", "slow-readers"]);
    for row in rows {
        assert_eq!(row["outcome"], "slow", "{row}");
        let crowd = &row["crowd"];
        let count = |name: &str| crowd[name].as_u64().unwrap();
        assert!(count("opened") >= 10 && count("unreachable") == 0, "{crowd}");
        assert!(count("held") + count("refused") + count("timed_out") + count("cut") <= count("opened"), "{crowd}");
        for phase in ["before", "with", "after"] {
            let phase = &row[phase];
            let figures = ["p50_us", "p99_us", "p999_us", "max_us", "lateness_p99_us"];
            assert!(figures.iter().all(|name| phase[name].is_f64()), "{phase}");
            assert!(phase["answered"].as_u64() > Some(0) && phase["errors"] == 0, "{phase}");
            assert!(phase["descriptors"].as_u64() > Some(0), "{phase}");
            assert!(phase["is_bearable"].is_boolean() && phase["resident_bytes"].as_u64() > Some(0), "{phase}");
        }
    }
}

#[test]
fn for_people_it_is_a_table_for_each_kind() {
    let args = ["--servers=pool_server,sequential", "--kind=idle,slow-heads", "--connections=5"];
    let said = printed(&[&["crowd"], &TINY[..], &args].concat());
    for wanted in [
        "idle: 5 connections",
        "slow-heads: 5 connections",
        "EACH: what the process grew by",
        "P99 < 10 MS",
        "before",
        "WITH",
    ] {
        assert!(said.contains(wanted), "{wanted} is not in\n{said}");
    }
    // A server of one connection at a time is not measured: every other waits for it.
    assert!(said.contains("<= 10s x 8") && said.contains("a bound, the head's timeout"), "{said}");
}

#[test]
fn a_number_of_workers_is_for_the_servers_that_take_one() {
    let report = crowd(&["--kind=slow-heads", "--connections=3", "--workers=2", "--servers=sequential,pool_server"]);
    let rows = report["rows"].as_array().unwrap();
    let sequential = rows.iter().find(|row| row["name"] == "sequential/two_level").unwrap();
    assert_eq!(sequential["outcome"], "bound", "{sequential}");
    assert!(rows.iter().any(|row| row["outcome"] == "slow"), "{report}");
}

/// The first SIGINT ends the run and all its processes.
#[test]
fn a_signal_ends_it() {
    let args = ["crowd", "--json", "--servers=pool_server", "--kind=slow-heads", "--connections=200", "--time=1h"];
    // The signal handler is registered before a server is started; the good client has 64 connections.
    let output = interrupted(&args, |pid| descriptors(pid) >= 64);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    assert_eq!((&report["interrupted"], &report["rows"]), (&true.into(), &Value::Array(Vec::new())));
}

#[test]
fn what_cannot_be_done_is_a_misuse() {
    for (args, why) in [
        (&["--servers=missing"][..], "no server \"missing\""),
        (&["--repos=nothing"], "no repo \"nothing\""),
        (&["--kind=fast"], "idle"),
        (&["--connections=0"], "--connections"),
        (&["--good=0"], "--good"),
        (&["--rate=0"], "--rate 0"),
        (&["--rate=nan"], "--rate NaN"),
        (&["--time=1ms"], "--time"),
        (&["--slice=0s"], "--slice"),
        (&["--interval=0s"], "--interval"),
        (&["--rounds=0"], "--rounds"),
        (&["--server-cores=1000"], "there is no core 1000"),
        (&["--servers=sequential", "--workers=2"], "workers must be 1"),
    ] {
        let said = misused(&[&["crowd"], args].concat());
        assert!(said.contains(why), "{args:?}: {said}");
    }
}
