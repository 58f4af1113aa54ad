//! `polyserve scale --in-process` and `polyserve seam`: records are complete, and reruns resume. No test asserts a
//! speed.

use serde_json::Value;

use super::{Dir, array, ended, has, json, misused, printed, text};

const TINY: &str = "scale --in-process --slice=10ms --rounds=2";
const SEAM: &str = "seam --keys=100 --rounds=2 --threads=1,2 --stores=dashmap";
const RECORD: &str = "scale-in-process.jsonl";

/// The cells of workloads that have operations, and those of memory.
fn cells(dir: &Dir, record: &str) -> [Vec<Value>; 2] {
    let (memory, operations) = dir.recorded(record, "cell").into_iter().partition(|cell| cell["workload"] == "memory");
    [operations, memory]
}

#[test]
fn workloads_are_recorded_and_a_rerun_goes_on() {
    let dir = Dir::new("stores-record");
    let places = "--repos=two_level,bare/dashmap,bare/hash_map --axis=keys --points=10,60000 --workers=2";
    let loads = "--workload=read,churn,insert,memory --dist=uniform,zipf:0.99,hot";
    let line = format!("{TINY} {places} {loads} --out={dir}");
    let output = printed(&line);
    has(&output, &["keys: read zipf:0.99; medians of 2 rounds", "keys: churn", "keys: memory", "of bare/dashmap"]);
    has(&output, &["bare/dashmap (again)", "bare/hash_map, 10 keys: not run: it is for one thread"]);
    has(&output, &["with one reading of the clock", "too few rounds: a verdict needs 10"]);
    let recorded = dir.lines(RECORD);
    // Operations: three distributions of reads, churn and insert; three entries, two points, two rounds.
    let [operations, memory] = cells(&dir, RECORD);
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
    let csv = dir.read("scale-in-process.csv");
    assert_eq!(csv.lines().count(), 1 + 60 + 16, "{csv}");
    assert!(csv.starts_with("axis,x,name,round,keys,threads,payload_bytes,workload,dist,operations,"), "{csv}");

    let report = json(&line);
    let memory = array(&report["memory"]);
    let of = |name: &str| memory.iter().find(|point| point["name"] == name && point["x"] == 60_000).unwrap();
    assert_eq!(of("bare/hash_map")["of_plain"].as_f64(), Some(1.0));
    assert!(of("two_level")["of_plain"].as_f64() > Some(0.0), "{memory:?}");
    assert!(memory.iter().filter(|point| point["x"] == 10).all(|point| point["filled"].is_null()), "too few to tell");
    assert_eq!(dir.recorded(RECORD, "cell").len(), 60 + 16, "nothing is measured again");
    has(&misused(&format!("{line} --seed=9")), &["not overwritten"]);
}

#[test]
fn axes_move_what_they_are_named_after() {
    let dir = Dir::new("stores-axes");
    for (axis, points, field, of_memory) in
        [("workers", "1,3", "threads", 0), ("payload", "1,2111", "payload_bytes", 8)]
    {
        let args = format!("--axis={axis} --points={points} --keys=20 --repos=dashmap --workload=50/50,memory");
        printed(&format!("{TINY} {args} --name={axis}-1 --out={dir}"));
        let [operations, memory] = cells(&dir, &format!("{axis}-1.jsonl"));
        assert!(operations.iter().chain(&memory).all(|cell| cell[field] == cell["x"]));
        assert_eq!((operations.len(), memory.len()), (8, of_memory));
    }
}

/// A store that is not filled in time is in the table and in the record, and a rerun does not wait for it again.
#[test]
fn a_store_that_is_not_filled_in_time_is_shown() {
    let dir = Dir::new("stores-limit");
    let args = "--repos=two_level --axis=keys --points=10000000 --workload=read --limit=10ms";
    for _ in 0..2 {
        let output = printed(&format!("{TINY} {args} --out={dir}"));
        has(&output, &["two_level did not finish filling 10000000 keys in 0.01 s: it got to "]);
        let timed_out = dir.lines(RECORD).into_iter().filter(|line| line["reason"] == "timed_out");
        assert_eq!(timed_out.count(), 2, "and the second entry");
    }
}

/// Each repo that is a map is compared with that map, or with another store if the command line names it.
#[test]
fn the_seam_is_measured_in_turns() {
    let dir = Dir::new("seam");
    let report = json(&format!("{SEAM} --out={dir}"));
    let rows = array(&report["rows"]);
    assert_eq!(rows.len(), 4, "one and two threads, dependent and independent gets: {report}");
    for row in rows {
        assert_eq!((&row["name"], &row["baseline"]), (&"dashmap".into(), &"bare/dashmap".into()));
        assert!(row["time"]["ratio"].as_f64() > Some(0.0) && row["same"]["rounds"] == 1, "one filling: {row}");
    }
    assert_eq!(dir.lines("seam.jsonl")[0]["experiment"], "seam");
    assert_eq!(dir.recorded("seam.jsonl", "turn").len(), 3 * 2 * 2 * 2);
    let typed = printed("seam --keys=50 --rounds=1 --threads=1 --stores=typed/sharded,typed/scc");
    has(&typed, &["typed/sharded  bare/dashmap", "typed/sharded   bare/papaya", "typed/scc"]);
    let all = printed("seam --keys=50 --rounds=1 --threads=1 --baseline=bare/papaya");
    has(&all, &["two_level", "bare/hash_map", "bare/scc", "gets (M/s)", "too few fillings"]);
    let above = text(&ended(1, &format!("{SEAM} --at-most=0.000001 --lookups=dependent")).stdout);
    has(&above, &["above 0.000001: dashmap against bare/dashmap, 2 threads, dependent gets: up to"]);
    assert!(!above.contains("independent"), "{above}");
}
