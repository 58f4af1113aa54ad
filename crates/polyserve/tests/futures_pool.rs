//! `futures_pool` with a pool that has fewer threads than there are connections. The server kit is in `kit.rs`.
#![cfg(feature = "futures")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use polyserve::futures_pool::FuturesPool;
use polyserve::http::StatusCode;
use polyserve::sync::lock;
use polyserve::{Answer, Completer, Reply, Request, Running, ServerConfig, ServerExt, Service, promise};

const MAX_WAIT: Duration = Duration::from_secs(30);

/// The tests count threads, so they run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// A service that blocks its thread on `/block` at two barriers: when the request has arrived, and before it is answered.
struct Blocking([Barrier; 2]);

impl Blocking {
    fn new(others: usize) -> Arc<Self> {
        Arc::new(Self([(); 2].map(|()| Barrier::new(others + 1))))
    }

    fn wait_for_arrival(&self) {
        self.0[0].wait();
    }

    fn release(&self) {
        self.0[1].wait();
    }
}

impl Service for Blocking {
    fn call(&self, request: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        if request.head.path() == "/block" {
            self.wait_for_arrival();
            self.release();
        }
        Answer::Now(Reply::empty(StatusCode::OK))
    }
}

fn serve(service: Arc<dyn Service>, change: impl FnOnce(&mut ServerConfig)) -> Running {
    let mut config = ServerConfig::default();
    change(&mut config);
    let server = FuturesPool::new(config).unwrap();
    server.serve(SocketAddr::from(([127, 0, 0, 1], 0)), service).unwrap()
}

fn send(addr: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    stream
}

fn receive(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The number of threads of this process that belong to a pool.
fn pool_threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok())
        .filter(|n| n.starts_with("futures-"))
        .count()
}

/// Queued connections are served when a thread is free. A connection beyond the queue's capacity gets a 503 at once,
/// although every thread is held.
#[test]
fn a_full_queue_rejects_connections() {
    let _alone = lock(&ALONE);
    let service = Blocking::new(2);
    let running = serve(service.clone(), |config| (config.workers, config.queue) = (Some(2), Some(3)));
    let held = [(); 2].map(|()| send(running.local_addr(), "/block"));
    service.wait_for_arrival();
    let (answered, answers) = mpsc::channel();
    for stream in [(); 4].map(|()| send(running.local_addr(), "/")) {
        let answered = answered.clone();
        thread::spawn(move || answered.send(receive(stream)));
    }
    let first = answers.recv_timeout(MAX_WAIT).unwrap();
    assert!(first.starts_with("HTTP/1.1 503 ") && first.contains("\r\nRetry-After: "), "{first:?}");
    service.release();
    let others = (0..3).map(|_| answers.recv_timeout(MAX_WAIT).unwrap());
    for answer in others.chain(held.map(receive)) {
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
    }
    let drain = running.shutdown().unwrap();
    assert_eq!((drain.answered, drain.cut, drain.stuck), (6, 0, 0), "{drain}");
}

/// Regression test: the pool ends its threads when its last handle is dropped. A stuck task has a handle, so the other
/// threads stayed until that task ended.
#[test]
fn threads_that_are_not_stuck_end() {
    let _alone = lock(&ALONE);
    if !fs::exists("/proc/self/task").unwrap() {
        eprintln!("not run: threads are counted in /proc, which this system does not have");
        return;
    }
    let service = Blocking::new(1);
    let running = serve(service.clone(), |config| config.workers = Some(8));
    assert!(receive(send(running.local_addr(), "/")).starts_with("HTTP/1.1 200 "));
    let _held = send(running.local_addr(), "/block");
    service.wait_for_arrival();
    let drain = running.shutdown_within(Duration::from_millis(50)).unwrap();
    assert_eq!((drain.answered, drain.stuck), (1, 1), "{drain}");
    wait_for_threads(1);
    service.release();
    wait_for_threads(0);
}

#[track_caller]
fn wait_for_threads(count: usize) {
    let deadline = Instant::now() + MAX_WAIT;
    while pool_threads() != count {
        assert!(Instant::now() < deadline, "{} threads are left", pool_threads());
        thread::yield_now();
    }
}

/// A service that answers when the test completes the answers.
struct Held(Mutex<Vec<Completer<()>>>, mpsc::Sender<()>);

impl Service for Held {
    fn call(&self, _: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        let (completer, answer) = promise(());
        lock(&self.0).push(completer);
        let _ = self.1.send(());
        answer.map(|()| Reply::empty(StatusCode::OK))
    }
}

/// Regression test: the last connection of a drain ended between two checks of the main thread: for connections that
/// linger, and for connections that are open. It was closed with unread bytes, and the reset destroyed its answer, in
/// one of some hundred shutdowns.
#[test]
fn the_last_connection_of_a_drain_lingers() {
    let _alone = lock(&ALONE);
    for round in 0..300 {
        let (sender, arrivals) = mpsc::channel();
        let service = Arc::new(Held(Mutex::default(), sender));
        let running = serve(service.clone(), |config| config.workers = Some(2));
        let _first = send(running.local_addr(), "/");
        arrivals.recv_timeout(MAX_WAIT).unwrap();
        let mut last = TcpStream::connect(running.local_addr()).unwrap();
        last.set_read_timeout(Some(MAX_WAIT)).unwrap();
        last.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        arrivals.recv_timeout(MAX_WAIT).unwrap();
        last.write_all(b"GET / HTTP/1.1\r\nHos").unwrap();
        let drained = running.drained();
        for completer in std::mem::take(&mut *lock(&service.0)) {
            completer.complete(()).unwrap();
        }
        let answer = receive(last);
        assert!(answer.starts_with("HTTP/1.1 200 "), "in round {round}: {answer:?}");
        let drain = Answer::later(drained).wait().unwrap();
        assert_eq!((drain.answered, drain.cut, drain.stuck), (2, 0, 0), "{drain}");
    }
}

/// The request of a stuck thread is counted once: as stuck, not as cut.
#[test]
fn a_stuck_request_is_not_cut_too() {
    let _alone = lock(&ALONE);
    let service = Blocking::new(1);
    let running = serve(service.clone(), |config| config.workers = Some(2));
    let _client = send(running.local_addr(), "/block");
    service.wait_for_arrival();
    let drain = running.shutdown_within(Duration::ZERO).unwrap();
    service.release();
    assert_eq!((drain.answered, drain.cut, drain.stuck), (0, 0, 1), "{drain}");
}
