//! `pool_server` over shared executors, and past its limits. Each test opens with the defect that it shows.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_conformance::server::{self, ServerSubject};
use polyserve_core::{
    Answer, ConfigError, Echo, Executor, Job, Reply, Request, Running, ServerConfig, ServerExt, Service, timer,
};
use polyserve_serving::SHUTDOWN_SLACK;
use polyserve_serving::executor::{OnFull, PoolConfig, Queue};
use polyserve_threadpool::{CrossbeamPool, MpscPool, PoolServer};

#[path = "common/wrapped_pool.rs"]
mod wrapped_pool;

use wrapped_pool::WrappedPool;

/// Only matters if something hangs.
const MAX_WAIT: Duration = Duration::from_secs(30);

fn config(workers: usize, queue: usize, on_full: OnFull) -> PoolConfig {
    PoolConfig::new(workers).queue(Queue::Bounded(queue)).on_full(on_full)
}

fn over_caller_runs(server_config: ServerConfig) -> Result<PoolServer, ConfigError> {
    PoolServer::with_factory(server_config, |_| MpscPool::new(config(2, 1, OnFull::CallerRuns)))
}

fn ask(addr: SocketAddr, requests: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(MAX_WAIT))?;
    stream.write_all(requests.as_bytes())?;
    let mut answers = String::new();
    stream.read_to_string(&mut answers)?;
    Ok(answers)
}

