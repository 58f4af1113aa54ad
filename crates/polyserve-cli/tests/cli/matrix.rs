//! `polyserve bench matrix`: a number of requests to each pool, with a connection for each. No test asserts a speed.

use serde_json::Value;

use super::{Dir, array, ended, has, json, misused, parsed, printed, texts};

const POOL: &str = "pool_server/mpsc_pool/two_level";
const PUBLISHED: &str = "lang,pool_size,requests,connections,avg_cpu_pct,max_cpu_pct,avg_mem_pct,max_mem_pct,total_s,\
    per_request_ms,received_kB_s,sent_kB_s,connect_ms,processing_ms,server,";

/// A small matrix of these servers of the catalog, the first one as the baseline.
fn tiny(servers: &[&str]) -> String {
    let names: Vec<String> = servers.iter().map(|name| format!("\"catalog:{name}/two_level\"")).collect();
    let (all, first) = (names.join(","), names[0].trim_matches('"'));
    let sizes = "--set sweep.workers=[2,4] --set sweep.connections=[3,20] --set mode.requests=60 --set rounds=1";
    format!("bench matrix {sizes} --set contestants=[{all}] --set baseline={first} --set claim=[]")
}

fn figure(row: &Value, name: &str) -> f64 {
    row["figures"][name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"))
}

/// Two servers in every cell. One of them has no setting for its workers.
#[test]
fn every_cell_is_measured_once_and_recorded() {
    let dir = Dir::new("matrix-cells");
    let line = format!("{} --out={dir}", tiny(&["pool_server/mpsc_pool", "leader_followers", "pool_server"]));
    let measured = json(&line);
    assert_eq!((&measured["failed"], &measured["interrupted"]), (&Value::Array(Vec::new()), &false.into()));
    let rows = array(&measured["rows"]);
    let of = |name: &str| rows.iter().filter(|row| row["contestant"] == name).count();
    assert_eq!((rows.len(), of(POOL), of(&format!("{POOL} (again)"))), (16, 8, 8));
    let not_run = array(&measured["not_run"]);
    assert_eq!(texts(not_run, "contestant"), ["leader_followers/two_level"; 8]);
    for row in rows {
        let connections = row["cell"]["connections"].as_f64().unwrap();
        let per_request = figure(row, "total_s") * 1000.0 * connections / 60.0;
        assert!((figure(row, "per_request_ms") - per_request).abs() < 1e-9, "{row}");
        assert!(figure(row, "connect_ms") > 0.0 && figure(row, "processing_ms") > 0.0, "{row}");
        // The first PUT, the warm-up, the cell, and a GET of the new value.
        let puts = f64::from(u8::from(row["cell"]["method"] == "put"));
        assert_eq!(figure(row, "answered"), 1.0 + connections.max(3.0) + 60.0 + puts, "{row}");
        assert!(figure(row, "avg_mem_pct") > 0.0 && figure(row, "avg_cpu_pct") >= 0.0, "{row}");
    }
    let csv = dir.read("matrix.csv");
    assert!(csv.starts_with(PUBLISHED) && csv.lines().count() == 1 + 16, "{csv}");
    let ours = csv.lines().find(|line| line.starts_with("rust,2,60,3,"));
    assert!(ours.is_some_and(|line| line.contains(POOL)), "{csv}");
    json(&line);
    assert_eq!(dir.recorded("matrix.jsonl", "row").len(), 16, "a second run measures nothing");
}

/// More connections than a pool's workers and queue would hold by default: no connection is rejected.
#[test]
fn no_connection_is_rejected() {
    let sizes = "--set sweep={workers=[2],connections=[1200],method=[\"put\"]} --set mode.requests=1300";
    let output = printed(&format!("{} {sizes}", tiny(&["pool_server"])));
    assert!(output.contains("1200") && !output.contains("no figures"), "{output}");
}

/// A wrong answer, caused by a limit, leaves the contestant without figures. A later run does not measure it again.
#[test]
fn a_contestant_with_a_wrong_answer_has_no_figures() {
    let dir = Dir::new("matrix-wrong");
    let run = || {
        let measured = parsed(&ended(1, &format!("{} --max-body=5 --json --out={dir}", tiny(&["pool_server"]))));
        assert!(array(&measured["rows"]).is_empty(), "{measured}");
        assert_eq!((dir.recorded("matrix.jsonl", "failure").len(), dir.recorded("matrix.jsonl", "row").len()), (2, 0));
        array(&measured["failed"]).to_vec()
    };
    let failed = run();
    has(failed[0]["why"].as_str().unwrap(), &["status 413"]);
    assert_eq!((failed.len(), failed[0]["wrong"].as_bool()), (2, Some(true)), "{failed:?}");
    assert_eq!(run(), failed);
}

/// A claim about cells is judged after five rounds. A heat map has the measured cells.
#[test]
fn claims_about_cells_and_heat_maps_are_keys_of_a_definition() {
    let dir = Dir::new("matrix-claim");
    let text = format!(
        r#"
name = "small"
workload = {{ keys = 3, close = true }}
contestants = ["catalog:pool_server/two_level"]
sweep = {{ workers = [1, 2], method = ["get", "put"], connections = [2] }}
mode = {{ requests = 20 }}
rounds = 5
chart = [{{ kind = "heat", x = "workers", rows = "connections", y = "per_request_ms", contestants = ["{POOL}"], at = {{ method = "get" }} }}]

[[claim]]
text = "PUT costs more than GET"
figure = "per_request_ms"
left = "{POOL}"
left_where = {{ method = "put" }}
right_where = {{ method = "get" }}
rule = "most cells above 1"
"#
    );
    dir.write("small.toml", text);
    let line = format!("bench {dir}/small.toml --out={dir}");
    let output = printed(&line);
    has(&output, &["undecided: PUT costs more than GET", "20 requests; "]);
    printed(&format!("report {dir}/small.jsonl --html {dir}/page.html"));
    has(&dir.read("page.html"), &["Heat maps: request (ms), method get, by workers and connections"]);
    for (old, new, why) in [
        ("most cells above 1", "rises along keys", "rule: keys is no axis of the sweep"),
        ("left_where", "if_full = \"speed\"\nleft_where", "there is no figure \"speed\""),
        ("rows = \"connections\", ", "", "a heat map needs an axis `x`, and `rows`"),
        ("requests = 20", "requests = 0", "requests: it must be at least 1"),
        ("\"put\"]", "\"delete\"]", "method: it needs words that it knows"),
    ] {
        dir.write("wrong.toml", dir.read("small.toml").replace(old, new));
        has(&misused(&format!("bench {dir}/wrong.toml")), &[why]);
    }
}
