//! `polyserve matrix`: cells and files. No test asserts a speed.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{interrupted, misused, polyserve, printed, text};

const TINY: [&str; 5] = ["matrix", "--pools=2,4", "--connections=3,20", "--requests=60", "--json"];
const PUBLISHED: &str = "lang,pool_size,requests,connections,avg_cpu_pct,max_cpu_pct,avg_mem_pct,max_mem_pct,total_s,\
    per_request_ms,received_kB_s,sent_kB_s,connect_ms,processing_ms,server,executor,repo,variant";

/// A directory for one test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("matrix-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        Self(dir)
    }

    fn out(&self) -> String {
        format!("--out={}", self.0.display())
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.0.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn matrix(args: &[&str]) -> Value {
    let said = printed(&[&TINY[..], args].concat());
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn figure(cell: &Value, name: &str) -> f64 {
    cell[name].as_f64().unwrap_or_else(|| panic!("{name}: {cell}"))
}

/// Two servers in every cell. One of them has no setting for its workers.
#[test]
fn every_cell_is_measured_once_and_recorded() {
    let dir = Dir::new("cells");
    let args = ["--servers=pool_server,leader_followers,pool_server/mpsc_pool", &dir.out()];
    let measured = matrix(&args);
    assert_eq!((&measured["failed"], &measured["interrupted"]), (&Value::Array(Vec::new()), &false.into()));
    assert_eq!(measured["left"], 0);
    let cells = measured["cells"].as_array().unwrap();
    let of = |name: &str, control: bool| {
        cells.iter().filter(|cell| cell["contestant"] == name && cell["control"] == control).count()
    };
    let classic = "pool_server/mpsc_pool/two_level";
    let counts = (of(classic, false), of(classic, true), of("leader_followers/two_level", false));
    assert_eq!((cells.len(), counts), (20, (8, 8, 4)));
    for cell in cells {
        let (total, connections) = (figure(cell, "total_s"), figure(cell, "connections"));
        assert!((figure(cell, "per_request_ms") - total * 1000.0 * connections / 60.0).abs() < 1e-9, "{cell}");
        assert!(figure(cell, "connect_ms") > 0.0 && figure(cell, "processing_ms") > 0.0, "{cell}");
        // The first PUT, the warm-up, the cell, and a GET of the new value.
        let warm_up = figure(cell, "connections").max(3.0);
        let puts = f64::from(u8::from(cell["method"] == "put"));
        assert_eq!(figure(cell, "server_answered"), 1.0 + warm_up + 60.0 + puts, "{cell}");
        assert!(figure(cell, "avg_mem_pct") > 0.0 && figure(cell, "avg_cpu_pct") >= 0.0, "{cell}");
    }
    assert_eq!(measured["claims"].as_array().unwrap().len(), 11);
    for file in ["matrix_get.csv", "matrix_put.csv"] {
        let csv = dir.read(file);
        assert!(csv.starts_with(PUBLISHED) && csv.lines().count() == 1 + 6, "{csv}");
        let ours = csv.lines().nth(1).unwrap();
        assert!(ours.starts_with("rust,2,60,3,") && ours.contains(",pool_server,mpsc_pool,two_level,"), "{csv}");
        let alone = csv.lines().nth(5).unwrap();
        assert!(alone.starts_with("rust,,60,3,") && alone.contains(",leader_followers,,two_level,"), "{csv}");
    }
    assert!(misused(&[&TINY[..], &["--servers=pool_server", &dir.out()]].concat()).contains("not written over"));
}

/// An interrupted run succeeds, but not if a contestant has done wrong by then.
#[test]
fn a_signal_makes_no_wrong_answer_good() {
    let dir = Dir::new("wrong-signal");
    let out = dir.out();
    let args = ["matrix", "--servers=pool_server", "--pools=2", "--connections=2", "--requests=100", "--rounds=1000"];
    let args = [&args[..], &["--methods=put", "--max-body=5", "--json", &out]].concat();
    let file = dir.0.join("matrix.jsonl");
    let output =
        interrupted(&args, |_| fs::read_to_string(&file).is_ok_and(|text| text.contains(r#""reason":"wrong""#)));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let measured: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&measured["interrupted"], &measured["cells"]), (&true.into(), &Value::Array(Vec::new())));
    assert!(measured["left"].as_u64() > Some(0), "{measured}");
}

/// Without Go or its sources, the twins have a line with the reason. A contestant that the command line names has failed.
#[test]
fn an_unavailable_contestant_is_listed() {
    let dir = Dir::new("absent");
    let nowhere = ["--servers=go/twin-rwmutex,sequential", "--peers-dir=/nonexistent", "--methods=get", &dir.out()];
    let run = || {
        let output = polyserve(&[&TINY[..], &nowhere].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let measured = run();
    assert_eq!(run()["failed"], measured["failed"]);
    assert_eq!(dir.read("matrix.jsonl").matches(r#""kind":"failure""#).count(), 1, "a later run does not repeat it");
    let failed = measured["failed"].as_array().unwrap();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!((&failed[0]["contestant"], &failed[0]["cell"]), (&"go/twin-rwmutex".into(), &Value::Null));
    assert!(failed[0]["why"].as_str().unwrap().contains("holds no module"), "{failed:?}");
    let cells = measured["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4, "the other contestant and its control: {cells:?}");
    assert!(cells.iter().all(|cell| cell["pool_size"].is_null() && cell["server"] == "sequential"), "{cells:?}");
}

/// A default contestant that is not available is listed, and the run succeeds.
#[test]
fn a_default_contestant_can_be_missing() {
    let quick =
        ["--quick", "--pools=1", "--connections=2", "--requests=20", "--methods=get", "--peers-dir=/nonexistent"];
    let said = printed(&[&["matrix", "--json"], &quick[..]].concat());
    let measured: Value = serde_json::from_str(&said).unwrap();
    let failed = measured["failed"].as_array().unwrap();
    let names: Vec<&str> = failed.iter().map(|failed| failed["contestant"].as_str().unwrap()).collect();
    assert_eq!(names, ["go/twin-rwmutex", "go/twin-syncmap"], "{failed:?}");
    assert!(!measured["cells"].as_array().unwrap().is_empty());
}

/// More connections than a pool's workers and queue would hold by default: no connection is rejected.
#[test]
fn no_connection_is_rejected() {
    let args =
        ["matrix", "--servers=pool_server", "--pools=2", "--connections=1200", "--requests=1300", "--methods=put"];
    let said = printed(&args);
    assert!(said.contains("1200") && !said.contains("no figures"), "{said}");
    assert!(said.contains("undecided: PUT costs more than GET"), "{said}");
}

/// A wrong answer, caused by a limit, leaves the cell without figures. A later run does not measure it again.
#[test]
fn a_cell_with_a_wrong_answer_has_no_figures() {
    let dir = Dir::new("wrong");
    let out = dir.out();
    let limited = ["--servers=pool_server", "--methods=put", "--max-body=5", &out];
    let is_cell =
        |line: &&str| !["environment", "end"].iter().any(|kind| line.contains(&format!(r#""kind":"{kind}""#)));
    let recorded = || dir.read("matrix.jsonl").lines().filter(is_cell).count();
    let run = || {
        let output = polyserve(&[&TINY[..], &limited].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        let measured: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
        assert_eq!((measured["cells"].as_array().unwrap().len(), &measured["left"], recorded()), (0, &0.into(), 8));
        measured["failed"].as_array().unwrap().clone()
    };
    let failed = run();
    assert_eq!(failed.len(), 8, "{failed:?}");
    assert!(failed[0]["why"].as_str().unwrap().contains("status 413"), "{failed:?}");
    assert_eq!((&failed[0]["cell"]["method"], &failed[0]["wrong"]), (&"put".into(), &true.into()), "{failed:?}");
    assert_eq!(run(), failed);
}

#[test]
fn what_cannot_be_done_is_a_misuse() {
    for (args, why) in [
        (&["--servers=nothing"][..], "no server \"nothing\""),
        (&["--servers=go/nothing"], "no server \"go/nothing\" in Go"),
        (&["--repos=nothing"], "no repo \"nothing\""),
        (&["--pools=0"], "--pools 0"),
        (&["--pools=x"], "--pools"),
        (&["--connections=0"], "--connections 0"),
        (&["--connections=900000"], "--connections may be"),
        (&["--requests=0"], "--requests"),
        (&["--methods=delete"], "--methods"),
        (&["--rounds=0"], "--rounds"),
        (&["--workers=2"], "--pools"),
        (&["--client-cores=1000"], "there is no core 1000"),
        (&["--max-body=x"], "--max-body"),
    ] {
        let said = misused(&[&["matrix"], args].concat());
        assert!(said.contains(why), "{args:?}: {said}");
    }
}
