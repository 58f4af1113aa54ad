//! The threads of `leader_followers`: when they accept, become idle and end. Each test's comment gives its reason.

use std::cell::RefCell;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use polyserve_conformance::client::Client;
use polyserve_core::http::StatusCode;
use polyserve_core::sync::lock;
use polyserve_core::{Answer, Reply, Request, Running, ServerConfig, ServerExt, Service};
use polyserve_threadpool::LeaderFollowers;

/// The time limit of each wait. It is reached only if a test fails.
const MAX_WAIT: Duration = Duration::from_secs(30);

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Blocks the requests for `/hold` until it is opened. Records the threads that call the service, and how many of them have
/// ended.
#[derive(Default)]
struct Latch {
    state: Mutex<LatchState>,
    changed: Condvar,
}

#[derive(Default)]
struct LatchState {
    held: usize,
    open: bool,
    threads: HashSet<ThreadId>,
    ended: usize,
}

impl Latch {
    fn update(&self, change: impl FnOnce(&mut LatchState)) {
        change(&mut lock(&self.state));
        self.changed.notify_all();
    }

    fn wait(&self, condition: impl Fn(&LatchState) -> bool) {
        let state = lock(&self.state);
        let (_state, result) = self.changed.wait_timeout_while(state, MAX_WAIT, |state| !condition(state)).unwrap();
        assert!(!result.timed_out());
    }
}

/// Dropped at the end of a thread that has called the service.
struct ThreadEnd(Arc<Latch>);

impl Drop for ThreadEnd {
    fn drop(&mut self) {
        self.0.update(|state| state.ended += 1);
    }
}

thread_local! {
    static THREAD_END: RefCell<Option<ThreadEnd>> = const { RefCell::new(None) };
}

struct Held(Arc<Latch>);

impl Service for Held {
    fn call(&self, request: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        THREAD_END.with_borrow_mut(|end| {
            end.get_or_insert_with(|| ThreadEnd(Arc::clone(&self.0)));
        });
        self.0.update(|state| {
            state.threads.insert(thread::current().id());
        });
        if request.head.target == "/hold" {
            self.0.update(|state| state.held += 1);
            self.0.wait(|state| state.open);
        }
        Answer::Now(Reply::empty(StatusCode::OK))
    }
}

fn start() -> (Running, Arc<Latch>) {
    start_with(ServerConfig::default())
}

fn start_with(config: ServerConfig) -> (Running, Arc<Latch>) {
    let latch = Arc::new(Latch::default());
    let server = LeaderFollowers::new(config).unwrap();
    let service = Arc::new(Held(Arc::clone(&latch)));
    (server.serve("127.0.0.1:0", service).unwrap(), latch)
}

fn connect(addr: SocketAddr) -> Client {
    Client::connect(addr, MAX_WAIT).unwrap()
}

fn ask(addr: SocketAddr, target: &str) {
    let mut client = connect(addr);
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
    client.expect_last(200);
}

fn hold(addr: SocketAddr, count: usize) -> Vec<thread::JoinHandle<()>> {
    (0..count).map(|_| thread::spawn(move || ask(addr, "/hold"))).collect()
}

/// The thread that accepts also serves. While the service blocks it, and the next leaders too, new connections must still
/// be served.
#[test]
fn a_blocked_leader_blocks_no_other_connection() {
    let (running, latch) = start();
    let addr = running.local_addr();
    let mut clients = Vec::new();
    for round in 1..=8 {
        clients.extend(hold(addr, 1));
        latch.wait(|state| state.held == round);
        ask(addr, "/");
    }
    latch.update(|state| state.open = true);
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(running.shutdown().unwrap().answered, 16);
}

/// The service blocks 200 requests at the same time. Each request must have its own thread.
#[test]
fn blocked_requests_have_a_thread_each() {
    let (running, latch) = start();
    let clients = hold(running.local_addr(), 200);
    latch.wait(|state| state.held == 200 && state.threads.len() == 200);
    latch.update(|state| state.open = true);
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(running.shutdown().unwrap().stuck, 0);
}

/// Regression test: a thread was started for each connection, at three times the cost of the request.
#[test]
fn threads_are_reused() {
    let (running, latch) = start();
    for _ in 0..200 {
        ask(running.local_addr(), "/");
    }
    let threads = lock(&latch.state).threads.len();
    assert!(threads < 100, "{threads} threads for 200 connections");
    assert_eq!(running.shutdown().unwrap().answered, 200);
}

/// Idle threads hold memory. After a burst they must end by themselves, and the server must serve on.
#[test]
fn idle_threads_end() {
    let (running, latch) = start();
    let clients = hold(running.local_addr(), 20);
    latch.wait(|state| state.held == 20);
    latch.update(|state| state.open = true);
    clients.into_iter().for_each(|client| client.join().unwrap());
    latch.wait(|state| state.ended + 1 >= state.threads.len()); // the leader stays
    ask(running.local_addr(), "/");
    assert_eq!(running.shutdown().unwrap().answered, 21);
    latch.wait(|state| state.ended == state.threads.len());
}

/// A leader that waits for the next request of its connection must make another thread the leader. Requests on kept
/// connections and on new ones must be answered.
#[test]
fn kept_and_new_connections_are_served() {
    let (running, _) = start();
    let addr = running.local_addr();
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(connect(addr));
        clients.iter_mut().for_each(|client| drop(client.ask(GET, 200)));
        ask(addr, "/");
    }
    assert_eq!(running.shutdown().unwrap().answered, 230);
}

/// A shutdown must end idle threads, and a leader that waits, while clients still connect.
#[test]
fn a_shutdown_ends_idle_threads() {
    for _ in 0..20 {
        let (running, latch) = start();
        let clients = hold(running.local_addr(), 8);
        latch.wait(|state| state.held == 8);
        latch.update(|state| state.open = true);
        clients.into_iter().for_each(|client| client.join().unwrap());
        let drain = running.shutdown().unwrap();
        assert_eq!((drain.answered, drain.cut, drain.stuck), (8, 0, 0));
        latch.wait(|state| state.ended == state.threads.len());
    }
}

/// A rejection at the limit remembers that no connection is idle. A connection that becomes idle later must still be
/// evicted for a new one.
#[test]
fn a_connection_that_becomes_idle_is_evicted() {
    let mut config = ServerConfig::default();
    config.max_connections = 1;
    let (running, latch) = start_with(config);
    let addr = running.local_addr();
    let status = || {
        let mut client = connect(addr);
        let _ = client.send(GET); // an error: it is rejected already
        client.receive().unwrap().status
    };
    let mut holder = connect(addr);
    holder.send(b"GET /hold HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    latch.wait(|state| state.held == 1);
    assert_eq!([(); 3].map(|()| status()), [503; 3]);
    latch.update(|state| state.open = true);
    holder.expect(200);
    // The connection becomes idle a moment after its answer. Until then, new ones are rejected.
    let deadline = Instant::now() + MAX_WAIT;
    while status() != 200 {
        assert!(Instant::now() < deadline, "the idle connection is never evicted");
    }
    running.shutdown().unwrap();
}
