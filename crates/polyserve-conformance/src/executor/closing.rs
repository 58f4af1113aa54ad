//! Properties of closing: its effect on queued jobs, threads and captured values.

use std::panic::resume_unwind;
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polyserve_core::{Executor, Job, RejectedReason};

use super::ExecutorSubject;
use super::pool::TestedPool;
use super::running::occupy;
use crate::event_count::{EventCount, Token};
use crate::property::{in_child, needs};

/// A close without a deadline returns after every queued job has run.
pub(super) fn close_runs_what_was_queued(subject: &ExecutorSubject) {
    let ((pool, go_on), ran) = (subject.occupied(2, 64), subject.count());
    pool.run_counted(50, &ran);
    let closing = pool.handle();
    let closer = thread::spawn(move || closing.close(None));
    wait_until_closed(subject, &pool);
    go_on.add();
    let left = subject.within("close", move || closer.join());
    assert_eq!((left.ok(), ran.get()), (Some(0), 50), "threads left behind, and how many of 50 queued jobs ran");
}

/// Submits jobs that do nothing until they are rejected because the executor is closed.
fn wait_until_closed(subject: &ExecutorSubject, pool: &TestedPool) {
    let deadline = subject.deadline();
    loop {
        match pool.execute(Job::new(|| {})) {
            Err(rejected) if rejected.reason == RejectedReason::Closed => return,
            _ => assert!(Instant::now() < deadline, "a closing executor still takes jobs"),
        }
        thread::yield_now();
    }
}

/// Dropping an executor is closing it without a deadline.
pub(super) fn drop_runs_what_was_queued(subject: &ExecutorSubject) {
    let ((pool, go_on), ran) = (subject.occupied(1, 64), subject.count());
    for _ in 0..50 {
        let (go_on, ran) = (go_on.clone(), ran.clone());
        pool.run(move || {
            go_on.reaches(1);
            ran.add();
        });
    }
    let dropping = thread::spawn(move || pool.end());
    assert!(!ran.reaches_soon(1), "a job ended before it could"); // and the drop begins meanwhile
    go_on.add();
    let dropped = subject.within("dropping the executor", move || dropping.join());
    assert_eq!((dropped.is_ok(), ran.get()), (true, 50), "how many of 50 queued jobs had run when the drop was over");
}

/// A closed executor rejects every job as closed, and the submitter can still run the job.
pub(super) fn close_rejects_later_jobs(subject: &ExecutorSubject) {
    let (pool, ran) = (subject.pool(2, 4), subject.count());
    assert_eq!(pool.close(None), 0, "threads left behind by an idle executor");
    for n in 1..=10 {
        let its_ran = ran.clone();
        let Err(rejected) = pool.execute(Job::new(move || its_ran.add())) else {
            panic!("a closed executor took a job");
        };
        assert_eq!(rejected.reason, RejectedReason::Closed, "why a job was rejected");
        rejected.job.run();
        assert_eq!(ran.get(), n, "how often rejected jobs ran when their submitter ran them");
    }
}

/// Further closes, with and without a deadline, change nothing. Neither does the drop after them.
pub(super) fn close_twice_is_harmless(subject: &ExecutorSubject) {
    let (pool, ran) = (subject.pool(2, 16), subject.count());
    pool.run_counted(10, &ran);
    for deadline in [None, None, Some(Instant::now()), Some(subject.deadline())] {
        assert_eq!(pool.close(deadline), 0, "threads left behind although no job is stuck");
        assert_eq!(ran.get(), 10, "how often 10 jobs ran");
    }
    pool.end();
}

/// Several threads close while several threads submit. Every close ends, every accepted job runs, and every other job is
/// returned to its submitter.
pub(super) fn concurrent_closes_lose_nothing(subject: &ExecutorSubject) {
    for _ in 0..20 {
        let (pool, taken) = (subject.pool(2, 16), subject.count());
        let submitters = Submitters::start(3, &pool, &taken);
        submitters.begin();
        assert!(taken.reaches(50), "{} of 50 jobs were taken", taken.get());
        let closers: Vec<_> = (0..3)
            .map(|_| {
                let executor = pool.handle();
                thread::spawn(move || executor.close(None))
            })
            .collect();
        let left = subject.within("one of three closes at the same time", move || {
            closers.into_iter().map(|closer| closer.join().expect("a close panicked")).sum::<usize>()
        });
        assert_eq!(left, 0, "threads left behind although no job is stuck");
        let jobs = submitters.end(subject);
        assert_eq!(jobs.len(), taken.get(), "jobs that were taken");
        assert!(jobs.iter().all(|(ran, _)| ran.get() == 1), "a job that was taken did not run once");
    }
}

