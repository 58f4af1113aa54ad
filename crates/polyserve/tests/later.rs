//! The cost of a deferred answer: no thread on a server that promises so, a worker on a pool.
//!
//! The test does not depend on time: the service completes no answer until the test releases it, and counts the pending
//! answers.
#![cfg(all(feature = "threadpool", feature = "async"))]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use polyserve::catalog::{Catalog, Promise};
use polyserve::http::StatusCode;
use polyserve::sync::lock;
use polyserve::{Answer, Completer, Reply, Request, ServerConfig, ServerExt as _, Service, promise};

/// Only used if the test fails.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The number of requests: many times the threads of any server here.
const REQUESTS: usize = 100;

/// A service that keeps every promise until the test releases them.
#[derive(Default)]
struct Held {
    promises: Mutex<Promises>,
    changed: Condvar,
}

#[derive(Default)]
struct Promises {
    open: Vec<Completer<Reply>>,
    max_pending: usize,
}

impl Service for Held {
    fn call(&self, _: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        let (completer, answer) = promise(Reply::empty(StatusCode::SERVICE_UNAVAILABLE));
        let mut promises = lock(&self.promises);
        promises.open.push(completer);
        promises.max_pending = promises.max_pending.max(promises.open.len());
        self.changed.notify_all();
        answer
    }
}

impl Held {
    /// Waits until `count` promises are pending.
    fn wait_for(&self, count: usize) {
        let deadline = Instant::now() + MAX_WAIT;
        let mut promises = lock(&self.promises);
        while promises.open.len() < count {
            let remaining = deadline.saturating_duration_since(Instant::now());
            assert!(!remaining.is_zero(), "{} requests are pending, not {count}", promises.open.len());
            promises = self.changed.wait_timeout(promises, remaining).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Completes `count` promises.
    fn release(&self, count: usize) {
        let released: Vec<_> = lock(&self.promises).open.drain(..count).collect();
        for completer in released {
            completer.complete(Reply::empty(StatusCode::NO_CONTENT)).expect("the answer is waited for");
        }
    }

    fn max_pending(&self) -> usize {
        lock(&self.promises).max_pending
    }
}

fn get(addr: SocketAddr) -> String {
    let mut stream = TcpStream::connect(addr).expect("the server listens");
    stream.set_read_timeout(Some(MAX_WAIT)).expect("a time that is valid");
    write!(stream, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it takes the request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

/// Sends all requests at once to `server` with the given number of workers. `release` decides when they are answered.
/// Returns the max number of pending requests.
fn max_pending(server: &str, workers: usize, release: impl FnOnce(&Held)) -> usize {
    let catalog = Catalog::builtin();
    let config = with_workers(workers);
    let server = catalog.server(server).expect("it is in the catalog").build(&config).expect("it takes workers");
    let held = Arc::new(Held::default());
    let running = server.serve(([127, 0, 0, 1], 0), held.clone()).expect("it serves");
    let addr = running.local_addr();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..REQUESTS).map(|_| scope.spawn(move || get(addr))).collect();
        release(&held);
        for client in clients {
            let answer = client.join().expect("the client ends");
            assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
        }
    });
    let drain = running.shutdown().expect("it ends well");
    assert_eq!((drain.answered, drain.cut, drain.stuck), (REQUESTS as u64, 0, 0));
    held.max_pending()
}

fn with_workers(workers: usize) -> ServerConfig {
    ServerConfig::default().workers(workers)
}

/// Returns the names of the built-in servers that promise `what` and take this number of workers, for `test`.
fn servers_that(test: &str, what: Promise, workers: usize) -> Vec<String> {
    let promising = support::servers(test).into_iter().filter(|entry| entry.promises(what));
    promising.filter(|entry| entry.build(&with_workers(workers)).is_ok()).map(|entry| entry.name).collect()
}

#[test]
fn a_later_answer_holds_no_thread() {
    let servers = servers_that("a_later_answer_holds_no_thread", Promise::LaterHoldsNoThread, 2);
    assert!(servers.iter().any(|name| name == "tokio_tcp"), "{servers:?}");
    for server in servers {
        let max = max_pending(&server, 2, |held| {
            held.wait_for(REQUESTS);
            held.release(REQUESTS);
        });
        assert_eq!(max, REQUESTS, "{server}");
    }
}

#[test]
fn a_later_answer_holds_a_worker_of_a_pool() {
    const WORKERS: usize = 8;
    let servers = servers_that("a_later_answer_holds_a_worker_of_a_pool", Promise::LaterHoldsWorker, WORKERS);
    assert!(servers.iter().any(|name| name == "pool_server/mpsc_pool"), "{servers:?}");
    for server in servers {
        let max = max_pending(&server, WORKERS, |held| {
            for _ in 0..REQUESTS - WORKERS {
                held.wait_for(WORKERS);
                held.release(1);
            }
            held.wait_for(WORKERS);
            held.release(WORKERS);
        });
        assert_eq!(max, WORKERS, "{server}");
    }
}
