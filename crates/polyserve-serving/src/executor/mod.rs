//! The shell of an executor: bounded admission, counting, closing and statistics stand here once, for thread pools and for
//! runtimes. A strategy is a [`Backend`]: its queue, and how threads take jobs from it.
//!
//! | part | item |
//! |---|---|
//! | the executor | [`Pool`], with the settings of a [`PoolConfig`]. It counts its jobs ([`PoolStats`]) |
//! | what all of its threads share | [`PoolInner`]: the [`Backend`], and the [`PoolShared`] that does not depend on it |
//! | a bound, a close and a count for a queue that has none of these | [`PoolShared::admit`] |
//! | the threads | [`ThreadRegistry`]: those of a runtime report their start and end. Others are started by the shell |
//!
//! # What every executor here promises
//!
//! All that [`Executor`] requires, and:
//!
//! * `execute` allocates nothing, except what a runtime allocates for a task, and what a sampled job costs ([`PoolStats`]).
//! * A job may call `close` on its own executor, or drop the last handle. That close neither waits for the job's thread nor
//!   joins it, so it cannot deadlock. The thread counts as left behind. Jobs that are still queued run on the other
//!   threads, or on that thread once its job returns.
//! * If `execute` overlaps a `close`, the job is handed back, or runs once.
//! * A `close` drops the jobs that are still queued at its deadline, mostly on the caller's thread. A later `close` may
//!   wait longer for the threads that were left behind. A drop does not wait for them.

#![allow(missing_debug_implementations)] // the `Debug` of an executor names its configuration, not its parts

mod admission;
mod pool_config;
#[cfg(feature = "queue-waits")]
mod sampled_waits;
mod shared;
mod space_waiters;
mod stats;
mod threads;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use polyserve_core::sync::now;
use polyserve_core::{Executor, Job, Rejected, ServerConfig};

pub use pool_config::{OnFull, PoolConfig, Queue};
#[cfg(feature = "queue-waits")]
pub use sampled_waits::Histogram;
pub use shared::{JobCounts, PoolShared};
pub use stats::PoolStats;
pub use threads::ThreadRegistry;

/// The queue of an executor, and how threads take jobs from it.
pub trait Backend: Send + Sync + Sized + 'static {
    /// The name of the executor's type.
    const NAME: &'static str;

    /// The default number of threads for each core. More than one if jobs may wait.
    const WORKERS_PER_CORE: usize = PoolConfig::WORKERS_PER_CORE;

    /// What a thread owns that the shell starts.
    type Own: Send + 'static;

    /// The number of counters of an executor with this configuration: one for each thread that calls
    /// [`PoolShared::run`]. One if threads call [`PoolShared::run_shared`].
    fn counters(config: &PoolConfig) -> usize {
        config.workers
    }

    /// Creates the backend of an executor. Returns what each thread owns that the shell then starts.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration is not supported, or a runtime cannot be started.
    fn new(shared: &Arc<PoolShared>) -> io::Result<(Self, Vec<Self::Own>)>;

    /// Queues a job, so that a thread takes it.
    ///
    /// # Errors
    ///
    /// Returns the job if the queue is full or closed.
    fn offer(pool: &Arc<PoolInner<Self>>, job: Job) -> Result<(), Rejected>;

    /// The main function of the thread that the shell started as number `thread`. Must not panic.
    fn work(&self, shared: &PoolShared, thread: usize, own: Self::Own);

    /// Accepts no more jobs; none are [admitted](PoolShared::admit) any more. Queued jobs are still taken. The threads end after
    /// the last job, even if jobs are then in a `close` of this executor. Called by each close.
    fn close(&self, shared: &PoolShared);

    /// Drops all jobs in the closed queue, because a deadline has passed. The threads end once they run no job.
    fn discard(&self, shared: &PoolShared);

    /// The number of jobs that wait: by default those that were [admitted](PoolShared::admit).
    fn waiting(&self, shared: &PoolShared) -> u64 {
        shared.waiting()
    }

    /// Whether no thread of the closed executor can start any more.
    fn has_started_all(&self) -> bool {
        true
    }

    /// Joins the threads that the shell did not start, at the latest until `deadline`. All threads have reported their end, and none of
    /// them calls this.
    fn join(&self, _deadline: Option<Instant>) {}
}

