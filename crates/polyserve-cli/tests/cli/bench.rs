//! `polyserve bench`: experiments from definitions, of the command and of a user.

use super::{Dir, array, ended, has, json, misused, parsed, printed, texts};

const TINY: &str = r#"
name = "tiny"
about = "Does it run"
workload = { mix = "get=3,put=1", keys = 20 }
contestants = ["catalog:tokio_tcp/*rwlock", "catalog:sequential/sharded"]
baseline = "catalog:pool_server/sharded"
sweep = { connections = [2, 3] }
mode = { slice = "50ms", warm_up = "20ms" }
rounds = 2
chart = [{ x = "connections", y = "requests_per_s" }, { kind = "ratios", y = "requests_per_s" }]
"#;

fn tiny(name: &str, text: &str) -> Dir {
    let dir = Dir::new(name);
    dir.write("tiny.toml", text);
    dir
}

/// A definition that is not in the repository: a pattern, a sweep, a baseline that takes part twice, and a server that
/// cannot serve the connections.
#[test]
fn a_definition_makes_rows() {
    let dir = tiny("bench-rows", TINY);
    let line = format!("bench {dir}/tiny.toml --out={dir}");
    let report = json(&line);
    assert_eq!((&report["name"], &report["compared"]), (&"tiny".into(), &"requests_per_s".into()));
    let baseline = "pool_server/mpsc_pool/sharded";
    assert_eq!(report["baseline"], baseline);
    let rows = array(&report["rows"]);
    let names = texts(rows, "contestant");
    assert_eq!(names.len(), 6, "{names:?}");
    for (name, role) in [(baseline, "baseline"), ("tokio_tcp/std_rwlock", "ranked")] {
        let own: Vec<_> = rows.iter().filter(|row| row["contestant"] == name).collect();
        assert_eq!(own.iter().map(|row| row["cell"]["connections"].as_u64()).collect::<Vec<_>>(), [Some(2), Some(3)]);
        for row in own {
            assert!(row["figures"]["requests_per_s"].is_f64() && row["role"] == role, "{row}");
            assert!(row["figures"]["filled_bytes"].as_f64() > Some(0.0) && row["rank"].is_u64(), "{row}");
        }
    }
    assert!(names.contains(&"pool_server/mpsc_pool/sharded (again)"));
    let not_run = array(&report["not_run"]);
    assert_eq!(texts(not_run, "contestant"), ["sequential/sharded"; 2]);
    assert!(not_run[0]["why"].as_str().unwrap().contains("another connection may wait"), "{not_run:?}");
    assert_eq!(dir.recorded("tiny.jsonl", "row").len(), 12);
    has(&dir.read("tiny.csv"), &["contestant,connections,round,requests_per_s", "tokio_tcp/std_rwlock,3,2,"]);
    // The second run measures nothing, and its text has the same rows.
    let text = printed(&line);
    has(
        &text,
        &[
            "Nothing is decided: the run has 2 rounds",
            "tiny: Does it run",
            "3 GET to 1 PUT of 20 entities",
            "varied: connections",
            "A/A",
            "not run: sequential/sharded",
        ],
    );
    assert_eq!(dir.recorded("tiny.jsonl", "row").len(), 12);
    let listed = printed(&format!("report {dir}/tiny.jsonl --html {dir}/page.html"));
    has(&listed, &["tiny.jsonl"]);
    has(&dir.read("page.html"), &["Chart: ", "tokio_tcp/std_rwlock"]);
    // Regression test: a CSV file that cannot be written hid the result.
    std::fs::remove_file(dir.path("tiny.csv")).unwrap();
    std::fs::create_dir(dir.path("tiny.csv")).unwrap();
    let unwritten = ended(1, &line);
    has(&super::text(&unwritten.stdout), &["not run: sequential/sharded"]);
    has(&super::text(&unwritten.stderr), &["tiny.csv cannot be written"]);
}

/// A part without a contestant is an error before anything is measured. It was a run of the baseline alone.
#[test]
fn a_part_without_a_contestant_is_a_misuse() {
    has(&misused("bench rates --only=nothing"), &["--only nothing: no contestant has this text in its name"]);
}

