//! `polyserve recommend`: its candidates, records and output; not the winner.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;

use super::{Dir, array, has, interrupted, json, misused, parsed, polyserve, printed, text, texts};

/// A run of one round. It decides nothing, and takes a second or two.
const TINY: &str = "recommend --rounds=1 --time=20s --keys=10 --connections=4 --repos=two_level";
const RECORD: &str = "recommend.jsonl";
const TURNS: &str = "recommend-compare.jsonl";

#[test]
fn a_workload_is_measured_and_answered_with_lines_that_use_the_winner() {
    let dir = Dir::new("recommend-answer");
    let line = format!("{TINY} --servers=tokio_tcp,leader_followers --reads=50 --out={dir}");
    // On a busy machine the time may be over before all is measured. The next run goes on with the record.
    let (mut report, mut runs) = (json(&line), 1);
    while report["time_was_up"] == true && runs < 20 {
        (report, runs) = (json(&line), runs + 1);
    }
    let workload = &report["workload"];
    let (reads, keys, connections) = (&workload["reads_pct"], &workload["keys"], &workload["connections"]);
    assert_eq!((reads, keys, connections), (&50.into(), &10.into(), &4.into()));
    let defaulted: Vec<&str> = array(&report["defaulted"]).iter().filter_map(Value::as_str).collect();
    assert!(defaulted.contains(&"--payload 15") && defaulted.contains(&"no --p99"), "{defaulted:?}");
    assert!(!defaulted.iter().any(|flag| flag.starts_with("--reads") || flag.starts_with("--keys")), "{defaulted:?}");
    let mut names = texts(array(&report["rows"])[..2].as_ref(), "name");
    names.sort();
    assert_eq!(names, ["leader_followers/two_level", "tokio_tcp/two_level"]);
    let (first, second) = (&report["rows"][0], &report["rows"][1]);
    assert_eq!((&first["rank"], &first["of_first"]), (&1.into(), &Value::Null));
    assert_eq!(second["of_first"]["verdict"], "too_few_rounds");
    let choice = &report["choice"];
    let chosen = format!("{}/{}", choice["server"].as_str().unwrap(), choice["repo"].as_str().unwrap());
    assert_eq!(first["name"], *chosen);
    let lines = array(&choice["lines"]["code"]);
    assert!(lines.len() == 2 && lines[1].as_str().unwrap().contains("TwoLevel::new()"), "{choice}");
    let (goal_met, interrupted, time_was_up) = (&report["goal_met"], &report["interrupted"], &report["time_was_up"]);
    assert_eq!((goal_met, interrupted, time_was_up), (&Value::Null, &false.into(), &false.into()));
    // A second run measures nothing. Another workload does not resume the record.
    let turns = dir.recorded(TURNS, "row");
    assert_eq!(turns.iter().filter(|turn| turn["round"] == 1).count(), 3, "two candidates, and the first once more");
    assert_eq!(json(&line)["rows"], report["rows"]);
    assert_eq!(dir.recorded(TURNS, "row"), turns);
    assert_eq!(dir.recorded(RECORD, "recommendation").len(), runs + 1);
    has(&misused(&format!("{TINY} --servers=tokio_tcp --reads=40 --out={dir}")), &["not overwritten"]);
}

/// A service of one's own has no entities and no store. The lines of Rust serve it.
#[test]
fn a_service_of_ones_own_is_recommended_a_server() {
    let dir = Dir::new("recommend-service");
    dir.write("shop.requests", "{\"url\": \"/a\"}\n{\"url\": \"/b\", \"method\": \"PUT\", \"body\": \"1\"}\n");
    let line = format!("recommend --rounds=1 --time=20s --connections=4 --service=echo --requests={dir}/shop.requests");
    let report = json(&format!("{line} --goal=p99=1h --servers=tokio_tcp,pool_server"));
    assert_eq!((&report["failed"], array(&report["rows"]).len()), (&Value::Array(Vec::new()), 3), "{report}");
    // On a machine that does other work, all may be overloaded.
    let meets_goal = array(&report["rows"]).iter().any(|row| row["meets_goal"] == true);
    assert_eq!((&report["workload"]["service"][0], &report["goal_met"]), (&"echo".into(), &meets_goal.into()));
    has(report["choice"]["lines"]["code"][1].as_str().unwrap(), &["serve_until_signal(\"127.0.0.1:8001\", echo)"]);
    let defaulted: Vec<&str> = array(&report["defaulted"]).iter().filter_map(Value::as_str).collect();
    assert!(!defaulted.iter().any(|flag| flag.contains("keys") || flag.contains("--wait")), "{defaulted:?}");
    has(&misused(&format!("{line} --keys=5")), &["--keys is for entities, and the service echo has --requests"]);
}

