//! `polyserve page`: bounds and counts, no speeds.

use std::io::Write as _;

use serde_json::Value;

use super::{Dir, array, ended, has, json, misused, printed, run, text};

const TINY: &str = "page --parts=sweep --requests=40 --connections=5 --page-every=5 --page-wait=2ms";
const RECORD: &str = "page.jsonl";

#[test]
fn a_pools_bound_grows_with_it_and_the_published_columns_come_first() {
    let dir = Dir::new("page-csv");
    let measured = json(&format!("{TINY} --servers=pool_server --workers=2,4 --out={dir}"));
    assert_eq!((&measured["failed"], &measured["interrupted"]), (&Value::Array(Vec::new()), &false.into()));
    assert_eq!(measured["connections_bound_per_s"], 12_500.0);
    let rows = array(&measured["rows"]);
    assert_eq!(rows.len(), 2);
    for (row, workers) in rows.iter().zip([2, 4]) {
        assert_eq!((&row["server"], &row["workers"]), (&"pool_server/mpsc_pool".into(), &workers.into()));
        assert_eq!((&row["part"], &row["bound_per_s"]), (&"sweep".into(), &(f64::from(workers) * 2500.0).into()));
        assert_eq!((&row["requests"], &row["connections"], &row["every"]), (&40.into(), &5.into(), &5.into()));
        let figure = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
        assert!(figure("total_s") > 0.0 && figure("requests_per_s") > 0.0, "{row}");
        assert!(figure("p50_ms") <= figure("p90_ms") && figure("p90_ms") <= figure("max_ms"), "{row}");
        // A fifth of the requests waited.
        assert!(figure("max_ms") >= 2.0 && figure("wait_s") == 0.002, "{row}");
    }
    assert!(measured["environment"]["command"].is_array(), "{measured}");
    let claims = array(&measured["claims"]);
    assert!(!claims.is_empty() && claims.iter().all(|claim| claim["verdict"].is_string()), "{claims:?}");
    let text = dir.read("page.csv");
    let published = polyserve_bench::published::PAGE.lines().next().unwrap();
    assert!(text.starts_with(&format!("{published},")) && text.lines().count() == 3, "{text}");
}

#[test]
fn servers_of_one_size_are_measured_next_to_each_other() {
    let dir = Dir::new("page-again");
    let first = json(&format!("{TINY} --servers=smol,tokio_tcp --workers=1,2 --out={dir}"));
    let cells = dir.recorded(RECORD, "cell");
    assert_eq!(cells.len(), 4);
    // The rows are in the order of the servers.
    let order = |cells: &[Value]| -> Vec<(String, u64)> {
        let server = |cell: &Value| (cell["server"].as_str().unwrap().to_owned(), cell["workers"].as_u64().unwrap());
        cells.iter().map(server).collect()
    };
    let pair = |server: &str, workers: u64| (server.to_owned(), workers);
    assert_eq!(order(&cells), [pair("smol", 1), pair("tokio_tcp", 1), pair("smol", 2), pair("tokio_tcp", 2)]);
    let rows = order(array(&first["rows"]));
    assert_eq!(rows, [pair("smol", 1), pair("smol", 2), pair("tokio_tcp", 1), pair("tokio_tcp", 2)]);
    has(&misused(&format!("{TINY} --servers=smol --workers=3 --out={dir}")), &["not overwritten"]);
    assert_eq!(dir.recorded(RECORD, "cell"), cells);
}

/// The waits are shorter, all else is as published.
#[test]
fn the_published_set_up_is_a_part_of_the_run() {
    let dir = Dir::new("page-published");
    let output = printed(&format!("page --parts=published --page-wait=10ms --servers=smol,pool_server --out={dir}"));
    // Two of the four were run, so a claim is undecided.
    for start in [
        "thread-pool-100 (published)",
        "pool_server/mpsc_pool (here)",
        "pool_server/mpsc_pool (here, from a file)",
        "async-std (published)",
        "smol (here)",
        "smol (here, from a file)",
        "undecided: ",
    ] {
        assert!(output.lines().any(|line| line.starts_with(start)), "{start}: {output}");
    }
    let cells = dir.recorded(RECORD, "cell");
    let of = |cell: &Value| ["published_as", "workers", "page", "part"].map(|name| cell[name].clone());
    let expected = |published_as: &str, workers: Value, page: &str| {
        [published_as.into(), workers, page.into(), "published".into()]
    };
    let pool = |page| expected("thread-pool-100", 100.into(), page);
    let smol = |page| expected("async-std", Value::Null, page);
    assert_eq!(cells.iter().map(of).collect::<Vec<_>>(), [pool("memory"), pool("file"), smol("memory"), smol("file")]);
    for cell in &cells {
        assert!(cell["cpu_us_per_request"].as_f64().unwrap() > 0.0, "{cell}");
        assert!(cell["peak_memory_bytes"].as_u64().unwrap() > 100_000, "{cell}");
        assert!(cell["received_bytes"].as_u64().unwrap() > 1_760_000, "{cell}");
        assert!(cell["phases"]["total"]["max_ms"].as_f64().unwrap() >= 10.0, "{cell}");
    }
    for (file, published) in [
        ("page_rows.csv", polyserve_bench::published::PAGE_ROWS),
        ("page_bytes.csv", polyserve_bench::published::PAGE_BYTES),
    ] {
        let text = dir.read(file);
        assert!(text.starts_with(published.lines().next().unwrap()) && text.lines().count() > 4, "{text}");
    }
    for cell in &cells {
        assert_eq!(
            (&cell["requests"], &cell["connections"], &cell["every"]),
            (&10_000.into(), &100.into(), &10.into())
        );
        assert_eq!(cell["connections_bound_per_s"], 100_000.0);
    }
}

