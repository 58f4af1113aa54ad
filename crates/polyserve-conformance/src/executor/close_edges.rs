//! Properties of closing in unusual situations: after a deadline, from a worker's own thread, against submitters, and with
//! values that panic in their destructor.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use polyserve_core::{Executor, Job, RejectedReason};

use super::ExecutorSubject;
use super::running::occupy;
use crate::property::Outcome;

/// Returns the outcome of a property that needs queued jobs or counted threads, if the subject declares unbounded
/// workers.
fn needs_workers(subject: &ExecutorSubject) -> Option<Outcome> {
    let why = "its workers are declared unbounded: no job is queued, and its threads are not counted";
    subject.has_unbounded_workers().then(|| Outcome::NotRun(String::from(why)))
}

/// A drop closes without a deadline, but it does not wait for threads that an earlier close left behind: they may never
/// end.
pub(super) fn a_drop_does_not_wait_for_what_a_deadline_left_behind(subject: &ExecutorSubject) {
    let (pool, started, go_on) = (subject.pool(2, 4), subject.count(), subject.count());
    let (its_started, its_go_on) = (started.clone(), go_on.clone());
    pool.run(move || {
        its_started.add();
        // Longer than the drop may take.
        let _ = its_go_on.reaches(1) || its_go_on.reaches(1);
    });
    assert!(started.reaches(1), "the job did not start");
    assert_eq!(pool.close(Some(Instant::now())), 1, "threads left behind with 1 job stuck");
    pool.end();
    go_on.add();
}

/// After a close has left threads behind, a later close may wait for them.
pub(super) fn a_later_close_may_wait_longer(subject: &ExecutorSubject) {
    let (pool, go_on) = subject.occupied(2, 4);
    assert_eq!(pool.close(Some(Instant::now())), 2, "threads left behind with 2 jobs stuck");
    go_on.add();
    assert_eq!(pool.close(None), 0, "threads left behind by a later close without a deadline");
}

/// Two jobs that close their own executor at the same time do not wait for each other's thread.
pub(super) fn workers_that_close_their_own_executor_do_not_wait_for_each_other(subject: &ExecutorSubject) -> Outcome {
    if let Some(not_run) = needs_workers(subject) {
        return not_run;
    }
    let (pool, closed) = (subject.pool(3, 16), subject.count());
    let (sender, counts) = mpsc::channel();
    let barrier = Arc::new(Barrier::new(2));
    for _ in 0..2 {
        let (sender, barrier, handle, closed) = (sender.clone(), Arc::clone(&barrier), pool.handle(), closed.clone());
        pool.run(move || {
            barrier.wait();
            let _ = sender.send(handle.close(None));
            drop(handle);
            closed.add();
        });
    }
    assert!(closed.reaches(2), "of two closes by the executor's own jobs {} ended", closed.get());
    for left in counts.try_iter() {
        assert!((1..=2).contains(&left), "{left} threads left behind by a worker's close");
    }
    assert_eq!(pool.close(None), 0, "threads left behind by a close from outside");
    Outcome::Held
}

/// A job that was queued before another job closed the executor still runs.
pub(super) fn what_is_queued_behind_a_workers_close_still_runs(subject: &ExecutorSubject) -> Outcome {
    if let Some(not_run) = needs_workers(subject) {
        return not_run;
    }
    let ((pool, go_on), done) = (subject.occupied(1, 16), subject.count());
    let (sender, events) = mpsc::channel();
    let (handle, its_sender, its_done) = (pool.handle(), sender.clone(), done.clone());
    pool.run(move || {
        let _ = its_sender.send(handle.close(None));
        drop(handle);
        its_done.add();
    });
    let its_done = done.clone();
    pool.run(move || {
        let _ = sender.send(100);
        its_done.add();
    });
    go_on.add();
    assert!(done.reaches(2), "of a close and the job behind it {} ended", done.get());
    let mut seen: Vec<_> = events.try_iter().collect();
    if !subject.keeps_the_order() {
        seen.sort_unstable();
    }
    assert_eq!(seen, [1, 100], "threads left behind by the worker's close, and the job behind it");
    assert_eq!(pool.close(None), 0, "threads left behind by a close from outside");
    Outcome::Held
}

/// A submitter that has found the executor open may be preempted before its job is queued, while the executor closes. The
/// job runs once, or is returned to the submitter. After a deadline it may be dropped once, without running.
pub(super) fn a_job_that_races_with_the_close_is_run_once_or_handed_back(subject: &ExecutorSubject) {
    const SUBMITTERS: usize = 3;
    let rounds = if subject.has_unbounded_workers() { 6 } else { 60 };
    for round in 0..rounds {
        // The close comes before the first job, after one job, or after 40. In some rounds it has a deadline.
        let before = [0, 1, 40][round % 3];
        let cuts = round % 4 == 3 && !subject.has_unbounded_workers();
        let (pool, submitted) = (subject.pool(1 + round % 3, 1 + round % 7), subject.count());
        let start = Arc::new(Barrier::new(SUBMITTERS + 1));
        let submitters: Vec<_> = (0..SUBMITTERS)
            .map(|_| {
                let (executor, submitted, start) = (pool.handle(), submitted.clone(), Arc::clone(&start));
                thread::spawn(move || {
                    start.wait();
                    submit_until_closed(&*executor, || submitted.add())
                })
            })
            .collect();
        start.wait();
        assert!(submitted.reaches(before), "{} of {before} jobs were submitted", submitted.get());
        pool.close(cuts.then(Instant::now));
        assert_eq!(pool.close(None), 0, "threads left behind although no job is stuck");
        // All submitters end before the check: one of them may run a job that another has submitted.
        let taken = subject.within("a submitter to a closing executor", move || {
            submitters.into_iter().map(|submitter| submitter.join().expect("a submitter panicked")).collect::<Vec<_>>()
        });
        for (ran, dropped) in taken.into_iter().flatten() {
            let (ran, dropped) = (ran.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst));
            assert!(ran == 1 || cuts && ran == 0, "a job that was accepted ran {ran} times");
            assert_eq!(dropped, 1, "how many times a job that was accepted was dropped");
        }
    }
}

