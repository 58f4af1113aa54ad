//! `polyserve bench stress`: the published requests, their answers and the final state. No test asserts a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use polyserve::catalog::Catalog;
use polyserve::memory::StdMutex;
use polyserve::signals::Signals;
use polyserve::{
    Answer, Condition, Conditional, Drain, Entity, EntityRepo, EntityService, Lookup, Put, Removed, RepoAnswer,
    ServerConfig, ServerExt as _, Shutdown, Visit,
};
use polyserve_bench::bench::mode::ModeKind;
use polyserve_bench::bench::mode::scenario::ScenarioMode;
use polyserve_bench::bench::mode::scenario::{ScenarioConnections, ScenarioServer, ScenarioTurns};
use polyserve_bench::bench::{
    BenchPlan, BenchResult, CellEntries, DefinedExperiment, Definition, NAME, Report, SweepCell,
};
use polyserve_bench::data::Data;
use polyserve_bench::delayed::Delayed;
use polyserve_bench::experiment;
use polyserve_bench::journal::{Header, Journal};
use polyserve_bench::launch::{AddressFrom, Launch};
use polyserve_bench::machine::{Cores, Environment};
use polyserve_bench::turn::Role;
use polyserve_conformance::broken::repos::RepoFlaw;
use serde_json::{Value, json};

use super::{Dir, array, has, json as report_of, misused, printed};

/// A run with a hundredth of the requests.
const SMALL: &str = "bench stress --set mode.ids=100 --set workload.connections=5";

/// A run with 80 requests.
const TINY: &str = "bench stress --set mode.ids=20 --set workload.connections=3";

fn contestants(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    format!("--set contestants=[{}]", names.join(","))
}

/// The groups of a round, by name.
fn groups(round: &Value) -> BTreeMap<&str, &Value> {
    array(&round["groups"]).iter().map(|group| (group["phase"].as_str().unwrap(), group)).collect()
}

#[test]
fn a_small_one_passes_on_every_shape() {
    let dir = Dir::new("stress-small");
    let names = ["pool_server", "sequential", "leader_followers"].map(|name| format!("catalog:{name}/two_level"));
    let names = contestants(&names.each_ref().map(String::as_str));
    let report =
        report_of(&format!("{SMALL} {names} --set sweep.connection_use=[\"close\",\"keep-alive\"] --out={dir}"));
    assert_eq!((&report["passed"], &report["errors"]), (&true.into(), &json!([])), "{report}");
    let rounds = dir.recorded("stress.jsonl", "round");
    assert_eq!(rounds.len(), 3 * 2);
    for round in &rounds {
        let groups = groups(round);
        let samples = ["put-new", "get", "put-update", "total"].map(|phase| groups[phase]["samples"].as_u64());
        assert_eq!(samples, [Some(100), Some(100), Some(200), Some(400)]);
        for column in ["error_pct", "requests_per_s", "received_kB_s", "sent_kB_s"] {
            assert!(groups["total"][column].is_f64(), "{round}");
        }
    }
    let rows = array(&report["rows"]);
    let uses: Vec<&str> = rows.iter().map(|row| row["cell"]["connection_use"].as_str().unwrap()).collect();
    assert_eq!(uses, ["close", "close", "close", "keep-alive", "keep-alive", "keep-alive"]);
    for row in rows {
        let figures = &row["figures"];
        assert_eq!(figures["server_answered"], 700.0, "100 stored before, 400 requests, 200 ids seen: {row}");
        assert_eq!(figures["stored_entities"], 200.0, "{row}");
        assert_eq!((&figures["final_present"], &figures["final_wrong"]), (&200.0.into(), &0.0.into()));
        assert_eq!(figures["errors"], 0.0, "{row}");
        if row["cell"]["connection_use"] == "close" {
            assert_eq!(figures["connections_opened"], 400.0, "{row}");
        }
    }
}

#[test]
fn a_burst_against_all_servers() {
    let dir = Dir::new("stress-all");
    let all = contestants(&["catalog:*/two_level"]);
    printed(&format!("{TINY} {all} --set sweep.connection_use=[\"burst\"] --out={dir}"));
    let recorded = dir.recorded("stress.jsonl", "row");
    let servers: Vec<String> =
        recorded.iter().map(|line| line["contestant"].as_str().unwrap().replace("/two_level", "")).collect();
    let catalog = Catalog::builtin();
    let mut expected: Vec<&str> = catalog.servers().iter().map(|server| server.name.as_str()).collect();
    let mut sorted: Vec<&str> = servers.iter().map(String::as_str).collect();
    expected.sort_unstable();
    sorted.sort_unstable();
    assert_eq!(sorted, expected, "the order changes from round to round");
    for row in recorded {
        let figures = &row["figures"];
        assert_eq!((&figures["connections_at_once"], &figures["errors"]), (&40.0.into(), &0.0.into()), "{row}");
    }
}