/// Regression test: if its queue was full, a pool ran a connection's job on the submitter, inside the job that had just
/// queued it. The worker waited for a lock that it held itself, and the shutdown waited for the worker.
#[test]
fn a_server_over_caller_runs_does_not_deadlock() {
    let server = over_caller_runs(ServerConfig::default()).unwrap();
    let running = server.serve("127.0.0.1:0", Echo).unwrap();
    let addr = running.local_addr();
    let pipeline =
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(5000) + "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let pipeline = pipeline.clone();
            thread::spawn(move || {
                let mut stream = TcpStream::connect(addr).unwrap();
                stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
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

/// The same pool keeps those parts of the contract that depend on the queue.
#[test]
fn a_server_over_caller_runs_keeps_the_contract_of_drains() {
    let subject = ServerSubject::new(over_caller_runs).deviating(|d| d.later_answers_hold_a_worker = true);
    for property in server::PROPERTIES {
        if ["every_answer_is_counted", "dropping_it_ends_it", "a_burst_is_served_or_rejected"].contains(&property.name)
        {
            assert_eq!((property.run)(&subject), polyserve_conformance::property::Outcome::Held, "{}", property.name);
        }
    }
}

/// Regression test: an executor that waits for space in its queue blocked the thread that accepts and enforces
/// timeouts, for a minute at a time.
#[test]
fn a_pool_that_waits_is_refused() {
    let waiting = || CrossbeamPool::new(config(1, 1, OnFull::Wait(MAX_WAIT)));
    let shared: Arc<dyn Executor> = Arc::new(waiting().unwrap());
    let error = PoolServer::with_executor(ServerConfig::default(), shared).unwrap_err();
    assert!(error.to_string().contains("on_full"), "{error}");
    let own = PoolServer::with_factory(ServerConfig::default(), move |_| waiting()).unwrap();
    let error = own.serve("127.0.0.1:0", Echo).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

/// Answers at once, except that `GET /held` blocks its thread until the test lets it go.
#[derive(Debug, Default)]
struct Holding {
    held: AtomicUsize,
    is_released: Mutex<bool>,
    changed: Condvar,
}

impl Holding {
    fn release(&self) {
        *self.is_released.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn wait_for_release(&self) {
        let _guard = self.changed.wait_while(self.is_released.lock().unwrap(), |released| !*released).unwrap();
    }
}

impl Service for Holding {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        if request.head.path() == "/held" {
            self.held.fetch_add(1, Ordering::SeqCst);
            self.wait_for_release();
        }
        Echo.call(request, body)
    }
}

const CLOSING_GET: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

fn holding(workers: usize) -> (Running, Arc<Holding>) {
    holding_with(|config| config.workers = Some(workers))
}

fn holding_with(change: impl FnOnce(&mut ServerConfig)) -> (Running, Arc<Holding>) {
    let mut limits = ServerConfig::default();
    change(&mut limits);
    let server = PoolServer::mpsc(limits).unwrap();
    let service = Arc::new(Holding::default());
    (server.serve("127.0.0.1:0", service.clone()).unwrap(), service)
}

/// Opens a connection, sends a request, and waits until the service holds it.
fn hold_one(addr: SocketAddr, service: &Holding) -> TcpStream {
    try_hold_one(addr, service).expect("the request reaches the service")
}

/// Opens a connection, sends a request, and waits until the service holds it. Returns `None` if the server answers instead.
fn try_hold_one(addr: SocketAddr, service: &Holding) -> Option<TcpStream> {
    let before = service.held.load(Ordering::SeqCst);
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
    stream.write_all(CLOSING_GET.replace("GET /", "GET /held").as_bytes()).unwrap();
    stream.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + MAX_WAIT;
    while service.held.load(Ordering::SeqCst) == before {
        if stream.peek(&mut [0]).is_ok() {
            return None;
        }
        assert!(Instant::now() < deadline, "the request is neither held nor answered");
        thread::yield_now();
    }
    stream.set_nonblocking(false).unwrap();
    Some(stream)
}

/// Repeats a set-up that a slow machine can spoil, because the timeouts of the server are short, until it succeeds.
fn set_up<T>(attempt: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + MAX_WAIT;
    loop {
        if let Some(ready) = attempt() {
            return ready;
        }
        assert!(Instant::now() < deadline, "no attempt of the set-up has succeeded");
    }
}

fn read_all(mut stream: TcpStream) -> String {
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    answers
}

/// Regression test: a worker that accepted connections was blocked by one of them, and no other thread accepted.
#[test]
fn a_blocked_accepting_worker_blocks_no_other_connection() {
    let (running, service) = holding(3);
    let addr = running.local_addr();
    for round in 0..2 {
        // Quick requests first, so that a worker polls and accepts; the next request blocks it.
        for _ in 0..20 {
            assert!(ask(addr, CLOSING_GET).unwrap().starts_with("HTTP/1.1 200 "));
        }
        let held = hold_one(addr, &service);
        for _ in 0..20 {
            assert!(ask(addr, CLOSING_GET).unwrap().starts_with("HTTP/1.1 200 "));
        }
        if round == 1 {
            service.release();
            assert!(read_all(held).starts_with("HTTP/1.1 200 "));
        } else {
            drop(held);
        }
    }
    assert_eq!(running.shutdown().unwrap().stuck, 0);
}

/// Regression test: a silent connection was watched by a worker that another connection then blocked.
#[test]
fn a_silent_connection_is_not_held_up_with_its_worker() {
    let (running, service) = holding(2);
    let addr = running.local_addr();
    assert!(ask(addr, CLOSING_GET).unwrap().starts_with("HTTP/1.1 200 "));
    let mut silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(addr).unwrap()).collect();
    let held = hold_one(addr, &service);
    for stream in &mut silent {
        stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
        stream.write_all(CLOSING_GET.as_bytes()).unwrap();
    }
    for stream in silent {
        assert!(read_all(stream).starts_with("HTTP/1.1 200 "));
    }
    service.release();
    assert!(read_all(held).starts_with("HTTP/1.1 200 "));
    let drain = running.shutdown().unwrap();
    assert_eq!((drain.answered, drain.cut, drain.stuck), (42, 0, 0));
}

/// Regression test: the worker of a pool of one waited for new connections, and the request of a kept connection waited
/// as long.
#[test]
fn a_pool_of_one_serves_kept_and_new_connections() {
    let (running, _) = holding(1);
    let addr = running.local_addr();
    let mut client = TcpStream::connect(addr).unwrap();
    client.set_read_timeout(Some(MAX_WAIT)).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    assert!(ask(addr, CLOSING_GET).unwrap().starts_with("HTTP/1.1 200 "));
                }
            });
        }
        for _ in 0..200 {
            client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                client.read_exact(&mut byte).unwrap();
                answer.push(byte[0]);
            }
            assert!(answer.starts_with(b"HTTP/1.1 200 "));
        }
        stop.store(true, Ordering::SeqCst);
    });
    drop(client);
    assert_eq!(running.shutdown().unwrap().stuck, 0);
}

