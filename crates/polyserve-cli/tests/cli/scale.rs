//! `polyserve scale`: points and their records. No test asserts how a figure grows.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{misused, printed};

const TINY: [&str; 4] = ["scale", "--slice=150ms", "--rounds=2", "--keys=20"];

fn fresh(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("scale-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    dir
}

fn scale(args: &[&str]) -> Value {
    let said = printed(&[&["scale", "--json"], &TINY[2..], args].concat());
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// The figures of a point.
const FIGURES: [&str; 7] =
    ["per_s", "cpu_us", "p50_us", "p99_us", "loaded_bytes", "server_busy_pct", "client_busy_pct"];

/// The first figure that a point lacks.
fn lacking(report: &Value) -> Option<String> {
    let points = report["points"].as_array().unwrap().iter();
    let mut figures = points.flat_map(|point| FIGURES.map(|figure| (figure, point)));
    let (figure, point) = figures.find(|(figure, point)| point[figure].as_f64().is_none_or(|value| value <= 0.0))?;
    Some(format!("{figure}: {point}"))
}

/// Runs it so that every point has all its figures. Returns the arguments and the report. On a busy machine a short slice
/// can end without an answer or without a look at the memory. Then it is run again with a longer slice. A figure that is
/// never measured is lacking with the longest slice too.
fn whole<'a>(dir: &Path, args: &[&'a str]) -> (Vec<&'a str>, Value) {
    let mut lacks = None;
    for slice in ["--slice=150ms", "--slice=600ms", "--slice=2400ms"] {
        let _ = fs::remove_dir_all(dir);
        let args = [args, &[slice]].concat();
        let report = scale(&args);
        lacks = lacking(&report);
        if lacks.is_none() {
            return (args, report);
        }
    }
    panic!("{lacks:?}");
}

fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).expect("there is a record");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

fn count(lines: &[Value], kind: &str) -> usize {
    lines.iter().filter(|line| line["kind"] == kind).count()
}

