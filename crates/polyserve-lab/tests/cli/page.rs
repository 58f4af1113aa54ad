//! `polyserve page`: bounds and counts, not how fast anybody is.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{misused, printed};

const TINY: [&str; 5] = ["page", "--requests=40", "--connections=5", "--page-every=5", "--page-wait=2ms"];

fn page(args: &[&str]) -> Value {
    let said = printed(&[&TINY[..], &["--json"], args].concat());
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn a_pools_bound_grows_with_it_and_the_published_columns_come_first() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{}.csv", std::process::id()));
    let _ = fs::remove_file(&file);
    let csv = format!("--csv={}", file.display());
    let measured = page(&["--servers=pool_server", "--workers=2,4", &csv]);
    assert_eq!((&measured["failed"], &measured["interrupted"]), (&Value::Array(Vec::new()), &false.into()));
    assert_eq!(measured["connections_bound_per_s"], 12_500.0);
    let rows = measured["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for (row, workers) in rows.iter().zip([2, 4]) {
        assert_eq!((&row["server"], &row["workers"]), (&"pool_server/mpsc_pool".into(), &workers.into()));
        assert_eq!(row["bound_per_s"], f64::from(workers) * 2500.0);
        assert_eq!((&row["requests"], &row["connections"], &row["every"]), (&40.into(), &5.into(), &5.into()));
        let figure = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
        assert!(figure("total_s") > 0.0 && figure("requests_per_s") > 0.0, "{row}");
        assert!(figure("p50_ms") <= figure("p90_ms") && figure("p90_ms") <= figure("max_ms"), "{row}");
        // A fifth of the requests waited.
        assert!(figure("max_ms") >= 2.0 && figure("wait_s") == 0.002, "{row}");
    }
    assert!(measured["environment"]["command"].is_array(), "{measured}");
    let text = fs::read_to_string(&file).unwrap();
    let published =
        "server,total_s,requests_per_s,mean_ms,p50_ms,p66_ms,p75_ms,p80_ms,p90_ms,p95_ms,p98_ms,p99_ms,max_ms,";
    assert!(text.starts_with(published) && text.lines().count() == 3, "{text}");
    assert!(misused(&[&TINY[..], &[&csv]].concat()).contains("not written over"));
}

/// A server that does not let its workers be chosen takes part once.
#[test]
fn a_shape_has_a_bound_of_its_own() {
    let measured = page(&["--servers=thread_per_connection,sequential", "--workers=2,3"]);
    let rows = measured["rows"].as_array().unwrap();
    let of: Vec<_> = rows.iter().map(|row| (row["server"].as_str().unwrap(), row["bound_per_s"].as_f64())).collect();
    assert_eq!(of, [("thread_per_connection", Some(12_500.0)), ("sequential", Some(2500.0))]);
    assert!(rows.iter().all(|row| row["workers"].is_null()), "{rows:?}");
}

/// A pool whose connections hold its threads was left out of the default, and had the bound of its connections.
#[test]
fn a_pool_that_connections_hold_has_a_pools_bound() {
    let measured = page(&["--servers=futures_pool", "--workers=2,3"]);
    let rows = measured["rows"].as_array().unwrap();
    let of: Vec<_> = rows.iter().map(|row| (row["workers"].as_u64(), row["bound_per_s"].as_f64())).collect();
    assert_eq!(of, [(Some(2), Some(5000.0)), (Some(3), Some(7500.0))]);
}

#[test]
fn by_default_all_with_workers_take_part() {
    let listing: Value = serde_json::from_str(&printed(&["list", "--json"])).unwrap();
    let wanted: Vec<_> = (listing["servers"].as_array().unwrap().iter())
        .filter(|entry| !["sequential", "thread_per_connection"].contains(&entry["name"].as_str().unwrap()))
        .collect();
    assert!(wanted.iter().any(|entry| entry["name"] == "futures_pool"), "{wanted:?}");
    let said = printed(&[&TINY[..], &["--workers=1"]].concat());
    for entry in wanted {
        let name = entry["name"].as_str().unwrap();
        let row = said.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {said}"));
        // Whose workers wait has a bound, all others have none.
        let holds = entry["promises"].as_str().unwrap().contains("later answers hold a worker");
        assert_eq!(row.split_whitespace().nth(3).unwrap() != "-", holds, "{row}");
    }
    assert!(!said.contains("sequential") && !said.contains("thread_per_connection"), "{said}");
    assert!(said.contains("5 connections ask for at most 5 x 5 / 0.002 s"), "{said}");
}

#[test]
fn what_cannot_be_done_is_a_misuse() {
    for (args, why) in [
        (&["--servers=nobody"][..], "no server \"nobody\""),
        (&["--workers=0"], "--workers \"0\""),
        (&["--workers=1,x"], "from 1 to 4096"),
        (&["--connections=0"], "--connections 0"),
        (&["--connections=900000"], "--connections may be"),
        (&["--requests=0"], "--requests"),
        (&["--page-every=0"], "--page-every"),
        (&["--page-wait=0s"], "--page-wait"),
        (&["--csv=/no/such/dir/file"], "cannot be made"),
        (&["--client-cores=1000"], "there is no core 1000"),
        (&["--max-body=x"], "--max-body"),
    ] {
        let said = misused(&[&["page"], args].concat());
        assert!(said.contains(why), "{args:?}: {said}");
    }
}
