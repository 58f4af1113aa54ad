//! The mode `store` of `polyserve bench`: every definition runs, records are complete, and reruns resume. No test asserts a speed.

use serde_json::Value;

use super::{Dir, array, has, json, misused, printed, texts};

/// A part of each definition that takes a moment.
const TINY: &str = "--set workload.keys=200 --set mode.slice=10ms --set mode.warm_up=10ms --set rounds=2";

fn rows_of<'a>(report: &'a Value, name: &str) -> Vec<&'a Value> {
    array(&report["rows"]).iter().filter(|row| row["contestant"] == name).collect()
}

#[test]
fn operations_are_recorded_and_a_rerun_goes_on() {
    let dir = Dir::new("stores-record");
    let sweep = "--set sweep.operation=[\"read\",\"churn\",\"insert\"] --set sweep.workers=[1,2]";
    let line = format!("bench stores {TINY} {sweep} --only=two_level --out={dir}");
    let report = json(&line);
    assert_eq!(report["compared"], "operations_per_s");
    for (name, role) in [("bare/dashmap", "baseline"), ("bare/dashmap (again)", "same"), ("two_level", "ranked")] {
        let rows = rows_of(&report, name);
        assert_eq!(rows.len(), 6, "{name}: {report}");
        for row in rows {
            assert_eq!(row["role"], role, "{row}");
            let figures = &row["figures"];
            assert!(
                figures["operations_per_s"].as_f64() > Some(0.0) && figures["p999_us"].as_f64() > Some(0.0),
                "{row}"
            );
            assert!(
                figures["clock_us"].as_f64() > Some(0.0) && figures["windowed_operations_per_s"].is_null(),
                "{row}"
            );
        }
    }
    assert_eq!(dir.recorded("stores.jsonl", "row").len(), 3 * 6 * 2);
    has(&dir.read("stores.csv"), &["contestant,workers,operation,round,", "two_level,2,churn,2,"]);
    let text = printed(&line);
    has(&text, &["Nothing is decided: the run has 2 rounds", "the best by workers", "two_level", "of bare/dashmap"]);
    has(&text, &["p50, p99: of one operation in 64", "200 entities of 15 bytes"]);
    assert_eq!(dir.recorded("stores.jsonl", "row").len(), 36, "nothing is measured again");
    has(&misused(&format!("{line} --seed=9")), &["not overwritten"]);
}

#[test]
fn stores_of_known_types_and_skewed_ids_are_measured() {
    let sweep = "--set sweep={dist=[\"zipf:0.99\",\"hot\"],payload=[1,2111]}";
    let report = json(&format!("bench stores-typed --quick {TINY} {sweep} --set workload.workers=2"));
    assert_eq!(rows_of(&report, "typed/sharded").len(), 4, "{report}");
    assert_eq!(array(&report["failed"]).len(), 0, "{report}");
}

/// A map for one thread is left out elsewhere. A store that is not filled in time has no figures, and a rerun does not wait again.
#[test]
fn a_store_that_cannot_be_measured_is_shown() {
    let dir = Dir::new("stores-limit");
    let changes = "--set workload.keys=10000000 --set mode.limit=10ms --set sweep={workers=[2]} --set rounds=1";
    for _ in 0..2 {
        let output = printed(&format!("bench stores {changes} --only=hash_map --out={dir}"));
        has(&output, &["not run: bare/hash_map, workers 2: it is for one thread, of 2"]);
        has(
            &output,
            &[
                "no figures: round 1: bare/dashmap, workers 2: bare/dashmap did not finish filling 10000000 keys in 10ms",
            ],
        );
        assert_eq!(dir.lines("stores.jsonl").iter().filter(|line| line["reason"] == "timed_out").count(), 2);
    }
}

#[test]
fn memory_is_compared_by_entity() {
    let report = json("bench stores-memory --set workload.keys=60000 --only=packed");
    assert_eq!(report["compared"], "filled_bytes_per_entity");
    for name in ["packed", "bare/hash_map"] {
        let figures = &rows_of(&report, name)[0]["figures"];
        assert!(figures["filled_bytes_per_entity"].as_f64() > Some(0.0) && figures["emptied_s"].is_f64(), "{figures}");
    }
    let few = json("bench stores-memory --set workload.keys=10 --only=packed");
    assert!(rows_of(&few, "packed")[0]["figures"]["filled_bytes_per_entity"].is_null(), "too few to tell: {few}");
}

#[test]
fn the_cost_of_the_trait_is_measured_in_one_process() {
    let report = json(&format!("bench seam --quick {TINY}"));
    let names = texts(array(&report["rows"]), "contestant");
    assert_eq!(names.len(), 14 * 4, "{report}");
    assert_eq!(array(&report["claims"]).len(), 0, "two rounds judge nothing");
    let report = json(&format!("bench seam {TINY} --set rounds=10 --set sweep.workers=[1]"));
    assert_eq!(array(&report["claims"]).len(), 4, "{report}");
}
