//! Who runs work: the [`Executor`] trait. Connections in a pool server, CPU tasks in the task experiment.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

pub use crate::panics::dispose;
use crate::panics::isolate;

/// Runs jobs on threads of its own.
///
/// # Contract
///
/// * A job that `execute` took runs exactly once, unless the executor is closed with a deadline that comes first.
/// * A job that panics costs nothing but itself: the worker lives on, and the panic is counted.
/// * What waits is bounded, unless the executor was told otherwise; a job that finds no room is handed back.
/// * Dropping the executor is `close` without a deadline: what was queued runs, and the threads are joined.
pub trait Executor: fmt::Debug + Send + Sync + 'static {
    /// Queues `job`. Does not wait for room unless the executor was configured to.
    ///
    /// # Errors
    ///
    /// [`Rejected`] hands the job back: the queue is full or the executor is closed.
    fn execute(&self, job: Job) -> Result<(), Rejected>;

    /// How many jobs run at the same time at most; `None` where nothing bounds it.
    fn workers(&self) -> Option<usize>;

    /// Takes no more jobs, runs what is queued, joins the workers; with a deadline, no longer than that. Answers how
    /// many threads were left behind, stuck in a job. Closing twice is harmless.
    fn close(&self, deadline: Option<Instant>) -> usize;

    /// How many jobs have panicked so far.
    fn panicked(&self) -> u64;

    /// Whether `execute` may wait for room. An event loop cannot use such an executor: it would stand still.
    fn may_wait(&self) -> bool {
        false
    }
}

#[deny(clippy::missing_trait_methods)]
impl<E: Executor + ?Sized> Executor for Arc<E> {
    fn execute(&self, job: Job) -> Result<(), Rejected> {
        (**self).execute(job)
    }
    fn workers(&self) -> Option<usize> {
        (**self).workers()
    }
    fn close(&self, deadline: Option<Instant>) -> usize {
        (**self).close(deadline)
    }
    fn panicked(&self) -> u64 {
        (**self).panicked()
    }
    fn may_wait(&self) -> bool {
        (**self).may_wait()
    }
}

/// One piece of work.
pub struct Job(Work);

enum Work {
    Once(Box<dyn FnOnce() + Send>),
    Named(Arc<dyn Fn(usize) + Send + Sync>, usize),
}

impl Job {
    /// A job that runs `work`. Cost: one allocation, where `work` captures anything.
    pub fn new(work: impl FnOnce() + Send + 'static) -> Self {
        Self(Work::Once(Box::new(work)))
    }

    /// A job that calls `work` with `name`. Cost: a reference count and no allocation, so that a server can queue a
    /// connection for each request.
    pub fn named(work: Arc<dyn Fn(usize) + Send + Sync>, name: usize) -> Self {
        Self(Work::Named(work, name))
    }

    /// Runs it.
    pub fn run(self) {
        match self.0 {
            Work::Once(work) => work(),
            Work::Named(work, name) => work(name),
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job(..)")
    }
}

/// A job that was not taken.
#[derive(Debug)]
pub struct Rejected {
    /// The job, unharmed.
    pub job: Job,
    /// Why.
    pub reason: RejectedReason,
}

/// Why a job was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectedReason {
    /// The queue is full for now.
    Full,
    /// The executor takes no more jobs.
    Closed,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reason {
            RejectedReason::Full => f.write_str("the executor's queue is full"),
            RejectedReason::Closed => f.write_str("the executor is closed"),
        }
    }
}

impl Error for Rejected {}

/// Runs a job, or drops one, and returns whether that returned normally. A panic is logged, and its payload disposed of.
/// For authors of executors.
#[inline]
pub fn isolated(act: impl FnOnce()) -> bool {
    isolate(act).map_err(|text| log_panic(&text)).is_ok()
}

#[cold]
fn log_panic(text: &str) {
    // A log subscriber is foreign code, and may panic as well.
    let _ = isolate(|| tracing::warn!(panic = text, "a job panicked"));
}
