//! The unbounded pools in the executor kit, and what only these pools promise. The crate `polyserve` runs the kit on the bounded
//! pools, and tests what all executors promise beyond it.

mod starting;
mod support;

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use polyserve_conformance::executor::ExecutorSubject;
use polyserve_conformance::executor_conformance;
use polyserve_core::Job;
use polyserve_threadpool::{CrossbeamPool, MpscPool, PoolConfig, Queue, StealingPool};

use support::{Latch, Pool, bounded, empty_job, occupy, pools, receive};

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

fn unbounded(workers: usize) -> PoolConfig {
    PoolConfig::new(workers).queue(Queue::Unbounded)
}

#[test]
fn waits_are_sampled_and_last_from_execute_to_the_start() {
    for pool in pools(&bounded(1, 256)) {
        let latch = occupy(&*pool, 1);
        let before = pool.stats().waits.len();
        // A thread's first job is stamped, and every 61st after it.
        let submitting = Arc::clone(&pool);
        let submitter = thread::spawn(move || {
            for _ in 0..122 {
                submitting.execute(empty_job()).unwrap();
            }
        });
        submitter.join().unwrap();
        let submitted = Instant::now();
        thread::yield_now();
        let waited = submitted.elapsed();
        latch.open();
        assert_eq!(pool.close(None), 0);
        let waits = pool.stats().waits;
        assert_eq!(waits.len() - before, 2, "{pool:?}");
        assert!(u128::from(waits.max()) >= waited.as_nanos(), "{} ns waited of {waited:?}", waits.max());
    }
}

/// Jobs that submit further jobs without end must not starve a job from outside.
#[test]
fn a_job_from_outside_is_not_starved_by_jobs_that_submit_themselves() {
    fn resubmit(pool: &Arc<dyn Pool>, stop: &Latch) {
        let (weak, latch) = (Arc::downgrade(pool), stop.clone());
        let _ = pool.execute(Job::new(move || {
            if let (Some(pool), false) = (weak.upgrade(), latch.is_open()) {
                resubmit(&pool, &latch);
            }
        }));
    }
    for pool in pools(&bounded(1, 64)) {
        let stop = Latch::default();
        (0..4).for_each(|_| resubmit(&pool, &stop));
        let (sender, ran) = mpsc::channel();
        pool.execute(Job::new(move || sender.send(()).unwrap())).unwrap();
        receive(&ran, &pool);
        stop.open();
        assert_eq!(pool.close(None), 0, "{pool:?}");
    }
}
