use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use polyserve::Request;
use polyserve::http::{Method, StatusCode};
use polyserve::prelude::*;
use polyserve_load::Dist;
use polyserve_load::data::Data;

use super::*;
use crate::fixtures;
use crate::turn::Role;

/// A server that closes kept connections makes its clients repeat requests, and avoids the work of many connections.
#[test]
fn a_server_that_can_hold_all_connections_closes_none() {
    let launch = fixtures::launch();
    let contestant = |shape| Contestant::new("any", Role::Ranked, launch.clone()).with(|one| one.shape = shape);
    let absence = check_kept(&contestant(Some(Shape::Multiplexed)), 3).unwrap_err();
    assert!(absence.why.contains("3 requests were sent again") && absence.is_wrong(), "{absence:?}");
    check_kept(&contestant(Some(Shape::Multiplexed)), 0).unwrap();
    for shape in [None, Some(Shape::OnePerThread), Some(Shape::One)] {
        check_kept(&contestant(shape), 3).unwrap();
    }
}

const KEYS: u32 = 5_000;

/// An entity service that records the ids of all GETs.
struct RecordingService {
    service: EntityService<Sharded>,
    ids: Mutex<Vec<u32>>,
}

impl Service for RecordingService {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        if request.head.method == Method::GET {
            self.ids.lock().unwrap().push(request.head.path()[1..].parse().unwrap());
        }
        self.service.call(request, body)
    }
}

/// A server of `service`, and the contestant that it is.
fn serving(service: impl Service) -> (Running, Contestant) {
    let server = PoolServer::mpsc(ServerConfig::default()).unwrap();
    let running = server.serve("127.0.0.1:0", service).unwrap();
    let script = format!("echo at {}; while read line; do :; done", running.local_addr());
    let launch = fixtures::script(&script, AddressFrom::Line("at ".into()));
    (running, Contestant::new("any", Role::Ranked, launch))
}

/// GETs of this number of entities, over one connection.
fn instrument(keys: u32) -> Instrument {
    let traffic = Traffic::entities(&Data::new(1), keys.into(), Dist::Uniform, "get=1".parse().unwrap(), 0).unwrap();
    Instrument {
        server_cores: Cores::available().unwrap(),
        client_cores: Cores::available().unwrap(),
        connections: 1,
        usage: Usage::KeepAlive { pipeline: 1 },
        arrivals: Arrivals::Poisson,
        limit_traffic: traffic.clone(),
        traffic,
        asked: String::new(),
        warm_up: MIN_SLICE,
        slice: MIN_SLICE,
        latency_slice: MIN_SLICE,
        stop: Shutdown::new(),
    }
}

/// Regression test: every slice of every round requested the same first entities.
#[test]
fn slices_request_different_entities_and_contestants_the_same() {
    let recording = Arc::new(RecordingService { service: EntityService::new(Sharded::new()), ids: Mutex::default() });
    let (_running, contestant) = serving(Arc::clone(&recording));
    let instrument = instrument(KEYS);
    // The ids of each load of a round.
    let ids_of_round = |round| {
        let ids = || std::mem::take(&mut *recording.ids.lock().unwrap());
        let mut session = instrument.start(&contestant, round).unwrap();
        let mut loads = vec![ids()];
        for _ in 0..4 {
            instrument.measure(&mut session).unwrap();
            loads.push(ids());
        }
        loads
    };
    let [first, same_round, second] = [1, 1, 2].map(ids_of_round);
    // A load lasts for a time, so only the start of its sequence is the same.
    let mut compared = 0;
    for (first, second) in first.iter().zip(&same_round) {
        let common = first.len().min(second.len());
        assert_eq!(first[..common], second[..common]);
        compared += common;
    }
    assert!(compared > 0, "no load has an answer in both");
    let [first, second] = [first.concat(), second.concat()];
    let requests = first.len() + second.len();
    let distinct = first.iter().chain(&second).collect::<HashSet<_>>().len();
    // Uniform draws find this share of the keys, with a standard deviation of at most 36.
    let expected = f64::from(KEYS) * (1.0 - (-(requests as f64) / f64::from(KEYS)).exp());
    assert!((distinct as f64 - expected).abs() < 200.0, "{distinct} of {requests} requests, not {expected}");
}

/// An entity service that answers the GETs of some numbers by itself.
struct SometimesOther<F> {
    service: EntityService<Sharded>,
    gets: AtomicU64,
    other: F,
}

impl<F: Fn(u64) -> Option<Reply> + Send + Sync + 'static> Service for SometimesOther<F> {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        let is_get = request.head.method == Method::GET;
        let other = is_get.then(|| (self.other)(self.gets.fetch_add(1, Ordering::Relaxed))).flatten();
        other.map_or_else(|| self.service.call(request, body), Answer::Now)
    }
}

fn refusal() -> Reply {
    Reply::problem(StatusCode::SERVICE_UNAVAILABLE, "Not now.").with_header("Retry-After", "1").unwrap()
}

/// Regression test: a server with an overload policy counted as wrong if the policy refused one request of the verification.
#[test]
fn a_server_that_may_refuse_is_verified_by_clients_that_retry() {
    let instrument = Instrument { warm_up: MIN_SLICE * 4, ..instrument(1) };
    let verified = |retry: Option<Retry>, other: fn(u64) -> Option<Reply>| {
        let service = EntityService::new(Sharded::new());
        let (_running, contestant) = serving(SometimesOther { service, gets: AtomicU64::new(0), other });
        instrument.start_with(&contestant, 1, retry).map(drop).map_err(|absence| absence.why)
    };
    let retry = Retry::default().with(|retry| (retry.attempts, retry.pause) = (5, Duration::from_millis(1)));
    let first = |number: u64| (number == 0).then(refusal);
    verified(Some(retry), first).unwrap();
    let why = verified(None, first).unwrap_err();
    assert!(why.contains("status 503"), "{why}");
    let why = verified(Some(retry), |_| Some(refusal())).unwrap_err();
    assert!(why.contains("refused or not answered at each attempt"), "{why}");
    let why = verified(Some(retry), |number| (number == 0).then(|| Reply::text("wrong"))).unwrap_err();
    assert!(why.contains("not right"), "{why}");
}