/// A server with a repo at a location is asked for by a star too.
#[test]
fn a_star_takes_a_repo_with_a_location() {
    let dir = Dir::new("stress-located");
    dir.write("store/none", "");
    let names = contestants(&[&format!("catalog:pool*/durable:{dir}/store")]);
    let report = report_of(&format!("{TINY} {names} --set sweep.connection_use=[\"burst\"] --only=mpsc"));
    let rows = array(&report["rows"]);
    assert!(!rows.is_empty() && rows.iter().all(|row| row["figures"]["errors"] == 0.0), "{report}");
    assert!(rows.iter().all(|row| row["contestant"].as_str().unwrap().contains("/durable:")), "{report}");
}

/// A recorded round is not run again.
#[test]
fn rounds_are_recorded_and_not_run_again() {
    let dir = Dir::new("stress");
    let run = |names: &str| {
        let uses = "--set sweep.connection_use=[\"close\",\"keep-alive\"]";
        report_of(&format!("{TINY} {uses} --set contestants=[{names}] --out={dir}"))
    };
    let (pool, sequential) = ("\"catalog:pool_server/two_level\"", "\"catalog:sequential/two_level\"");
    let both = format!("{pool},{sequential}");
    let first = run(&both);
    let recorded = dir.recorded("stress.jsonl", "row");
    let again = run(&both);
    assert_eq!((&again["rows"], &again["interrupted"]), (&first["rows"], &false.into()));
    assert_eq!(dir.recorded("stress.jsonl", "row"), recorded);
    let mut rounds: Vec<_> = (recorded.iter())
        .map(|line| {
            let connection_use = line["cell"]["connection_use"].as_str().unwrap();
            (line["contestant"].as_str().unwrap(), connection_use, line["figures"]["samples"].as_f64())
        })
        .collect();
    rounds.sort_by_key(|(name, connection_use, _)| (*name, *connection_use));
    let (pool, sequential) = ("pool_server/mpsc_pool/two_level", "sequential/two_level");
    let expected = [(pool, "close"), (pool, "keep-alive"), (sequential, "close"), (sequential, "keep-alive")];
    assert_eq!(rounds, expected.map(|(name, connection_use)| (name, connection_use, Some(80.0))));
    let csv = dir.read("stress_groups.csv");
    let published = polyserve_bench::published::STRESS.lines().next().unwrap();
    assert!(csv.starts_with(published) && csv.lines().count() == 1 + 4 * 4, "{csv}");
    has(&csv, &["rust,put-new,20,0,"]);
    let other = format!("{TINY} --set mode.ids=30 --set contestants=[{both}] --out={dir}");
    has(&misused(&other), &["not overwritten"]);
}

#[test]
fn for_people_it_is_a_table() {
    let names = contestants(&["catalog:pool_server/std_rwlock"]);
    let report = printed(&format!("{TINY} {names} --set sweep.connection_use=[\"keep-alive\"]"));
    has(&report, &["pool_server/mpsc_pool/std_rwlock", "put-update", "requests/s", "answered by the server"]);
    has(&report, &["140", "No request had a wrong answer: 1 contestant took part."]);
}

/// The variable with the case that [`serves_a_repo_for_a_round`] serves.
const CASE: &str = "POLYSERVE_TEST_STRESS_CASE";

/// The repo and the settings of a case.
fn case(name: &str) -> (Arc<dyn EntityRepo>, ServerConfig) {
    let config = ServerConfig::default();
    match name {
        "slow in a small server" => {
            let slow = Delayed::new(Arc::new(StdMutex::new()), Duration::from_millis(2));
            (Arc::new(slow), config.workers(1).queue(1).max_connections(3))
        }
        "one connection" => (Arc::new(StdMutex::new()), config.max_connections(1)),
        "was lost" => (Arc::new(Forgets::default()), config),
        "is not a possible value" => (Arc::new(RepoFlaw::LossyValue.repo()), config),
        "in place of 200" => (Arc::new(RepoFlaw::ReplacedSaysCreated.repo()), config),
        "the store reports" => (Arc::new(RepoFlaw::MiscountedLen.repo()), config),
        _ => panic!("no case {name}"),
    }
}