/// At a fixed rate there is no closed loop, and the cost is that of the rate.
#[test]
fn a_rate_has_latencies_and_a_cost() {
    let changes = "--set sweep={rate=[200,400]} --set mode.slice=300ms --set rounds=1 --set workload.keys=20";
    let report = json(&format!("bench rates --only=pool_server {changes}"));
    let rows = array(&report["rows"]);
    assert_eq!((rows.len(), &report["compared"]), (4, &"p99_us".into()), "{report}");
    for row in rows {
        assert_eq!(row["figures"]["rate_per_s"], row["cell"]["rate"].as_f64().unwrap());
        assert!(row["figures"]["requests_per_s"].is_null(), "{row}");
    }
    // On a busy machine, a short time may have no answer.
    assert!(rows.iter().any(|row| row["figures"]["cpu_us_at_rate"].as_f64() > Some(0.0)), "{report}");
}

/// A rate in per cent is a share of the null server's throughput, which is measured once for all rates. With a connection for
/// each request it is another null server.
#[test]
fn a_rate_is_a_share_of_the_null_servers_throughput() {
    let tiny = "--set sweep.rate_percent=[5,20] --set mode.slice=100ms --set rounds=1 --set workload.keys=20";
    for (close, name) in [("false", "null_epoll"), ("true", "null_accept")] {
        let close = format!("--set workload.connections=3 --set workload.close={close}");
        let report = json(&format!("bench rates --only=pool_server {tiny} {close}"));
        let [limit] = array(&report["limits"]) else { panic!("{report}") };
        assert_eq!((&limit["name"], &limit["cell"]), (&name.into(), &serde_json::json!({})));
        let rows = array(&report["rows"]);
        assert_eq!((rows.len(), array(&report["failed"]).len()), (4, 0), "{report}");
        for row in rows {
            let share = row["figures"]["rate_per_s"].as_f64().unwrap() / limit["per_s"].as_f64().unwrap();
            assert!((share * 100.0 / row["cell"]["rate_percent"].as_f64().unwrap() - 1.0).abs() < 1e-6, "{row}");
        }
    }
}

/// The ladder measures programs with the answer `Welcome!`, and servers of the catalog with that service. A program with another
/// answer has no figures, and one that cannot be built is named with the reason.
#[test]
fn the_ladder_measures_one_answer() {
    let dir = Dir::new("bench-ladder");
    let entry = |name: &str, keys: &str| {
        let args = r#"args = ["serve", "--json", "--until-stdin-ends", "--listen=127.0.0.1:0", "--server=tokio_tcp", "#;
        let program = env!("CARGO_BIN_EXE_polyserve");
        format!(
            "[[contestant]]\nname = \"{name}\"\nserves = \"welcome\"\nready = \"json\"\nprogram = \"{program}\"\n{args}{keys}\n"
        )
    };
    let entries = [
        entry("low", "\"--service=welcome\"]"),
        entry("wrong", "\"--service=page\"]"),
        entry("unbuilt", "]\nbuild = [\"sh\", \"-c\", \"echo error: no patch >&2; exit 1\"]"),
    ];
    dir.write("mine.toml", entries.concat());
    let tiny = "--set sweep={connections=[2],pipeline=[1,2]} --set mode.slice=30ms --set rounds=2 --set claim=[]";
    let contestants = r#"--set contestants=["peer:low","peer:wrong","peer:unbuilt","catalog:tokio_tcp"] --set controls=["tokio_tcp"]"#;
    let line =
        format!("bench ladder {tiny} {contestants} --set baseline=peer:low --contestants={dir}/mine.toml --json");
    let report = parsed(&ended(1, &line));
    let rows = array(&report["rows"]);
    assert_eq!(texts(rows, "contestant").iter().filter(|name| **name == "low").count(), 2, "{report}");
    assert!(texts(rows, "contestant").contains(&"tokio_tcp (again)"), "{report}");
    assert!(rows.iter().all(|row| row["figures"]["requests_per_s"].as_f64() > Some(0.0)), "{report}");
    let failed = [array(&report["failed"]), array(&report["not_run"])].concat();
    let why = |name: &str| failed.iter().find(|one| one["contestant"] == name).map(|one| one["why"].clone());
    assert_eq!(why("unbuilt"), Some("error: no patch".into()), "{report}");
    assert!(why("wrong").is_some() && !texts(rows, "contestant").contains(&"wrong"), "{report}");
    has(&misused("bench ladder --set workload.keys=5"), &["keys: it is about entities, and the service has none"]);
}