/// The first SIGINT ends the run within a round. The report is of the whole rounds, and says that the run was ended early.
#[test]
fn a_signal_ends_it_with_a_report() {
    let dir = Dir::new("recommend-signal");
    let args = "--rounds=1000 --time=30m --keys=10 --connections=4";
    let line = format!("recommend {args} --servers=tokio_tcp,leader_followers --repos=two_level --json --out={dir}");
    let turns = || fs::read_to_string(dir.path(TURNS)).unwrap_or_default();
    let output = interrupted(&line, |_| turns().contains("\"kind\":\"row\""));
    let report = parsed(&output);
    assert_eq!((&report["interrupted"], &report["time_was_up"]), (&true.into(), &false.into()));
    assert_eq!((&report["failed"], array(&report["rows"]).len()), (&Value::Array(Vec::new()), 3));
    assert!(report["rounds"].as_u64() >= Some(1) && report["rounds"].as_u64() < Some(1000), "{report}");
    assert!(report["choice"]["lines"]["code"].is_array(), "{report}");
    assert_eq!((dir.recorded(RECORD, "recommendation").len(), dir.recorded(TURNS, "end").len()), (1, 1));
}

/// No server has a p99 of a nanosecond.
#[test]
fn a_goal_that_no_candidate_meets_is_reported() {
    let output = printed(&format!("{TINY} --servers=smol --p99=1ns"));
    let plainly = "no candidate keeps the goal; the nearest is smol/two_level";
    has(&output, &[plainly, "too few rounds for a verdict: 1 of 10", "// polyserve = { features = [\"smol\"] }"]);
    has(&output, &["let server = Smol::new(ServerConfig::default())?;"]);
}

/// If the store waits, a pool has a worker for each waiting request.
#[test]
fn requests_wait_and_a_pool_has_a_worker_for_each() {
    let report = json(&format!("{TINY} --servers=pool_server --wait=2ms --p99=1h --keep-alive=false"));
    let (first, choice) = (&report["rows"][0], &report["choice"]);
    assert_eq!((&choice["server"], &choice["workers"]), (&"pool_server/mpsc_pool".into(), &4.into()));
    assert!(first["latency"]["p50_us"].as_f64().unwrap() >= 2000.0, "{first}");
    has(report["choice"]["lines"]["code"][0].as_str().unwrap(), &["ServerConfig::default().workers(4)"]);
    let mut because = array(&report["because"]).iter().filter_map(Value::as_str);
    assert!(because.any(|why| why.contains("has 4 workers, one for each connection")), "{report}");
}

/// The reasons name each store that takes part, and each that is too large.
#[test]
fn what_does_not_fit_the_memory_is_left_out() {
    let error = misused("recommend --defaults --time=20s --store-memory=1KiB --cores=1");
    has(
        &error,
        &[
            "sharded is left out: 10,000 entities need about 1,045 KiB there, and the limit is 1 KiB",
            "packed is left out",
        ],
    );
    has(&misused("recommend --defaults --store-memory=12MB"), &["a number of bytes such as 65536, 64MiB or 1GiB"]);
    let args = "recommend --defaults --rounds=1 --time=20s --connections=4 --servers=tokio_tcp --cores=1 --store-memory=512KiB";
    let report = json(args);
    assert_eq!(report["workload"]["memory_limit_bytes"], 512 << 10);
    assert_eq!(texts(array(&report["rows"]), "name"), ["tokio_tcp/packed", "tokio_tcp/packed (again)"], "{report}");
    let because: Vec<&str> = array(&report["because"]).iter().filter_map(Value::as_str).collect();
    assert!(because.iter().any(|why| why.starts_with("packed is a candidate: it is the smallest")), "{because:?}");
}

