use std::sync::Arc;
use std::time::Duration;

use polyserve::catalog::Catalog;
use polyserve::memory::StdMutex;
use polyserve::signals::Signals;
use polyserve::{
    Answer, Condition, Conditional, Drain, Entity, EntityRepo, EntityService, Lookup, Put, Removed, RepoAnswer,
    ServerConfig, ServerExt as _, Shutdown, Visit,
};
use polyserve_bench::data::Data;
use polyserve_bench::delayed::Delayed;
use polyserve_bench::experiment::{self, Experiment as _};
use polyserve_bench::journal::{Header, Journal};
use polyserve_bench::launch::{AddressFrom, Launch};
use polyserve_bench::machine::{Cores, Environment};
use polyserve_bench::stress::{ConnectionMode, ConnectionPolicy, NAME, Report, Scenario, Stress, Subject};
use polyserve_conformance::broken::repos::RepoFlaw;
use serde_json::{Value, json};

use super::{Dir, array, has, json as report_of, misused, printed, texts};

#[test]
fn a_small_one_passes_on_every_shape() {
    for server in ["pool_server", "sequential", "leader_followers"] {
        let report = report_of(&format!("stress --server {server} --scale 0.01 --connections 5"));
        assert_eq!(report["passed"], true, "{report}");
        let rounds = array(&report["rounds"]);
        assert_eq!(texts(rounds, "mode"), ["close", "keep-alive"]);
        for round in rounds {
            let samples =
                |i: usize| (round["groups"][i]["phase"].as_str().unwrap(), round["groups"][i]["samples"].as_u64());
            let expected =
                [("put-new", Some(100)), ("get", Some(100)), ("put-update", Some(200)), ("total", Some(400))];
            assert_eq!([0, 1, 2, 3].map(samples), expected);
            assert_eq!(round["drain"]["answered"], 700, "100 stored before, 400 requests, 200 ids seen: {round}");
            assert_eq!(round["store_count"], 200, "{round}");
            assert_eq!((&round["final_state"]["present"], &round["final_state"]["wrong"]), (&200.into(), &0.into()));
            for column in ["error_pct", "requests_per_s", "received_kB_s", "sent_kB_s"] {
                assert!(round["groups"][3][column].is_f64(), "{round}");
            }
        }
        assert_eq!((&rounds[0]["connections"], &rounds[1]["error_count"]), (&400.into(), &0.into()));
    }
}

#[test]
fn a_burst_against_all_servers() {
    let dir = Dir::new("stress-all");
    printed(&format!("stress --server all --burst --scale 0.002 --out={dir}"));
    let recorded = dir.recorded("stress.jsonl", "round");
    let servers: Vec<&str> = recorded.iter().map(|line| line["server"].as_str().unwrap()).collect();
    let catalog = Catalog::builtin();
    assert_eq!(servers, catalog.servers().iter().map(|server| server.name.as_str()).collect::<Vec<_>>());
    for round in recorded {
        assert_eq!((&round["connections_at_once"], &round["error_count"]), (&40.into(), &0.into()), "{round}");
    }
}

#[test]
fn a_debug_build_of_an_unknown_server_is_refused() {
    has(&misused("stress --server debug/pool_servr"), &["\"pool_servr\"", "pool_server"]);
}

/// One record holds the rounds of several servers. A recorded round is not run again.
#[test]
fn rounds_are_recorded_and_not_run_again() {
    let dir = Dir::new("stress");
    let run = |server: &str, mode: &str| {
        report_of(&format!("stress --scale=0.002 --connections=3 --out={dir} --server={server} --mode={mode}"))
    };
    let first = run("pool_server", "close");
    let again = run("pool_server", "both");
    assert_eq!((&again["rounds"][0], &again["interrupted"]), (&first["rounds"][0], &false.into()));
    run("sequential", "close");
    let recorded = dir.recorded("stress.jsonl", "round");
    let rounds: Vec<_> = (recorded.iter())
        .map(|line| (line["server"].as_str().unwrap(), line["mode"].as_str().unwrap(), line["requests"].as_u64()))
        .collect();
    let (pool, sequential) = ("pool_server/mpsc_pool", "sequential");
    assert_eq!(rounds, [(pool, "close", Some(80)), (pool, "keep-alive", Some(80)), (sequential, "close", Some(80))]);
    let csv = dir.read("stress.csv");
    let published = polyserve_bench::published::STRESS.lines().next().unwrap();
    assert!(csv.starts_with(published) && csv.lines().count() == 1 + 3 * 4, "{csv}");
    has(&csv, &["rust,put-new,20,0,"]);
    has(&misused(&format!("stress --scale=0.003 --connections=3 --out={dir}")), &["not overwritten"]);
}

#[test]
fn for_people_it_is_a_table() {
    let report = printed("stress --scale 0.002 --mode keep-alive --repo std_rwlock");
    has(&report, &["pool_server/mpsc_pool over std_rwlock", "put-update", "requests/s"]);
    has(&report, &["answered 140, cut 0", "passed"]);
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

/// Runs one round on `pool_server` over the repo of a case.
fn stressed(case: &str, mode: ConnectionMode) -> Report {
    let only = ["--exact", "stress::serves_a_repo_for_a_round", "--nocapture", "--test-threads=1"];
    let launch = Launch {
        program: std::env::current_exe().unwrap(),
        args: only.map(Into::into).into(),
        env: vec![(CASE.into(), case.into())],
        address: AddressFrom::Json,
        files: Vec::new(),
    };
    let subject = Subject { server: "pool_server".into(), repo: "broken".into(), launch, is_single: false };
    let (core, stop) = (Cores::from(0), Shutdown::new());
    let header = Header::new(NAME, Value::Null, Environment::of(&core, [&core; 2], 1, "any"));
    let scenario = Scenario::new(50, Data::new(1));
    let (modes, description) = (vec![mode], Value::Null);
    let mut stress = Stress { subject, scenario, modes, description, stop: stop.clone() };
    let records = experiment::run(&mut stress, &header, &mut Journal::none(), &stop).unwrap();
    Stress::report(&records).unwrap()
}

/// A burst fills a small server. It rejects requests, which then have no effect. That is right.
#[test]
fn a_burst_may_be_refused() {
    let report = stressed("slow in a small server", ConnectionMode::Burst(200, 10));
    assert!(report.passed, "{report}");
    assert!(report.rounds[0].outcome.groups[3].refused > 0, "{report}");
}

/// A rejection is an error if the server must hold all connections.
#[test]
fn a_refusal_is_an_error_outside_a_burst() {
    let report = stressed("one connection", ConnectionMode::Groups(ConnectionPolicy::KeepAlive, 4));
    assert!(!report.passed && report.rounds[0].outcome.errors[0].contains("503"), "{report}");
}

/// Each broken store fails the scenario.
#[test]
fn broken_repos_are_found_out() {
    for case in ["was lost", "is not a possible value", "in place of 200", "the store reports"] {
        let report = stressed(case, ConnectionMode::Groups(ConnectionPolicy::Close, 4));
        assert!(!report.passed, "{case}: {report}");
        assert!(report.rounds[0].outcome.errors.iter().any(|error| error.contains(case)), "{case}: {report}");
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
