//! Properties of running: jobs run once, in parallel and in order, and a panic affects no other job.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;

use polyserve_core::sync::lock;
use polyserve_core::{Executor, Job};

use super::ExecutorSubject;
use super::pool::{TestedPool, submit_with_retries, waiting};
use crate::event_count::EventCount;
use crate::property::needs;

/// Each of many jobs from many submitters runs once. Jobs that a full queue rejects are submitted again. No job can run
/// twice, because running a job consumes it.
pub(super) fn every_job_runs_exactly_once(subject: &ExecutorSubject) {
    const SUBMITTERS: usize = 4;
    let jobs_each = if subject.unbounded_workers { 100 } else { 2_000 };
    let pool = subject.pool(3, 64);
    let runs: Arc<Vec<AtomicU32>> = Arc::new((0..SUBMITTERS * jobs_each).map(|_| AtomicU32::new(0)).collect());
    thread::scope(|scope| {
        for submitter in 0..SUBMITTERS {
            let (pool, runs) = (&pool, &runs);
            scope.spawn(move || {
                for job in submitter * jobs_each..(submitter + 1) * jobs_each {
                    let runs = Arc::clone(runs);
                    pool.submit_with_retries(move || {
                        runs[job].fetch_add(1, Ordering::Relaxed);
                    });
                }
            });
        }
    });
    assert_eq!(pool.close(None), 0, "threads left behind by a close without a deadline");
    for (job, runs) in runs.iter().enumerate() {
        assert_eq!(runs.load(Ordering::Relaxed), 1, "how often job {job} ran");
    }
}

/// A job runs on a thread that is not its submitter's.
pub(super) fn a_job_runs_on_another_thread(subject: &ExecutorSubject) {
    let (pool, ran) = (subject.pool(1, 4), subject.count());
    let id = Arc::new(Mutex::new(None));
    let (its_id, its_ran) = (Arc::clone(&id), ran.clone());
    pool.run(move || {
        *lock(&its_id) = Some(thread::current().id());
        its_ran.add();
    });
    assert!(ran.reaches(1), "the job did not run");
    assert_ne!(*lock(&id), Some(thread::current().id()), "the submitter ran the job itself");
}

/// With n workers, n jobs run at the same time: each job waits until all of them run. `workers` returns n.
pub(super) fn jobs_run_in_parallel(subject: &ExecutorSubject) {
    for workers in [1, 2, 4] {
        let pool = subject.pool(workers, 16);
        let expected = if subject.unbounded_workers { None } else { Some(workers) };
        assert_eq!(pool.workers(), expected, "what `workers` answers");
        meet(subject, &pool, workers);
    }
}

/// Submits `number` jobs, each of which waits until all of them run.
fn meet(subject: &ExecutorSubject, pool: &TestedPool, number: usize) {
    let (arrived, met) = (subject.count(), subject.count());
    for _ in 0..number {
        let (arrived, met) = (arrived.clone(), met.clone());
        pool.run(move || {
            arrived.add();
            if arrived.reaches(number) {
                met.add();
            }
        });
    }
    assert!(met.reaches(number), "of {number} jobs that are to run at the same time {} did", arrived.get());
}

/// At most one job for each worker runs at a time. If the workers are declared unbounded, many more jobs run.
pub(super) fn never_more_than_its_workers(subject: &ExecutorSubject) {
    let pool = subject.pool(2, 8);
    if subject.unbounded_workers {
        return meet(subject, &pool, 16);
    }
    let (started, go_on) = (subject.count(), subject.count());
    (0..5).for_each(|_| pool.run(waiting(&started, &go_on)));
    assert!(started.reaches(2), "two workers do not run two jobs");
    assert!(!started.reaches_soon(3), "two workers run {} jobs at the same time", started.get());
    go_on.add();
    assert!(started.reaches(5), "{} of 5 jobs ran", started.get());
}

