//! `polyserve matrix`: cells and files. No test asserts a speed.

use std::fs;

use rustix::process::Signal;
use serde_json::Value;

use super::{Dir, array, ended, has, json, misused, parsed, printed, signalled, text, texts};

const TINY: &str = "matrix --pools=2,4 --connections=3,20 --requests=60";
const RECORD: &str = "matrix.jsonl";
const PUBLISHED: &str = "lang,pool_size,requests,connections,avg_cpu_pct,max_cpu_pct,avg_mem_pct,max_mem_pct,total_s,\
    per_request_ms,received_kB_s,sent_kB_s,connect_ms,processing_ms,server,executor,repo,variant";

fn figure(cell: &Value, name: &str) -> f64 {
    cell[name].as_f64().unwrap_or_else(|| panic!("{name}: {cell}"))
}

/// Two servers in every cell. One of them has no setting for its workers.
#[test]
fn every_cell_is_measured_once_and_recorded() {
    let dir = Dir::new("matrix-cells");
    let measured = json(&format!("{TINY} --servers=pool_server,leader_followers,pool_server/mpsc_pool --out={dir}"));
    assert_eq!((&measured["failed"], &measured["interrupted"]), (&Value::Array(Vec::new()), &false.into()));
    assert_eq!(measured["left"], 0);
    let cells = array(&measured["cells"]);
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
    assert_eq!(array(&measured["claims"]).len(), 11);
    for file in ["matrix_get.csv", "matrix_put.csv"] {
        let csv = dir.read(file);
        assert!(csv.starts_with(PUBLISHED) && csv.lines().count() == 1 + 6, "{csv}");
        let ours = csv.lines().nth(1).unwrap();
        assert!(ours.starts_with("rust,2,60,3,") && ours.contains(",pool_server,mpsc_pool,two_level,"), "{csv}");
        let alone = csv.lines().nth(5).unwrap();
        assert!(alone.starts_with("rust,,60,3,") && alone.contains(",leader_followers,,two_level,"), "{csv}");
    }
    has(&misused(&format!("{TINY} --servers=pool_server --out={dir}")), &["not overwritten"]);
}

/// An interrupted run succeeds, but not if a contestant has done wrong by then.
#[test]
fn a_signal_makes_no_wrong_answer_good() {
    let dir = Dir::new("matrix-wrong-signal");
    let args = "--servers=pool_server --pools=2 --connections=2 --requests=100 --rounds=1000 --methods=put";
    let is_wrong = |_| fs::read_to_string(dir.path(RECORD)).is_ok_and(|text| text.contains(r#""reason":"wrong""#));
    let output = signalled(Signal::INT, &format!("matrix {args} --max-body=5 --json --out={dir}"), is_wrong);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let measured = parsed(&output);
    assert_eq!((&measured["interrupted"], &measured["cells"]), (&true.into(), &Value::Array(Vec::new())));
    assert!(measured["left"].as_u64() > Some(0), "{measured}");
}

/// Without Go or its sources, the twins have a line with the reason. A contestant that the command line names has failed.
#[test]
fn an_unavailable_contestant_is_listed() {
    let dir = Dir::new("matrix-absent");
    let nowhere = "--servers=go/twin-rwmutex,sequential --peers-dir=/nonexistent --methods=get";
    let run = || parsed(&ended(1, &format!("{TINY} --json {nowhere} --out={dir}")));
    let measured = run();
    assert_eq!(run()["failed"], measured["failed"]);
    let failures = dir.recorded(RECORD, "failure");
    assert_eq!(failures.len(), 1, "a later run does not repeat it");
    let failed = array(&measured["failed"]);
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!((&failed[0]["contestant"], &failed[0]["cell"]), (&"go/twin-rwmutex".into(), &Value::Null));
    has(failed[0]["why"].as_str().unwrap(), &["holds no module"]);
    let cells = array(&measured["cells"]);
    assert_eq!(cells.len(), 4, "the other contestant and its control: {cells:?}");
    assert!(cells.iter().all(|cell| cell["pool_size"].is_null() && cell["server"] == "sequential"), "{cells:?}");
}

/// A default contestant that is not available is listed, and the run succeeds.
#[test]
fn a_default_contestant_can_be_missing() {
    let quick = "--quick --pools=1 --connections=2 --requests=20 --methods=get --peers-dir=/nonexistent";
    let measured = json(&format!("matrix {quick}"));
    assert_eq!(texts(array(&measured["failed"]), "contestant"), ["go/twin-rwmutex", "go/twin-syncmap"], "{measured}");
    assert!(!array(&measured["cells"]).is_empty());
}

/// More connections than a pool's workers and queue would hold by default: no connection is rejected.
#[test]
fn no_connection_is_rejected() {
    let output = printed("matrix --servers=pool_server --pools=2 --connections=1200 --requests=1300 --methods=put");
    assert!(output.contains("1200") && !output.contains("no figures"), "{output}");
    has(&output, &["undecided: PUT costs more than GET"]);
}

/// A wrong answer, caused by a limit, leaves the cell without figures. A later run does not measure it again.
#[test]
fn a_cell_with_a_wrong_answer_has_no_figures() {
    let dir = Dir::new("matrix-wrong");
    let run = || {
        let limited = "--servers=pool_server --methods=put --max-body=5 --json";
        let measured = parsed(&ended(1, &format!("{TINY} {limited} --out={dir}")));
        assert_eq!((array(&measured["cells"]).len(), &measured["left"]), (0, &0.into()));
        assert_eq!((dir.recorded(RECORD, "failure").len(), dir.recorded(RECORD, "cell").len()), (8, 0));
        array(&measured["failed"]).to_vec()
    };
    let failed = run();
    assert_eq!(failed.len(), 8, "{failed:?}");
    has(failed[0]["why"].as_str().unwrap(), &["status 413"]);
    assert_eq!((&failed[0]["cell"]["method"], &failed[0]["wrong"]), (&"put".into(), &true.into()), "{failed:?}");
    assert_eq!(run(), failed);
}
