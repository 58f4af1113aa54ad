//! `polyserve page`: bounds and counts, no speeds.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{misused, printed, run, text};

const TINY: [&str; 6] =
    ["page", "--parts=sweep", "--requests=40", "--connections=5", "--page-every=5", "--page-wait=2ms"];

fn page(args: &[&str]) -> Value {
    let said = printed(&[&TINY[..], &["--json"], args].concat());
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// A new directory of this test, and the flag that names it.
fn fresh(name: &str) -> (PathBuf, String) {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    let flag = format!("--out={}", dir.display());
    (dir, flag)
}

/// The record's lines of this kind.
fn recorded(dir: &Path, kind: &str) -> Vec<Value> {
    let text = fs::read_to_string(dir.join("page.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["kind"] == kind).collect()
}

#[test]
fn a_pools_bound_grows_with_it_and_the_published_columns_come_first() {
    let (dir, out) = fresh("csv");
    let measured = page(&["--servers=pool_server", "--workers=2,4", &out]);
    assert_eq!((&measured["failed"], &measured["interrupted"]), (&Value::Array(Vec::new()), &false.into()));
    assert_eq!(measured["connections_bound_per_s"], 12_500.0);
    let rows = measured["rows"].as_array().unwrap();
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
    let claims = measured["claims"].as_array().unwrap();
    assert!(!claims.is_empty() && claims.iter().all(|claim| claim["verdict"].is_string()), "{claims:?}");
    let text = fs::read_to_string(dir.join("page.csv")).unwrap();
    let published = polyserve_experiments::published::PAGE.lines().next().unwrap();
    assert!(text.starts_with(&format!("{published},")) && text.lines().count() == 3, "{text}");
}

#[test]
fn servers_of_one_size_are_measured_next_to_each_other() {
    let (dir, out) = fresh("again");
    let args = ["--servers=smol,tokio_tcp", "--workers=1,2", &out];
    let first = page(&args);
    let cells = recorded(&dir, "cell");
    assert_eq!(cells.len(), 4);
    // The rows are in the order of the servers.
    let order = |cells: &[Value]| -> Vec<(String, u64)> {
        let server = |cell: &Value| (cell["server"].as_str().unwrap().to_owned(), cell["workers"].as_u64().unwrap());
        cells.iter().map(server).collect()
    };
    let [smol, tokio] = ["smol", "tokio_tcp"].map(String::from);
    let all = [(smol.clone(), 1), (tokio.clone(), 1), (smol.clone(), 2), (tokio.clone(), 2)];
    assert_eq!(order(&cells), all);
    assert_eq!(
        order(first["rows"].as_array().unwrap()),
        [(smol.clone(), 1), (smol, 2), (tokio.clone(), 1), (tokio, 2)]
    );
    let other = misused(&[&TINY[..], &["--servers=smol", "--workers=3", &out]].concat());
    assert!(other.contains("not written over"), "{other}");
    assert_eq!(recorded(&dir, "cell"), cells);
}

/// The waits are shorter, all else is as published.
#[test]
fn the_published_set_up_is_a_part_of_the_run() {
    let (dir, out) = fresh("published");
    let args = ["page", "--parts=published", "--page-wait=10ms", "--servers=smol,pool_server", &out];
    let said = printed(&args);
    for line in ["thread-pool-100 (published)", "pool_server/mpsc_pool (here)", "async-std (published)", "smol (here)"]
    {
        assert!(said.lines().any(|said| said.starts_with(line)), "{line}: {said}");
    }
    // Two of the four were run.
    assert!(said.lines().any(|line| line.starts_with("undecided: ")), "{said}");
    let cells = recorded(&dir, "cell");
    let of: Vec<_> = cells.iter().map(|cell| (&cell["published_as"], &cell["workers"], &cell["part"])).collect();
    let part = &"published".into();
    assert_eq!(of, [(&"thread-pool-100".into(), &100.into(), part), (&"async-std".into(), &Value::Null, part)]);
    for cell in &cells {
        assert_eq!(
            (&cell["requests"], &cell["connections"], &cell["every"]),
            (&10_000.into(), &100.into(), &10.into())
        );
        assert_eq!(cell["connections_bound_per_s"], 100_000.0);
    }
}

/// A server with a wrong answer has no row; the record has the reason, and a rerun does not measure the server again.
#[test]
fn a_failure_is_named_with_its_reason_and_stays_out() {
    let (dir, out) = fresh("failed");
    // No connection may wait for a worker, and no answer comes in time.
    let args = ["--servers=pool_server,smol", "--workers=1", "--answer-timeout=1ms", "--page-wait=300ms", &out];
    for _ in 0..2 {
        let output = run(&[&TINY[..5], &args[..]].concat());
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        let said = text(&output.stdout);
        assert!(said.contains("not run: pool_server/mpsc_pool with 1 workers: "), "{said}");
        let failed = recorded(&dir, "failure");
        assert!(failed.len() == 2 && failed.iter().all(|failed| failed["reason"] == "wrong"), "{failed:?}");
    }
    assert_eq!(recorded(&dir, "cell"), [] as [Value; 0]);
    assert!(recorded(&dir, "failure")[0]["why"].as_str().unwrap().contains("503"));
}

/// A server that does not let its number of workers be chosen is measured once.
#[test]
fn a_shape_has_a_bound_of_its_own() {
    let measured = page(&["--servers=leader_followers,sequential", "--workers=2,3"]);
    let rows = measured["rows"].as_array().unwrap();
    let of: Vec<_> = rows.iter().map(|row| (row["server"].as_str().unwrap(), row["bound_per_s"].as_f64())).collect();
    assert_eq!(of, [("leader_followers", Some(12_500.0)), ("sequential", Some(2500.0))]);
    assert!(rows.iter().all(|row| row["workers"].is_null()), "{rows:?}");
}

/// If the connections of a pool hold its threads, it has the bound of a pool.
#[test]
fn a_pool_that_connections_hold_has_a_pools_bound() {
    let measured = page(&["--servers=futures_pool", "--workers=2,3"]);
    let rows = measured["rows"].as_array().unwrap();
    let of: Vec<_> = rows.iter().map(|row| (row["workers"].as_u64(), row["bound_per_s"].as_f64())).collect();
    assert_eq!(of, [(Some(2), Some(5000.0)), (Some(3), Some(7500.0))]);
}

/// A server that is not a pool by its shape is not measured: the output names its bound, and the command succeeds.
#[test]
fn by_default_all_with_workers_take_part() {
    let (dir, out) = fresh("default");
    let listing: Value = serde_json::from_str(&printed(&["list", "--json"])).unwrap();
    let wanted: Vec<_> = (listing["servers"].as_array().unwrap().iter())
        .filter(|entry| {
            !["sequential", "thread_per_connection", "leader_followers"].contains(&entry["name"].as_str().unwrap())
        })
        .collect();
    assert!(wanted.iter().any(|entry| entry["name"] == "futures_pool"), "{wanted:?}");
    let said = printed(&[&TINY[..], &["--workers=1", &out]].concat());
    for entry in wanted {
        let name = entry["name"].as_str().unwrap();
        let row = said.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {said}"));
        // Only a server with workers that wait has a bound.
        let holds = entry["promises"].as_str().unwrap().contains("later answers hold a worker");
        assert_eq!(row.split_whitespace().nth(3).unwrap() != "-", holds, "{row}");
    }
    let failed = recorded(&dir, "failure");
    for (name, bound) in [("sequential", "1 x 5 / 0.002 s = 2500.0"), ("leader_followers", "5 x 5 / 0.002 s = 12500.0")]
    {
        let line = said.lines().find(|line| line.starts_with(&format!("not run: {name}: its shape is no pool")));
        assert!(line.is_some_and(|line| line.contains(bound)), "{name}: {said}");
        assert!(
            failed.iter().any(|failed| failed["server"] == name && failed["reason"] == "not_available"),
            "{failed:?}"
        );
    }
    assert!(said.contains("5 connections ask for at most 5 x 5 / 0.002 s"), "{said}");
    printed(&[&TINY[..], &["--workers=1", &out]].concat());
    assert_eq!(recorded(&dir, "failure"), failed, "a rerun does not record it again");
}

#[test]
fn what_cannot_be_done_is_a_misuse() {
    for (args, why) in [
        (&["--servers=nothing"][..], "no server \"nothing\""),
        (&["--workers=0"], "--workers \"0\""),
        (&["--workers=1,x"], "from 1 to 4096"),
        (&["--connections=0"], "--connections 0"),
        (&["--connections=900000"], "--connections may be"),
        (&["--requests=0"], "--requests"),
        (&["--page-every=0"], "--page-every"),
        (&["--page-wait=0s"], "--page-wait"),
        (&["--parts=any"], "--parts"),
        (&["--parts=published", "--servers=sequential"], "none of these servers"),
        (&["--client-cores=1000"], "there is no core 1000"),
        (&["--max-body=x"], "--max-body"),
    ] {
        let said = misused(&[&["page"], args].concat());
        assert!(said.contains(why), "{args:?}: {said}");
    }
}