/// With one worker, jobs run in the order in which they were submitted. Tested if the executor declares it.
pub(super) fn one_worker_keeps_the_order(subject: &ExecutorSubject) -> Result<(), String> {
    needs(subject.in_order, "it is not declared to keep the order")?;
    let (pool, go_on) = subject.occupied(1, 128);
    let order = Arc::new(Mutex::new(Vec::new()));
    for number in 0..1_000 {
        let order = Arc::clone(&order);
        pool.submit_with_retries(move || lock(&order).push(number));
        if number == 100 {
            go_on.add(); // the first hundred were queued; the rest arrive while it runs
        }
    }
    assert_eq!(pool.close(None), 0, "threads left behind by a close without a deadline");
    let order = lock(&order);
    let wrong = order.iter().enumerate().find(|(at, number)| at != *number);
    assert_eq!((wrong, order.len()), (None, 1_000), "the first job out of its order, and how many ran");
    Ok(())
}

/// A job may submit jobs to its own executor, also if the executor has one worker. The new jobs may submit jobs too.
pub(super) fn jobs_may_submit_jobs(subject: &ExecutorSubject) {
    const DEPTH: u32 = 6;
    for workers in [1, 2] {
        let (pool, ran) = (subject.pool(workers, 128), subject.count());
        let handle = Arc::downgrade(&pool.handle());
        branch(handle, ran.clone(), DEPTH);
        let total = (1 << (DEPTH + 1)) - 1;
        assert!(ran.reaches(total), "{} of {total} jobs ran, with {workers} workers", ran.get());
    }
}

/// Submits a job that submits two jobs, each of which submits two more, `depth` times.
fn branch(executor: Weak<dyn Executor>, ran: EventCount, depth: u32) {
    let Some(handle) = executor.upgrade() else { return };
    let job = Job::new(move || {
        if depth > 0 {
            branch(executor.clone(), ran.clone(), depth - 1);
            branch(executor, ran.clone(), depth - 1);
        }
        ran.add();
    });
    // All of them fit the queue.
    assert!(handle.execute(job).is_ok(), "a job's job was rejected although there is room for it");
}

/// More jobs panic than there are workers. The panics are counted, and no worker and no other job is lost.
pub(super) fn a_panicking_job_costs_only_itself(subject: &ExecutorSubject) {
    const WORKERS: usize = 2;
    let (pool, ran) = (subject.pool(WORKERS, 64), subject.count());
    for number in 0..10_u64 {
        let ran = ran.clone();
        // Not `panic!`, which would print ten reports.
        pool.run(move || {
            let _ran = ran.token();
            match number % 3 {
                0 => resume_unwind(Box::new("a text")),
                1 => resume_unwind(Box::new(String::from("a text of its own"))),
                _ => resume_unwind(Box::new(number)),
            }
        });
    }
    assert!(ran.reaches(10), "{} of 10 panicking jobs ran", ran.get());
    meet(subject, &pool, WORKERS);
    assert_eq!(pool.close(None), 0, "threads left behind by a close without a deadline");
    assert_eq!(pool.panicked(), 10, "how many panics were counted");
}

/// A job that is submitted to an idle executor runs, whatever step the worker has reached on its way to sleep. So does
/// each of several jobs, one for each worker.
pub(super) fn no_lost_wakeup(subject: &ExecutorSubject) {
    let rounds = if subject.unbounded_workers { 100 } else { 4_000 };
    for workers in [1, 2, 3] {
        let pool = subject.pool(workers, 16);
        for round in 0..rounds {
            // A pause of up to some ten microseconds, different in each round. So the job arrives at each step of the
            // worker between its last job and its sleep. 7 919 is prime, so the pauses do not repeat.
            (0..round * 7_919 % 1_000).for_each(|_| std::hint::spin_loop());
            let ran = subject.count();
            pool.run_counted(1, &ran);
            assert!(ran.reaches(1), "in round {round} the job of {workers} idle workers did not run");
            if round % 16 == 0 {
                meet(subject, &pool, workers);
            }
        }
    }
}

/// Makes all threads of the executor wait for `go_on`. Returns once they wait.
pub(super) fn occupy(subject: &ExecutorSubject, executor: &dyn Executor, workers: usize, go_on: &EventCount) {
    let started = subject.count();
    for _ in 0..workers {
        submit_with_retries(executor, Job::new(waiting(&started, go_on)), subject.max_wait);
    }
    assert!(started.reaches(workers), "of {workers} workers {} run a job", started.get());
}
