//! `polyserve scale`: points and their records. No test asserts how a figure grows.

use serde_json::Value;

use super::{Dir, array, has, json, misused, printed};

const TINY: &str = "scale --slice=150ms --rounds=2 --keys=20";
const RECORD: &str = "scale.jsonl";

/// The figures of a point.
const FIGURES: [&str; 7] =
    ["per_s", "cpu_us", "p50_us", "p99_us", "loaded_bytes", "server_busy_pct", "client_busy_pct"];

/// The first figure that a point lacks.
fn missing_figure(report: &Value) -> Option<String> {
    let mut figures = array(&report["points"]).iter().flat_map(|point| FIGURES.map(|figure| (figure, point)));
    let (figure, point) = figures.find(|(figure, point)| point[figure].as_f64().is_none_or(|value| value <= 0.0))?;
    Some(format!("{figure}: {point}"))
}

/// Runs the command until every point has all its figures. Returns the directory, the command line and the report.
///
/// On a busy machine a short slice can end without an answer or a sample of the memory, so each retry has a longer
/// slice. Panics if the longest slice lacks a figure.
fn complete_report(name: &str, args: &str) -> (Dir, String, Value) {
    let mut missing = None;
    for slice in ["150ms", "600ms", "2400ms"] {
        let dir = Dir::new(name);
        let line = format!("scale --rounds=2 --keys=20 {args} --slice={slice} --out={dir}");
        let report = json(&line);
        missing = missing_figure(&report);
        if missing.is_none() {
            return (dir, line, report);
        }
    }
    panic!("{missing:?}");
}

