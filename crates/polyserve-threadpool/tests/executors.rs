//! The pools: through the executor kit, bounded and unbounded, and what they promise beyond it.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::panic::resume_unwind;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_conformance::executor::ExecutorSubject;
use polyserve_conformance::executor_conformance;
use polyserve_core::sync::lock;
use polyserve_core::{Executor, Job, Rejected, RejectedReason};
use polyserve_threadpool::{CrossbeamPool, MpscPool, OnFull, PoolConfig, PoolStats, Queue, StealingPool};

executor_conformance!(
    mpsc_pool,
    ExecutorSubject::new(|workers, queue| Box::new(MpscPool::new(bounded(workers, queue)).unwrap())).in_order()
);
executor_conformance!(
    mpsc_pool_unbounded,
    ExecutorSubject::new(|workers, _| Box::new(MpscPool::new(unbounded(workers)).unwrap()))
        .in_order()
        .unbounded_queue()
);
executor_conformance!(
    crossbeam_pool,
    ExecutorSubject::new(|workers, queue| Box::new(CrossbeamPool::new(bounded(workers, queue)).unwrap())).in_order()
);
executor_conformance!(
    crossbeam_pool_unbounded,
    ExecutorSubject::new(|workers, _| Box::new(CrossbeamPool::new(unbounded(workers)).unwrap()))
        .in_order()
        .unbounded_queue()
);
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
    PoolConfig::new(workers).with(|c| c.queue = Queue::Bounded(queue))
}

fn unbounded(workers: usize) -> PoolConfig {
    PoolConfig::new(workers).with(|c| c.queue = Queue::Unbounded)
}

/// What the three pools have beside the trait.
trait Pool: Executor {
    fn stats(&self) -> PoolStats;
}

impl Pool for MpscPool {
    fn stats(&self) -> PoolStats {
        Self::stats(self)
    }
}

impl Pool for CrossbeamPool {
    fn stats(&self) -> PoolStats {
        Self::stats(self)
    }
}

impl Pool for StealingPool {
    fn stats(&self) -> PoolStats {
        Self::stats(self)
    }
}

/// One of each.
fn pools(config: &PoolConfig) -> [Arc<dyn Pool>; 3] {
    [
        Arc::new(MpscPool::new(config.clone()).unwrap()),
        Arc::new(CrossbeamPool::new(config.clone()).unwrap()),
        Arc::new(StealingPool::new(config.clone()).unwrap()),
    ]
}

/// Only waited for in failure.
const LONG: Duration = Duration::from_secs(60);

fn soon<T>(receiver: &Receiver<T>, what: impl Debug) -> T {
    receiver.recv_timeout(LONG).unwrap_or_else(|error| panic!("{what:?}: {error}"))
}

/// Waits for `done`: for counts that follow a job's end.
fn until(what: impl Debug, done: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < deadline, "{what:?} did not come about");
        thread::yield_now();
    }
}

/// Closed until it is opened.
#[derive(Clone, Default)]
struct Barred(Arc<(Mutex<bool>, Condvar)>);

impl Barred {
    fn open(&self) {
        *lock(&self.0.0) = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let waited = self.0.1.wait_timeout_while(lock(&self.0.0), LONG, |open| !*open);
        assert!(*waited.unwrap_or_else(PoisonError::into_inner).0, "nobody opened");
    }
}

/// Has `number` workers wait at the bar that is answered.
fn occupy(pool: &dyn Executor, number: usize) -> Barred {
    let bar = Barred::default();
    let (sender, started) = mpsc::channel();
    for _ in 0..number {
        let (sender, bar) = (sender.clone(), bar.clone());
        pool.execute(Job::new(move || {
            sender.send(()).unwrap();
            bar.wait();
        }))
        .unwrap();
    }
    (0..number).for_each(|_| soon(&started, pool));
    bar
}

fn nothing() -> Job {
    Job::new(|| {})
}

