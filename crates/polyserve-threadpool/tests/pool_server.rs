//! `pool_server` over executors that are not its own, and past its limits. Each test opens with its story.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use polyserve_conformance::server::{self, ServerSubject};
use polyserve_core::service::Echo;
use polyserve_core::{Answer, ConfigError, Executor, Reply, Request, Running, Server, ServerConfig, Service};
use polyserve_threadpool::{CrossbeamPool, MpscPool, OnFull, PoolConfig, PoolServer, Queue};

/// Only matters where something hangs.
const PATIENCE: Duration = Duration::from_secs(30);

fn config(workers: usize, queue: usize, on_full: OnFull) -> PoolConfig {
    PoolConfig::new(workers).with(|config| {
        config.queue = Queue::Bounded(queue);
        config.on_full = on_full;
    })
}

fn over_caller_runs(config_: ServerConfig) -> Result<PoolServer, ConfigError> {
    PoolServer::new(config_, |_| Ok(Arc::new(MpscPool::new(config(2, 1, OnFull::CallerRuns))?)))
}

fn ask(addr: SocketAddr, requests: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(requests.as_bytes())?;
    let mut answers = String::new();
    stream.read_to_string(&mut answers)?;
    Ok(answers)
}

/// A pool whose submitters run what finds no room ran a connection's job inside the job that had just queued it: the
/// worker waited for a lock that it held itself, and the shutdown for the worker.
#[test]
fn a_pool_whose_callers_run_jobs_does_not_lock_up() {
    let server = over_caller_runs(ServerConfig::default()).unwrap();
    let running = server.serve("127.0.0.1:0".parse().unwrap(), Arc::new(Echo)).unwrap();
    let addr = running.local_addr();
    let pipeline =
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(5000) + "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let pipeline = pipeline.clone();
            thread::spawn(move || {
                let mut stream = TcpStream::connect(addr).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let mut writer = stream.try_clone().unwrap();
                // A server that is full may answer 503 and take no more.
                let writer = thread::spawn(move || drop(writer.write_all(pipeline.as_bytes())));
                let mut bytes = Vec::new();
                let read = stream.read_to_end(&mut bytes);
                writer.join().unwrap();
                assert!(bytes.starts_with(b"HTTP/1.1 "), "{read:?} after {} bytes", bytes.len());
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    assert_eq!(running.shutdown().unwrap().stuck, 0);
}

/// The same pool, held to the contract where its queue matters.
#[test]
fn a_pool_whose_callers_run_jobs_keeps_the_contract_of_drains() {
    let subject = ServerSubject::new(over_caller_runs).deviating(|d| d.later_answers_hold_a_worker = true);
    for property in server::PROPERTIES {
        if ["every_answer_is_counted", "dropping_it_ends_it", "a_burst_is_served_or_turned_away"]
            .contains(&property.name)
        {
            assert_eq!((property.run)(&subject), polyserve_conformance::property::Outcome::Held, "{}", property.name);
        }
    }
}

/// A pool that waits for room made the one thread that accepts and watches the clock wait, for a minute at a time.
#[test]
fn a_pool_that_waits_is_refused() {
    let waiting = || CrossbeamPool::new(config(1, 1, OnFull::Wait(PATIENCE)));
    let shared: Arc<dyn Executor> = Arc::new(waiting().unwrap());
    let error = PoolServer::on(ServerConfig::default(), shared).unwrap_err();
    assert!(error.to_string().contains("on_full"), "{error}");
    let own = PoolServer::new(ServerConfig::default(), move |_| Ok(Arc::new(waiting()?))).unwrap();
    let error = own.serve("127.0.0.1:0".parse().unwrap(), Arc::new(Echo)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

/// Beyond a thousand refused clients in a second, the rest were reset without an answer.
#[test]
fn a_crowd_beyond_the_limit_is_told_so() {
    let limits = ServerConfig::default().with(|config| config.max_connections = 4);
    let server = PoolServer::new(limits, |_| Ok(Arc::new(MpscPool::new(PoolConfig::new(2))?))).unwrap();
    let running = server.serve("127.0.0.1:0".parse().unwrap(), Arc::new(Echo)).unwrap();
    let addr = running.local_addr();
    let held: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(addr).unwrap()).collect();
    let mut refused = 0;
    for _ in 0..1500 {
        let answers = ask(addr, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        refused += u32::from(answers.starts_with("HTTP/1.1 503 ") && answers.contains("\r\nRetry-After: "));
    }
    assert_eq!(refused, 1500);
    drop(held);
    assert_eq!(running.shutdown().unwrap().answered, 1500);
}

/// Answers at once; but `GET /held` blocks its thread until it is let go, as the code of a service may.
#[derive(Debug, Default)]
struct Holding {
    held: AtomicUsize,
    let_go: Mutex<bool>,
    told: Condvar,
}

impl Holding {
    fn let_go(&self) {
        *self.let_go.lock().unwrap() = true;
        self.told.notify_all();
    }
}

impl Service for Holding {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        if request.head.path() == "/held" {
            self.held.fetch_add(1, Ordering::SeqCst);
            let _gone = self.told.wait_while(self.let_go.lock().unwrap(), |let_go| !*let_go).unwrap();
        }
        Echo.call(request, body)
    }
}

const LAST: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

fn holding(workers: usize) -> (Running, Arc<Holding>) {
    let limits = ServerConfig::default().with(|config| config.workers = Some(workers));
    let server = PoolServer::new(limits, |config| Ok(Arc::new(MpscPool::new(config.into())?))).unwrap();
    let service = Arc::new(Holding::default());
    (server.serve("127.0.0.1:0".parse().unwrap(), service.clone()).unwrap(), service)
}

/// Connects, and waits until the service holds what it asks.
fn hold_one(addr: SocketAddr, service: &Holding) -> TcpStream {
    let before = service.held.load(Ordering::SeqCst);
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(LAST.replace("GET /", "GET /held").as_bytes()).unwrap();
    while service.held.load(Ordering::SeqCst) == before {
        thread::yield_now();
    }
    stream
}

fn read_all(mut stream: TcpStream) -> String {
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    answers
}

/// A worker that accepted by itself was held up by one of its connections: nobody else accepted.
#[test]
fn a_worker_that_accepts_and_is_held_up_keeps_nobody_waiting() {
    let (running, service) = holding(3);
    let addr = running.local_addr();
    for round in 0..2 {
        // The quick ones first, so that a worker stays to accept; the next one holds it up.
        for _ in 0..20 {
            assert!(ask(addr, LAST).unwrap().starts_with("HTTP/1.1 200 "));
        }
        let held = hold_one(addr, &service);
        for _ in 0..20 {
            assert!(ask(addr, LAST).unwrap().starts_with("HTTP/1.1 200 "));
        }
        if round == 1 {
            service.let_go();
            assert!(read_all(held).starts_with("HTTP/1.1 200 "));
        } else {
            drop(held);
        }
    }
    assert_eq!(running.shutdown().unwrap().stuck, 0);
}

/// A connection that had not said anything yet was looked after by a worker that another connection then held up.
#[test]
fn a_silent_connection_is_not_held_up_with_its_worker() {
    let (running, service) = holding(2);
    let addr = running.local_addr();
    assert!(ask(addr, LAST).unwrap().starts_with("HTTP/1.1 200 "));
    let mut silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(addr).unwrap()).collect();
    let held = hold_one(addr, &service);
    for stream in &mut silent {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(LAST.as_bytes()).unwrap();
    }
    for stream in silent {
        assert!(read_all(stream).starts_with("HTTP/1.1 200 "));
    }
    service.let_go();
    assert!(read_all(held).starts_with("HTTP/1.1 200 "));
    let drain = running.shutdown().unwrap();
    assert_eq!((drain.answered, drain.cut, drain.stuck), (42, 0, 0));
}

/// A pool of one, whose worker waits for the next connection: a kept connection's request would wait as long.
#[test]
fn a_kept_connection_is_served_beside_new_ones_by_a_pool_of_one() {
    let (running, _) = holding(1);
    let addr = running.local_addr();
    let mut kept = TcpStream::connect(addr).unwrap();
    kept.set_read_timeout(Some(PATIENCE)).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    assert!(ask(addr, LAST).unwrap().starts_with("HTTP/1.1 200 "));
                }
            });
        }
        for _ in 0..200 {
            kept.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                kept.read_exact(&mut byte).unwrap();
                answer.push(byte[0]);
            }
            assert!(answer.starts_with(b"HTTP/1.1 200 "));
        }
        stop.store(true, Ordering::SeqCst);
    });
    drop(kept);
    assert_eq!(running.shutdown().unwrap().stuck, 0);
}
