//! Every job finds a worker, whichever workers sleep.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use polyserve_core::sync::atomic::{AtomicUsize, Ordering};
use polyserve_core::sync::model::PrimitiveFault;
use polyserve_core::sync::{Condvar, Mutex, lock, thread};
use polyserve_core::{Completer, Job, Rejected, RejectedReason, promise};
use polyserve_serving::executor::{Backend, OnFull, Pool, PoolConfig, PoolInner, PoolShared, Queue};

use super::{ModelPool, Ran, WORKERS, bounds, for_pools, scenario};

/// The work of a job that the test waits for.
fn complete(done: Completer<bool>) -> impl FnOnce() + Send + 'static {
    move || {
        let _ = done.complete(true);
    }
}

/// Submits one job after another, and waits for each. The workers go to sleep in between.
fn one_by_one<P: ModelPool>() {
    let pool = P::make(PoolConfig::new(WORKERS));
    let ran = Ran::default();
    for round in 1..=2 {
        let (done, answer) = promise(false);
        let job = ran.job(complete(done));
        assert!(pool.execute(job).is_ok());
        assert!(answer.wait(), "the job was dropped");
        assert_eq!(ran.get(), round);
    }
}
for_pools!(
    one_by_one,
    "jobs one by one",
    bounds([2, 3], [200, 20_000]),
    Some(PrimitiveFault::Notice),
    Some(PrimitiveFault::Token)
);

/// Two submitters at the same time.
fn two_submitters<P: ModelPool>() {
    let pool = Arc::new(P::make(PoolConfig::new(WORKERS)));
    let ran = Ran::default();
    let ((first_done, first_ran), (second_done, second_ran)) = (promise(false), promise(false));
    let submitter = {
        let (pool, ran) = (Arc::clone(&pool), ran.clone());
        thread::spawn(move || assert!(pool.execute(ran.job(complete(first_done))).is_ok()))
    };
    assert!(pool.execute(ran.job(complete(second_done))).is_ok());
    assert!(first_ran.wait() && second_ran.wait(), "a job was dropped");
    submitter.join().unwrap();
    assert_eq!(ran.get(), 2);
}
for_pools!(
    two_submitters,
    "two submitters",
    bounds([1, 2], [200, 20_000]),
    Some(PrimitiveFault::Notice),
    Some(PrimitiveFault::Token)
);

/// A job waits for a job that it submitted. The other worker must take that job, even from the first worker's queue.
#[cfg(polyserve_shuttle)]
fn a_job_of_a_job<P: ModelPool>() {
    let pool = Arc::new(P::make(PoolConfig::new(2)));
    let (done, answer) = promise(false);
    let inner = Arc::clone(&pool);
    let outer = Job::new(move || {
        let (inner_done, inner_ran) = promise(false);
        assert!(inner.execute(Job::new(complete(inner_done))).is_ok());
        drop(inner);
        let _ = done.complete(inner_ran.wait());
    });
    assert!(pool.execute(outer).is_ok());
    assert!(answer.wait(), "a job was dropped");
}
#[cfg(polyserve_shuttle)]
for_pools!(
    a_job_of_a_job,
    "a job that waits for its own",
    bounds([0, 0], [200, 20_000]),
    Some(PrimitiveFault::Notice),
    None
);

/// Two jobs wait for each other. The worker that takes the first must wake another worker for the second.
#[cfg(polyserve_shuttle)]
fn two_that_meet<P: ModelPool>() {
    let pool = P::make(PoolConfig::new(2));
    // In most schedules both workers sleep by then.
    (0..40).for_each(|_| thread::yield_now());
    let ((first_done, first_ran), (second_done, second_ran)) = (promise(false), promise(false));
    let (done, answer) = promise(false);
    let meets = move || {
        let _ = first_done.complete(true);
        let _ = done.complete(second_ran.wait());
    };
    assert!(pool.execute(Job::new(meets)).is_ok());
    let meets = move || {
        first_ran.wait();
        let _ = second_done.complete(true);
    };
    assert!(pool.execute(Job::new(meets)).is_ok());
    assert!(answer.wait(), "a job was dropped");
}
#[cfg(polyserve_shuttle)]
for_pools!(
    two_that_meet,
    "two jobs that wait for each other",
    bounds([0, 0], [200, 20_000]),
    Some(PrimitiveFault::Notice),
    None
);

