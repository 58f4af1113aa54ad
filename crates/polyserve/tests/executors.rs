//! What every executor promises beyond the executor kit: its settings, its counts, and what it does if its queue is full.
#![cfg(all(feature = "threadpool", feature = "tokio", feature = "smol", feature = "futures"))]

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::panic::resume_unwind;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Barrier, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use polyserve::async_::{FuturesTasks, SmolTasks, TokioBlocking, TokioTasks};
use polyserve::serving::executor::{Backend, OnFull, Pool, PoolConfig, PoolStats, Queue};
use polyserve::sync::lock;
use polyserve::threadpool::{CrossbeamPool, MpscPool, StealingPool};
use polyserve::{Executor, Job, Rejected, RejectedReason};

/// What the executors offer beyond the trait.
trait Counted: Executor {
    fn stats(&self) -> PoolStats;
}

impl<B: Backend> Counted for Pool<B> {
    fn stats(&self) -> PoolStats {
        Self::stats(self)
    }
}

/// Creates one executor of each kind.
fn executors(config: &PoolConfig) -> [Arc<dyn Counted>; 7] {
    [
        Arc::new(MpscPool::new(config.clone()).unwrap()),
        Arc::new(CrossbeamPool::new(config.clone()).unwrap()),
        Arc::new(StealingPool::new(config.clone()).unwrap()),
        Arc::new(TokioTasks::new(config.clone()).unwrap()),
        Arc::new(TokioBlocking::new(config.clone()).unwrap()),
        Arc::new(SmolTasks::new(config.clone()).unwrap()),
        Arc::new(FuturesTasks::new(config.clone()).unwrap()),
    ]
}

fn bounded(workers: usize, queue: usize) -> PoolConfig {
    PoolConfig::new(workers).queue(queue)
}

/// The time limit for what must happen. Reached only in a failure.
const MAX_WAIT: Duration = Duration::from_secs(60);

fn receive<T>(receiver: &Receiver<T>, what: impl Debug) -> T {
    receiver.recv_timeout(MAX_WAIT).unwrap_or_else(|error| panic!("{what:?}: {error}"))
}

/// Waits for `done`, with a time limit. For counts that change after a job's end.
fn wait_until(what: impl Debug, done: impl Fn() -> bool) {
    let deadline = Instant::now() + MAX_WAIT;
    while !done() {
        assert!(Instant::now() < deadline, "{what:?} did not happen");
        thread::yield_now();
    }
}

/// Blocks threads until it is opened.
#[derive(Clone, Default)]
struct Latch(Arc<(Mutex<bool>, Condvar)>);

impl Latch {
    fn open(&self) {
        *lock(&self.0.0) = true;
        self.0.1.notify_all();
    }

    fn is_open(&self) -> bool {
        *lock(&self.0.0)
    }

    fn wait(&self) {
        let waited = self.0.1.wait_timeout_while(lock(&self.0.0), MAX_WAIT, |open| !*open);
        assert!(*waited.unwrap_or_else(PoisonError::into_inner).0, "the latch was not opened");
    }
}

/// Makes `number` workers wait at the returned latch.
fn occupy(pool: &dyn Executor, number: usize) -> Latch {
    let latch = Latch::default();
    let (sender, started) = mpsc::channel();
    for _ in 0..number {
        let (sender, latch) = (sender.clone(), latch.clone());
        pool.execute(Job::new(move || {
            sender.send(()).unwrap();
            latch.wait();
        }))
        .unwrap();
    }
    (0..number).for_each(|_| receive(&started, pool));
    latch
}

fn empty_job() -> Job {
    Job::new(|| {})
}

fn reason(result: Result<(), Rejected>) -> Option<RejectedReason> {
    result.err().map(|rejected| rejected.reason)
}

/// Checks that an error names the setting.
#[track_caller]
fn check_refused<B: Backend>(result: std::io::Result<Pool<B>>, setting: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains(setting), "{error}");
}

#[test]
fn an_invalid_configuration_is_refused() {
    let wrong = PoolConfig::new(0);
    check_refused(MpscPool::new(wrong.clone()), "workers");
    check_refused(CrossbeamPool::new(wrong.clone()), "workers");
    check_refused(StealingPool::new(wrong.clone()), "workers");
    for (wrong, setting) in [(wrong, "workers"), (PoolConfig::new(2).queue(Queue::Unbounded), "queue")] {
        check_refused(TokioTasks::new(wrong.clone()), setting);
        check_refused(TokioBlocking::new(wrong.clone()), setting);
        check_refused(SmolTasks::new(wrong.clone()), setting);
        check_refused(FuturesTasks::new(wrong), setting);
    }
}

#[test]
fn threads_are_named() {
    let config = bounded(3, 8).name("hand");
    for pool in executors(&config) {
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
    for pool in executors(&bounded(1, 4)) {
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
fn a_submitter_that_waits_for_room_gets_it() {
    let config = bounded(1, 1).on_full(OnFull::Wait(MAX_WAIT));
    for pool in executors(&config) {
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
    for pool in executors(&config) {
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
    for pool in executors(&config) {
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
    for pool in executors(&config) {
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

#[test]
fn a_deadline_leaves_no_job_in_the_counts() {
    for pool in executors(&bounded(1, 64)) {
        let latch = occupy(&*pool, 1);
        (0..8).for_each(|_| pool.execute(empty_job()).unwrap());
        assert_eq!(pool.close(Some(Instant::now())), 1, "{pool:?}");
        assert_eq!(pool.stats().queued, 0, "{pool:?}");
        latch.open();
        assert_eq!((pool.close(None), pool.stats().executed), (0, 1), "{pool:?}");
    }
}

/// Jobs that submit further jobs without end must not starve a job from outside, on the pools of threads.
#[test]
fn a_job_from_outside_is_not_starved_by_jobs_that_submit_themselves() {
    fn resubmit(pool: &Arc<dyn Counted>, stop: &Latch) {
        let (weak, latch) = (Arc::downgrade(pool), stop.clone());
        let _ = pool.execute(Job::new(move || {
            if let (Some(pool), false) = (weak.upgrade(), latch.is_open()) {
                resubmit(&pool, &latch);
            }
        }));
    }
    for pool in executors(&bounded(1, 64)).into_iter().take(3) {
        let stop = Latch::default();
        (0..4).for_each(|_| resubmit(&pool, &stop));
        let (sender, ran) = mpsc::channel();
        pool.execute(Job::new(move || sender.send(()).unwrap())).unwrap();
        receive(&ran, &pool);
        stop.open();
        assert_eq!(pool.close(None), 0, "{pool:?}");
    }
}
