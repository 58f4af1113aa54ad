//! The servers in Go, which the command builds, and nginx. Without Go or nginx these tests print that they are not run.

use std::io::Write as _;
use std::process::{Command, Stdio};

use polyserve_bench::contestants::{GO, PRINTING, Program, Registry};
use serde_json::Value;

use super::{array, ended, has, json, parsed, polyserve, printed, run, text, texts};

/// Returns true if Go and the modules are available. Otherwise it prints that the test is not run.
fn is_here(name: &str) -> bool {
    let here = program("go/nethttp").is_installed().and_then(|_| {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/peers/go");
        let download = Command::new("go").args(["mod", "download"]).current_dir(dir).stderr(Stdio::null()).status();
        match download.is_ok_and(|status| status.success()) {
            true => Ok(()),
            false => Err(String::from("the modules that its module depends on are not available")),
        }
    });
    if let Err(why) = &here {
        let _ = writeln!(std::io::stderr(), "not run: {name}: {why}"); // past the harness's capture
    }
    here.is_ok()
}

fn program(name: &str) -> &'static Program {
    Registry::repository().named(name).unwrap()
}

/// The servers in Go that `--peers=all` selects.
fn servers_in_go() -> Vec<&'static str> {
    let names = Registry::repository().servers().map(Program::name);
    names.filter(|name| name.starts_with(GO)).collect()
}

const TINY: &str = "compare --servers=leader_followers --repos=two_level --rounds=1 --slice=30ms --warm-up=20ms \
    --connections=4 --no-latency --json";

#[test]
fn they_are_compared_and_what_they_keep_of_the_contract_is_told() {
    if !is_here("they_are_compared_and_what_they_keep_of_the_contract_is_told") {
        return;
    }
    let names = servers_in_go();
    let ranking = parsed(&ended(0, &format!("{TINY} --mix=get=3,put=1 --peers={}", names.join(","))));
    for name in names {
        assert!(texts(array(&ranking["rows"]), "name").contains(&name), "{name}: {ranking}");
        let contract = array(&ranking["contracts"]).iter().find(|contract| contract["name"] == name);
        assert!(contract.is_some(), "{name}: {ranking}");
        let twin = name.starts_with("go/twin");
        assert!(!twin || array(&contract.unwrap()["failed"]).is_empty(), "{name}: {ranking}");
    }
}

/// Returns the changed, the new and the ignored files of the repository; `None` if they are not known.
fn files_in_source_tree(root: &str) -> Option<String> {
    let args = ["--no-optional-locks", "status", "--porcelain", "--ignored", "--", ".", ":!target"];
    let output = Command::new("git").args(args).current_dir(root).output().ok()?;
    output.status.success().then(|| text(&output.stdout))
}

/// Programs are built, and records are made, below `target` or where `--out` says.
#[test]
fn a_measurement_writes_nothing_into_its_source_tree() {
    let name = "a_measurement_writes_nothing_into_its_source_tree";
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let Some(before) = files_in_source_tree(root) else {
        let _ = writeln!(std::io::stderr(), "not run: {name}: this is no repository of git");
        return;
    };
    let peers = if is_here(name) { "--peers=go/nethttp" } else { "" };
    for line in ["stress --server sequential --scale 0.002".to_owned(), format!("{TINY} {peers}")] {
        let output = polyserve(&line).current_dir(root).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{line}: {}", text(&output.stderr));
        assert_eq!(files_in_source_tree(root).unwrap(), before, "{line}");
    }
}