#[test]
fn points_are_recorded() {
    let dir = fresh("record");
    let (out, file) = (format!("--out={}", dir.display()), dir.join("scale.jsonl"));
    let (args, report) = whole(&dir, &["--axis=connections", "--points=2,8", "--servers=pool_server,tokio_tcp", &out]);
    assert_eq!((&report["rounds"], &report["interrupted"]), (&2.into(), &false.into()));
    assert_eq!((&report["failed"], &report["not_run"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    assert_eq!(report["points"].as_array().unwrap().len(), 4);
    let of = |metric: &str, law: &str| {
        let growth = report["growth"].as_array().unwrap().iter();
        growth.filter(|growth| growth["metric"] == metric && growth["law"] == law).count()
    };
    assert_eq!((of("throughput", "power"), of("cpu", "power"), of("memory", "line")), (2, 2, 2), "{report}");
    let recorded = lines(&file);
    assert_eq!(
        (recorded[0]["kind"].as_str(), count(&recorded, "rate"), count(&recorded, "cell")),
        (Some("environment"), 1, 8)
    );
    let rate = &recorded.iter().find(|line| line["kind"] == "rate").unwrap()["requests_per_s"];
    let cells = || recorded.iter().filter(|line| line["kind"] == "cell");
    let bytes = |cell: &Value, when: &str| cell[when].as_u64() > Some(0);
    assert!(cells().all(|cell| bytes(cell, "start_bytes") && bytes(cell, "filled_bytes")), "{recorded:?}");
    assert!(cells().all(|cell| cell["rate_per_s"] == *rate && cell["connections"] == cell["x"]), "{recorded:?}");
    let csv = fs::read_to_string(dir.join("scale.csv")).unwrap();
    assert!(
        csv.starts_with("axis,x,name,round,connections,keys,workers,payload_bytes,answered,elapsed_s,per_s,"),
        "{csv}"
    );
    assert_eq!(
        (csv.lines().count(), csv.contains("connections,8,tokio_tcp/two_level,2,8,20,,15,")),
        (9, true),
        "{csv}"
    );
    let growth = fs::read_to_string(dir.join("scale-growth.csv")).unwrap();
    assert!(growth.contains("connections,tokio_tcp/two_level,memory,line,"), "{growth}");

    let same = scale(&args);
    assert_eq!((&same["points"], &same["growth"]), (&report["points"], &report["growth"]));
    assert!(misused(&[&["scale"], &TINY[2..], &args, &["--seed=9"]].concat()).contains("not written over"));
}

#[test]
fn every_axis_moves_what_it_is_named_after() {
    let dir = fresh("axes");
    let out = format!("--out={}", dir.display());
    for (axis, points, field) in
        [("keys", "10,30", "keys"), ("workers", "1,2", "workers"), ("payload", "15,2000", "payload_bytes")]
    {
        let name = format!("--name={axis}-1");
        let args = [&format!("--axis={axis}")[..], &format!("--points={points}"), "--servers=tokio_tcp", "--rounds=1"];
        let report: Value = serde_json::from_str(&printed(
            &[&["scale", "--slice=50ms", "--keys=20", "--json", "--connections=3", &out, &name], &args[..]].concat(),
        ))
        .unwrap();
        assert_eq!(report["points"].as_array().unwrap().len(), 2, "{report}");
        let recorded = lines(&dir.join(format!("{axis}-1.jsonl")));
        for cell in recorded.iter().filter(|line| line["kind"] == "cell") {
            assert_eq!((&cell[field], &cell["connections"]), (&cell["x"], &3.into()), "{cell}");
        }
    }
}

/// A server without a choice of workers is listed on that axis, and measured on the others.
#[test]
fn a_contestant_that_is_left_out_is_named() {
    let args = ["--axis=workers,connections", "--servers=leader_followers,sequential", "--rounds=1", "--quick"];
    let said = printed(&[&TINY[..2], &["--keys=5", "--connections=4", "--json"], &args[..]].concat());
    let report: Value = serde_json::from_str(&said).unwrap();
    let not_run = report["not_run"].as_array().unwrap();
    let why = |axis: &str, name: &str| {
        let is_it = |one: &&Value| one["axis"] == axis && one["name"] == name;
        not_run.iter().filter(is_it).map(|one| one["why"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(why("workers", "leader_followers/two_level")[0].contains("workers"), "{not_run:?}");
    let bounds = why("connections", "sequential/two_level");
    assert!(!bounds.is_empty() && bounds.iter().all(|why| why.contains("another connection may wait")), "{bounds:?}");
    assert_eq!(why("connections", "leader_followers/two_level"), [] as [String; 0]);
    assert!(report["points"].as_array().unwrap().iter().all(|point| point["axis"] == "connections"), "{report}");
}

#[test]
fn for_people_growth_is_said_in_words() {
    let said = printed(&[&TINY[..], &["--axis=payload", "--points=15,500,4000", "--servers=pool_server"]].concat());
    for wanted in [
        "payload: medians of 2 rounds",
        "CPU/REQUEST",
        "CPU per request of pool_server/mpsc_pool/two_level",
        "as payload^",
        "too few rounds: intervals",
    ] {
        assert!(said.contains(wanted), "{wanted} is not in\n{said}");
    }
}

#[test]
fn what_cannot_be_done_is_a_misuse() {
    for (args, why) in [
        (&["--axis=size"][..], "connections"),
        (&["--points=1"], "--points needs one --axis"),
        (&["--axis=keys", "--points=0"], "--points"),
        (&["--axis=workers", "--points=100000"], "workers are 4096 at most"),
        (&["--axis=payload", "--points=16384", "--max-body=20000"], "above 10000"),
        (&["--servers=missing"], "no server \"missing\""),
        (&["--repos=nothing"], "no repo \"nothing\""),
        (&["--servers=sequential", "--axis=connections", "--points=10"], "nothing to measure"),
        (&["--slice=1ms"], "--slice"),
        (&["--rounds=0"], "--rounds"),
        (&["--name=x"], "--out"),
        (&["--client-cores=1000"], "there is no core 1000"),
    ] {
        let said = misused(&[&["scale"], args].concat());
        assert!(said.contains(why), "{args:?}: {said}");
    }
}