/// Threads that submit jobs until the executor is closed.
pub(super) struct Submitters {
    start: Arc<Barrier>,
    threads: Vec<JoinHandle<Vec<RunsAndDrops>>>,
}

/// How many times a job ran, and was dropped.
pub(super) type RunsAndDrops = (EventCount, EventCount);

impl Submitters {
    /// Starts threads that wait for [`begin`](Self::begin), and that count the jobs that are accepted.
    pub(super) fn start(count: usize, pool: &TestedPool, taken: &EventCount) -> Self {
        let start = Arc::new(Barrier::new(count + 1));
        let submitter = |_| {
            let (executor, taken, start) = (pool.handle(), taken.clone(), Arc::clone(&start));
            thread::spawn(move || {
                start.wait();
                submit_until_closed(&*executor, &taken)
            })
        };
        Self { threads: (0..count).map(submitter).collect(), start }
    }

    pub(super) fn begin(&self) {
        self.start.wait();
    }

    /// Waits for the threads, and returns what became of the jobs that were accepted.
    pub(super) fn end(self, subject: &ExecutorSubject) -> Vec<RunsAndDrops> {
        subject.within("a submitter to a closing executor", move || {
            let ended = self.threads.into_iter().map(|thread| thread.join().expect("a submitter panicked"));
            ended.flatten().collect()
        })
    }
}

fn submit_until_closed(executor: &dyn Executor, taken: &EventCount) -> Vec<RunsAndDrops> {
    let mut jobs = Vec::new();
    loop {
        let (ran, dropped) = (taken.another(), taken.another());
        let (its_ran, token) = (ran.clone(), dropped.token());
        let job = Job::new(move || {
            let _token = token;
            its_ran.add();
        });
        match executor.execute(job).map_err(|rejected| rejected.reason) {
            Ok(()) => {
                jobs.push((ran, dropped));
                taken.add();
            }
            Err(RejectedReason::Closed) => return jobs,
            Err(_) => thread::yield_now(),
        }
    }
}

/// If jobs are stuck at the deadline, the close returns the number of threads that it left behind. Idle workers are not
/// among them. The stuck jobs can still end.
pub(super) fn close_with_a_deadline_reports_a_stuck_thread(subject: &ExecutorSubject) {
    for (stuck, wait) in [(1, Duration::ZERO), (1, Duration::from_millis(20)), (2, Duration::from_millis(20))] {
        let (pool, go_on, dropped) = (subject.pool(3, 16), subject.count(), subject.count());
        let (started, ended) = (subject.count(), subject.count());
        for _ in 0..stuck {
            let (started, go_on, ended, token) = (started.clone(), go_on.clone(), ended.clone(), dropped.token());
            pool.run(move || {
                let _token = token;
                started.add();
                if go_on.reaches(1) {
                    ended.add();
                }
            });
        }
        assert!(started.reaches(stuck), "{} of {stuck} jobs started", started.get());
        assert_eq!(pool.close(Some(Instant::now() + wait)), stuck, "threads left behind with {stuck} jobs stuck");
        assert_eq!(dropped.get(), 0, "captured values of stuck jobs that were dropped");
        go_on.add();
        assert!(ended.reaches(stuck) && dropped.reaches(stuck), "a stuck job did not end when it could");
    }
}

/// When its deadline passes, a close drops the queued jobs without running them.
pub(super) fn close_with_a_deadline_drops_what_is_queued(subject: &ExecutorSubject) -> Result<(), String> {
    needs(!subject.unbounded_workers, "its workers are declared unbounded, so that no job is ever queued")?;
    let (pool, go_on) = subject.occupied(2, 16);
    let (ran, dropped) = (subject.count(), subject.count());
    pool.run_dropping(10, &ran, &dropped);
    let left = pool.close(Some(Instant::now() + Duration::from_millis(20)));
    assert_eq!(left, 2, "threads left behind with 2 jobs stuck");
    assert!(dropped.reaches(10), "of 10 queued jobs {} were dropped by a close with a deadline", dropped.get());
    go_on.add();
    pool.end();
    let seen = (ran.get(), dropped.get());
    assert_eq!(seen, (0, 10), "how many of 10 queued jobs ran after the deadline, and were dropped");
    Ok(())
}

