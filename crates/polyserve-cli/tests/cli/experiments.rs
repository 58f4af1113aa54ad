//! Resume and interrupt: what the framework guarantees, checked with every experiment's command.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use polyserve_experiments::matrix::Matrix;
use polyserve_experiments::page::WaitingPage;
use polyserve_experiments::stress::Stress;
use polyserve_experiments::tasks::experiment::Tasks;
use polyserve_lab::compare::Comparison;
use polyserve_lab::crowd::Crowds;
use polyserve_lab::experiment::{Experiment, Records};
use polyserve_lab::journal;
use polyserve_lab::scale::{Scale, bench::ScaleBench};
use polyserve_lab::stores::{Stores, process::Processes, seam::Seam};
use polyserve_lab::trial::Trials;
use serde_json::Value;

use super::{interrupted, run, text};

/// The record of a run.
struct Run {
    dir: PathBuf,
    args: Vec<String>,
}

impl Run {
    fn new<E: Experiment>(args: &[&str]) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("resume-{}-{}", E::NAME, std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let out = [format!("--out={}", dir.display()), "--name=run".to_owned()];
        Self { dir, args: args.iter().map(ToString::to_string).chain(out).collect() }
    }

    fn args<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        self.args.iter().map(String::as_str).chain(more.iter().copied()).collect()
    }

    /// Runs the command to its end, which succeeds unless the report has not passed.
    fn report(&self) -> Value {
        let output = run(&self.args(&["--json"]));
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
        assert_eq!(output.status.success(), report["passed"] != false, "{report}");
        report
    }

    fn path(&self) -> PathBuf {
        self.dir.join("run.jsonl")
    }

    /// The files of the directory, sorted.
    fn files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = fs::read_dir(&self.dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    /// The records, and the keys of all lines that are samples. No cell has two samples.
    fn records<E: Experiment>(&self) -> (Records<E>, Vec<E::Key>) {
        let lines = journal::read(&self.path()).unwrap();
        let records = Records::<E>::of(&lines).unwrap();
        let samples = lines.iter().filter(|line| line["kind"] == E::SAMPLE);
        let keys: Vec<E::Key> = samples.map(|line| serde_json::from_value(line.clone()).unwrap()).collect();
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "a cell was measured twice: {keys:?}");
        assert_eq!(records.absences().count(), 0, "{records:?}");
        (records, keys)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A run is interrupted after its first sample. Then its record is cut, as if the run had been killed while it wrote a line.
/// A second run completes the record and measures no cell twice. A third run measures nothing.
pub(crate) fn resumes<E: Experiment>(args: &[&str]) {
    resumes_after::<E>(0, args);
}

/// [`resumes`], but the interrupted run ends with this exit code.
fn resumes_after<E: Experiment>(code: i32, args: &[&str]) {
    let run = Run::new::<E>(args);
    let sample = format!("{{\"kind\":\"{}\"", E::SAMPLE);
    let has_sample =
        |_| fs::read_to_string(run.path()).is_ok_and(|text| text.contains(&sample) && text.ends_with('\n'));
    let output = interrupted(&run.args(&[]), has_sample);
    assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    let (records, first) = run.records::<E>();
    let end = records.end.expect("an interrupted run ends its record");
    assert!(end.interrupted && (1..end.planned).contains(&end.missing), "{end:?}");
    let (missing, planned, output) = (end.missing, end.planned, text(&output.stdout));
    let message =
        format!("ended early: {missing} of {planned} measurements are missing; with --out a later run resumes");
    assert!(output.contains(&message), "{output}");
    let files = run.files();

    let recorded = fs::read_to_string(run.path()).unwrap();
    let kept = &recorded[..recorded.rfind("{\"kind\":\"end\"").unwrap()];
    fs::write(run.path(), format!("{kept}{sample},\"na")).unwrap();
    assert_eq!(run.report()["interrupted"], false);
    let resumed = fs::read_to_string(run.path()).unwrap();
    assert!(resumed.starts_with(kept), "recorded lines stay");
    let (records, keys) = run.records::<E>();
    let end = records.end.unwrap();
    assert_eq!((end.missing, end.planned, end.interrupted), (0, planned, false));
    assert!(keys.len() >= planned && keys.starts_with(&first), "{keys:?}");
    assert_eq!(run.files(), files, "an interrupted run writes the same files");

    run.report();
    assert_eq!(run.records::<E>().1, keys, "nothing is measured again");
}

#[test]
fn compare() {
    let args =
        ["compare", "--servers=pool_server", "--repos=two_level", "--rounds=6", "--connections=4", "--no-latency"];
    resumes::<Comparison>(&[&args[..], &["--slice=50ms", "--warm-up=50ms"]].concat());
}

/// An interrupted trial has not passed.
#[test]
fn trial() {
    let args = ["trial", "--rounds=10", "--same=3", "--servers=pool_server", "--repos=two_level", "--slice=50ms"];
    resumes_after::<Trials>(1, &[&args[..], &["--warm-up=20ms", "--connections=4", "--keys=50"]].concat());
}

const CROWD: [&str; 8] = [
    "crowd",
    "--servers=pool_server,leader_followers,tokio_tcp",
    "--kind=idle",
    "--connections=20",
    "--good=4",
    "--rounds=3",
    "--slice=20ms",
    "--warm-up=20ms",
];

#[test]
fn crowd() {
    resumes::<Crowds>(&CROWD);
}

#[test]
fn matrix() {
    let args = ["matrix", "--servers=pool_server", "--pools=2", "--connections=2", "--requests=500", "--rounds=4"];
    resumes::<Matrix>(&args);
}

#[test]
fn page() {
    let args = ["page", "--parts=sweep", "--servers=smol,tokio_tcp", "--workers=1,2,3,4", "--requests=40"];
    resumes::<WaitingPage>(&[&args[..], &["--connections=5", "--page-every=5", "--page-wait=2ms"]].concat());
}

#[test]
fn scale() {
    let args = ["scale", "--servers=pool_server", "--axis=payload", "--points=15,99", "--rounds=4", "--slice=50ms"];
    resumes::<Scale<ScaleBench>>(&args);
}

#[test]
fn seam() {
    let args = ["seam", "--stores=dashmap", "--keys=100", "--rounds=30", "--threads=1", "--lookups=dependent"];
    resumes::<Seam>(&args);
}

#[test]
fn stores() {
    let args =
        ["scale", "--in-process", "--repos=two_level", "--axis=keys", "--points=10,100", "--workload=read,churn"];
    resumes::<Stores<Processes>>(&[&args[..], &["--rounds=4", "--slice=20ms"]].concat());
}

#[test]
fn stress() {
    resumes::<Stress>(&["stress", "--scale=0.2", "--connections=5"]);
}

#[test]
fn tasks() {
    resumes::<Tasks>(&["tasks", "--task=5ms", "--most=8", "--series=0", "--contestants=scoped_threads/std,rayon"]);
}