/// Each axis of growth is a definition. A server without such a setting is left out at these cells, with the reason.
#[test]
fn each_axis_of_growth_is_a_definition() {
    for (axis, values) in [("keys", "[10,30]"), ("workers", "[1,2]"), ("payload", "[15,2000]")] {
        let tiny = "--set mode.slice=50ms --set mode.latency=false --set rounds=1 --set workload.connections=3";
        let servers = r#"--set contestants=["catalog:tokio_tcp/sharded","catalog:leader_followers/sharded"]"#;
        let keys = if axis == "keys" { "" } else { "--set workload.keys=20" };
        let report = json(&format!("bench {axis} {tiny} {servers} {keys} --set sweep.{axis}={values}"));
        let rows = array(&report["rows"]);
        assert!(rows.iter().all(|row| row["figures"]["loaded_bytes"].as_f64() > Some(0.0)), "{report}");
        let not_run = array(&report["not_run"]);
        assert_eq!((rows.len(), not_run.len()), if axis == "workers" { (4, 2) } else { (6, 0) }, "{report}");
        assert!(not_run.iter().all(|one| one["why"].as_str().unwrap().contains("workers")), "{not_run:?}");
    }
}

/// Every rate meets a goal of an hour unless requests cannot be sent, so the search takes seconds.
#[test]
fn a_search_has_a_capacity_and_the_limit() {
    let changes = "--set sweep={} --set mode.p99=1h --set mode.slice=20ms --set rounds=1 --set workload.keys=20";
    let line = format!("bench capacity --only=pool_server/mpsc_pool/sharded --set workload.connections=4 {changes}");
    let report = json(&line);
    assert_eq!((&report["compared"], &report["mode"]), (&"capacity_per_s".into(), &"search".into()));
    let [limit] = array(&report["limits"]) else { panic!("{report}") };
    assert_eq!(limit["name"], "null_epoll");
    let rows = array(&report["rows"]);
    assert_eq!(texts(rows, "role"), ["baseline", "same"]);
    for row in rows {
        let figures = &row["figures"];
        assert!(figures["capacity_per_s"].as_f64() > Some(0.0) && figures["p99_us"].as_f64() > Some(0.0), "{row}");
        assert!(figures["limit_share"].as_f64() <= Some(1.0), "{row}");
    }
}

#[test]
fn the_definitions_are_listed() {
    has(&printed("bench --list"), &["connections", "rates", "number of connections"]);
    let all = json("bench --list");
    assert!(array(&all).iter().all(|one| one["definition"]["contestants"].is_array()), "{all}");
}

#[test]
fn a_wrong_definition_is_refused_with_its_line() {
    for (old, new, parts) in [
        ("keys", "kees", &["tiny.toml:4: ", "unknown field `kees`"][..]),
        ("rounds = 2", "rounds = 0", &["tiny.toml:9: rounds: it must be at least 1"]),
        ("*rwlock", "*nothing", &["tiny.toml:5: contestants: ", "catalog:tokio_tcp/*nothing"]),
        ("catalog:tokio_tcp/*rwlock", "peer:none", &["tiny.toml:5: contestants: ", "there is no peer:none", "hyper"]),
        ("pool_server", "pool_servant", &["no server \"pool_servant\""]),
        (
            "mix = \"get=3,put=1\", keys = 20",
            "service = \"echo\", requests = \"none.requests\"",
            &["tiny.toml:4: requests: ", "none.requests: No such file"],
        ),
    ] {
        let dir = tiny("bench-wrong", &TINY.replace(old, new));
        has(&misused(&format!("bench {dir}/tiny.toml")), parts);
    }
    let claim =
        "\n[[claim]]\ntext = \"more\"\nfigure = \"requests_per_s\"\nleft = \"nginx\"\nrule = \"every above 1\"\n";
    let dir = tiny("bench-claim", &format!("{TINY}{claim}"));
    let parts =
        ["tiny.toml:13: claim \"more\": there is no contestant \"nginx\"; there are pool_server/mpsc_pool/sharded"];
    has(&misused(&format!("bench {dir}/tiny.toml")), &parts);
    has(&misused("bench nothing"), &["there is no definition \"nothing\"; there are ", "capacity", "page-workers"]);
    has(&misused("bench connections --set rounds=x"), &["--set rounds=x: "]);
    has(&misused("bench connections --set workload.mixed=1"), &["--set workload.mixed=1: unknown field `mixed`"]);
}

/// Regression test: a wrong name was reported without the file and the line that has it.
#[test]
fn an_unknown_contestant_is_named_with_its_place() {
    for name in ["tokio_tpc/sharded", "tokio_tcp/shraded"] {
        let dir = tiny("bench-unknown", &TINY.replace("tokio_tcp/*rwlock", name));
        let error = misused(&format!("bench {}", dir.path("tiny.toml").display()));
        has(&error, &["tiny.toml:5: contestants: there is no ", "did you mean "]);
    }
}