/// After a close or a drop, the executor has no threads. They are counted in a child process, on Linux only.
pub(super) fn drop_joins_the_workers(subject: &ExecutorSubject) -> Result<(), String> {
    needs(cfg!(target_os = "linux"), "threads are counted by /proc, which is Linux's")?;
    in_child(None, || {
        let before = threads();
        for close in [true, false] {
            let (pool, go_on) = (subject.pool(4, 16), subject.count());
            occupy(subject, &*pool.handle(), 4, &go_on);
            assert!(threads() >= before + 4, "four jobs that wait for each other do not have four threads");
            go_on.add();
            if close {
                assert_eq!(pool.close(None), 0, "threads left behind by a close without a deadline");
            } else {
                pool.end();
            }
            // The kernel may list a joined thread for a moment longer: it wakes the joining thread first.
            let deadline = subject.deadline();
            while threads() > before {
                let what = if close { "a close" } else { "a drop" };
                assert!(Instant::now() < deadline, "{} threads are left after {what}", threads() - before);
                thread::yield_now();
            }
        }
    })
    .into()
}

/// Returns the number of threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("Linux lists the threads of a process").count()
}

/// The captured values of a job are dropped once: if the job ran, panicked, was rejected, or was not run because a
/// deadline passed.
pub(super) fn captured_values_are_dropped_exactly_once(subject: &ExecutorSubject) {
    let (pool, go_on, dropped) = (subject.pool(1, 4), subject.count(), subject.count());
    let job = |token: Token, panics: bool| {
        Job::new(move || {
            let _token = token;
            if panics {
                resume_unwind(Box::new("a text"));
            }
        })
    };
    for (n, panics) in [false, true, false, true].into_iter().enumerate() {
        assert!(pool.execute(job(dropped.token(), panics)).is_ok(), "a job was rejected although there is room for it");
        assert!(dropped.reaches(n + 1), "what a job captured was not dropped, panicking: {panics}");
    }
    occupy(subject, &*pool.handle(), 1, &go_on);
    let taken = (0..10).filter(|_| pool.execute(job(dropped.token(), false)).is_ok()).count();
    assert!(taken > 0, "an empty queue took no job");
    if !subject.unbounded_workers {
        assert_eq!(dropped.get(), 4 + 10 - taken, "values dropped, with {taken} jobs of 14 in the queue");
    }
    pool.close(Some(Instant::now()));
    assert!(dropped.reaches(14), "the values of 14 jobs, run, rejected or cut: {} were dropped", dropped.get());
    drop(pool.execute(job(dropped.token(), false)));
    go_on.add();
    pool.end();
    assert_eq!(dropped.get(), 15, "how often the values of 15 jobs were dropped");
}

/// A job that holds the last handle of its own executor may drop it. What was queued behind it still runs.
pub(super) fn a_job_that_drops_the_last_handle_does_not_deadlock(subject: &ExecutorSubject) {
    for workers in [1, 2] {
        let executor: Arc<dyn Executor> = Arc::from((subject.make.0)(workers, 16));
        let (go_on, dropped, ran) = (subject.count(), subject.count(), subject.count());
        let (last, its_go_on, its_dropped) = (Arc::clone(&executor), go_on.clone(), dropped.clone());
        let dropping = Job::new(move || {
            its_go_on.reaches(1);
            drop(last);
            its_dropped.add();
        });
        assert!(executor.execute(dropping).is_ok(), "a job was rejected although there is room for it");
        for _ in 0..5 {
            let ran = ran.clone();
            let job = Job::new(move || ran.add());
            assert!(executor.execute(job).is_ok(), "a job was rejected although there is room for it");
        }
        drop(executor);
        go_on.add();
        assert!(dropped.reaches(1), "a drop by a job of the executor's own did not end, with {workers} workers");
        assert!(ran.reaches(5), "of 5 jobs queued behind it {} ran, with {workers} workers", ran.get());
    }
}
