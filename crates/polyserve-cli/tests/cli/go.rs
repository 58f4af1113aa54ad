//! The servers in Go, which the command builds, and nginx. Without Go or nginx these tests print that they are not run.

use std::io::Write as _;
use std::process::{Command, Stdio};

use polyserve_bench::contestants::{GO, Program, Registry};
use serde_json::Value;

use super::{array, ended, has, json, one, parsed, polyserve, printed, run, text, texts};

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
        assert!(!array(&one(&ranking["contracts"], "name", name)["held"]).is_empty(), "{name}: {ranking}");
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
    let stress = r#"bench stress --set contestants=["catalog:sequential/two_level"] --set mode.ids=20"#;
    for line in [stress.to_owned(), format!("{TINY} {peers}")] {
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
    let stress = r#"bench stress --set contestants=["peer:go/nethttp"] --set sweep.connection_use=["burst"]"#;
    let output = polyserve(stress).env("PATH", "").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    has(&text(&output.stdout), &["go/nethttp: go is not installed"]);
}

/// Every answer and the final state are verified. The report says which count is unknown for a foreign server.
#[test]
fn they_bear_the_stress_scenario() {
    if !is_here("they_bear_the_stress_scenario") {
        return;
    }
    let servers = servers_in_go();
    let report = stressed(&servers, "--set mode.ids=100 --set workload.connections=5 --workers=4");
    let rows = array(&report["rows"]);
    assert_eq!(rows.len(), servers.len() * 2, "{report}");
    for row in rows {
        let figures = &row["figures"];
        assert_eq!(figures["server_answered"], 700.0, "100 PUTs before, 400 requests, a look at 200 ids: {row}");
        assert_eq!((&figures["stored_entities"], &figures["final_present"]), (&Value::Null, &200.0.into()), "{row}");
    }
    let few = "--set mode.ids=20 --set sweep.connection_use=[\"close\"]";
    let report = printed(&format!("bench stress --set contestants=[\"peer:go/nethttp\"] {few}"));
    has(&report, &["go/nethttp", "unknown: the number of entities in a store"]);
    has(&report, &["140", "No request had a wrong answer"]);
}

/// Runs the stress scenario against servers from outside the catalog, on new and on kept connections. None may have an error.
fn stressed(servers: &[&str], changes: &str) -> Value {
    let names: Vec<String> = servers.iter().map(|name| format!("\"peer:{name}\"")).collect();
    let uses = "--set sweep.connection_use=[\"close\",\"keep-alive\"]";
    let report = json(&format!("bench stress {uses} --set contestants=[{}] {changes}", names.join(",")));
    assert_eq!((&report["passed"], array(&report["failed"]).len()), (&true.into(), 0), "{report}");
    let measured = texts(array(&report["rows"]), "contestant");
    assert!(servers.iter().all(|name| measured.contains(name)), "{report}");
    report
}

/// The published listings send no `Date`, and end each connection. All else is verified.
#[test]
fn the_listings_bear_the_published_runs() {
    if !is_here("the_listings_bear_the_published_runs") {
        return;
    }
    let listings = ["go/entity-rwmutex", "go/entity-syncmap"];
    stressed(&listings, "--set mode.ids=100 --set workload.connections=5 --workers=4");
    let listing = "go/entity-rwmutex-printing";
    let one = format!("--set contestants=[\"peer:{listing}\"] --set baseline=peer:{listing} --set claim=[]");
    let sizes = "--set sweep.workers=[2] --set sweep.connections=[4] --set mode.requests=60 --set rounds=1";
    let measured = json(&format!("bench matrix {one} {sizes}"));
    let mut names = texts(array(&measured["rows"]), "contestant");
    names.sort_unstable();
    let again = format!("{listing} (again)");
    assert_eq!(names, [listing, listing, &again, &again], "with the control, both methods: {measured}");
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
            let bench = |code: i32, keys: u32| {
                let args = "bench percore --quick --json --only=nginx --set sweep={} --set chart=[]";
                parsed(&ended(code, &format!("{args} --set workload.keys={keys}")))
            };
            let report = bench(0, 1);
            assert!(texts(array(&report["rows"]), "contestant").contains(&"nginx"), "{report}");
            let report = bench(1, 2);
            let why = one(&report["not_run"], "contestant", "nginx")["why"].clone();
            assert_eq!(why, "it has a fixed answer, and 2 entities are read", "{report}");
        }
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "nginx_takes_part_in_reads: {why}"); // past the harness's capture
            assert_eq!((output.status.code(), &ranking["failed"][0]["why"]), (Some(1), &why.into()), "{ranking}");
        }
    }
}