/// The server process of the tests below. Without [`CASE`] it does nothing.
#[test]
fn serves_a_repo_for_a_round() {
    let Ok(name) = std::env::var(CASE) else { return };
    let (repo, config) = case(&name);
    let server = Catalog::builtin().server("pool_server").unwrap().build(&config).unwrap();
    let signals = Signals::register().unwrap();
    let running = server.serve(([127, 0, 0, 1], 0), EntityService::new(Arc::clone(&repo))).unwrap();
    println!("\n{}", json!({"listening": format!("http://{}", running.local_addr())}));
    let Drain { answered, cut, stuck, .. } = signals.drain(running).unwrap();
    let entities = repo.len().wait().ok();
    println!("{}", json!({"answered": answered, "cut": cut, "stuck": stuck, "entities": entities}));
    std::process::exit(0); // before the harness prints more
}

/// Runs one round on `pool_server` over the repo of a case. Returns its result, and whether it passed.
fn stressed(case: &str, connection_use: ScenarioConnections, connections: usize) -> (Report, bool) {
    let only = ["--exact", "scenario::serves_a_repo_for_a_round", "--nocapture", "--test-threads=1"];
    let launch = Launch {
        program: std::env::current_exe().unwrap(),
        args: only.map(Into::into).into(),
        env: vec![(CASE.into(), case.into())],
        address: AddressFrom::Json,
        files: Vec::new(),
    };
    let name = String::from("pool_server/broken");
    let (core, stop) = (Cores::from(0), Shutdown::new());
    let (cell, role) = (SweepCell::new(), Role::Ranked);
    let entries = CellEntries { cell: cell.clone(), contestants: vec![name.clone()] };
    let server =
        ScenarioServer { name: name.clone(), role, cell, connections, without_date: false, launch, is_single: false };
    let turns = ScenarioTurns {
        mode: ScenarioMode { ids: 50, connection_use },
        servers: vec![server],
        data: Data::new(1),
        max_connections: 200,
        stop: stop.clone(),
    };
    let definition = Definition::read("stress", &[]).unwrap();
    let plan = BenchPlan {
        name: definition.name,
        about: definition.about,
        workload: turns.mode.to_string(),
        mode: ModeKind::Scenario,
        compared: "errors".into(),
        contestants: vec![name.clone()],
        baseline: name,
        rounds: 1,
        ..BenchPlan::default()
    };
    let mut stress = DefinedExperiment::new(plan, vec![entries], Vec::new(), Box::new(turns));
    let header = Header::new(NAME, stress.describe(), Environment::of(&core, [&core; 2], 1, "any"));
    let records = experiment::run(&mut stress, &header, &mut Journal::none(), &stop).unwrap();
    let outcome = DefinedExperiment::report(&records).unwrap();
    let is_passed = !records.is_failed() && outcome.is_passed();
    let BenchResult::Report(report) = outcome else { panic!("{outcome}") };
    (*report, is_passed)
}

/// A burst fills a small server. It rejects requests, which then have no effect. That is right.
#[test]
fn a_burst_may_be_refused() {
    let (report, is_passed) = stressed("slow in a small server", ScenarioConnections::Burst, 4);
    assert!(is_passed, "{report}");
    assert!(report.rows[0].figures["refused"] > 0.0, "{report}");
}

/// A rejection is an error if the server must hold all connections.
#[test]
fn a_refusal_is_an_error_outside_a_burst() {
    let (report, is_passed) = stressed("one connection", ScenarioConnections::KeepAlive, 4);
    assert!(!is_passed && report.errors[0].first[0].contains("503"), "{report}");
}

/// Each broken store fails the scenario.
#[test]
fn broken_repos_are_found_out() {
    for case in ["was lost", "is not a possible value", "in place of 200", "the store reports"] {
        let (report, is_passed) = stressed(case, ScenarioConnections::Close, 4);
        assert!(!is_passed, "{case}: {report}");
        assert!(report.errors[0].first.iter().any(|error| error.contains(case)), "{case}: {report}");
    }
}

/// Forgets some of the entities that are put.
#[derive(Debug, Default)]
struct Forgets {
    right: StdMutex,
}

impl EntityRepo for Forgets {
    fn get(&self, id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        self.right.get(id, visit)
    }
    fn put_if(&self, entity: Entity, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        self.right.put_if(entity, condition)
    }
    fn remove_if(&self, id: &i64, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        self.right.remove_if(id, condition)
    }
    fn put(&self, entity: Entity) -> RepoAnswer<Put> {
        let is_forgotten = entity.id >= 50 && entity.id % 7 == 0;
        if is_forgotten { Answer::Now(Ok(Put::Created)) } else { self.right.put(entity) }
    }
    fn remove(&self, id: &i64) -> RepoAnswer<Removed> {
        self.right.remove(id)
    }
    fn len(&self) -> RepoAnswer<u64> {
        self.right.len()
    }
}
