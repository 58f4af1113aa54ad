//! The shell of a pool, and what it needs of a strategy.
//!
//! The shell has the configuration, the counters and the threads, handles rejected jobs, and closes. A strategy is a
//! [`JobQueue`].

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use polyserve_core::sync::atomic::{AtomicBool, Ordering};
use polyserve_core::sync::now;
use polyserve_core::{Executor, Job, Rejected, RejectedReason};

use super::pool_config::{OnFull, PoolConfig};
use super::queued_job::{OfferError, QueuedJob};
use super::space_waiters::SpaceWaiters;
use super::stats::{PoolCounters, PoolStats};
use super::workers::Workers;

/// The jobs of a pool that wait, and how a worker takes them.
pub(super) trait JobQueue: Send + Sync + Sized + 'static {
    /// The name of the pool.
    const NAME: &'static str;

    /// What the thread of a worker owns.
    type Own: Send + 'static;

    /// Creates the queue of a pool with this valid configuration, and what each worker owns.
    fn new(config: &PoolConfig) -> (Self, Vec<Self::Own>);

    /// Queues a job.
    fn offer(&self, pool: &PoolShared, queued: QueuedJob) -> Result<(), OfferError>;

    /// Runs the jobs that `worker` takes, until the queue is closed and empty.
    fn work(&self, pool: &PoolShared, worker: usize, own: Self::Own);

    /// Closes the queue. Queued jobs are still taken.
    fn close(&self);

    /// Takes all jobs out of the closed queue, because a deadline has passed.
    fn discard(&self, pool: &PoolShared);

    /// The number of jobs that wait.
    fn waiting(&self, pool: &PoolShared) -> u64;
}

/// A pool with a fixed number of threads, which take jobs from a queue.
#[allow(private_bounds)] // the queue is no seam
pub struct Pool<Q: JobQueue> {
    inner: Arc<PoolInner<Q>>,
}

struct PoolInner<Q> {
    shared: PoolShared,
    queue: Q,
}

#[allow(private_bounds)]
impl<Q: JobQueue> Pool<Q> {
    /// Starts the pool.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration is not valid or a thread cannot be started. Threads that were started are
    /// ended.
    pub fn new(config: PoolConfig) -> io::Result<Self> {
        let shared = PoolShared::new(config)?;
        let (queue, owned) = Q::new(&shared.config);
        let pool = Self { inner: Arc::new(PoolInner { shared, queue }) };
        for (worker, own) in owned.into_iter().enumerate() {
            let inner = Arc::clone(&pool.inner);
            // On failure the drop of `pool` ends the other threads.
            pool.inner.shared.start(move || inner.queue.work(&inner.shared, worker, own))?;
        }
        Ok(pool)
    }

    /// Returns the counts of the pool. Cost: reads every worker's counters.
    pub fn stats(&self) -> PoolStats {
        let PoolInner { shared, queue } = &*self.inner;
        shared.counters.stats(queue.waiting(shared))
    }
}

impl<Q: JobQueue> Executor for Pool<Q> {
    fn execute(&self, job: Job) -> Result<(), Rejected> {
        let PoolInner { shared, queue } = &*self.inner;
        shared.submit(job, |queued| queue.offer(shared, queued))
    }

    fn workers(&self) -> Option<usize> {
        Some(self.inner.shared.config.workers)
    }

    fn close(&self, deadline: Option<Instant>) -> usize {
        let PoolInner { shared, queue } = &*self.inner;
        queue.close();
        shared.close(deadline, || queue.discard(shared))
    }

    fn panicked(&self) -> u64 {
        self.inner.shared.counters.panicked()
    }

    fn may_wait(&self) -> bool {
        self.inner.shared.config.may_wait()
    }
}

impl<Q: JobQueue> Drop for Pool<Q> {
    fn drop(&mut self) {
        self.close(self.inner.shared.drop_deadline());
    }
}

impl<Q: JobQueue> fmt::Debug for Pool<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(Q::NAME).field("config", &self.inner.shared.config).finish_non_exhaustive()
    }
}

/// The parts of a pool that do not depend on its queue.
pub(super) struct PoolShared {
    pub(super) config: PoolConfig,
    pub(super) counters: PoolCounters,
    space_waiters: SpaceWaiters,
    workers: Workers,
    /// The deadline of a close has passed. From then on, jobs taken from the queue are dropped and not run.
    cut: AtomicBool,
}

impl PoolShared {
    /// # Errors
    ///
    /// Returns an error if the configuration is not valid.
    pub(super) fn new(config: PoolConfig) -> io::Result<Self> {
        config.validate()?;
        Ok(Self {
            counters: PoolCounters::new(config.workers),
            space_waiters: SpaceWaiters::default(),
            workers: Workers::default(),
            cut: AtomicBool::new(false),
            config,
        })
    }

    /// Starts the next worker's thread.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot start a thread.
    pub(super) fn start(&self, main: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.workers.start(&self.config.name, main)
    }

    /// Offers `job` to the queue. If the queue is full, follows [`OnFull`].
    #[inline]
    pub(super) fn submit(&self, job: Job, offer: impl Fn(QueuedJob) -> Result<(), OfferError>) -> Result<(), Rejected> {
        match offer(self.counters.queued(job)) {
            Ok(()) => Ok(()),
            Err(error) => self.rejected(error, &offer),
        }
    }

    #[cold]
    fn rejected(&self, error: OfferError, offer: &dyn Fn(QueuedJob) -> Result<(), OfferError>) -> Result<(), Rejected> {
        let OfferError { queued, reason } = error;
        let error = match (reason, self.config.on_full) {
            (RejectedReason::Full, OnFull::CallerRuns) => {
                self.counters.run_on_caller(queued.job);
                return Ok(());
            }
            (RejectedReason::Full, OnFull::Wait(limit)) => match self.space_waiters.wait(limit, queued, offer) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            },
            (reason, _) => OfferError { queued, reason },
        };
        self.counters.reject();
        Err(Rejected { job: error.queued.job, reason: error.reason })
    }

    /// Runs a job that `worker` took from the queue. To be called on that worker's thread.
    #[inline]
    pub(super) fn run(&self, worker: usize, queued: QueuedJob) {
        if self.cut.load(Ordering::Relaxed) {
            return self.counters.discard(queued);
        }
        self.counters.run(worker, queued, || {
            if matches!(self.config.on_full, OnFull::Wait(_)) {
                self.space_waiters.freed();
            }
        });
    }

    /// Handles a job that was submitted during the close and that no worker will take. Runs it on this thread, or drops
    /// it if the deadline has passed.
    pub(super) fn run_after_close(&self, queued: QueuedJob) {
        if self.is_cut() {
            self.counters.discard(queued);
        } else {
            self.counters.run_on_caller(queued.job);
        }
    }

    /// Whether the deadline of a close has passed.
    pub(super) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    /// Waits for the workers to end. The queue must be closed before. At the deadline it calls `discard`, which must drop
    /// the queued jobs. Returns the number of threads that were left behind.
    pub(super) fn close(&self, deadline: Option<Instant>, discard: impl Fn()) -> usize {
        self.space_waiters.wake_all();
        let cut = || {
            self.cut.store(true, Ordering::SeqCst);
            discard();
        };
        self.workers.join(deadline, &cut, &|worker| self.counters.is_in_job(worker))
    }

    /// The deadline for the close in a pool's `drop`: none, or now if an earlier close left threads behind.
    pub(super) fn drop_deadline(&self) -> Option<Instant> {
        self.workers.were_left_behind().then(now)
    }
}
