//! Conditional increments over HTTP while an engine fails over and restarts. None is lost, none is done twice, and no answer is a
//! 500.
//!
//! Each client has a number in each entity, and adds one to it: it reads the entity, and puts the next one with the tag that it
//! has read. After a 503, it reads the entity again, which tells whether the write was done. A write that is done late changes
//! nothing then, because its tag is old. Only a write that may have been done, by its answer or without one, may be found done.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use polyserve_async::TokioTcp;
use polyserve_cluster::StoreLimits;
use polyserve_conformance::client::{Client, Response};
use polyserve_core::{Entity, EntityRepo, EntityService, Identifiable as _, Running, ServerConfig, ServerExt as _};
use polyserve_engines::etcd::EtcdCluster;
use polyserve_engines::postgres::PostgresServer;
use polyserve_engines::process::{EngineProcess, MAX_WAIT, Missing, Signal, wait_for};
use polyserve_engines::redis::{NODES, RedisNodes};

use crate::Test;
use crate::kind::{Connect as _, Kind, connect_redis, name_space};

pub(crate) fn tests(kind: Kind) -> Vec<Test> {
    let test = |name: &str, run: fn() -> Result<(), Missing>| Test::own(kind, &format!("increments::{name}"), run);
    match kind {
        Kind::Etcd => vec![test("failover", etcd_failover), test("restart", etcd_restart)],
        Kind::Redis => vec![test("failover", redis_failover), test("restart", redis_restart)],
        Kind::Postgres => vec![
            test("failover", postgres_failover),
            test("restart", postgres_restart),
            test("pgbouncer", postgres_behind_pgbouncer),
        ],
    }
}

const CLIENTS: usize = 8;
const KEYS: i64 = 4;

/// The number of increments of all clients before the first fault, and after each.
const INCREMENTS: u64 = 200;

/// The pause of a client after a 503.
const PAUSE: Duration = Duration::from_millis(20);

/// A client gives up after this number of wrong answers.
const MAX_WRONG: usize = 100;

/// The number of faults of each scenario.
fn rounds() -> u32 {
    match std::env::var("POLYSERVE_FAULTS") {
        Ok(rounds) => rounds.parse().expect("POLYSERVE_FAULTS is a number of faults"),
        Err(_) => 2,
    }
}

/// What all clients have seen.
#[derive(Default)]
struct Seen {
    increments: AtomicU64,
    not_done: AtomicU64,
    may_be_done: AtomicU64,
    refused_reads: AtomicU64,
    conflicts: AtomicU64,
    /// The answers that are neither a success, a conflict nor a 503.
    wrong: Mutex<Vec<String>>,
}

/// Serves stores over HTTP, and runs the clients while `fault` is called a number of times.
///
/// # Panics
///
/// Panics if an increment is lost, done twice, or done although the answer was that it was not, if an answer is a 500, or if clients do not go on after a fault.
fn count(kind: Kind, stores: &[Arc<dyn EntityRepo>], rounds: u32, mut fault: impl FnMut(u32)) {
    let serve = |store: &Arc<dyn EntityRepo>| {
        let server = TokioTcp::new(ServerConfig::default().workers(2)).expect("the settings are valid");
        server.serve("127.0.0.1:0", EntityService::new(Arc::clone(store)).etags(true)).expect("it listens")
    };
    let servers: Vec<_> = stores.iter().map(serve).collect();
    let addrs: Vec<SocketAddr> = servers.iter().map(Running::local_addr).collect();
    for key in 0..KEYS {
        // A replica may not follow its master yet.
        wait_for("the engine serves before the first fault", || stores[0].put(shown(key, &[0; CLIENTS])).wait().ok());
    }
    let (seen, is_over) = (Seen::default(), AtomicBool::new(false));
    let done: Vec<Vec<u64>> = thread::scope(|scope| {
        let (seen, is_over) = (&seen, &is_over);
        let _end = OnDrop(is_over);
        let start = |number: usize| {
            let addr = addrs[number % addrs.len()];
            scope.spawn(move || run_client(Counting { addr, client: None, number, seen }, is_over))
        };
        let clients: Vec<_> = (0..CLIENTS).map(start).collect();
        let go_on = |what: &str| {
            let target = seen.increments.load(Relaxed) + INCREMENTS;
            wait_for(what, || {
                assert!(!clients.iter().any(ScopedJoinHandle::is_finished), "a client gave up");
                (seen.increments.load(Relaxed) >= target).then_some(())
            });
        };
        go_on("clients increment");
        for round in 0..rounds {
            fault(round);
            go_on("clients increment after a fault");
        }
        is_over.store(true, Relaxed);
        clients.into_iter().map(|client| client.join().expect("a client found a lost increment, or gave up")).collect()
    });
    let wrong = seen.wrong.into_inner().unwrap();
    println!(
        "{}: {rounds} faults, {:?} increments, {:?} conflicts, {:?} x 503 not done, {:?} x 503 may be done, {:?} x 503 for reads, {} wrong",
        kind.name(),
        seen.increments,
        seen.conflicts,
        seen.not_done,
        seen.may_be_done,
        seen.refused_reads,
        wrong.len()
    );
    for key in 0..KEYS {
        let expected: Vec<u64> = done.iter().map(|of_client| of_client[key as usize]).collect();
        let mut counting = Counting { addr: addrs[0], client: None, number: 0, seen: &Seen::default() };
        let (_, stored) = wait_for("the store serves at the end", || counting.read(key));
        assert_eq!(stored, expected, "the numbers of all clients in entity {key}");
    }
    assert!(wrong.is_empty(), "{} wrong answers: {:?}", wrong.len(), &wrong[..wrong.len().min(3)]);
}