fn reason(result: Result<(), Rejected>) -> Option<RejectedReason> {
    result.err().map(|rejected| rejected.reason)
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
    let config = bounded(3, 8).with(|c| c.name = String::from("hand"));
    for pool in pools(&config) {
        let (sender, names) = mpsc::channel();
        let all_here = Arc::new(std::sync::Barrier::new(3));
        for _ in 0..3 {
            let (sender, all_here) = (sender.clone(), Arc::clone(&all_here));
            pool.execute(Job::new(move || {
                all_here.wait();
                sender.send(thread::current().name().map(str::to_owned)).unwrap();
            }))
            .unwrap();
        }
        let names: BTreeSet<_> = (0..3).filter_map(|_| soon(&names, &pool)).collect();
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
        until("three jobs to end", || pool.stats().executed == 3);
        let bar = occupy(&*pool, 1);
        for _ in 0..4 {
            pool.execute(nothing()).unwrap();
        }
        for _ in 0..2 {
            assert_eq!(reason(pool.execute(nothing())), Some(RejectedReason::Full));
        }
        let stats = pool.stats();
        let seen = (stats.executed, stats.panicked, stats.rejected, stats.queued);
        assert_eq!(seen, (3, 1, 2, 4), "{pool:?}");
        bar.open();
        assert_eq!(pool.close(None), 0);
        assert_eq!(reason(pool.execute(nothing())), Some(RejectedReason::Closed));
        let stats = pool.stats();
        let seen = (stats.executed, stats.panicked, stats.rejected, stats.queued);
        assert_eq!(seen, (8, 1, 3, 0), "{pool:?}");
    }
}

#[test]
fn waits_are_sampled_and_last_from_execute_to_the_start() {
    for pool in pools(&bounded(1, 256)) {
        let bar = occupy(&*pool, 1);
        let before = pool.stats().waits.len();
        // A thread's first job has a stamp, and every 61st.
        let submitting = Arc::clone(&pool);
        let submitter = thread::spawn(move || {
            for _ in 0..122 {
                submitting.execute(nothing()).unwrap();
            }
        });
        submitter.join().unwrap();
        let submitted = Instant::now();
        thread::yield_now();
        let waited = submitted.elapsed();
        bar.open();
        assert_eq!(pool.close(None), 0);
        let waits = pool.stats().waits;
        assert_eq!(waits.len() - before, 2, "{pool:?}");
        assert!(u128::from(waits.max()) >= waited.as_nanos(), "{} ns waited of {waited:?}", waits.max());
    }
}

#[test]
fn a_submitter_that_waits_for_room_gets_it() {
    let config = bounded(1, 1).with(|c| c.on_full = OnFull::Wait(LONG));
    for pool in pools(&config) {
        for _ in 0..200 {
            let bar = occupy(&*pool, 1);
            let (sender, ran) = mpsc::channel();
            let submitters: Vec<_> = (0..3)
                .map(|_| {
                    let (pool, sender) = (Arc::clone(&pool), sender.clone());
                    thread::spawn(move || pool.execute(Job::new(move || sender.send(()).unwrap())))
                })
                .collect();
            bar.open();
            for submitter in submitters {
                assert_eq!(reason(submitter.join().unwrap()), None, "{pool:?}");
            }
            (0..3).for_each(|_| soon(&ran, &pool));
        }
        assert_eq!(pool.stats().rejected, 0);
    }
}

#[test]
fn a_submitter_waits_no_longer_than_it_is_told() {
    let limit = Duration::from_millis(20);
    let config = bounded(1, 1).with(|c| c.on_full = OnFull::Wait(limit));
    for pool in pools(&config) {
        let bar = occupy(&*pool, 1);
        pool.execute(nothing()).unwrap();
        let (sender, ran) = mpsc::channel();
        let start = Instant::now();
        let rejected = pool.execute(Job::new(move || sender.send(()).unwrap())).unwrap_err();
        assert!(start.elapsed() >= limit, "{pool:?} did not wait");
        assert_eq!(rejected.reason, RejectedReason::Full);
        rejected.job.run();
        soon(&ran, "the job that was handed back");
        assert_eq!(pool.stats().rejected, 1);
        bar.open();
    }
}

#[test]
fn a_close_wakes_submitters_that_wait_for_room() {
    let config = bounded(1, 1).with(|c| c.on_full = OnFull::Wait(Duration::MAX));
    for pool in pools(&config) {
        let bar = occupy(&*pool, 1);
        pool.execute(nothing()).unwrap();
        let (sender, ended) = mpsc::channel();
        for _ in 0..3 {
            let (pool, sender) = (Arc::clone(&pool), sender.clone());
            thread::spawn(move || sender.send(reason(pool.execute(nothing()))).unwrap());
        }
        assert_eq!(pool.close(Some(Instant::now())), 1, "{pool:?}");
        for _ in 0..3 {
            assert_eq!(soon(&ended, &pool), Some(RejectedReason::Closed), "{pool:?}");
        }
        bar.open();
    }
}

