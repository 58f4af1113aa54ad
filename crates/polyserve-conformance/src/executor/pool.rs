//! The executor that a property tests. Every call ends within the subject's max wait, or the property fails and names
//! the call.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::{Executor, Job, Rejected, RejectedReason};

use super::ExecutorSubject;
use super::running::occupy;
use crate::event_count::EventCount;
use crate::property::within;

/// An executor. If a property fails, it is left behind with its threads, because it may hang.
pub(super) struct TestedPool {
    executor: Option<Arc<dyn Executor>>,
    max_wait: Duration,
}

impl ExecutorSubject {
    /// Creates an executor of this size.
    pub(super) fn pool(&self, workers: usize, queue: usize) -> TestedPool {
        TestedPool { executor: Some(Arc::from((self.make.0)(workers, queue))), max_wait: self.max_wait }
    }

    /// Creates an executor of this size. All its workers run a job that waits for the count.
    pub(super) fn occupied(&self, workers: usize, queue: usize) -> (TestedPool, EventCount) {
        let (pool, go_on) = (self.pool(workers, queue), self.count());
        occupy(self, &*pool.handle(), workers, &go_on);
        (pool, go_on)
    }

    /// Creates a count at zero.
    pub(super) fn count(&self) -> EventCount {
        EventCount::new(self.max_wait)
    }

    /// Whether a job may be refused because the queue is full.
    pub(super) fn refuses(&self) -> bool {
        !self.unbounded_queue && !self.unbounded_workers
    }

    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.max_wait
    }

    /// Runs `act` on a thread of its own. `what` names it in failures.
    ///
    /// # Panics
    ///
    /// Panics if `act` panics or does not end in time.
    pub(super) fn within<T: Send + 'static>(&self, what: &str, act: impl FnOnce() -> T + Send + 'static) -> T {
        within(self.max_wait, what, act)
    }
}

impl TestedPool {
    /// Another handle of the executor.
    pub(super) fn handle(&self) -> Arc<dyn Executor> {
        Arc::clone(self.executor())
    }

    fn executor(&self) -> &Arc<dyn Executor> {
        self.executor.as_ref().expect("a pool has its executor until it is dropped")
    }

    pub(super) fn execute(&self, job: Job) -> Result<(), Rejected> {
        self.executor().execute(job)
    }

    /// Submits a job. Panics if it is rejected, because the queue must have space.
    pub(super) fn run(&self, work: impl FnOnce() + Send + 'static) {
        if let Err(rejected) = self.execute(Job::new(work)) {
            panic!("a job was rejected although there is room for it: {rejected}");
        }
    }

    /// Submits jobs that each count once.
    pub(super) fn run_counted(&self, jobs: usize, ran: &EventCount) {
        for _ in 0..jobs {
            let ran = ran.clone();
            self.run(move || ran.add());
        }
    }

    /// Submits jobs that each count once, and that capture a value that counts as dropped.
    pub(super) fn run_dropping(&self, jobs: usize, ran: &EventCount, dropped: &EventCount) {
        for _ in 0..jobs {
            let (ran, token) = (ran.clone(), dropped.token());
            self.run(move || {
                let _token = token;
                ran.add();
            });
        }
    }

    /// Submits a job. Retries while the queue is full.
    pub(super) fn submit_with_retries(&self, work: impl FnOnce() + Send + 'static) {
        submit_with_retries(&**self.executor(), Job::new(work), self.max_wait);
    }

    /// Closes the executor. Returns the number of threads that were left behind.
    pub(super) fn close(&self, deadline: Option<Instant>) -> usize {
        let executor = self.handle();
        within(self.max_wait, "close", move || executor.close(deadline))
    }

    pub(super) fn workers(&self) -> Option<usize> {
        self.executor().workers()
    }

    pub(super) fn panicked(&self) -> u64 {
        self.executor().panicked()
    }

    /// Drops the executor; it must be its last handle.
    pub(super) fn end(mut self) {
        self.drop_executor();
    }

    fn drop_executor(&mut self) {
        if let Some(executor) = self.executor.take() {
            within(self.max_wait, "dropping the executor", move || drop(executor));
        }
    }
}

impl Drop for TestedPool {
    fn drop(&mut self) {
        if thread::panicking() {
            std::mem::forget(self.executor.take());
        } else {
            self.drop_executor();
        }
    }
}

/// The work of a job that counts as started, and then waits for `go_on`.
pub(super) fn waiting(started: &EventCount, go_on: &EventCount) -> impl FnOnce() + Send + use<> {
    let (started, go_on) = (started.clone(), go_on.clone());
    move || {
        started.add();
        go_on.reaches(1);
    }
}

/// Submits `job`. Retries while the queue is full.
pub(super) fn submit_with_retries(executor: &dyn Executor, job: Job, max_wait: Duration) {
    let deadline = Instant::now() + max_wait;
    let mut job = job;
    while let Err(rejected) = executor.execute(job) {
        assert_eq!(rejected.reason, RejectedReason::Full, "the executor was not closed");
        assert!(Instant::now() < deadline, "there was no room for a job within {max_wait:?}");
        job = rejected.job;
        thread::yield_now();
    }
}
