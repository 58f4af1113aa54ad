//! How the executors end: with threads left behind, from within, and with values that panic as they are dropped.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use polyserve_core::{Executor, Job, RejectedReason};

use super::support::{bounded, executors, occupy, soon};

/// A drop closes without a deadline, but a thread that an earlier close gave up is not waited for: it may never end.
#[test]
fn a_drop_does_not_wait_for_what_a_deadline_left_behind() {
    for executor in executors(&bounded(2, 4)) {
        let bar = occupy(&*executor, 1);
        assert_eq!(executor.close(Some(Instant::now())), 1, "{executor:?}");
        let (sender, dropped) = mpsc::channel();
        thread::spawn(move || {
            drop(executor);
            sender.send(()).unwrap();
        });
        soon(&dropped, "the drop");
        bar.open();
    }
}

#[test]
fn a_later_close_may_wait_longer() {
    for executor in executors(&bounded(2, 4)) {
        let bar = occupy(&*executor, 2);
        assert_eq!(executor.close(Some(Instant::now())), 2, "{executor:?}");
        bar.open();
        assert_eq!(executor.close(None), 0, "{executor:?}");
    }
}

#[test]
fn workers_that_close_their_own_executor_do_not_wait_for_each_other() {
    for executor in executors(&bounded(3, 16)) {
        let (sender, left) = mpsc::channel();
        let all_here = Arc::new(Barrier::new(2));
        for _ in 0..2 {
            let (sender, all_here, own) = (sender.clone(), Arc::clone(&all_here), Arc::clone(&executor));
            executor
                .execute(Job::new(move || {
                    all_here.wait();
                    sender.send(own.close(None)).unwrap();
                }))
                .unwrap();
        }
        for _ in 0..2 {
            let left = soon(&left, &executor);
            assert!((1..=2).contains(&left), "{left} threads left by a worker's close of {executor:?}");
        }
        assert_eq!(executor.close(None), 0, "{executor:?}");
    }
}

#[test]
fn what_is_queued_behind_a_workers_close_still_runs() {
    for executor in executors(&bounded(1, 16)) {
        let bar = occupy(&*executor, 1);
        let (sender, events) = mpsc::channel();
        let (own, its_sender) = (Arc::clone(&executor), sender.clone());
        executor.execute(Job::new(move || its_sender.send(own.close(None)).unwrap())).unwrap();
        executor.execute(Job::new(move || sender.send(100).unwrap())).unwrap();
        bar.open();
        let mut seen = [soon(&events, &executor), soon(&events, &executor)];
        seen.sort_unstable(); // not every one keeps the order
        assert_eq!(seen, [1, 100], "{executor:?}");
        assert_eq!(executor.close(None), 0, "{executor:?}");
    }
}

/// A submitter that was let in may be held up before its job has a slot, or a task, while the executor closes. Its job
/// must be handed back or run, once, however the two fall together; after a deadline it may be dropped, once.
#[test]
fn a_job_that_races_with_the_close_is_run_once_or_handed_back() {
    const SUBMITTERS: usize = 3;
    for round in 0..60 {
        // The first jobs meet the close; or hundreds are queued by then. Without a deadline, or with one.
        let (before, cuts) = ([0, 1, 40][round % 3], round % 4 == 3);
        for executor in executors(&bounded(1 + round % 3, 1 + round % 7)) {
            let submitted = Arc::new(AtomicUsize::new(0));
            let start = Arc::new(Barrier::new(SUBMITTERS + 1));
            let submitters: Vec<_> = (0..SUBMITTERS)
                .map(|_| {
                    let (executor, submitted, start) =
                        (Arc::clone(&executor), Arc::clone(&submitted), Arc::clone(&start));
                    thread::spawn(move || {
                        start.wait();
                        submit_until_closed(&*executor, &submitted)
                    })
                })
                .collect();
            start.wait();
            while submitted.load(Ordering::SeqCst) < before {
                thread::yield_now();
            }
            executor.close(cuts.then(Instant::now));
            assert_eq!(executor.close(None), 0, "{executor:?}");
            for (ran, dropped) in submitters.into_iter().flat_map(|submitter| submitter.join().unwrap()) {
                let (ran, dropped) = (ran.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst));
                assert!(ran == 1 || cuts && ran == 0, "a job that was taken ran {ran} times, by {executor:?}");
                assert_eq!(dropped, 1, "how often a job that was taken was dropped, by {executor:?}");
            }
        }
    }
}