/// At a terminal, the command asks for missing arguments.
#[test]
fn at_a_terminal_it_asks() {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("there are pseudo-terminals");
    grantpt(&master).and_then(|()| unlockpt(&master)).expect("it can be opened");
    let name = ptsname(&master, Vec::new()).expect("it has a name").into_string().expect("of ASCII");
    let open = || OpenOptions::new().read(true).write(true).open(&name).expect("the terminal opens");
    let given = "--rounds=1 --time=20s --servers=smol --repos=two_level --cores=1 --payload=20";
    let mut command = polyserve(&format!("recommend --reads=100 --keys=5 {given}"));
    command.env("TERM", "xterm").stdin(open()).stderr(open()).stdout(Stdio::piped());
    let child = command.spawn().expect("the command runs");
    drop(command); // its ends of the terminal
    let mut master = File::from(master);
    for (question, answer) in [
        ("Concurrent connections", "3\r"),
        ("Are connections kept", "n"),
        ("survive the end of the process", "n"),
        ("Is one machine enough", "y"),
        ("wait for another service", "\r"),
        ("99 % of the requests", "1h\r"),
        ("Max memory for the entities", "512KiB\r"),
    ] {
        let mut seen = String::new();
        while !seen.contains(question) {
            let mut bytes = [0; 1024];
            let count = master.read(&mut bytes).unwrap_or_else(|error| panic!("{error} before {question:?}: {seen}"));
            seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        master.write_all(answer.as_bytes()).expect("the terminal takes keys");
    }
    // The command draws its progress on the terminal. The test must read it, or the command would block.
    let drawn = std::thread::spawn(move || {
        let mut drawn = Vec::new();
        let _ = master.read_to_end(&mut drawn); // an error is the end
        drawn
    });
    let output = child.wait_with_output().expect("it ends");
    let drawn = drawn.join().expect("reading does not panic");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&drawn));
    let summary = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" "); // a long line is wrapped
    has(&summary, &["100 % reads of 5 entities with descriptions of 20 characters; 3 connections, one for each"]);
    has(&summary, &["at most 512.0 KiB for the entities"]);
    assert!(!summary.contains("by default") && summary.contains("99 % of the requests within 3600s"), "{summary}");
}

/// The rate, the settings, the rounds and the goal are those of the command line.
#[test]
fn what_is_given_is_measured_and_reported() {
    let dir = Dir::new("recommend-given");
    let line =
        "recommend --defaults --rounds=2 --time=30s --keys=10 --connections=4 --repos=two_level --p99=1h --rate=500";
    let line =
        format!("{line} --servers=tokio_tcp,pool_server --cpu-per-request=50us --blocking-wait=100us --out={dir}");
    let report = json(&line);
    assert_eq!(
        (&report["decided"], &report["rounds"], &report["goal_met"]),
        (&false.into(), &2.into(), &true.into()),
        "{report}"
    );
    let (rate, half_of) = (&report["rate"]["requests_per_s"], &report["rate"]["half_of"]);
    assert_eq!((rate.as_f64(), half_of), (Some(500.0), &Value::Null));
    let settings = array(&report["settings"]);
    assert_eq!(settings.len(), 2, "of both servers: {report}");
    for of_server in settings {
        let flags: Vec<&str> = array(&of_server[1]).iter().filter_map(Value::as_str).collect();
        assert!(flags.contains(&"--spin=50000") && flags.contains(&"--blocking-wait=100us"), "{of_server}");
        assert!(flags.iter().any(|flag| flag.starts_with("--max-connections=")), "{of_server}");
    }
    let ranked: Vec<&Value> = array(&report["rows"]).iter().filter(|row| !row["rank"].is_null()).collect();
    assert_eq!(ranked.len(), 2, "{report}");
    for row in ranked {
        let rounds = &row["of_first"]["rounds"];
        assert!(rounds.is_null() || *rounds == 2, "{row}");
    }
    // On a busy machine there is no time for a search.
    if let Some(capacity) = array(&report["capacity"]).first() {
        assert_eq!(capacity["goal_us"], 3_600_000_000_u64, "{capacity}");
        assert!(capacity["requests_per_s"].as_f64() > Some(0.0), "{capacity}");
    }
    let first = report["choice"]["server"].as_str().unwrap();
    let output = printed(&line);
    assert!(output.starts_with(&format!("undecided; the best so far is {first}/two_level\n")), "{output}");
    has(&output.replace("\n   ", " "), &["99 % of the requests within 3600s"]);
    has(&output, &["500 req/s (poisson), as given", "measured with: tokio_tcp "]);
}
