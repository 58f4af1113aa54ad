//! Resume and interrupt: what the framework guarantees, checked with every experiment's command.

use std::collections::HashSet;
use std::fs;

use polyserve_bench::bench::Key;
use polyserve_bench::experiment::{Records, SAMPLE};
use polyserve_bench::journal;
use serde_json::Value;

use super::{Dir, has, interrupted, parsed, run, text};

const RECORD: &str = "run.jsonl";

/// Runs the command to its end. It must succeed unless the report has not passed.
fn report(line: &str) -> Value {
    let output = run(&format!("{line} --json"));
    let report = parsed(&output);
    assert_eq!(output.status.success(), report["passed"] != false, "{report}");
    report
}

/// The records, and the keys of all lines that are samples. No cell has two samples.
fn records(dir: &Dir) -> (Records, Vec<Key>) {
    let lines = journal::read(&dir.path(RECORD)).unwrap();
    let records = Records::of(&lines).unwrap();
    let samples = lines.iter().filter(|line| line["kind"] == SAMPLE);
    let keys: Vec<Key> = samples.map(|line| serde_json::from_value(line.clone()).unwrap()).collect();
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "a cell was measured twice: {keys:?}");
    assert_eq!(records.absences().count(), 0, "{records:?}");
    (records, keys)
}

/// A run is interrupted after its first sample. Then its record is cut, as if the run had been killed while it wrote a line.
/// A second run completes the record and measures no cell twice. A third run measures nothing.
pub(crate) fn resumes(line: &str) {
    let names: Vec<&str> = line.split_whitespace().take_while(|word| !word.starts_with('-')).collect();
    let dir = Dir::new(&format!("resume-{}", names.join("-")));
    let line = format!("{line} --out={dir} --name=run");
    let sample = format!("{{\"kind\":\"{SAMPLE}\"");
    let has_sample =
        |_| fs::read_to_string(dir.path(RECORD)).is_ok_and(|text| text.contains(&sample) && text.ends_with('\n'));
    let output = interrupted(&line, has_sample);
    let (interrupted, first) = records(&dir);
    let end = interrupted.end.expect("an interrupted run ends its record");
    assert!(end.interrupted && (1..end.planned).contains(&end.missing), "{end:?}");
    let (missing, planned) = (end.missing, end.planned);
    let message =
        format!("ended early: {missing} of {planned} measurements are missing; the same command measures them");
    has(&text(&output.stdout), &[&message]);
    let files = dir.files();

    let recorded = dir.read(RECORD);
    let kept = &recorded[..recorded.rfind("{\"kind\":\"end\"").unwrap()];
    dir.write(RECORD, format!("{kept}{sample},\"na"));
    assert_eq!(report(&line)["interrupted"], false);
    assert!(dir.read(RECORD).starts_with(kept), "recorded lines stay");
    let (resumed, keys) = records(&dir);
    let end = resumed.end.unwrap();
    assert_eq!((end.missing, end.planned, end.interrupted), (0, planned, false));
    assert!(keys.len() >= planned && keys.starts_with(&first), "{keys:?}");
    assert_eq!(dir.files(), files, "an interrupted run writes the same files");

    report(&line);
    assert_eq!(records(&dir).1, keys, "nothing is measured again");
}

#[test]
fn compare() {
    let times = "--rounds=6 --slice=50ms --warm-up=50ms --no-latency";
    resumes(&format!("compare --servers=pool_server --repos=two_level --connections=4 {times}"));
}

/// An interrupted trial has not passed.
#[test]
fn trial() {
    let changes = "--set rounds=3 --set mode.slice=50ms --set mode.warm_up=20ms --set workload.connections=4";
    resumes(&format!("bench trial-same {changes} --set workload.keys=50"));
}

#[test]
fn bench() {
    let changes = "--set sweep.connections=[2,3] --set rounds=3 --set mode.slice=50ms --set workload.keys=20";
    resumes(&format!("bench connections --only=pool_server {changes}"));
}

#[test]
fn crowd() {
    let changes = "--set mode.held=20 --set mode.slice=20ms --set mode.warm_up=20ms --set rounds=3";
    let line = format!("bench crowd --only=tokio_tcp/sharded --set workload.connections=4 {changes}");
    resumes(&line);
}

#[test]
fn matrix() {
    let one = "--set contestants=[\"catalog:pool_server/two_level\"] --set baseline=catalog:pool_server/two_level";
    let sizes = "--set sweep.workers=[2] --set sweep.connections=[2] --set mode.requests=500 --set rounds=4";
    resumes(&format!("bench matrix {one} {sizes} --set claim=[]"));
}

#[test]
fn page() {
    let mode = "--set mode.requests=40 --set mode.every=5 --set mode.wait=2ms --set workload.connections=5";
    resumes(&format!("bench page-workers --only=tokio_tcp --set sweep.workers=[1,2] {mode} --set rounds=2"));
}

#[test]
fn rates() {
    let changes = "--set sweep.rate_percent=[10,20] --set rounds=4 --set mode.slice=50ms --set workload.keys=20";
    resumes(&format!("bench rates --only=pool_server {changes}"));
}

#[test]
fn capacity() {
    // A search that misses its goal at the lowest rate takes minutes on a slow machine, so no rate misses it.
    let changes = "--set sweep={} --set mode.p99=1h --set mode.slice=50ms --set rounds=2 --set workload.keys=20";
    resumes(&format!("bench capacity --only=tokio_tcp/sharded --set workload.connections=4 {changes}"));
}

#[test]
fn stores() {
    let sweep =
        "--set sweep={operation=[\"read\",\"churn\"]} --set workload.keys=100 --set mode.slice=20ms --set rounds=4";
    resumes(&format!("bench stores --only=two_level {sweep}"));
}

#[test]
fn stress() {
    let contestants = r#"--set contestants=["catalog:pool_server/two_level","catalog:tokio_tcp/two_level"]"#;
    let changes = "--set mode.ids=2000 --set workload.connections=5";
    resumes(&format!("bench stress {contestants} {changes}"));
}

#[test]
fn tasks() {
    let tasks = "--set mode.task=5ms --set sweep.tasks=[1,2,3,4,5,6,7,8] --set sweep.series=[0]";
    let contestants =
        r#"--set contestants=["executor:scoped_threads/std","executor:rayon"] --set baseline=executor:rayon"#;
    resumes(&format!("bench tasks {tasks} {contestants} --set published=[] --set claim=[]"));
}
