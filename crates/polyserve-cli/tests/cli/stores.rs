//! `polyserve scale --in-process` and `polyserve seam`: that what is measured is whole, kept and gone on from, not how fast
//! anything is.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{misused, printed, run, text};

const TINY: [&str; 4] = ["scale", "--in-process", "--slice=10ms", "--rounds=2"];
const SEAM: [&str; 5] = ["seam", "--keys=100", "--rounds=2", "--threads=1,2", "--json"];

fn fresh(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stores-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    dir
}

fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).expect("there is a record");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

fn count(lines: &[Value], kind: &str) -> usize {
    lines.iter().filter(|line| line["kind"] == kind).count()
}

/// The cells of workloads that have operations, and those of memory.
fn cells(lines: &[Value]) -> [Vec<&Value>; 2] {
    let cells = lines.iter().filter(|line| line["kind"] == "cell");
    let (memory, operations) = cells.partition(|cell| cell["workload"] == "memory");
    [operations, memory]
}

#[test]
fn workloads_are_recorded_and_a_rerun_goes_on() {
    let dir = fresh("record");
    let (out, file) = (format!("--out={}", dir.display()), dir.join("scale-in-process.jsonl"));
    let args = ["--repos=two_level,bare/dashmap,bare/hash_map", "--axis=keys", "--points=10,60000", "--workers=2"];
    let more = ["--workload=read,churn,insert,memory", "--dist=uniform,zipf:0.99,hot", &out];
    let said = printed(&[&TINY[..], &args, &more].concat());
    for wanted in [
        "keys: read zipf:0.99; medians of 2 rounds",
        "keys: churn",
        "keys: memory",
        "OF bare/dashmap",
        "bare/dashmap (again)",
        "bare/hash_map, 10 keys: not run: it is for one thread",
        "with a look at the clock in it",
        "too few rounds: a verdict needs 10",
    ] {
        assert!(said.contains(wanted), "{wanted} is not in\n{said}");
    }
    let recorded = lines(&file);
    // Three laws of reading, churn and insertion of three entries at two places, twice.
    let [operations, memory] = cells(&recorded);
    assert_eq!(
        (recorded[0]["experiment"].as_str(), operations.len(), memory.len()),
        (Some("stores"), 5 * 3 * 2 * 2, 4 * 2 * 2)
    );
    assert_eq!(recorded.iter().filter(|line| line["reason"] == "not_available").count(), 2);
    for cell in operations {
        assert!(cell["per_s"].as_f64() > Some(0.0) && cell["p999_us"].as_f64() > Some(0.0), "{cell}");
        assert_eq!((&cell["keys"], cell["threads"].as_u64()), (&cell["x"], Some(2)), "{cell}");
        assert!(cell["clock_ns"].as_u64() > Some(0) && cell["windowed_per_s"].is_null(), "{cell}");
    }
    let csv = fs::read_to_string(dir.join("scale-in-process.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 60 + 16, "{csv}");
    assert!(csv.starts_with("axis,x,name,round,keys,threads,payload_bytes,workload,dist,operations,"), "{csv}");

    let rerun = printed(&[&TINY[..], &args, &more, &["--json"]].concat());
    let report: Value = serde_json::from_str(&rerun).unwrap();
    let memory = report["memory"].as_array().unwrap();
    let of = |name: &str| memory.iter().find(|point| point["name"] == name && point["x"] == 60_000).unwrap();
    assert_eq!(of("bare/hash_map")["of_plain"].as_f64(), Some(1.0));
    assert!(of("two_level")["of_plain"].as_f64() > Some(0.0), "{memory:?}");
    assert!(memory.iter().filter(|point| point["x"] == 10).all(|point| point["filled"].is_null()), "too few to tell");
    assert_eq!(count(&lines(&file), "cell"), 60 + 16, "nothing is measured again");
    assert!(misused(&[&TINY[..], &args, &more, &["--seed=9"]].concat()).contains("not written over"));
}

#[test]
fn axes_move_what_they_are_named_after() {
    let dir = fresh("axes");
    let out = format!("--out={}", dir.display());
    for (axis, points, field) in [("workers", "1,3", "threads"), ("payload", "0,2000", "payload_bytes")] {
        let name = format!("--name={axis}-1");
        let args = [&format!("--axis={axis}")[..], &format!("--points={}", points.replace('0', "1")), "--keys=20"];
        printed(&[&TINY[..], &args, &["--repos=dashmap", "--workload=50/50,memory", &out, &name]].concat());
        let recorded = lines(&dir.join(format!("{axis}-1.jsonl")));
        assert!(recorded.iter().filter(|line| line["kind"] == "cell").all(|cell| cell[field] == cell["x"]));
        let [operations, memory] = cells(&recorded).map(|cells| cells.len());
        assert_eq!((operations, memory), (8, if axis == "payload" { 8 } else { 0 }));
    }
}

/// A store that is not filled in time is in the table and in the record, and a rerun does not wait for it again.
#[test]
fn a_store_that_is_not_filled_in_time_is_shown() {
    let dir = fresh("limit");
    let out = format!("--out={}", dir.display());
    let args = ["--repos=two_level", "--axis=keys", "--points=10000000", "--workload=read", "--limit=10ms", &out];
    for _ in 0..2 {
        let said = printed(&[&TINY[..], &args].concat());
        assert!(said.contains("two_level did not finish filling 10000000 keys in 0.01 s: it got to "), "{said}");
        let recorded = lines(&dir.join("scale-in-process.jsonl"));
        let timed_out = recorded.iter().filter(|line| line["reason"] == "timed_out");
        assert_eq!(timed_out.count(), 2, "and the second entry");
    }
}

#[test]
fn what_would_not_fit_into_memory_is_refused_by_name() {
    let args = ["--repos=two_level", "--axis=keys", "--points=10000000", "--payload=1000000"];
    let said = misused(&[&TINY[..], &args].concat());
    assert!(said.contains("there is nothing to measure: it may need 10"), "{said}");
    let said = misused(&["seam", "--payload=1000000", "--keys=10000000"]);
    assert!(said.contains("6 stores and what is asked of them may need") && said.contains("at once"), "{said}");
}

/// Each repo that is a map is compared with that map, or with another store if the command line names it.
#[test]
fn the_seam_is_measured_in_turns() {
    let dir = fresh("seam");
    let out = format!("--out={}", dir.display());
    let report: Value = serde_json::from_str(&printed(&[&SEAM[..], &["--stores=dashmap", &out]].concat())).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4, "one and two threads, dependent and independent gets: {report}");
    for row in rows {
        assert_eq!((&row["name"], &row["baseline"]), (&"dashmap".into(), &"bare/dashmap".into()));
        assert!(row["time"]["ratio"].as_f64() > Some(0.0) && row["same"]["rounds"] == 2, "{row}");
    }
    let recorded = lines(&dir.join("seam.jsonl"));
    assert_eq!((recorded[0]["experiment"].as_str(), count(&recorded, "turn")), (Some("seam"), 3 * 2 * 2 * 2));
    let typed = printed(&["seam", "--keys=50", "--rounds=1", "--threads=1", "--stores=typed/sharded,typed/scc"]);
    for wanted in ["typed/sharded  bare/dashmap", "typed/sharded   bare/papaya", "typed/scc"] {
        assert!(typed.contains(wanted), "{wanted} is not in\n{typed}");
    }
    let all = printed(&["seam", "--keys=50", "--rounds=1", "--threads=1", "--baseline=bare/papaya"]);
    for wanted in ["two_level", "bare/hash_map", "bare/scc", "M GETS/S", "too few rounds"] {
        assert!(all.contains(wanted), "{wanted} is not in\n{all}");
    }
    let above = run(&[&SEAM[..4], &["--stores=dashmap", "--at-most=0.000001", "--lookups=dependent"]].concat());
    assert_eq!(above.status.code(), Some(1), "{}", text(&above.stderr));
    let said = text(&above.stdout);
    assert!(said.contains("above 0.000001: dashmap against bare/dashmap, 2 threads, dependent gets: up to"), "{said}");
    assert!(!said.contains("independent"), "{said}");
}

#[test]
fn what_cannot_be_done_is_a_misuse() {
    for (args, why) in [
        (&["scale", "--in-process", "--axis=connections"][..], "in process there are none"),
        (&["scale", "--in-process", "--servers=tokio_tcp"], "cannot be used with"),
        (&["scale", "--in-process", "--mix=get=1"], "cannot be used with"),
        (&["scale", "--in-process", "--points=1"], "--points needs one --axis"),
        (&["scale", "--in-process", "--axis=workers", "--points=100000"], "workers are 4096 at most"),
        (&["scale", "--in-process", "--repos=nothing"], "no repo \"nothing\""),
        (&["scale", "--in-process", "--repos=bare/nothing"], "there are bare/hash_map"),
        (&["scale", "--in-process", "--baseline=nothing"], "no repo \"nothing\""),
        (&["scale", "--in-process", "--workload=write"], "50/50"),
        (&["scale", "--in-process", "--dist=zipf"], "zipf:0.99"),
        (&["scale", "--in-process", "--slice=1ms"], "--slice"),
        (&["scale", "--workload=read"], "--in-process"),
        (&["scale", "--cell={}"], "is no point"),
        (&["seam", "--stores=two_level"], "two_level is made of no map"),
        (&["seam", "--stores=typed/actor"], "there are typed/std_mutex"),
        (&["seam", "--stores=nothing"], "no repo \"nothing\""),
        (&["seam", "--baseline=bare/hash_map"], "bare/hash_map is for one thread"),
        (&["seam", "--threads=0"], "--threads"),
        (&["seam", "--lookups=both"], "--lookups"),
        (&["seam", "--visit={}"], "is none"),
        (&["seam", "--at-most=nan"], "--at-most"),
    ] {
        let said = misused(args);
        assert!(said.contains(why), "{args:?}: {said}");
    }
}

/// A process of its own that was told a repo that it does not have.
#[test]
fn a_point_that_cannot_be_measured_is_an_error() {
    let cell = r#"{"store":"nothing","threads":1,"keys":1,"payload_bytes":1,"loads":[],"seed":0,"warm_up_s":0.1,"time_s":0.1,"limit_s":1}"#;
    let output = run(&["scale", &format!("--cell={cell}")]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no repo \"nothing\""), "{}", text(&output.stderr));
}
