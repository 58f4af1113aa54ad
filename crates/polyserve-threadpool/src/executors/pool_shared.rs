//! The parts of a pool that do not depend on its queue: configuration, counters, threads, and rejected jobs.

use std::io;
use std::time::Instant;

use polyserve_core::sync::atomic::{AtomicBool, Ordering};
use polyserve_core::sync::now;
use polyserve_core::{Job, Rejected, RejectedReason};

use super::pool_config::{OnFull, PoolConfig};
use super::queued_job::{OfferError, QueuedJob};
use super::space_waiters::SpaceWaiters;
use super::stats::PoolCounters;
use super::workers::Workers;

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
