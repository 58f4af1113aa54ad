//! `polyserve bench crowd` and `bench crowd-slow`: the counts add up. No speeds.

use serde_json::Value;

use super::contestants::{EXAMPLE, has_python};
use super::{Dir, array, descriptors, ended, has, interrupted, json, misused, one, parsed, printed, texts};

const TINY: &str = "--set workload.connections=4 --set rounds=2 --set mode.slice=20ms --set mode.warm_up=20ms \
                    --set mode.phase=300ms --set mode.rate=200.0";

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

/// A figure of a row.
fn figure(row: &Value, name: &str) -> f64 {
    row["figures"][name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"))
}

#[test]
fn an_idle_crowd_is_held_and_every_round_recorded() {
    let dir = Dir::new("crowd");
    let servers = r#"--set contestants=["catalog:pool_server/sharded","catalog:leader_followers/sharded"]"#;
    // On a busy machine a slice of 20 ms may have no answer.
    let line = format!("bench crowd {TINY} --set mode.held=50 {servers} --seed=7 --out={dir}").replace("20ms", "200ms");
    let report = json(&line);
    assert_eq!((&report["environment"]["seed"], &report["interrupted"]), (&7.into(), &false.into()));
    let rows = array(&report["rows"]);
    assert_eq!(rows.len(), 3);
    for row in rows {
        for count in ["crowd_held", "crowd_arrived", "crowd_opened", "crowd_answered"] {
            assert_eq!(figure(row, count), 50.0, "{count}: {row}");
        }
        for count in ["crowd_refused", "crowd_cut", "crowd_unreachable", "crowd_timed_out"] {
            assert_eq!(figure(row, count), 0.0, "{count}: {row}");
        }
        let figures = [
            "bytes_per_connection",
            "held_bytes",
            "idle_cpu_ms_per_s",
            "kept_share",
            "control_share",
            "free_requests_per_s",
        ];
        assert!(figures.iter().all(|name| row["figures"][name].is_f64()), "{row}");
        let verdict = &row["compared"]["verdict"];
        assert!(verdict.is_null() || verdict == "too_few_rounds", "{row}");
    }
    let samples = dir.recorded("crowd.jsonl", "row");
    assert_eq!(samples.len(), 2 * 3, "a line for each round");
    for sample in samples {
        let grown = figure(&sample, "held_bytes") - figure(&sample, "filled_bytes");
        // The growth is counted from the end of the warm-up, and the memory of the entities before it.
        assert!(figure(&sample, "bytes_per_connection") * 50.0 <= grown + 1.0, "{sample}");
    }
    has(&misused(&format!("bench crowd --out={dir}")), &["not overwritten"]);
}

/// At its limit the server refuses a part of a crowd that holds requests: none of its connections is idle.
#[test]
fn what_the_server_refuses_is_counted() {
    let few = r#"--max-connections=20 --only=pool_server --set sweep.behaviour=["slow-heads"] --set mode.held=30"#;
    // On a busy machine a phase may be over before a refused client is counted.
    let is_refused = |report: &Value| report["rows"][0]["figures"]["crowd_refused"].as_f64() > Some(0.0);
    let report = repeated(&format!("bench crowd-slow {TINY} --set rounds=1 {few}"), is_refused);
    let row = &report["rows"][0];
    assert!(figure(row, "crowd_refused") > 0.0 && figure(row, "crowd_held") < 30.0, "{row}");
    let ends = ["crowd_held", "crowd_refused", "crowd_cut", "crowd_unreachable"].map(|name| figure(row, name));
    let ends: f64 = ends.iter().sum();
    assert!(ends >= 30.0 && ends <= figure(row, "crowd_opened"), "{row}");
}

#[test]
fn a_good_client_is_served_during_a_slow_crowd() {
    let line =
        format!("bench crowd-slow {TINY} --set rounds=1 --set mode.held=10 --only=pool_server --head-timeout=100ms");
    // On a busy machine an answer may take longer than the client waits after a phase.
    let has_no_errors = |report: &Value| {
        let errors = |row: &Value| ["errors", "errors_after"].map(|phase| row["figures"][phase] == 0.0);
        let rows = array(&report["rows"]);
        rows.len() == 6 && rows.iter().all(|row| errors(row).iter().all(|none| *none))
    };
    let report = repeated(&line, has_no_errors);
    let rows = array(&report["rows"]);
    let kinds: Vec<&str> = rows.iter().filter_map(|row| row["cell"]["behaviour"].as_str()).collect();
    let expected = ["slow-bodies", "slow-heads", "slow-readers"];
    assert_eq!(kinds, expected.iter().flat_map(|kind| [*kind; 2]).collect::<Vec<_>>());
    for row in rows {
        let count = |name: &str| figure(row, name);
        assert!(count("crowd_opened") >= 10.0 && count("crowd_unreachable") == 0.0, "{row}");
        let ended = count("crowd_held") + count("crowd_refused") + count("crowd_timed_out") + count("crowd_cut");
        assert!(ended <= count("crowd_opened"), "{row}");
        for name in ["p50_us", "p99_us", "p999_us", "lateness_p99_us", "before_p99_us", "after_p99_us"] {
            assert!(count(name) >= 0.0, "{name}: {row}");
        }
        assert_eq!((count("errors"), count("errors_after")), (0.0, 0.0), "{row}");
        assert!(count("descriptors") > 0.0 && count("held_bytes") > 0.0, "{row}");
    }
}

/// A server that answered wrongly next to a crowd had a row, and one that refused all requests had a p99 of 0 and the first rank.
#[test]
fn a_wrong_answer_next_to_a_crowd_disqualifies_and_a_refusal_ranks_last() {
    if !has_python("a_wrong_answer_next_to_a_crowd_disqualifies_and_a_refusal_ranks_last") {
        return;
    }
    let dir = Dir::new("crowd-wrong");
    let server = std::fs::read_to_string(EXAMPLE.replace("python.toml", "server.py")).expect("the example is there");
    // A thread for each connection. The 30 of the crowd start before those of the good client's next connections. Without a crowd
    // there are a few, also if the threads of closed connections are not over yet.
    let with_crowd = |answer: &str| {
        let get = "    def do_GET(self):\n";
        server.replace(
            get,
            &format!("{get}        if threading.active_count() > 24:\n            return self.answer({answer})\n"),
        )
    };
    dir.write("lies.py", with_crowd("200, b'{}'"));
    dir.write("refuses.py", with_crowd("503"));
    let entry = |name: &str| {
        format!(
            "[[contestant]]\nname = \"{name}\"\nprogram = \"python3\"\n\
             args = [\"{{directory}}/{name}.py\", \"{{port}}\"]\nready = \"port\"\n"
        )
    };
    dir.write("mine.toml", ["lies", "refuses"].map(entry).concat());
    let servers = r#"--set contestants=["catalog:pool_server/sharded","peer:lies","peer:refuses"]"#;
    let crowd = r#"--set sweep.behaviour=["slow-heads"] --set mode.held=30 --set rounds=1"#;
    // Requests that a busy machine could not send in time would be errors of the server.
    let rare = TINY.replace("mode.rate=200.0", "mode.rate=20.0").replace("mode.phase=300ms", "mode.phase=1s");
    let line = format!("bench crowd-slow {rare} {servers} {crowd} --contestants={dir}/mine.toml --json");
    let report = parsed(&ended(1, &line));
    let rows = array(&report["rows"]);
    assert!(rows.iter().all(|row| row["contestant"] != "lies"), "{report}");
    assert_eq!(one(&report["failed"], "contestant", "lies")["wrong"], true, "{report}");
    let refuses = one(&report["rows"], "contestant", "refuses");
    assert!(refuses["figures"]["p99_us"].is_null() && figure(refuses, "errors") > 0.0, "{refuses}");
    assert!(refuses["rank"].as_u64() > Some(1), "{report}");
    let baseline = one(&report["rows"], "role", "baseline");
    assert!(figure(baseline, "server_busy") > 0.0, "{baseline}");
}

#[test]
fn for_people_it_is_a_table() {
    let servers = r#"--set contestants=["catalog:pool_server/sharded","catalog:sequential*/sharded"]"#;
    let output = printed(&format!("bench crowd {TINY} --set mode.held=5 {servers}"));
    has(
        &output,
        &["per connection", "idle CPU (ms/s)", "A/A", "next to the crowd, as a share of that without", "control, 95 %"],
    );
    // A server of one connection at a time is not measured: every other waits for it.
    has(&output, &["not run: sequential/sharded", "another connection may wait 10s x 8"]);
    let slow = "--only=pool_server --set mode.held=5 --set rounds=1";
    has(&printed(&format!("bench crowd-slow {TINY} {slow}")), &["p99 before", "p99 after", "errors", "slow-readers"]);
}

#[test]
fn a_number_of_workers_is_for_the_servers_that_take_one() {
    let servers = r#"--set contestants=["catalog:pool_server/sharded","catalog:tokio_tcp/sharded"]"#;
    let line = format!("bench crowd {TINY} --workers=2 --set mode.held=3 --set rounds=1 {servers}");
    assert_eq!(texts(array(&json(&line)["rows"]), "contestant").len(), 3);
}

/// The first SIGINT ends the run and all its processes.
#[test]
fn a_signal_ends_it() {
    let line = r#"bench crowd-slow --json --only=pool_server --set sweep.behaviour=["slow-heads"] --set mode.phase=1h"#;
    // The signal handler is registered before a server is started; the good client has 64 connections.
    let output = interrupted(line, |pid| descriptors(pid) >= 64);
    let report = parsed(&output);
    assert_eq!((&report["interrupted"], &report["rows"]), (&true.into(), &Value::Array(Vec::new())));
}