#[test]
fn the_caller_runs_what_finds_no_room() {
    let config = bounded(1, 1).with(|c| c.on_full = OnFull::CallerRuns);
    for pool in pools(&config) {
        let bar = occupy(&*pool, 1);
        pool.execute(nothing()).unwrap();
        let (sender, ids) = mpsc::channel();
        pool.execute(Job::new(move || sender.send(thread::current().id()).unwrap())).unwrap();
        assert_eq!(soon(&ids, "the job without room"), thread::current().id(), "{pool:?}");
        pool.execute(Job::new(|| resume_unwind(Box::new("quiet")))).unwrap();
        assert_eq!((pool.panicked(), pool.stats().executed), (1, 2), "{pool:?}");
        bar.open();
        assert_eq!(pool.close(None), 0);
        assert_eq!(reason(pool.execute(nothing())), Some(RejectedReason::Closed), "{pool:?}");
        assert_eq!(pool.stats().executed, 4, "{pool:?}");
    }
}

/// A drop closes without a deadline, but a thread that an earlier close gave up is not waited for: it may never end.
#[test]
fn a_drop_does_not_wait_for_what_a_deadline_left_behind() {
    for pool in pools(&bounded(2, 4)) {
        let bar = occupy(&*pool, 1);
        assert_eq!(pool.close(Some(Instant::now())), 1, "{pool:?}");
        let (sender, dropped) = mpsc::channel();
        thread::spawn(move || {
            drop(pool);
            sender.send(()).unwrap();
        });
        soon(&dropped, "the drop");
        bar.open();
    }
}

#[test]
fn a_later_close_may_wait_longer() {
    for pool in pools(&bounded(2, 4)) {
        let bar = occupy(&*pool, 2);
        assert_eq!(pool.close(Some(Instant::now())), 2, "{pool:?}");
        bar.open();
        assert_eq!(pool.close(None), 0, "{pool:?}");
    }
}

#[test]
fn workers_that_close_their_own_pool_do_not_wait_for_each_other() {
    for pool in pools(&bounded(3, 16)) {
        let (sender, left) = mpsc::channel();
        let all_here = Arc::new(std::sync::Barrier::new(2));
        for _ in 0..2 {
            let (sender, all_here, own) = (sender.clone(), Arc::clone(&all_here), Arc::clone(&pool));
            pool.execute(Job::new(move || {
                all_here.wait();
                sender.send(own.close(None)).unwrap();
            }))
            .unwrap();
        }
        for _ in 0..2 {
            let left = soon(&left, &pool);
            assert!((1..=2).contains(&left), "{left} threads left by a worker's close of {pool:?}");
        }
        assert_eq!(pool.close(None), 0, "{pool:?}");
    }
}

#[test]
fn what_is_queued_behind_a_workers_close_still_runs() {
    for pool in pools(&bounded(1, 16)) {
        let bar = occupy(&*pool, 1);
        let (sender, events) = mpsc::channel();
        let (own, its_sender) = (Arc::clone(&pool), sender.clone());
        pool.execute(Job::new(move || its_sender.send(own.close(None)).unwrap())).unwrap();
        pool.execute(Job::new(move || sender.send(100).unwrap())).unwrap();
        bar.open();
        assert_eq!((soon(&events, &pool), soon(&events, &pool)), (1, 100), "{pool:?}");
        assert_eq!(pool.close(None), 0, "{pool:?}");
    }
}

/// Something that panics as it is dropped, also while nothing else panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            resume_unwind(Box::new(Self));
        }
    }
}

/// What a panic carries is dropped by whoever catches it; where that panics in its turn, a worker could end.
#[test]
fn a_panic_that_panics_as_it_is_dropped_costs_no_worker() {
    for pool in pools(&bounded(2, 64)) {
        for _ in 0..8 {
            pool.execute(Job::new(|| resume_unwind(Box::new(Bomb)))).unwrap();
        }
        until("eight jobs to end", || pool.stats().executed == 8);
        occupy(&*pool, 2).open();
        assert_eq!((pool.close(None), pool.panicked()), (0, 8), "{pool:?}");
    }
}

#[test]
fn a_captured_value_that_panics_as_a_deadline_drops_it_harms_nobody() {
    for pool in pools(&bounded(1, 64)) {
        let bar = occupy(&*pool, 1);
        for _ in 0..8 {
            let bomb = Bomb;
            pool.execute(Job::new(move || std::mem::forget(bomb))).unwrap();
        }
        assert_eq!(pool.close(Some(Instant::now())), 1, "{pool:?}");
        assert_eq!((pool.stats().queued, pool.panicked()), (0, 0), "{pool:?}");
        bar.open();
        assert_eq!(pool.close(None), 0, "{pool:?}");
    }
}

