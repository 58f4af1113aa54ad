//! `pool_server` over executors that are not its own, and past its limits. Each test opens with its story.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use polyserve_conformance::server::{self, ServerSubject};
use polyserve_core::service::Echo;
use polyserve_core::{ConfigError, Executor, Server, ServerConfig};
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