/// A queue for one job, and submitters that wait for space. Each of them has this number of jobs.
fn submit_to_one<P: ModelPool>(jobs: usize) {
    let pool =
        Arc::new(P::make(PoolConfig::new(1).queue(Queue::Bounded(1)).on_full(OnFull::Wait(Duration::from_secs(1)))));
    let ran = Ran::default();
    let submit = || {
        let (pool, ran) = (Arc::clone(&pool), ran.clone());
        move || (0..jobs).for_each(|_| assert!(pool.execute(ran.job(|| {})).is_ok(), "no time has passed"))
    };
    let submitter = thread::spawn(submit());
    submit()();
    submitter.join().unwrap();
    drop(pool);
    assert_eq!((ran.get(), ran.held()), (2 * jobs, 0));
}

fn space_for_one<P: ModelPool>() {
    submit_to_one::<P>(2);
}
for_pools!(
    space_for_one,
    "submitters that wait for space",
    bounds([1, 2], [200, 20_000]),
    Some(PrimitiveFault::Notice),
    Some(PrimitiveFault::Notice)
);

/// A queue that admits a job, and then cannot start a thread for it: it withdraws the first two jobs, as an executor on a
/// runtime does if the system has no more threads.
struct WithdrawingQueue {
    jobs: Mutex<VecDeque<Job>>,
    changed: Condvar,
    withdrawn: AtomicUsize,
}

impl WithdrawingQueue {
    /// Wakes the worker, after a change that it may wait for.
    fn notify(&self) {
        drop(lock(&self.jobs));
        self.changed.notify_one();
    }
}

impl Backend for WithdrawingQueue {
    const NAME: &'static str = "WithdrawingPool";

    type Own = ();

    fn new(_: &Arc<PoolShared>) -> io::Result<(Self, Vec<()>)> {
        let (jobs, changed, withdrawn) = (Mutex::default(), Condvar::new(), AtomicUsize::new(0));
        Ok((Self { jobs, changed, withdrawn }, vec![()]))
    }

    fn offer(pool: &Arc<PoolInner<Self>>, job: Job) -> Result<(), Rejected> {
        let PoolInner { shared, backend } = &**pool;
        if let Err(reason) = shared.admit() {
            return Err(Rejected { job, reason });
        }
        if backend.withdrawn.fetch_add(1, Ordering::SeqCst) < 2 {
            shared.withdraw();
            backend.notify();
            return Err(Rejected { job, reason: RejectedReason::Full });
        }
        lock(&backend.jobs).push_back(job);
        backend.changed.notify_one();
        Ok(())
    }

    fn work(&self, shared: &PoolShared, worker: usize, (): ()) {
        let mut jobs = lock(&self.jobs);
        while !shared.is_closed_and_empty() {
            if let Some(job) = jobs.pop_front() {
                drop(jobs);
                shared.run(worker, job);
                jobs = lock(&self.jobs);
            } else {
                jobs = self.changed.wait(jobs).unwrap();
            }
        }
    }

    fn close(&self, _: &PoolShared) {
        self.notify();
    }

    fn discard(&self, shared: &PoolShared) {
        lock(&self.jobs).drain(..).for_each(|job| shared.discard(job));
        self.notify();
    }
}

impl ModelPool for Pool<WithdrawingQueue> {
    const NAME: &str = "WithdrawingPool";

    fn make(config: PoolConfig) -> Self {
        Self::new(config).expect("the configuration is valid")
    }
}

/// Regression test: a submitter found the queue full of a job that was then withdrawn, and slept although there was space.
#[test]
fn space_after_a_withdrawal() {
    let body = || submit_to_one::<Pool<WithdrawingQueue>>(1);
    scenario::<Pool<WithdrawingQueue>>("space after a withdrawal", bounds([1, 2], [200, 20_000]), None, body);
}