#[test]
fn points_are_recorded() {
    let args = "--axis=connections --points=2,8 --servers=pool_server,tokio_tcp";
    let (dir, line, report) = complete_report("scale-record", args);
    assert_eq!((&report["rounds"], &report["interrupted"]), (&2.into(), &false.into()));
    assert_eq!((&report["failed"], &report["not_run"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    assert_eq!(array(&report["points"]).len(), 4);
    let of = |metric: &str, law: &str| {
        let growth = array(&report["growth"]).iter();
        growth.filter(|growth| growth["metric"] == metric && growth["law"] == law).count()
    };
    assert_eq!((of("throughput", "power"), of("cpu", "power"), of("memory", "line")), (2, 2, 2), "{report}");
    let (rates, cells) = (dir.recorded(RECORD, "rate"), dir.recorded(RECORD, "cell"));
    assert_eq!((&dir.lines(RECORD)[0]["kind"], rates.len(), cells.len()), (&"environment".into(), 1, 8));
    for cell in &cells {
        assert!(cell["start_bytes"].as_u64() > Some(0) && cell["filled_bytes"].as_u64() > Some(0), "{cell}");
        assert_eq!((&cell["rate_per_s"], &cell["connections"]), (&rates[0]["requests_per_s"], &cell["x"]), "{cell}");
    }
    let csv = dir.read("scale.csv");
    let columns = "axis,x,name,round,connections,keys,workers,payload_bytes,answered,elapsed_s,per_s,";
    assert!(csv.starts_with(columns) && csv.lines().count() == 9, "{csv}");
    has(&csv, &["connections,8,tokio_tcp/sharded,2,8,20,,15,"]);
    has(&dir.read("scale-growth.csv"), &["connections,tokio_tcp/sharded,memory,line,"]);

    let same = json(&line);
    assert_eq!((&same["points"], &same["growth"]), (&report["points"], &report["growth"]));
    has(&misused(&format!("{line} --seed=9")), &["not overwritten"]);
}

#[test]
fn every_axis_moves_what_it_is_named_after() {
    let dir = Dir::new("scale-axes");
    for (axis, points, field) in
        [("keys", "10,30", "keys"), ("workers", "1,2", "workers"), ("payload", "15,2000", "payload_bytes")]
    {
        let tiny = "scale --slice=50ms --keys=20 --connections=3 --servers=tokio_tcp --rounds=1";
        let report = json(&format!("{tiny} --axis={axis} --points={points} --name={axis}-1 --out={dir}"));
        assert_eq!(array(&report["points"]).len(), 2, "{report}");
        for cell in dir.recorded(&format!("{axis}-1.jsonl"), "cell") {
            assert_eq!((&cell[field], &cell["connections"]), (&cell["x"], &3.into()), "{cell}");
        }
    }
}

/// On the axis of rates there is no closed loop: each point is a share of the null server's throughput.
#[test]
fn a_rate_is_a_share_of_the_null_servers_throughput() {
    let dir = Dir::new("scale-rate");
    let tiny = "scale --slice=100ms --keys=20 --connections=3 --servers=tokio_tcp --rounds=1 --axis=rate";
    let report = json(&format!("{tiny} --points=10,50 --out={dir}"));
    let limit = report["rates"][0]["requests_per_s"].as_f64().unwrap();
    assert_eq!(report["rates"][0]["half_of"], "null_epoll");
    let cells = dir.recorded("scale.jsonl", "cell");
    for cell in &cells {
        let share = cell["x"].as_f64().unwrap() / 100.0;
        assert!((cell["rate_per_s"].as_f64().unwrap() / limit / share - 1.0).abs() < 1e-6, "{cell}");
        // Arrivals are random: on a busy machine, a low rate may have none in a short time.
        let has_cost = cell["paced_cpu_us"].as_f64() > Some(0.0);
        assert!(cell["cpu_us"].is_null() && has_cost == (cell["answered"] != 0), "{cell}");
    }
    assert!(cells.iter().any(|cell| cell["answered"] != 0), "{cells:?}");
    has(&printed(&format!("{tiny} --points=10")), &["rate: per cent of null_epoll's ", "rate (%)"]);
    has(&misused(&format!("{tiny} --points=101")), &["--points 101", "100 at most"]);
}

/// With a connection for each request, the rates are shares of another null server's throughput. A server of one connection at a
/// time takes part.
#[test]
fn rates_of_a_connection_for_each_request() {
    let dir = Dir::new("scale-rate-close");
    let tiny = "scale --slice=100ms --keys=20 --connections=3 --servers=sequential,tokio_tcp --rounds=1 --axis=rate";
    let line = format!("{tiny} --points=1,5 --no-keepalive --out={dir}");
    has(&printed(&line), &["rate: per cent of null_accept's ", "a connection for each request"]);
    let report = json(&line);
    assert_eq!((&report["rates"][0]["half_of"], &report["connection_each"]), (&"null_accept".into(), &true.into()));
    assert_eq!((array(&report["points"]).len(), array(&report["failed"]).len()), (4, 0), "{report}");
    has(&misused("scale --axis=rate,keys --no-keepalive"), &["--no-keepalive needs --axis rate, without another axis"]);
    has(&misused("scale --axis=keys --peers=all"), &["--peers needs --axis rate, without another axis"]);
    has(&misused("scale --axis=rate --peers=none"), &["there is no peer", "none"]);
}

/// A server without a choice of workers is listed on that axis, and measured on the others.
#[test]
fn a_contestant_that_is_left_out_is_named() {
    let args = "--axis=workers,connections --servers=leader_followers,sequential --rounds=1 --quick";
    let report = json(&format!("scale --slice=150ms --keys=5 --connections=4 {args}"));
    let not_run = array(&report["not_run"]);
    let why = |axis: &str, name: &str| {
        let is_target = |cell: &&Value| cell["axis"] == axis && cell["name"] == name;
        not_run.iter().filter(is_target).map(|cell| cell["why"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(why("workers", "leader_followers/sharded")[0].contains("workers"), "{not_run:?}");
    let bounds = why("connections", "sequential/sharded");
    assert!(!bounds.is_empty() && bounds.iter().all(|why| why.contains("another connection may wait")), "{bounds:?}");
    assert_eq!(why("connections", "leader_followers/sharded"), [] as [String; 0]);
    assert!(array(&report["points"]).iter().all(|point| point["axis"] == "connections"), "{report}");
}

#[test]
fn for_people_growth_is_said_in_words() {
    let output = printed(&format!("{TINY} --axis=payload --points=15,500,4000 --servers=pool_server"));
    has(&output, &["payload: medians of 2 rounds", "CPU us/req", "as payload^", "too few rounds: intervals"]);
    has(&output, &["CPU per request of pool_server/mpsc_pool/sharded"]);
}