#[test]
fn an_idle_crowd_is_held_by_a_server_in_go() {
    if !is_here("an_idle_crowd_is_held_by_a_server_in_go") {
        return;
    }
    let few =
        "--set workload.connections=4 --set mode.held=30 --set rounds=2 --set mode.slice=20ms --set mode.warm_up=20ms";
    let names = r#"contestants=["catalog:pool_server/sharded","peer:go/nethttp"]"#;
    let report = json(&format!("bench crowd {few} --set {names}"));
    let rows = array(&report["rows"]);
    assert_eq!(rows.len(), 3, "{report}");
    for row in rows {
        let figures = &row["figures"];
        assert_eq!((&figures["crowd_arrived"], &row["rounds"]), (&30.0.into(), &2.into()), "{row}");
        assert!(figures["idle_cpu_ms_per_s"].is_f64(), "{row}");
    }
    assert!(texts(rows, "contestant").contains(&"go/nethttp"), "{report}");
}

#[test]
fn without_go_they_are_named_as_not_run() {
    let output = polyserve(&format!("{TINY} --peers=go/nethttp")).env("PATH", "").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let ranking = parsed(&output);
    let failed = &ranking["failed"];
    assert_eq!((&failed[0]["name"], &failed[0]["why"]), (&"go/nethttp".into(), &"go is not installed".into()));
    assert!(texts(array(&ranking["rows"]), "name").contains(&"leader_followers/two_level"));
    let output = polyserve("stress --server=go/nethttp").env("PATH", "").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    has(&text(&output.stderr), &["go/nethttp: go is not installed"]);
}

/// Every answer and the final state are verified. The report lists the values that are unknown for a foreign server.
#[test]
fn they_bear_the_stress_scenario() {
    if !is_here("they_bear_the_stress_scenario") {
        return;
    }
    for server in servers_in_go().into_iter().chain([PRINTING]) {
        let report = json(&format!("stress --server {server} --scale=0.01 --connections=5 --workers=4"));
        assert_eq!((&report["passed"], &report["server"]), (&true.into(), &server.into()), "{report}");
        for round in array(&report["rounds"]) {
            assert_eq!(round["drain"]["answered"], 700, "100 PUTs before, 400 requests, a look at 200 ids: {round}");
            let (count, present) = (&round["store_count"], &round["final_state"]["present"]);
            assert_eq!((count, present), (&Value::Null, &200.into()), "{round}");
        }
    }
    let report = printed("stress --server=go/twin-rwmutex --scale=0.002 --mode=close");
    has(&report, &["go/twin-rwmutex over its own store", "unknown: the number of entities in the store"]);
    has(&report, &["answered 140", "passed"]);
}

/// The published listings send no `Date`, and end each connection. All else is verified.
#[test]
fn the_listings_bear_the_published_runs() {
    if !is_here("the_listings_bear_the_published_runs") {
        return;
    }
    for server in ["go/entity-rwmutex", "go/entity-syncmap"] {
        let report = json(&format!("stress --server {server} --scale=0.01 --connections=5 --workers=4 --mode=close"));
        assert_eq!((&report["passed"], &report["server"]), (&true.into(), &server.into()), "{report}");
    }
    let listing = "go/entity-rwmutex-printing";
    let measured = json(&format!("matrix --pools=2 --connections=4 --requests=60 --servers={listing}"));
    let cells = array(&measured["cells"]);
    assert_eq!(cells.len(), 4, "with the control, both methods: {measured}");
    for cell in cells {
        assert_eq!((&cell["contestant"], &cell["lang"]), (&listing.into(), &"go".into()), "{cell}");
        assert_eq!((&cell["server"], &cell["variant"]), (&"entity".into(), &"rwmutex-printing".into()), "{cell}");
    }
}

/// nginx answers reads if it is installed.
#[test]
fn nginx_takes_part_in_reads() {
    let output = run(&format!("{TINY} --peers=nginx"));
    let ranking = parsed(&output);
    match program("nginx").is_installed() {
        Ok(_) => {
            assert!(output.status.success(), "{ranking}");
            assert!(texts(array(&ranking["rows"]), "name").contains(&"nginx"), "{ranking}");
        }
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "nginx_takes_part_in_reads: {why}"); // past the harness's capture
            assert_eq!((output.status.code(), &ranking["failed"][0]["why"]), (Some(1), &why.into()), "{ranking}");
        }
    }
}