/// Regression test: while the queue was full, a client that pipelined without a pause kept its worker. Each other
/// client got a 503.
#[test]
fn a_pipelining_client_does_not_keep_the_worker_when_the_queue_is_full() {
    let (running, _) = holding_with(|config| {
        config.workers = Some(1);
        config.queue = Some(1);
    });
    let addr = running.local_addr();
    let stop = AtomicBool::new(false);
    let answered = AtomicUsize::new(0);
    let mut reader = TcpStream::connect(addr).unwrap();
    reader.set_read_timeout(Some(MAX_WAIT)).unwrap();
    let mut writer = reader.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = vec![0; 1 << 16];
            while reader.read(&mut buffer).is_ok_and(|count| count > 0) {
                answered.fetch_add(1, Ordering::SeqCst);
            }
        });
        scope.spawn(|| {
            // Long heads cost the server more than the client, so that the server always finds more to read.
            let head = "X-Name: any value, of which the server reads every byte\r\n".repeat(90);
            let requests = format!("GET / HTTP/1.1\r\nHost: a\r\n{head}\r\n").repeat(50);
            while !stop.load(Ordering::SeqCst) {
                if writer.write_all(requests.as_bytes()).is_err() {
                    break;
                }
            }
            let _ = writer.shutdown(std::net::Shutdown::Both);
        });
        while answered.load(Ordering::SeqCst) < 20 {
            thread::yield_now();
        }
        let answers: Vec<_> = (0..20).map(|_| ask(addr, CLOSING_GET)).collect();
        stop.store(true, Ordering::SeqCst);
        for answer in answers {
            let answer = answer.unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
    });
    assert_eq!(running.shutdown().unwrap().stuck, 0);
}

/// Regression test: no timeout was enforced while a connection waited for a worker.
#[test]
fn a_request_that_waits_for_a_worker_has_a_timeout() {
    let (running, service) = holding_with(|config| {
        config.workers = Some(1);
        config.queue = Some(2);
        config.answer_timeout = Duration::from_millis(100);
    });
    let addr = running.local_addr();
    // While no request blocks the worker, each waits for it for a moment only. On a slow machine that may be too long.
    let (mut client, held) = set_up(|| {
        let mut client = TcpStream::connect(addr).unwrap();
        client.set_read_timeout(Some(MAX_WAIT)).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut head = [0; 13];
        client.peek(&mut head).unwrap();
        (head == *b"HTTP/1.1 200 ").then_some(())?;
        Some((client, try_hold_one(addr, &service)?))
    });
    // A connection that was served already, and a new one.
    client.write_all(CLOSING_GET.as_bytes()).unwrap();
    let answers = read_all(client);
    assert_eq!(answers.matches("HTTP/1.1 200 ").count(), 1, "{answers}");
    assert_eq!(answers.matches("HTTP/1.1 503 ").count(), 1, "{answers}");
    assert!(ask(addr, CLOSING_GET).unwrap().starts_with("HTTP/1.1 503 "));
    service.release();
    assert!(read_all(held).starts_with("HTTP/1.1 200 "));
    assert_eq!(running.shutdown().unwrap().stuck, 0);
}