type RunsAndDrops = (Arc<AtomicUsize>, Arc<AtomicUsize>);

/// Returns how many times each accepted job ran, and was dropped.
fn submit_until_closed(executor: &dyn Executor, submitted: impl Fn()) -> Vec<RunsAndDrops> {
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
        submitted();
    }
}

/// A value that panics in its destructor, unless the thread panics already.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            resume_unwind(Box::new(Self));
        }
    }
}

/// The executor drops the payload of a job's panic. If this drop panics too, the worker goes on.
pub(super) fn a_panic_that_panics_as_it_is_dropped_costs_no_worker(subject: &ExecutorSubject) {
    let (pool, ran, go_on) = (subject.pool(2, 64), subject.count(), subject.count());
    for _ in 0..8 {
        let ran = ran.clone();
        pool.run(move || {
            let _ran = ran.token();
            resume_unwind(Box::new(Bomb))
        });
    }
    assert!(ran.reaches(8), "{} of 8 panicking jobs ran", ran.get());
    occupy(subject, &*pool.handle(), 2, &go_on);
    go_on.add();
    assert_eq!((pool.close(None), pool.panicked()), (0, 8), "threads left behind, and panics counted");
}

/// A close with a deadline drops queued jobs. It returns even if the destructors of their captured values panic.
pub(super) fn captured_values_that_panic_when_a_deadline_drops_them_are_harmless(subject: &ExecutorSubject) -> Outcome {
    if let Some(not_run) = needs_workers(subject) {
        return not_run;
    }
    let (pool, go_on) = subject.occupied(1, 64);
    for _ in 0..8 {
        let bomb = Bomb;
        pool.run(move || std::mem::forget(bomb));
    }
    assert_eq!((pool.close(Some(Instant::now())), pool.panicked()), (1, 0), "threads left behind, and panics counted");
    go_on.add();
    assert_eq!(pool.close(None), 0, "threads left behind by a later close without a deadline");
    Outcome::Held
}

/// A worker may become idle while a close after its deadline still drops the queued jobs. The worker runs none of them.
pub(super) fn a_worker_that_comes_free_after_the_deadline_runs_nothing_more(subject: &ExecutorSubject) -> Outcome {
    struct OnDrop<F: FnMut()>(F);
    impl<F: FnMut()> Drop for OnDrop<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    if let Some(not_run) = needs_workers(subject) {
        return not_run;
    }
    let (pool, go_on) = subject.occupied(1, 64);
    let (ran, dropped) = (subject.count(), subject.count());
    // The close usually drops this job first. The destructor frees the worker, and waits so that the worker could take the
    // next job.
    let its_dropped = dropped.clone();
    let first = OnDrop(move || {
        go_on.add();
        its_dropped.reaches_soon(1);
    });
    let its_ran = ran.clone();
    pool.run(move || {
        its_ran.add();
        drop(first);
    });
    for _ in 0..8 {
        let (ran, token) = (ran.clone(), dropped.token());
        pool.run(move || {
            ran.add();
            drop(token);
        });
    }
    pool.close(Some(Instant::now()));
    assert_eq!(pool.close(None), 0, "threads left behind by a later close without a deadline");
    assert_eq!((ran.get(), dropped.get()), (0, 8), "how many of 9 queued jobs ran, and how many of 8 were dropped");
    assert_eq!(pool.panicked(), 0, "panics counted");
    Outcome::Held
}

/// A value that a job left in a thread-local is dropped after the worker's last job. It may close the executor once more.
pub(super) fn a_workers_thread_local_may_close_the_executor(subject: &ExecutorSubject) -> Outcome {
    struct CloseOnDrop(Arc<dyn Executor>, mpsc::Sender<usize>);
    impl Drop for CloseOnDrop {
        fn drop(&mut self) {
            let _ = self.1.send(self.0.close(None));
        }
    }
    thread_local! {
        static ON_THREAD_EXIT: RefCell<Option<CloseOnDrop>> = const { RefCell::new(None) };
    }
    if let Some(not_run) = needs_workers(subject) {
        return not_run;
    }
    let pool = subject.pool(1, 4);
    let (sender, counts) = mpsc::channel();
    let handle = pool.handle();
    pool.run(move || {
        let _ = sender.send(handle.close(None));
        ON_THREAD_EXIT.set(Some(CloseOnDrop(handle, sender)));
    });
    let left_behind = subject.within("a close by a worker's thread-local", move || counts.iter().collect::<Vec<_>>());
    assert_eq!(left_behind, [1, 1], "threads left behind by a job's close, and by the close of its thread-local");
    assert_eq!(pool.close(None), 0, "threads left behind by a close from outside");
    Outcome::Held
}
