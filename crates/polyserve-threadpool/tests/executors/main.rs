//! The unbounded pools in the executor kit, and what only these pools promise. The crate `polyserve` runs the kit on the bounded
//! pools, and tests what all executors promise beyond it.

mod starting;

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use polyserve_conformance::executor::ExecutorSubject;
use polyserve_conformance::executor_conformance;
use polyserve_core::{Executor, Job};
use polyserve_serving::executor::{Backend, Pool};
use polyserve_serving::executor::{PoolConfig, Queue};
use polyserve_threadpool::{CrossbeamPool, MpscPool, StealingPool};

executor_conformance!(
    mpsc_pool_unbounded,
    ExecutorSubject::new(|workers, _| Box::new(MpscPool::new(unbounded(workers)).unwrap()))
        .in_order()
        .unbounded_queue()
);
executor_conformance!(
    crossbeam_pool_unbounded,
    ExecutorSubject::new(|workers, _| Box::new(CrossbeamPool::new(unbounded(workers)).unwrap()))
        .in_order()
        .unbounded_queue()
);
// Also tests that one worker keeps the order, which the entry in the catalog does not promise.
executor_conformance!(
    stealing_pool,
    ExecutorSubject::new(|workers, queue| Box::new(StealingPool::new(bounded(workers, queue)).unwrap())).in_order()
);
executor_conformance!(
    stealing_pool_unbounded,
    ExecutorSubject::new(|workers, _| Box::new(StealingPool::new(unbounded(workers)).unwrap()))
        .in_order()
        .unbounded_queue()
);

fn bounded(workers: usize, queue: usize) -> PoolConfig {
    PoolConfig::new(workers).queue(queue)
}

fn unbounded(workers: usize) -> PoolConfig {
    PoolConfig::new(workers).queue(Queue::Unbounded)
}

#[test]
fn waits_are_sampled_and_last_from_execute_to_the_start() {
    check_waits(MpscPool::new(bounded(1, 256)).unwrap());
    check_waits(CrossbeamPool::new(bounded(1, 256)).unwrap());
    check_waits(StealingPool::new(bounded(1, 256)).unwrap());
}

fn check_waits<B: Backend>(pool: Pool<B>) {
    let pool = Arc::new(pool);
    let (release, held) = mpsc::channel::<()>();
    let (sender, started) = mpsc::channel();
    pool.execute(Job::new(move || {
        sender.send(()).unwrap();
        let _ = held.recv(); // an error: it is released
    }))
    .unwrap();
    started.recv().unwrap();
    let before = pool.stats().waits.len();
    // A thread's first job is stamped, and every 61st after it.
    let submitting = Arc::clone(&pool);
    let submitter = thread::spawn(move || {
        for _ in 0..122 {
            submitting.execute(Job::new(|| {})).unwrap();
        }
    });
    submitter.join().unwrap();
    let submitted = Instant::now();
    thread::yield_now();
    let waited = submitted.elapsed();
    drop(release);
    assert_eq!(pool.close(None), 0);
    let waits = pool.stats().waits;
    assert_eq!(waits.len() - before, 2, "{pool:?}");
    assert!(u128::from(waits.max()) >= waited.as_nanos(), "{} ns waited of {waited:?}", waits.max());
}