/// Regression test: a half-written answer lost its write timeout once the client had read a little and the connection
/// waited for a worker.
#[test]
fn a_half_written_answer_keeps_its_timeout_while_no_worker_is_free() {
    let (running, service) = holding_with(|config| {
        config.workers = Some(1);
        (config.write_timeout, config.body_timeout) = (Duration::from_millis(200), Duration::from_millis(200));
        config.answer_timeout = Duration::from_millis(200);
    });
    let addr = running.local_addr();
    let mut slow = TcpStream::connect(addr).unwrap();
    slow.set_read_timeout(Some(MAX_WAIT)).unwrap();
    // The answers echo 40 MB, more than the sockets hold.
    let mut writer = slow.try_clone().unwrap();
    let sending = thread::spawn(move || {
        let body = "a".repeat(40_000);
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        (0..1000).all(|_| writer.write_all(request.as_bytes()).is_ok())
    });
    assert!(slow.peek(&mut [0]).unwrap() > 0);
    let held = set_up(|| try_hold_one(addr, &service));
    // It reads on, so that the socket can be written to; but the only worker is blocked.
    let mut buffer = vec![0; 1 << 20];
    let mut received = 0;
    while let Ok(count @ 1..) = slow.read(&mut buffer) {
        received += count;
    }
    let ended = slow.read(&mut buffer);
    assert!(!ended.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock), "the connection is still open");
    drop(slow);
    let _ = sending.join().unwrap();
    assert!(received < 40_000_000, "all answers were written, so none was half-written");
    service.release();
    assert!(read_all(held).starts_with("HTTP/1.1 200 "));
    assert_eq!(running.shutdown().unwrap().stuck, 0);
}

/// Regression test: if a shared executor dropped a connection's job without running it, the connection stayed queued
/// for ever.
#[test]
fn a_job_that_a_shared_executor_drops_leaves_no_connection_behind() {
    let pool = MpscPool::new(PoolConfig::new(2)).unwrap();
    let jobs = AtomicUsize::new(0);
    let drop_every_other = move |pool: &MpscPool, job: Job| {
        if jobs.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
            drop(job);
            return Ok(());
        }
        pool.execute(job)
    };
    let executor = WrappedPool { pool, execute: drop_every_other };
    let server = PoolServer::with_executor(ServerConfig::default(), executor).unwrap();
    let running = server.serve("127.0.0.1:0", Echo).unwrap();
    for _ in 0..10 {
        assert!(ask(running.local_addr(), CLOSING_GET).unwrap().starts_with("HTTP/1.1 200 "));
    }
    let drain = running.shutdown().unwrap();
    assert_eq!((drain.answered, drain.cut, drain.stuck), (10, 0, 0));
}

/// Regression test: a drain that had served all clients gave its workers half a second to end, whatever its grace. On a busy
/// machine a worker took longer and was counted as stuck.
#[test]
fn a_worker_that_ends_within_the_grace_is_not_stuck() {
    let jobs = Arc::new(Holding::default());
    let late = Arc::clone(&jobs);
    let server = PoolServer::with_factory(ServerConfig::default(), move |_| {
        let jobs = Arc::clone(&late);
        // A job ends only after a release.
        let end_late = move |pool: &MpscPool, job: Job| {
            let jobs = Arc::clone(&jobs);
            pool.execute(Job::new(move || {
                job.run();
                jobs.held.fetch_add(1, Ordering::SeqCst);
                jobs.wait_for_release();
            }))
        };
        Ok(WrappedPool { pool: MpscPool::new(PoolConfig::new(2))?, execute: end_late })
    });
    let running = server.unwrap().serve("127.0.0.1:0", Echo).unwrap();
    assert!(ask(running.local_addr(), CLOSING_GET).unwrap().starts_with("HTTP/1.1 200 "));
    let drain = thread::spawn(move || running.shutdown_within(10 * MAX_WAIT).unwrap());
    // A faulty server counts stuck workers within this time. A correct one does not need it.
    timer::after(2 * SHUTDOWN_SLACK).wait();
    jobs.release();
    let drain = drain.join().unwrap();
    assert!(jobs.held.load(Ordering::SeqCst) > 0, "no job was held at its end");
    assert_eq!((drain.answered, drain.cut, drain.stuck), (1, 0, 0));
}