/// The twins that need no build: each is measured, or named with the reason.
#[test]
fn twins_in_other_languages() {
    let dir = Dir::new("page-twins");
    let line =
        format!("page --parts=twins --page-wait=10ms --rounds=1 --servers=twin/node,twin/deno,twin/java --out={dir}");
    let output = run(&line);
    let stdout = text(&output.stdout);
    let cells = dir.recorded(RECORD, "cell");
    for (twin, workers) in [("twin/node", Value::Null), ("twin/deno", Value::Null), ("twin/java", 100.into())] {
        let Some(cell) = cells.iter().find(|cell| cell["server"] == twin) else {
            // Deno is not there if npm cannot install it.
            let why = stdout.lines().find(|line| line.contains(&format!("not run: {twin}: "))).unwrap();
            let _ = writeln!(std::io::stderr(), "{why}");
            continue;
        };
        assert_eq!((&cell["part"], &cell["workers"], &cell["requests"]), (&"twins".into(), &workers, &10_000.into()));
        assert!(stdout.lines().any(|line| line.starts_with(twin)), "{stdout}");
    }
    has(&misused("page --parts=sweep --servers=twin/node"), &["none of these servers"]);
}

/// A server with a wrong answer has no row; the record has the reason, and a rerun does not measure the server again.
#[test]
fn a_failure_is_named_with_its_reason_and_stays_out() {
    let dir = Dir::new("page-failed");
    // No connection may wait for a worker, and no answer comes in time.
    let args = "--servers=pool_server,smol --workers=1 --answer-timeout=1ms --page-wait=300ms";
    for _ in 0..2 {
        let line = format!("page --parts=sweep --requests=40 --connections=5 --page-every=5 {args} --out={dir}");
        has(&text(&ended(1, &line).stdout), &["not run: pool_server/mpsc_pool with 1 workers: "]);
        let failed = dir.recorded(RECORD, "failure");
        assert!(failed.len() == 2 && failed.iter().all(|failed| failed["reason"] == "wrong"), "{failed:?}");
        has(failed[0]["why"].as_str().unwrap(), &["503"]);
    }
    assert_eq!(dir.recorded(RECORD, "cell"), [] as [Value; 0]);
}

/// A server that does not let its number of workers be chosen is measured once. If the connections of a pool hold its
/// threads, it has the bound of a pool.
#[test]
fn a_shape_has_a_bound_of_its_own() {
    let measured = json(&format!("{TINY} --servers=leader_followers,sequential,futures_pool --workers=2,3"));
    let row = |row: &Value| {
        let server = row["server"].as_str().unwrap().to_owned();
        (server, row["workers"].as_u64(), row["bound_per_s"].as_f64().unwrap())
    };
    let mut rows: Vec<_> = array(&measured["rows"]).iter().map(row).collect();
    rows.sort_by(|a, b| a.2.total_cmp(&b.2));
    let expected = [("sequential", None, 2500.0), ("futures_pool", Some(2), 5000.0), ("futures_pool", Some(3), 7500.0)];
    let expected = expected.into_iter().chain([("leader_followers", None, 12_500.0)]);
    assert_eq!(rows, expected.map(|(server, workers, bound)| (server.to_owned(), workers, bound)).collect::<Vec<_>>());
}

/// A server that is not a pool by its shape is not measured: the output names its bound, and the command succeeds.
#[test]
fn by_default_all_with_workers_take_part() {
    let dir = Dir::new("page-default");
    let line = format!("{TINY} --workers=1 --out={dir}");
    let listing = json("list");
    let no_pools = ["sequential", "thread_per_connection", "leader_followers"];
    let is_pool = |entry: &&Value| !no_pools.contains(&entry["name"].as_str().unwrap());
    let pools: Vec<_> = array(&listing["servers"]).iter().filter(is_pool).collect();
    assert!(pools.iter().any(|entry| entry["name"] == "futures_pool"), "{pools:?}");
    let output = printed(&line);
    for entry in pools {
        let name = entry["name"].as_str().unwrap();
        let row = output.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {output}"));
        // Only a server with workers that wait has a bound.
        let holds = entry["promises"].as_str().unwrap().contains("later answers hold a worker");
        assert_eq!(row.split_whitespace().nth(3).unwrap() != "-", holds, "{row}");
    }
    let failed = dir.recorded(RECORD, "failure");
    for (name, bound) in [("sequential", "1 x 5 / 0.002 s = 2500.0"), ("leader_followers", "5 x 5 / 0.002 s = 12500.0")]
    {
        let line = output.lines().find(|line| line.starts_with(&format!("not run: {name}: its shape is no pool")));
        assert!(line.is_some_and(|line| line.contains(bound)), "{name}: {output}");
        let is_recorded = |failed: &Value| failed["server"] == name && failed["reason"] == "not_available";
        assert!(failed.iter().any(is_recorded), "{failed:?}");
    }
    has(&output, &["5 connections ask for at most 5 x 5 / 0.002 s"]);
    printed(&line);
    assert_eq!(dir.recorded(RECORD, "failure"), failed, "a rerun does not record it again");
}