/// A worker that comes free while the deadline's close is still dropping the queue must not run what is left of it.
#[test]
fn a_worker_that_comes_free_after_the_deadline_runs_nothing_more() {
    struct OnDrop<F: FnMut()>(F);
    impl<F: FnMut()> Drop for OnDrop<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    for pool in pools(&bounded(1, 64)) {
        let bar = occupy(&*pool, 1);
        let (sender, events) = mpsc::channel();
        // Dropped first, by the close: lets the worker go, and waits until that has dealt with the next job.
        let first = OnDrop(move || {
            bar.open();
            let _ = events.recv_timeout(LONG);
        });
        pool.execute(Job::new(move || drop(first))).unwrap();
        let its_sender = sender.clone();
        let next = OnDrop(move || sender.send(()).unwrap());
        pool.execute(Job::new(move || {
            its_sender.send(()).unwrap();
            drop(next);
        }))
        .unwrap();
        pool.close(Some(Instant::now()));
        assert_eq!(pool.close(None), 0, "{pool:?}");
        assert_eq!((pool.stats().executed, pool.panicked()), (1, 0), "{pool:?}");
    }
}

/// What a job left in a thread-local is dropped when the worker is past its last job, and may close the pool yet again.
#[test]
fn a_workers_thread_local_may_close_the_pool() {
    struct CloseOnDrop(Arc<dyn Pool>, mpsc::Sender<usize>);
    impl Drop for CloseOnDrop {
        fn drop(&mut self) {
            self.1.send(self.0.close(None)).unwrap();
        }
    }
    thread_local! {
        static LAST: std::cell::RefCell<Option<CloseOnDrop>> = const { std::cell::RefCell::new(None) };
    }
    for pool in pools(&bounded(1, 4)) {
        let (sender, left) = mpsc::channel();
        let own = Arc::clone(&pool);
        pool.execute(Job::new(move || {
            sender.send(own.close(None)).unwrap();
            LAST.set(Some(CloseOnDrop(own, sender)));
        }))
        .unwrap();
        assert_eq!((soon(&left, &pool), soon(&left, &pool)), (1, 1), "{pool:?}");
        assert_eq!(pool.close(None), 0, "{pool:?}");
    }
}

/// Workers that feed themselves for ever must not keep a job from outside waiting.
#[test]
fn a_job_from_outside_is_not_starved_by_jobs_that_submit_themselves() {
    fn again(pool: &Arc<dyn Pool>, stop: &Barred) {
        let (own, its_stop) = (Arc::downgrade(pool), stop.clone());
        let _ = pool.execute(Job::new(move || {
            if let (Some(pool), false) = (own.upgrade(), *lock(&its_stop.0.0)) {
                again(&pool, &its_stop);
            }
        }));
    }
    for pool in pools(&bounded(1, 64)) {
        let stop = Barred::default();
        (0..4).for_each(|_| again(&pool, &stop));
        let (sender, ran) = mpsc::channel();
        pool.execute(Job::new(move || sender.send(()).unwrap())).unwrap();
        soon(&ran, &pool);
        stop.open();
        assert_eq!(pool.close(None), 0, "{pool:?}");
    }
}

/// Where a thread cannot be started, the pool is refused and those that were are ended.
#[cfg(target_os = "linux")]
#[test]
fn a_pool_that_cannot_have_its_threads_is_refused_whole() {
    use polyserve_conformance::property;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    fn threads() -> usize {
        std::fs::read_dir("/proc/self/task").unwrap().count()
    }

    fn look(_: &()) -> property::Outcome {
        property::in_child(|| {
            let before = threads();
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.strip_suffix(" kB")).unwrap();
            // Room for some of the stacks only.
            let most = size.trim().parse::<u64>().unwrap() * 1024 + (64 << 20);
            let maximum = getrlimit(Resource::As).maximum;
            setrlimit(Resource::As, Rlimit { current: Some(most), maximum }).unwrap();
            let config = bounded(1_000, 8);
            for refused in [
                MpscPool::new(config.clone()).is_err(),
                CrossbeamPool::new(config.clone()).is_err(),
                StealingPool::new(config).is_err(),
            ] {
                assert!(refused, "1 000 stacks fit 64 MiB");
            }
            until("the threads that were started to end", || threads() == before);
        })
    }

    property::test(module_path!(), "a_pool_that_cannot_have_its_threads_is_refused_whole", &(), look);
}