/// Ends the clients, also if a fault panics.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// The entity of a key with the numbers of all clients.
fn shown(key: i64, numbers: &[u64]) -> Entity {
    let texts: Vec<String> = numbers.iter().map(u64::to_string).collect();
    Entity::new(key, texts.join(" "), numbers.iter().sum::<u64>() as f64)
}

/// Increments until the end. Returns the client's own numbers.
fn run_client(mut client: Counting<'_>, is_over: &AtomicBool) -> Vec<u64> {
    let mut numbers = vec![0; KEYS as usize];
    let mut key = 0;
    while !is_over.load(Relaxed) {
        numbers[key] += 1;
        client.increment(key as i64, numbers[key]);
        key = (key + 1) % KEYS as usize;
    }
    numbers
}

struct Counting<'a> {
    addr: SocketAddr,
    client: Option<Client>,
    number: usize,
    seen: &'a Seen,
}

impl Counting<'_> {
    /// Puts the client's next number.
    fn increment(&mut self, key: i64, next: u64) {
        let deadline = Instant::now() + MAX_WAIT;
        let mut may_be_done = false;
        loop {
            assert!(Instant::now() < deadline, "client {} cannot put {next} within {MAX_WAIT:?}", self.number);
            let Some((tag, mut numbers)) = self.read(key) else { continue };
            let number = &mut numbers[self.number];
            if *number == next {
                assert!(may_be_done, "client {} put {next} in entity {key}, and was told that it did not", self.number);
                break;
            }
            assert_eq!(*number + 1, next, "an increment of client {} in entity {key} is lost", self.number);
            *number = next;
            let Some(response) = self.ask(&put(key, &tag, &numbers)) else {
                may_be_done = true;
                continue;
            };
            match response.status {
                200 => break,
                412 => _ = self.seen.conflicts.fetch_add(1, Relaxed),
                503 => {
                    let is_undone = response.text().contains("not done");
                    may_be_done |= !is_undone;
                    let count = if is_undone { &self.seen.not_done } else { &self.seen.may_be_done };
                    count.fetch_add(1, Relaxed);
                    thread::park_timeout(PAUSE);
                }
                _ => {
                    may_be_done = true;
                    self.is_wrong("PUT", &response);
                }
            }
        }
        self.seen.increments.fetch_add(1, Relaxed);
    }

    /// Returns the tag and the numbers of an entity.
    fn read(&mut self, key: i64) -> Option<(String, Vec<u64>)> {
        let response = self.ask(format!("GET /{key} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes())?;
        match response.status {
            200 => {
                let tag = response.header("etag").expect("an entity has a tag").to_owned();
                let entity = Entity::read_json(response.text().as_bytes()).expect("it is an entity");
                let numbers = entity.description.split(' ').map(|number| number.parse().expect("it is a number"));
                return Some((tag, numbers.collect()));
            }
            503 => _ = self.seen.refused_reads.fetch_add(1, Relaxed),
            _ => self.is_wrong("GET", &response),
        }
        thread::park_timeout(PAUSE);
        None
    }

    fn is_wrong(&self, method: &str, response: &Response) {
        let mut wrong = self.seen.wrong.lock().unwrap();
        wrong.push(format!("{method}: {} {}", response.status, response.text()));
        if wrong.len() >= MAX_WRONG {
            let last = wrong.pop();
            drop(wrong);
            panic!("{MAX_WRONG} wrong answers; the last: {last:?}");
        }
    }

    /// Returns the answer to a request, or `None` if the connection has ended.
    fn ask(&mut self, request: &[u8]) -> Option<Response> {
        let addr = self.addr;
        let mut client = self
            .client
            .take()
            .unwrap_or_else(|| Client::connect(addr, MAX_WAIT).expect("the server accepts connections"));
        client.send(request).ok()?;
        let response = client.receive().ok()?;
        self.client = Some(client).filter(|_| !response.closes());
        Some(response)
    }
}

fn put(key: i64, tag: &str, numbers: &[u64]) -> Vec<u8> {
    let mut body = Vec::new();
    shown(key, numbers).write_json(&mut body).expect("it has a JSON form");
    let length = body.len();
    let head = format!("PUT /{key} HTTP/1.1\r\nHost: test\r\nIf-Match: {tag}\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), &body].concat()
}

fn limits() -> StoreLimits {
    StoreLimits::default().timeout(Duration::from_secs(2))
}

fn connect(kind: Kind, urls: &str, name_space: &str) -> Arc<dyn EntityRepo> {
    kind.connect::<Entity>(urls, name_space, limits()).expect("it connects")
}

/// The leader is killed, or paused until another leads.
fn etcd_failover() -> Result<(), Missing> {
    let mut etcd = EtcdCluster::start_for_failovers()?;
    let store = connect(Kind::Etcd, &etcd.urls(), &name_space());
    count(Kind::Etcd, &[store], rounds(), |round| {
        let leader = etcd.leader();
        if round % 2 == 0 {
            etcd.member(leader).kill();
            wait_for("another member leads", || etcd.leader_but(leader));
            etcd.start_member(leader);
        } else {
            etcd.member(leader).stop();
            wait_for("another member leads", || etcd.leader_but(leader));
            etcd.member(leader).resume();
        }
    });
    Ok(())
}

/// All members are killed at once, or restarted one after the other.
fn etcd_restart() -> Result<(), Missing> {
    let mut etcd = EtcdCluster::start_for_failovers()?;
    let store = connect(Kind::Etcd, &etcd.urls(), &name_space());
    count(Kind::Etcd, &[store], rounds(), |round| {
        if round % 2 == 0 {
            etcd.processes().for_each(EngineProcess::kill);
            etcd.run();
            return;
        }
        for number in 0..etcd.ports().len() {
            etcd.member(number).end(Signal::TERM);
            etcd.start_member(number);
            etcd.leader();
        }
    });
    Ok(())
}

/// A master is killed. Its replica has what was answered.
fn redis_failover() -> Result<(), Missing> {
    let mut redis = RedisNodes::start_for_failovers()?;
    let store = connect_redis(&redis.urls(), "increments:", 1, None, limits()).expect("it connects");
    count(Kind::Redis, &[store], rounds(), |_| {
        let (master, _) = redis.a_master();
        redis.node(master).kill();
        wait_for("a replica takes over", || (redis.count_masters() == 3).then_some(()));
        redis.start_node(master);
        redis.wait_until_whole();
    });
    Ok(())
}

/// All nodes are killed at once, or restarted one after the other. They have each write on disk.
fn redis_restart() -> Result<(), Missing> {
    let mut redis = RedisNodes::start_kept()?;
    let store = connect_redis(&redis.urls(), "increments:", 1, None, limits()).expect("it connects");
    count(Kind::Redis, &[store], rounds(), |round| {
        if round % 2 == 0 {
            redis.processes().for_each(EngineProcess::kill);
            redis.restart();
            return;
        }
        for number in 0..NODES {
            redis.node(number).end(Signal::TERM);
            redis.start_node(number);
            redis.wait_until_whole();
        }
    });
    Ok(())
}

/// The primary is killed, and its standby promoted. Each fault has servers of its own.
fn postgres_failover() -> Result<(), Missing> {
    for _ in 0..rounds() {
        let mut primary = PostgresServer::start()?;
        let standby = primary.start_standby()?;
        let url = format!("postgres://polyserve@127.0.0.1:{},127.0.0.1:{}/postgres", primary.port(), standby.port());
        let store = connect(Kind::Postgres, &url, &name_space());
        count(Kind::Postgres, &[store], 1, |_| {
            primary.kill();
            standby.promote();
        });
    }
    Ok(())
}

/// The server is killed, or shut down in order, and started again.
fn postgres_restart() -> Result<(), Missing> {
    let mut postgres = PostgresServer::start()?;
    let store = connect(Kind::Postgres, &postgres.url(), &name_space());
    count(Kind::Postgres, &[store], rounds(), |round| {
        if round % 2 == 0 {
            postgres.kill();
        } else {
            postgres.shut_down();
        }
        postgres.restart();
    });
    Ok(())
}

/// Two stores with four connections each, so eight clients of PgBouncer, in transaction mode. PgBouncer or the server is
/// restarted.
fn postgres_behind_pgbouncer() -> Result<(), Missing> {
    let mut postgres = PostgresServer::start()?;
    let mut pooler = postgres.start_pooler("transaction", 3)?;
    let name_space = name_space();
    let stores = [(); 2].map(|()| connect(Kind::Postgres, &pooler.url(), &name_space));
    count(Kind::Postgres, &stores, rounds(), |round| {
        if round % 2 == 0 {
            pooler.restart();
        } else {
            postgres.kill();
            postgres.restart();
        }
    });
    Ok(())
}
