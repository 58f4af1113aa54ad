//! The unbounded pools in the executor kit, and what all pools promise beyond it. The crate `polyserve` runs the kit on the
//! bounded pools.

mod closing;
mod support;

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_conformance::executor::ExecutorSubject;
use polyserve_conformance::executor_conformance;
use polyserve_core::{Job, RejectedReason};
use polyserve_threadpool::{CrossbeamPool, MpscPool, OnFull, PoolConfig, Queue, StealingPool};

use support::{Latch, PATIENCE, Pool, bounded, empty_job, occupy, pools, reason, receive, wait_until};

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
fn an_invalid_configuration_is_refused() {
    let config = PoolConfig::new(0);
    let errors = [
        MpscPool::new(config.clone()).unwrap_err(),
        CrossbeamPool::new(config.clone()).unwrap_err(),
        StealingPool::new(config).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("workers"), "{error}");
    }
}

#[test]
fn threads_are_named() {
    let config = bounded(3, 8).name("hand");
    for pool in pools(&config) {
        let (sender, names) = mpsc::channel();
        let all_here = Arc::new(Barrier::new(3));
        for _ in 0..3 {
            let (sender, all_here) = (sender.clone(), Arc::clone(&all_here));
            pool.execute(Job::new(move || {
                all_here.wait();
                sender.send(thread::current().name().map(str::to_owned)).unwrap();
            }))
            .unwrap();
        }
        let names: BTreeSet<_> = (0..3).filter_map(|_| receive(&names, &pool)).collect();
        assert!(names.iter().eq(["hand-0", "hand-1", "hand-2"]), "{names:?} in {pool:?}");
    }
}

#[test]
fn stats_count_what_happened() {
    for pool in pools(&bounded(1, 4)) {
        for panics in [false, true, false] {
            pool.execute(Job::new(move || {
                if panics {
                    resume_unwind(Box::new("quiet"));
                }
            }))
            .unwrap();
        }
        wait_until("three jobs to end", || pool.stats().executed == 3);
        let latch = occupy(&*pool, 1);
        for _ in 0..4 {
            pool.execute(empty_job()).unwrap();
        }
        for _ in 0..2 {
            assert_eq!(reason(pool.execute(empty_job())), Some(RejectedReason::Full));
        }
        let stats = pool.stats();
        let counts = (stats.executed, stats.panicked, stats.rejected, stats.queued);
        assert_eq!(counts, (3, 1, 2, 4), "{pool:?}");
        latch.open();
        assert_eq!(pool.close(None), 0);
        assert_eq!(reason(pool.execute(empty_job())), Some(RejectedReason::Closed));
        let stats = pool.stats();
        let counts = (stats.executed, stats.panicked, stats.rejected, stats.queued);
        assert_eq!(counts, (8, 1, 3, 0), "{pool:?}");
    }
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

#[test]
fn a_submitter_that_waits_for_room_gets_it() {
    let config = bounded(1, 1).on_full(OnFull::Wait(PATIENCE));
    for pool in pools(&config) {
        for _ in 0..200 {
            let latch = occupy(&*pool, 1);
            let (sender, ran) = mpsc::channel();
            let submitters: Vec<_> = (0..3)
                .map(|_| {
                    let (pool, sender) = (Arc::clone(&pool), sender.clone());
                    thread::spawn(move || pool.execute(Job::new(move || sender.send(()).unwrap())))
                })
                .collect();
            latch.open();
            for submitter in submitters {
                assert_eq!(reason(submitter.join().unwrap()), None, "{pool:?}");
            }
            (0..3).for_each(|_| receive(&ran, &pool));
        }
        assert_eq!(pool.stats().rejected, 0);
    }
}

#[test]
fn a_submitter_waits_at_most_its_timeout() {
    let limit = Duration::from_millis(20);
    let config = bounded(1, 1).on_full(OnFull::Wait(limit));
    for pool in pools(&config) {
        let latch = occupy(&*pool, 1);
        pool.execute(empty_job()).unwrap();
        let (sender, ran) = mpsc::channel();
        let start = Instant::now();
        let rejected = pool.execute(Job::new(move || sender.send(()).unwrap())).unwrap_err();
        assert!(start.elapsed() >= limit, "{pool:?} did not wait");
        assert_eq!(rejected.reason, RejectedReason::Full);
        rejected.job.run();
        receive(&ran, "the job that was handed back");
        assert_eq!(pool.stats().rejected, 1);
        latch.open();
    }
}

#[test]
fn a_close_wakes_submitters_that_wait_for_room() {
    let config = bounded(1, 1).on_full(OnFull::Wait(Duration::MAX));
    for pool in pools(&config) {
        let latch = occupy(&*pool, 1);
        pool.execute(empty_job()).unwrap();
        let (sender, ended) = mpsc::channel();
        for _ in 0..3 {
            let (pool, sender) = (Arc::clone(&pool), sender.clone());
            thread::spawn(move || sender.send(reason(pool.execute(empty_job()))).unwrap());
        }
        assert_eq!(pool.close(Some(Instant::now())), 1, "{pool:?}");
        for _ in 0..3 {
            assert_eq!(receive(&ended, &pool), Some(RejectedReason::Closed), "{pool:?}");
        }
        latch.open();
    }
}

#[test]
fn the_caller_runs_what_finds_no_room() {
    let config = bounded(1, 1).on_full(OnFull::CallerRuns);
    for pool in pools(&config) {
        let latch = occupy(&*pool, 1);
        pool.execute(empty_job()).unwrap();
        let (sender, ids) = mpsc::channel();
        pool.execute(Job::new(move || sender.send(thread::current().id()).unwrap())).unwrap();
        assert_eq!(receive(&ids, "the job without room"), thread::current().id(), "{pool:?}");
        pool.execute(Job::new(|| resume_unwind(Box::new("quiet")))).unwrap();
        assert_eq!((pool.panicked(), pool.stats().executed), (1, 2), "{pool:?}");
        latch.open();
        assert_eq!(pool.close(None), 0);
        assert_eq!(reason(pool.execute(empty_job())), Some(RejectedReason::Closed), "{pool:?}");
        assert_eq!(pool.stats().executed, 4, "{pool:?}");
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
