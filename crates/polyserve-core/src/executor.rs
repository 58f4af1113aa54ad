//! Executors: the [`Executor`] trait, which runs jobs on threads of its own. A job is a connection in a pool server, or a
//! CPU task in the task experiment.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::panics::isolate;

/// Runs jobs on threads of its own.
///
/// # Contract
///
/// * A job that `execute` has accepted runs exactly once, unless [`close`](Self::close) has a deadline and it comes first.
///   A job that does not run is dropped.
/// * A panic ends only its own job: the worker goes on, and the panic is counted.
/// * The queue is bounded, unless the executor is configured otherwise. A job that finds it full is returned.
/// * Dropping the executor is `close` without a deadline: queued jobs run, and the threads are joined.
///
/// ```
/// use polyserve_core::{Executor, Job, Rejected, isolated};
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::time::Instant;
///
/// /// Runs each job on the thread that submits it.
/// #[derive(Debug, Default)]
/// struct Inline {
///     panicked: AtomicU64,
/// }
///
/// impl Executor for Inline {
///     fn execute(&self, job: Job) -> Result<(), Rejected> {
///         if !isolated(|| job.run()) {
///             self.panicked.fetch_add(1, Ordering::Relaxed);
///         }
///         Ok(())
///     }
///     fn workers(&self) -> Option<usize> {
///         None
///     }
///     fn close(&self, _deadline: Option<Instant>) -> usize {
///         0
///     }
///     fn panicked(&self) -> u64 {
///         self.panicked.load(Ordering::Relaxed)
///     }
/// }
///
/// let inline = Inline::default();
/// assert!(inline.execute(Job::new(|| println!("once"))).is_ok());
/// assert_eq!(inline.panicked(), 0);
/// ```
pub trait Executor: fmt::Debug + Send + Sync + 'static {
    /// Queues `job`. Does not wait for room in the queue unless the executor is configured to.
    ///
    /// # Errors
    ///
    /// Returns [`Rejected`] with the job if the queue is full or the executor is closed.
    fn execute(&self, job: Job) -> Result<(), Rejected>;

    /// The number of jobs that run at the same time at most; `None` if nothing bounds it.
    fn workers(&self) -> Option<usize>;

    /// Accepts no more jobs, runs the queued ones and joins the workers, until `deadline` at the latest. Returns the
    /// number of threads that are stuck in a job and were left behind. Closing twice is harmless.
    fn close(&self, deadline: Option<Instant>) -> usize;

    /// The number of jobs that have panicked so far.
    fn panicked(&self) -> u64;

    /// Whether `execute` may wait for room in the queue. An event loop cannot use such an executor, because it would stop
    /// meanwhile.
    fn may_wait(&self) -> bool {
        false
    }

    /// Moves the executor into an `Arc`, as servers keep it. An `Arc` returns itself. There is no need to implement this.
    fn into_shared(self) -> Arc<dyn Executor>
    where
        Self: Sized,
    {
        Arc::new(self)
    }
}

macro_rules! forward {
    ($([$($generics:tt)*] $pointer:ty),*) => {$(
        #[deny(clippy::missing_trait_methods)]
        impl $($generics)* Executor for $pointer {
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
            fn into_shared(self) -> Arc<dyn Executor> {
                self
            }
        }
    )*};
}

forward!([<E: Executor>] Arc<E>, [] Arc<dyn Executor>);

/// A job for an [`Executor`]: a function to be called once.
///
/// ```
/// let (sender, receiver) = std::sync::mpsc::channel();
/// polyserve_core::Job::new(move || sender.send(1).unwrap()).run();
/// assert_eq!(receiver.recv(), Ok(1));
/// ```
pub struct Job(Box<dyn FnOnce() + Send>);

impl Job {
    /// A job that calls `work`.
    ///
    /// # Cost
    ///
    /// One allocation, if `work` captures anything.
    pub fn new(work: impl FnOnce() + Send + 'static) -> Self {
        Self(Box::new(work))
    }

    /// Runs the job.
    pub fn run(self) {
        (self.0)();
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job(..)")
    }
}

/// A job that was not accepted.
///
/// ```
/// use polyserve_core::{Job, Rejected, RejectedReason};
/// let rejected = Rejected { job: Job::new(|| {}), reason: RejectedReason::Full };
/// assert_eq!(rejected.to_string(), "the executor's queue is full");
/// rejected.job.run();
/// ```
#[derive(Debug)]
pub struct Rejected {
    /// The job. It has not run.
    pub job: Job,
    /// The reason.
    pub reason: RejectedReason,
}

/// The reason for which a job was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejectedReason {
    /// The queue is full for now.
    Full,
    /// The executor is closed.
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

/// Runs a job, or drops one, and returns whether that returned normally. A panic is logged, and its payload dropped.
/// For authors of executors.
///
/// ```
/// use polyserve_core::isolated;
/// assert!(isolated(|| {}));
/// assert!(!isolated(|| panic!("as an example")));
/// ```
#[inline]
pub fn isolated(act: impl FnOnce()) -> bool {
    isolate(act).map_err(|text| log_panic(&text)).is_ok()
}

#[cold]
fn log_panic(text: &str) {
    // A log subscriber is foreign code, and may panic as well.
    let _ = isolate(|| crate::throttled!(warn, panic = text, "a job panicked"));
}
