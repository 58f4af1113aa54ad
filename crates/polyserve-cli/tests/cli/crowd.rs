//! `polyserve crowd`: the counts add up. No speeds.

use serde::Deserialize;
use serde_json::Value;

use super::{Dir, array, descriptors, has, interrupted, json, misused, parsed, printed, texts};

const TINY: &str = "crowd --good=4 --rounds=2 --slice=20ms --warm-up=20ms --time=300ms --rate=200";

/// The figures of a row with the crowd, compared with those without it.
#[derive(Deserialize)]
struct Comparison {
    beside: Value,
}

/// Runs a command until its report is as `is_good` says, at most five times. Returns the last report.
fn repeated(line: &str, is_good: impl Fn(&Value) -> bool) -> Value {
    let mut report = json(line);
    for _ in 1..5 {
        if is_good(&report) {
            break;
        }
        report = json(line);
    }
    report
}

#[test]
fn an_idle_crowd_is_held_and_every_slice_recorded() {
    let dir = Dir::new("crowd");
    let servers = "--servers=pool_server,leader_followers";
    let line = format!("{TINY} --kind=idle --connections=50 {servers} --seed=7 --out={dir}");
    let report = json(&line);
    assert_eq!((&report["environment"]["seed"], &report["interrupted"]), (&7.into(), &false.into()));
    let rows = array(&report["rows"]);
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
        let windows = array(&row["idle_cpu_windows"]);
        assert!(windows.len() == 2 && windows.iter().all(Value::is_f64), "one for each round: {row}");
        assert!(row["idle_cpu_ms_per_s"].is_f64(), "{row}");
        let compared: Comparison = serde_json::from_value(row.clone()).unwrap();
        for figure in ["throughput", "cost"] {
            let verdict = &compared.beside[figure]["verdict"];
            assert!(verdict.is_null() || verdict == "too_few_rounds", "{row}");
        }
    }
    let lines = dir.lines("crowd.jsonl");
    let count = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).count();
    assert_eq!((lines[0]["kind"].as_str(), count("row"), count("end")), (Some("environment"), 2, 1));
    for place in ["with", "without", "again"] {
        for row in &lines[1..3] {
            let slices = array(&row["slices"]);
            assert_eq!(slices.iter().filter(|slice| slice["place"] == place).count(), 2, "{row}");
        }
    }
    has(&misused(&format!("crowd --out={dir}")), &["not overwritten"]);
}

/// At its limit the server refuses a part of a crowd that holds requests: none of its connections is idle.
#[test]
fn what_the_server_refuses_is_counted() {
    let few = "--max-connections=20 --servers=pool_server --kind=slow-heads --connections=30";
    // On a busy machine a phase may be over before a refused client is counted.
    let is_refused = |report: &Value| report["rows"][0]["crowd"]["refused"].as_u64() > Some(0);
    let report = repeated(&format!("{TINY} {few}"), is_refused);
    let counts = &report["rows"][0]["crowd"];
    let count = |name: &str| counts[name].as_u64().unwrap();
    assert!(count("refused") > 0 && count("held") < 30, "{counts}");
    let ends = count("held") + count("refused") + count("cut") + count("unreachable");
    assert!(ends >= 30 && ends <= count("opened"), "{counts}");
}

#[test]
fn a_good_client_is_served_during_a_slow_crowd() {
    let kinds = "--kind=slow-heads,slow-bodies,slow-readers";
    let line = format!("{TINY} {kinds} --connections=10 --servers=pool_server --head-timeout=100ms");
    // On a busy machine an answer may take longer than the client waits after a phase.
    let has_no_errors = |report: &Value| {
        let phases = |row: &Value| ["before", "with", "after"].map(|phase| row[phase]["errors"] == 0);
        array(&report["rows"]).iter().all(|row| phases(row).iter().all(|none| *none))
    };
    let report = repeated(&line, has_no_errors);
    let rows = array(&report["rows"]);
    assert_eq!(texts(rows, "kind"), ["slow-heads", "slow-bodies", "slow-readers"]);
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
    let output = printed(&format!("{TINY} --servers=pool_server,sequential --kind=idle,slow-heads --connections=5"));
    has(
        &output,
        &[
            "idle: 5 connections",
            "slow-heads: 5 connections",
            "per connection: growth of the process",
            "idle CPU (ms/s)",
        ],
    );
    has(&output, &["p99 < 10 ms", "before", "with"]);
    // A server of one connection at a time is not measured: every other waits for it.
    has(&output, &["up to 8 waits of 10s", "an upper bound, not measured"]);
}

#[test]
fn a_number_of_workers_is_for_the_servers_that_take_one() {
    let servers = "--workers=2 --servers=sequential,pool_server";
    let report = json(&format!("{TINY} --kind=slow-heads --connections=3 {servers}"));
    let rows = array(&report["rows"]);
    let sequential = rows.iter().find(|row| row["name"] == "sequential/sharded").unwrap();
    assert_eq!(sequential["outcome"], "bound", "{sequential}");
    assert!(rows.iter().any(|row| row["outcome"] == "slow"), "{report}");
}

/// The first SIGINT ends the run and all its processes.
#[test]
fn a_signal_ends_it() {
    let line = "crowd --json --servers=pool_server --kind=slow-heads --connections=200 --time=1h";
    // The signal handler is registered before a server is started; the good client has 64 connections.
    let output = interrupted(line, |pid| descriptors(pid) >= 64);
    let report = parsed(&output);
    assert_eq!((&report["interrupted"], &report["rows"]), (&true.into(), &Value::Array(Vec::new())));
}