/// An executor with a bounded number of threads, which take jobs from the queue of its backend.
pub struct Pool<B: Backend> {
    inner: Arc<PoolInner<B>>,
}

/// What the threads of an executor share.
pub struct PoolInner<B> {
    /// The parts that do not depend on the backend.
    pub shared: Arc<PoolShared>,
    /// The backend.
    pub backend: B,
}

impl<B: Backend> PoolInner<B> {
    /// Creates an executor without its threads, and what each of the threads owns.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration is not valid, or the error of the backend.
    pub fn new(config: PoolConfig) -> io::Result<(Arc<Self>, Vec<B::Own>)> {
        let counters = B::counters(&config);
        let shared = PoolShared::new(config, counters)?;
        let (backend, owned) = B::new(&shared)?;
        Ok((Arc::new(Self { shared, backend }), owned))
    }

    /// Accepts no more jobs, and waits for the threads to end. At the deadline it drops the queued jobs. Returns the number
    /// of threads that were left behind.
    pub fn close(&self, deadline: Option<Instant>) -> usize {
        let Self { shared, backend } = self;
        let close = shared.threads.begin_close();
        shared.close_queue();
        backend.close(shared);
        shared.end_waits();
        let left = close.wait(deadline, &|| backend.has_started_all(), &|| shared.running(), &|| {
            shared.cut();
            backend.discard(shared);
        });
        if left == 0 {
            shared.threads.join(deadline);
            backend.join(deadline);
        }
        left
    }

    /// Returns the counts of the executor.
    pub fn stats(&self) -> PoolStats {
        self.shared.stats(self.backend.waiting(&self.shared))
    }
}

impl<B: Backend> Pool<B> {
    /// Starts the executor.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration is not valid or a thread cannot be started. Threads that were started are
    /// ended.
    pub fn new(config: PoolConfig) -> io::Result<Self> {
        let (inner, owned) = PoolInner::<B>::new(config)?;
        let pool = Self { inner };
        let PoolShared { threads, config, .. } = &*pool.inner.shared;
        for (thread, own) in owned.into_iter().enumerate() {
            let inner = Arc::clone(&pool.inner);
            // On failure the drop of `pool` ends the other threads.
            threads.start(&config.name, move || inner.backend.work(&inner.shared, thread, own))?;
        }
        Ok(pool)
    }

    /// Starts the executor of a server, with its workers and its queue.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`new`](Self::new).
    pub fn for_server(config: &ServerConfig) -> io::Result<Self> {
        Self::new(PoolConfig::new(config.workers_or(B::WORKERS_PER_CORE)).queue(config.queue_or_default()))
    }

    /// Returns the counts of the executor. Cost: reads the counters of every worker.
    pub fn stats(&self) -> PoolStats {
        self.inner.stats()
    }

    /// Returns what the threads share.
    pub fn inner(&self) -> &Arc<PoolInner<B>> {
        &self.inner
    }
}

impl<B: Backend> Executor for Pool<B> {
    fn execute(&self, job: Job) -> Result<(), Rejected> {
        let inner = &self.inner;
        inner.shared.submit(job, |job| B::offer(inner, job))
    }

    fn workers(&self) -> Option<usize> {
        Some(self.inner.shared.config.workers)
    }

    fn close(&self, deadline: Option<Instant>) -> usize {
        self.inner.close(deadline)
    }

    fn panicked(&self) -> u64 {
        self.inner.shared.panicked()
    }

    fn may_wait(&self) -> bool {
        self.inner.shared.config.may_wait()
    }
}

impl<B: Backend> Drop for Pool<B> {
    fn drop(&mut self) {
        // A drop does not wait again for threads that a close left behind.
        let left_behind = self.inner.shared.threads.were_left_behind();
        self.inner.close(left_behind.then(now));
    }
}

impl<B: Backend> fmt::Debug for Pool<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(B::NAME).field("config", &self.inner.shared.config).finish_non_exhaustive()
    }
}
