//! `polyserve bench page` and `page-workers`: bounds and counts, no speeds.

use std::io::Write as _;

use serde_json::Value;

use super::{Dir, array, ended, has, json, printed, run, text, texts};

const TINY: &str =
    "bench page-workers --set mode.requests=40 --set mode.every=5 --set mode.wait=2ms --set workload.connections=5";

fn contestants(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("\"catalog:{name}\"")).collect();
    format!(
        "--set contestants=[{}] --set baseline=catalog:{}",
        names.join(","),
        names[0].trim_matches('"').trim_start_matches("catalog:")
    )
}

/// A pool's bound grows with its workers. A server that does not let its number of workers be chosen is measured once. A server
/// that holds no worker during a wait has no bound.
#[test]
fn a_shape_has_a_bound_of_its_own() {
    let all = contestants(&["futures_pool", "leader_followers", "sequential", "tokio_tcp"]);
    let report = json(&format!("{TINY} {all} --set sweep.workers=[2,3]"));
    assert_eq!((&report["failed"], &report["interrupted"]), (&Value::Array(Vec::new()), &false.into()));
    let bounds = |name: &str| -> Vec<(u64, Option<f64>)> {
        let own = array(&report["rows"]).iter().filter(|row| row["contestant"] == name);
        own.map(|row| (row["cell"]["workers"].as_u64().unwrap(), row["figures"]["bound_per_s"].as_f64())).collect()
    };
    assert_eq!(bounds("futures_pool"), [(2, Some(5000.0)), (3, Some(7500.0))]);
    assert_eq!(
        (bounds("sequential"), bounds("leader_followers")),
        (vec![(2, Some(2500.0))], vec![(2, Some(12_500.0))])
    );
    assert_eq!(bounds("tokio_tcp"), [(2, None), (3, None)]);
    for row in array(&report["rows"]) {
        let figure = |name: &str| row["figures"][name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
        assert_eq!((figure("requests"), figure("connections_bound_per_s"), figure("wait_s")), (40.0, 12_500.0, 0.002));
        assert!(figure("total_s") > 0.0 && figure("requests_per_s") > 0.0 && figure("share_of_bound") > 0.0, "{row}");
        assert!(figure("p50_ms") <= figure("p90_ms") && figure("p90_ms") <= figure("max_ms"), "{row}");
        assert!(figure("max_ms") >= 2.0, "a fifth of the requests waited: {row}");
    }
}

/// A server that is not a pool by its shape is not measured with all others: the output names its bound.
#[test]
fn all_servers_with_workers_take_part() {
    let output = printed(&format!("{TINY} --set contestants=[\"catalog:*\"] --set sweep.workers=[1]"));
    for (name, bound) in [("sequential", "2500.0"), ("leader_followers", "12500.0")] {
        let line =
            output.lines().find(|line| line.starts_with(&format!("not run: {name}, workers 1: its shape is no pool")));
        assert!(line.is_some_and(|line| line.contains(bound)), "{name}: {output}");
    }
    let servers = json("list");
    for entry in array(&servers["servers"]) {
        assert!(output.contains(entry["name"].as_str().unwrap()), "{entry}: {output}");
    }
}

/// The waits are shorter, all else is as published: each published row stands above ours, and each published column is there.
#[test]
fn the_published_figures_stand_next_to_ours() {
    let dir = Dir::new("page-published");
    let names = r#"--set contestants=["catalog:pool_server@100","catalog:smol"] --set baseline=catalog:smol"#;
    let line = format!("bench page --set mode.wait=10ms {names} --set rounds=1 --set claim=[] --out={dir}");
    let output = printed(&line);
    let places =
        ["thread-pool-100 (published)", "pool_server/mpsc_pool@100 (here)", "async-std (published)", "smol (here)"];
    let places = places.map(|name| output.find(name).unwrap_or_else(|| panic!("{name}: {output}")));
    assert!(places.is_sorted(), "{output}");
    let rows = dir.recorded("page.jsonl", "row");
    assert_eq!(rows.len(), 3, "from a file, and smol again");
    for row in &rows {
        let figure = |name: &str| row["figures"][name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
        assert_eq!((figure("requests"), figure("connections"), figure("every")), (10_000.0, 100.0, 10.0));
        assert!(figure("cpu_us_per_request") > 0.0 && figure("peak_memory_mib") > 0.1, "{row}");
        assert!(figure("total_bytes") > 1_760_000.0 && figure("html_bytes") == 1_760_000.0, "{row}");
        assert!(figure("total_max_ms") >= 10.0 && figure("connect_mean_ms") > 0.0, "{row}");
    }
    let csv = dir.read("page.csv");
    assert!(csv.starts_with(polyserve_bench::published::PAGE.lines().next().unwrap()), "{csv}");
}

/// The twins that need no build: each is measured, or named with the reason.
#[test]
fn twins_in_other_languages() {
    let dir = Dir::new("page-twins");
    let names = r#"["catalog:smol","twin:node","twin:deno","twin:java"]"#;
    let changes = "--set mode.wait=10ms --set rounds=1 --set claim=[] --set baseline=catalog:smol";
    let output =
        run(&format!("bench page {changes} --set contestants={names} --set sweep.source=[\"file\"] --out={dir}"));
    let (stdout, rows) = (text(&output.stdout), dir.recorded("page.jsonl", "row"));
    for twin in ["twin/node", "twin/deno", "twin/java"] {
        let Some(row) = rows.iter().find(|row| row["contestant"] == twin) else {
            // Deno is not there if npm cannot install it.
            let why = stdout.lines().find(|line| line.contains(&format!("not run: {twin}"))).expect(&stdout);
            let _ = writeln!(std::io::stderr(), "{why}");
            continue;
        };
        assert_eq!(row["figures"]["requests"], 10_000.0, "{row}");
    }
}

/// A server with a wrong answer has no row; the record has the reason, and a rerun does not measure the server again.
#[test]
fn a_failure_is_named_with_its_reason_and_stays_out() {
    let dir = Dir::new("page-failed");
    // No answer comes in time.
    let all = contestants(&["pool_server", "smol"]);
    let line = format!("{TINY} {all} --set mode.wait=300ms --set sweep.workers=[1] --answer-timeout=1ms --out={dir}");
    for _ in 0..2 {
        has(&text(&ended(1, &line).stdout), &["no figures: ", "pool_server/mpsc_pool, workers 1: "]);
        let failed = dir.recorded("page-workers.jsonl", "failure");
        let names = texts(&failed, "contestant");
        assert_eq!(names.len(), 3, "the baseline takes part twice: {failed:?}");
        assert!(failed.iter().all(|failed| failed["reason"] == "wrong"), "{failed:?}");
        has(failed[0]["why"].as_str().unwrap(), &["503"]);
    }
    assert_eq!(dir.recorded("page-workers.jsonl", "row"), [] as [Value; 0]);
}