type Counts = (Arc<AtomicUsize>, Arc<AtomicUsize>);

/// Answers how often each job that was taken ran, and was dropped.
fn submit_until_closed(executor: &dyn Executor, submitted: &AtomicUsize) -> Vec<Counts> {
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
        match executor.execute(job).map_err(|rejected| rejected.reason) {
            Ok(()) => taken.push((ran, dropped)),
            Err(RejectedReason::Closed) => return taken,
            Err(_) => thread::yield_now(),
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
    for executor in executors(&bounded(2, 64)) {
        for _ in 0..8 {
            executor.execute(Job::new(|| resume_unwind(Box::new(Bomb)))).unwrap();
        }
        occupy(&*executor, 2).open();
        assert_eq!((executor.close(None), executor.panicked()), (0, 8), "{executor:?}");
    }
}

#[test]
fn a_captured_value_that_panics_as_a_deadline_drops_it_harms_nobody() {
    for executor in executors(&bounded(1, 64)) {
        let bar = occupy(&*executor, 1);
        for _ in 0..8 {
            let bomb = Bomb;
            executor.execute(Job::new(move || std::mem::forget(bomb))).unwrap();
        }
        assert_eq!((executor.close(Some(Instant::now())), executor.panicked()), (1, 0), "{executor:?}");
        bar.open();
        assert_eq!(executor.close(None), 0, "{executor:?}");
    }
}

/// A worker that comes free after a deadline must not run what was queued, nor what it finds in the runtime's queues.
#[test]
fn a_worker_that_comes_free_after_the_deadline_runs_nothing_more() {
    for executor in executors(&bounded(1, 64)) {
        let bar = occupy(&*executor, 1);
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..8 {
            let ran = Arc::clone(&ran);
            let job = Job::new(move || {
                ran.fetch_add(1, Ordering::SeqCst);
            });
            executor.execute(job).unwrap();
        }
        assert_eq!(executor.close(Some(Instant::now())), 1, "{executor:?}");
        assert_eq!(Arc::strong_count(&ran), 1, "what was queued is dropped by then, in {executor:?}");
        bar.open();
        assert_eq!((executor.close(None), ran.load(Ordering::SeqCst)), (0, 0), "{executor:?}");
    }
}

/// What a job left in a thread-local is dropped when the worker is past its last job, and may close the executor again.
#[test]
fn a_workers_thread_local_may_close_the_executor() {
    struct CloseOnDrop(Arc<dyn Executor>, mpsc::Sender<usize>);
    impl Drop for CloseOnDrop {
        fn drop(&mut self) {
            self.1.send(self.0.close(None)).unwrap();
        }
    }
    thread_local! {
        static LAST: std::cell::RefCell<Option<CloseOnDrop>> = const { std::cell::RefCell::new(None) };
    }
    for executor in executors(&bounded(1, 4)) {
        let (sender, left) = mpsc::channel();
        let own = Arc::clone(&executor);
        executor
            .execute(Job::new(move || {
                sender.send(own.close(None)).unwrap();
                LAST.set(Some(CloseOnDrop(own, sender)));
            }))
            .unwrap();
        assert_eq!((soon(&left, &executor), soon(&left, &executor)), (1, 1), "{executor:?}");
        assert_eq!(executor.close(None), 0, "{executor:?}");
    }
}

/// A thread that has said that it ends may still be destroying its thread-locals: who closes waits for those too, where
/// the runtime offers a way. The futures crate's pool does not.
#[test]
fn a_close_joins_the_threads() {
    struct Slow(Arc<AtomicUsize>);
    impl Drop for Slow {
        fn drop(&mut self) {
            (0..1_000).for_each(|_| thread::yield_now()); // a wrong one is found out by chance only
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    thread_local! {
        static SLOW: std::cell::RefCell<Option<Slow>> = const { std::cell::RefCell::new(None) };
    }
    let config = bounded(2, 8);
    let all = executors(&config);
    for executor in &all[..3] {
        let (destroyed, all_here) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(2)));
        for _ in 0..2 {
            let (slow, all_here) = (Slow(Arc::clone(&destroyed)), Arc::clone(&all_here));
            executor
                .execute(Job::new(move || {
                    SLOW.set(Some(slow));
                    all_here.wait();
                }))
                .unwrap();
        }
        assert_eq!((executor.close(None), destroyed.load(Ordering::SeqCst)), (0, 2), "{executor:?}");
    }
}
