//! Properties of closing in unusual situations: after a deadline, from a worker's own thread, against submitters, and with
//! values that panic in their destructor.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Instant;

use polyserve_core::Executor;

use super::ExecutorSubject;
use super::closing::Submitters;
use super::running::occupy;
use crate::property::needs;

/// Returns an error if the subject declares unbounded workers.
fn needs_workers(subject: &ExecutorSubject) -> Result<(), String> {
    let why = "its workers are declared unbounded: no job is queued, and its threads are not counted";
    needs(!subject.unbounded_workers, why)
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
pub(super) fn workers_that_close_their_own_executor_do_not_wait_for_each_other(
    subject: &ExecutorSubject,
) -> Result<(), String> {
    needs_workers(subject)?;
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
    Ok(())
}

/// A job that was queued before another job closed the executor still runs.
pub(super) fn what_is_queued_behind_a_workers_close_still_runs(subject: &ExecutorSubject) -> Result<(), String> {
    needs_workers(subject)?;
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
    if !subject.in_order {
        seen.sort_unstable();
    }
    assert_eq!(seen, [1, 100], "threads left behind by the worker's close, and the job behind it");
    assert_eq!(pool.close(None), 0, "threads left behind by a close from outside");
    Ok(())
}

/// A submitter that has found the executor open may be preempted before its job is queued, while the executor closes. The
/// job runs once, or is returned to the submitter. After a deadline it may be dropped once, without running.
pub(super) fn a_job_that_races_with_the_close_is_run_once_or_handed_back(subject: &ExecutorSubject) {
    const SUBMITTERS: usize = 3;
    let rounds = if subject.unbounded_workers { 6 } else { 60 };
    for round in 0..rounds {
        // The close comes before the first job, after one job, or after 40. In some rounds it has a deadline.
        let before = [0, 1, 40][round % 3];
        let cuts = round % 4 == 3 && !subject.unbounded_workers;
        let (pool, taken) = (subject.pool(1 + round % 3, 1 + round % 7), subject.count());
        let submitters = Submitters::start(SUBMITTERS, &pool, &taken);
        submitters.begin();
        assert!(taken.reaches(before), "{} of {before} jobs were taken", taken.get());
        pool.close(cuts.then(Instant::now));
        assert_eq!(pool.close(None), 0, "threads left behind although no job is stuck");
        // All submitters end before the check: one of them may run a job that another has submitted.
        for (ran, dropped) in submitters.end(subject) {
            let (ran, dropped) = (ran.get(), dropped.get());
            assert!(ran == 1 || cuts && ran == 0, "a job that was accepted ran {ran} times");
            assert_eq!(dropped, 1, "how many times a job that was accepted was dropped");
        }
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
pub(super) fn captured_values_that_panic_when_a_deadline_drops_them_are_harmless(
    subject: &ExecutorSubject,
) -> Result<(), String> {
    needs_workers(subject)?;
    let (pool, go_on) = subject.occupied(1, 64);
    for _ in 0..8 {
        let bomb = Bomb;
        pool.run(move || std::mem::forget(bomb));
    }
    assert_eq!((pool.close(Some(Instant::now())), pool.panicked()), (1, 0), "threads left behind, and panics counted");
    go_on.add();
    assert_eq!(pool.close(None), 0, "threads left behind by a later close without a deadline");
    Ok(())
}

/// A worker may become idle while a close after its deadline still drops the queued jobs. The worker runs none of them.
pub(super) fn a_worker_that_comes_free_after_the_deadline_runs_nothing_more(
    subject: &ExecutorSubject,
) -> Result<(), String> {
    struct OnDrop<F: FnMut()>(F);
    impl<F: FnMut()> Drop for OnDrop<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    needs_workers(subject)?;
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
    pool.run_dropping(8, &ran, &dropped);
    pool.close(Some(Instant::now()));
    assert_eq!(pool.close(None), 0, "threads left behind by a later close without a deadline");
    assert_eq!((ran.get(), dropped.get()), (0, 8), "how many of 9 queued jobs ran, and how many of 8 were dropped");
    assert_eq!(pool.panicked(), 0, "panics counted");
    Ok(())
}

/// A value that a job left in a thread-local is dropped after the worker's last job. It may close the executor once more.
pub(super) fn a_workers_thread_local_may_close_the_executor(subject: &ExecutorSubject) -> Result<(), String> {
    struct CloseOnDrop(Arc<dyn Executor>, mpsc::Sender<usize>);
    impl Drop for CloseOnDrop {
        fn drop(&mut self) {
            let _ = self.1.send(self.0.close(None));
        }
    }
    thread_local! {
        static ON_THREAD_EXIT: RefCell<Option<CloseOnDrop>> = const { RefCell::new(None) };
    }
    needs_workers(subject)?;
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
    Ok(())
}
