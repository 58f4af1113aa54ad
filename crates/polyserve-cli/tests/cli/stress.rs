use std::sync::Arc;
use std::time::Duration;

use polyserve::catalog::{Catalog, Entry};
use polyserve::memory::StdMutex;
use polyserve::{
    Answer, Condition, Conditional, Entity, EntityRef, EntityRepo, Lookup, Put, Removed, RepoError, ServerConfig,
    Shutdown,
};
use polyserve_conformance::broken::repos::{LossyValue, MiscountedLen, ReplacedSaysCreated};
use polyserve_experiments::stress::{Mode, NAME, OwnServer, Report, Scenario, Stress, Use};
use polyserve_lab::data::Data;
use polyserve_lab::delayed::Delayed;
use polyserve_lab::experiment::{self, Experiment as _};
use polyserve_lab::journal::{Header, Journal};
use polyserve_lab::machine::{Cores, Environment};
use serde_json::Value;

use super::{Dir, array, has, json, misused, printed, texts};

#[test]
fn a_small_one_passes_on_every_shape() {
    for server in ["pool_server", "sequential", "leader_followers"] {
        let report = json(&format!("stress --server {server} --scale 0.01 --connections 5"));
        assert_eq!(report["passed"], true, "{report}");
        let rounds = array(&report["rounds"]);
        assert_eq!(texts(rounds, "mode"), ["close", "keep-alive"]);
        for round in rounds {
            let samples =
                |i: usize| (round["groups"][i]["phase"].as_str().unwrap(), round["groups"][i]["samples"].as_u64());
            let wanted = [("put-new", Some(100)), ("get", Some(100)), ("put-update", Some(200)), ("total", Some(400))];
            assert_eq!([0, 1, 2, 3].map(samples), wanted);
            assert_eq!(round["drain"]["answered"], 600, "400 requests, and a look at 200 ids: {round}");
            assert_eq!((&round["final_state"]["present"], &round["final_state"]["wrong"]), (&200.into(), &0.into()));
            for column in ["error_pct", "requests_per_s", "received_kB_s", "sent_kB_s"] {
                assert!(round["groups"][3][column].is_f64(), "{round}");
            }
        }
        assert_eq!((&rounds[0]["connections"], &rounds[1]["error_count"]), (&400.into(), &0.into()));
    }
}

/// One record holds the rounds of several servers. A recorded round is not run again.
#[test]
fn rounds_are_recorded_and_not_run_again() {
    let dir = Dir::new("stress");
    let run = |server: &str, mode: &str| {
        json(&format!("stress --scale=0.002 --connections=3 --out={dir} --server={server} --mode={mode}"))
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
    let published = polyserve_experiments::published::STRESS.lines().next().unwrap();
    assert!(csv.starts_with(published) && csv.lines().count() == 1 + 3 * 4, "{csv}");
    has(&csv, &["rust,put-new,20,0,"]);
    has(&misused(&format!("stress --scale=0.003 --connections=3 --out={dir}")), &["not written over"]);
}

#[test]
fn for_people_it_is_a_table() {
    let report = printed("stress --scale 0.002 --mode keep-alive --repo std_rwlock");
    has(&report, &["pool_server/mpsc_pool over std_rwlock", "put-update", "requests/s"]);
    has(&report, &["answered 120, cut 0", "passed"]);
}

/// Runs one round on `pool_server` over this repo, in this process.
fn stressed(repo: impl EntityRepo + 'static, mode: Mode, config: ServerConfig) -> Report {
    let repo: Arc<dyn EntityRepo> = Arc::new(repo);
    let contestant = OwnServer {
        server: Catalog::builtin().server("pool_server").unwrap().clone(),
        repo: Entry::repo("broken", "wrong in one way", &[], move || Ok(Arc::clone(&repo))),
        config,
    };
    let (one, stop) = (Cores::from(0), Shutdown::new());
    let header = Header::new(NAME, Value::Null, Environment::of(&one, [&one; 2], 1, "any"));
    let scenario = Scenario::new(0.005, Data::new(1));
    let (subject, modes, description) = (contestant.into(), vec![mode], Value::Null);
    let mut stress = Stress { subject, scenario, modes, description, stop: stop.clone() };
    let records = experiment::run(&mut stress, &header, &mut Journal::none(), &stop).unwrap();
    Stress::report(&records).unwrap()
}

/// A burst fills a small server. It rejects requests, which then have no effect. That is right.
#[test]
fn a_burst_may_be_refused() {
    let small = ServerConfig::default().workers(1).queue(1).max_connections(3);
    let slow = Delayed::new(Arc::new(StdMutex::new()), Duration::from_millis(2));
    let report = stressed(slow, Mode::Burst(200, 10), small);
    assert!(report.passed, "{report}");
    assert!(report.rounds[0].outcome.groups[3].refused > 0, "{report}");
}

/// A rejection is an error if the server must hold all connections.
#[test]
fn a_refusal_is_an_error_outside_a_burst() {
    let small = ServerConfig::default().max_connections(1);
    let report = stressed(StdMutex::new(), Mode::Groups(Use::KeepAlive, 4), small);
    assert!(!report.passed && report.rounds[0].outcome.errors[0].contains("503"), "{report}");
}

/// Each broken store fails the scenario.
#[test]
fn broken_repos_are_found_out() {
    fn report(repo: impl EntityRepo + 'static) -> Report {
        stressed(repo, Mode::Groups(Use::Close, 4), ServerConfig::default())
    }
    for (said, report) in [
        ("was lost", report(Forgets::default())),
        ("is not a possible value", report(LossyValue::default())),
        ("in place of 200", report(ReplacedSaysCreated::default())),
        ("the repo counts", report(MiscountedLen::default())),
    ] {
        assert!(!report.passed, "{said}: {report}");
        assert!(report.rounds[0].outcome.errors.iter().any(|error| error.contains(said)), "{said}: {report}");
    }
}

/// Forgets some of the entities that are put.
#[derive(Debug, Default)]
struct Forgets {
    right: StdMutex,
}

impl EntityRepo for Forgets {
    fn get(&self, id: &i64, visit: &mut dyn FnMut(EntityRef<'_>)) -> Answer<Result<Lookup, RepoError>> {
        self.right.get(id, visit)
    }
    fn put_if(&self, entity: Entity, condition: &Condition) -> Answer<Result<Conditional<Put>, RepoError>> {
        self.right.put_if(entity, condition)
    }
    fn remove_if(&self, id: &i64, condition: &Condition) -> Answer<Result<Conditional<Removed>, RepoError>> {
        self.right.remove_if(id, condition)
    }
    fn put(&self, entity: Entity) -> Answer<Result<Put, RepoError>> {
        let is_forgotten = entity.id >= 50 && entity.id % 7 == 0;
        if is_forgotten { Answer::Now(Ok(Put::Created)) } else { self.right.put(entity) }
    }
    fn remove(&self, id: &i64) -> Answer<Result<Removed, RepoError>> {
        self.right.remove(id)
    }
    fn len(&self) -> Answer<Result<u64, RepoError>> {
        self.right.len()
    }
}
