//! How the pools end: with threads left behind, from within, and with values that panic as they are dropped.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use polyserve_core::{Executor, Job, RejectedReason};
use polyserve_threadpool::{CrossbeamPool, MpscPool, PoolConfig, Queue, StealingPool};

use super::support::{LONG, Pool, bounded, occupy, pools, reason, soon, until};

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
        let all_here = Arc::new(Barrier::new(2));
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

/// A submitter that has found the pool open may be held up before its send while the pool closes and its workers end.
/// Its job must be handed back or run, once, however the two fall together; after a deadline it may be dropped, once.
#[test]
fn a_job_that_races_with_the_close_is_run_once_or_handed_back() {
    const SUBMITTERS: usize = 3;
    for round in 0..120 {
        // The first jobs meet the close; or hundreds are queued by then. Without a deadline, or with one.
        let (before, cuts) = ([0, 1, 40][round % 3], round % 4 == 3);
        let queue = if round % 2 == 0 { Queue::Bounded(1 + round % 5) } else { Queue::Unbounded };
        for pool in pools(&PoolConfig::new(1 + round % 3).with(|c| c.queue = queue)) {
            let submitted = Arc::new(AtomicUsize::new(0));
            let start = Arc::new(Barrier::new(SUBMITTERS + 1));
            let submitters: Vec<_> = (0..SUBMITTERS)
                .map(|_| {
                    let (pool, submitted, start) = (Arc::clone(&pool), Arc::clone(&submitted), Arc::clone(&start));
                    thread::spawn(move || {
                        start.wait();
                        submit_until_closed(&*pool, &submitted)
                    })
                })
                .collect();
            start.wait();
            until("jobs before the close", || submitted.load(Ordering::SeqCst) >= before);
            pool.close(cuts.then(Instant::now));
            assert_eq!(pool.close(None), 0, "{pool:?}");
            // All of them first: one may be running what another has submitted.
            let taken: Vec<_> = submitters.into_iter().map(|submitter| submitter.join().unwrap()).collect();
            for (ran, dropped) in taken.into_iter().flatten() {
                let (ran, dropped) = (ran.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst));
                assert!(ran == 1 || cuts && ran == 0, "a job that was taken ran {ran} times, by {pool:?}");
                assert_eq!(dropped, 1, "how often a job that was taken was dropped, by {pool:?}");
            }
            assert_eq!(pool.stats().queued, 0, "{pool:?}");
        }
    }
}

type Counts = (Arc<AtomicUsize>, Arc<AtomicUsize>);

/// Answers how often each job that was taken ran, and was dropped.
fn submit_until_closed(pool: &dyn Pool, submitted: &AtomicUsize) -> Vec<Counts> {
    struct OnDrop(Arc<AtomicUsize>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let mut taken = Vec::new();
    loop {
        let (ran, dropped) = (Arc::default(), Arc::default());
        let (its_ran, on_drop) = (Arc::<AtomicUsize>::clone(&ran), OnDrop(Arc::clone(&dropped)));
        let job = Job::new(move || {
            let _on_drop = on_drop;
            its_ran.fetch_add(1, Ordering::SeqCst);
        });
        match reason(pool.execute(job)) {
            None => taken.push((ran, dropped)),
            Some(RejectedReason::Closed) => return taken,
            Some(_) => thread::yield_now(),
        }
        submitted.fetch_add(1, Ordering::SeqCst);
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
