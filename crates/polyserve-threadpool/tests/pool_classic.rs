//! `pool_classic` in a drain, and over shared executors that drop jobs. Each test opens with the defect that it shows.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use polyserve_conformance::client::{Client, Ending};
use polyserve_core::{Drain, Echo, Executor as _, Job, ServerConfig, ServerExt};
use polyserve_serving::executor::PoolConfig;
use polyserve_threadpool::{MpscPool, PoolClassic};

#[path = "common/wrapped_pool.rs"]
mod wrapped_pool;

use wrapped_pool::WrappedPool;

/// Only matters if something hangs.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// When an executor drops a job.
#[derive(Clone, Copy, Debug)]
enum DropTime {
    /// Within `execute`.
    AtOnce,
    /// When a worker takes it from the queue.
    Queued,
}

/// Returns all that the server sends until it closes or resets the connection.
fn ask(addr: SocketAddr) -> String {
    let mut client = Client::connect(addr, MAX_WAIT).unwrap();
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let (answer, ending) = client.end();
    assert_ne!(ending, Ending::Silent, "the connection is left open");
    String::from_utf8(answer).unwrap()
}

/// Asks ten times, and makes the executor drop the first job of every other request. Returns the answers to those requests,
/// and the result of the drain.
fn ask_ten(time: DropTime) -> (Vec<String>, Drain) {
    let pool = MpscPool::new(PoolConfig::new(2)).unwrap();
    let drops_next = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&drops_next);
    let execute = move |pool: &MpscPool, job: Job| match (asked.swap(false, Ordering::SeqCst), time) {
        (false, _) => pool.execute(job),
        (true, DropTime::AtOnce) => {
            drop(job);
            Ok(())
        }
        (true, DropTime::Queued) => pool.execute(Job::new(move || drop(job))),
    };
    let executor = Arc::new(WrappedPool { pool, execute });
    let server = PoolClassic::with_executor(ServerConfig::default(), Arc::clone(&executor)).unwrap();
    let running = server.serve("127.0.0.1:0", Echo).unwrap();
    let addr = running.local_addr();
    let mut unserved = Vec::new();
    for _ in 0..5 {
        drops_next.store(true, Ordering::SeqCst);
        unserved.push(ask(addr));
        let served = ask(addr);
        assert!(served.starts_with("HTTP/1.1 200 "), "{served:?}");
    }
    let drain = running.shutdown().unwrap();
    // The executor is shared, so the server does not close it.
    let (sender, receiver) = mpsc::channel();
    executor.execute(Job::new(move || sender.send(()).unwrap())).unwrap();
    receiver.recv_timeout(MAX_WAIT).unwrap();
    (unserved, drain)
}

/// Regression test: if a shared executor dropped a connection's job within `execute`, the connection stayed queued, and
/// each later job served an earlier connection than its own.
#[test]
fn a_job_dropped_within_execute_rejects_its_connection() {
    let (unserved, drain) = ask_ten(DropTime::AtOnce);
    for answer in unserved {
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("\r\nRetry-After: "), "{answer:?}");
    }
    assert_eq!(drain, Drain::new(10, 0, 0));
}

/// If a shared executor drops a connection's job from its queue without running it, the connection must close.
#[test]
fn a_job_dropped_from_the_queue_closes_its_connection() {
    let (unserved, drain) = ask_ten(DropTime::Queued);
    assert!(unserved.iter().all(String::is_empty), "{unserved:?}");
    assert_eq!(drain, Drain::new(5, 0, 0));
}
