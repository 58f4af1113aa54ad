//! All of a pool but its queue: the configuration, the counts, the threads, and what becomes of a job that is refused.

use std::io;
use std::time::Instant;

use polyserve_core::sync::atomic::{AtomicBool, Ordering};
use polyserve_core::sync::now;
use polyserve_core::{Job, Rejected, RejectedReason};

use super::pool_config::{OnFull, PoolConfig};
use super::room::Room;
use super::stats::{Queued, Tallies};
use super::workers::Workers;

/// A job that a queue did not take.
pub(super) struct Refused {
    pub(super) queued: Queued,
    pub(super) reason: RejectedReason,
}

pub(super) struct Base {
    pub(super) config: PoolConfig,
    pub(super) tallies: Tallies,
    room: Room,
    workers: Workers,
    /// A closing's deadline has passed: what is taken from the queue from now on is dropped unrun.
    cut: AtomicBool,
}

impl Base {
    /// # Errors
    ///
    /// Where the configuration is not valid.
    pub(super) fn new(config: PoolConfig) -> io::Result<Self> {
        config.validate()?;
        Ok(Self {
            tallies: Tallies::new(config.workers),
            room: Room::default(),
            workers: Workers::default(),
            cut: AtomicBool::new(false),
            config,
        })
    }

    /// Starts the next worker's thread.
    ///
    /// # Errors
    ///
    /// Where the system has none left.
    pub(super) fn start(&self, main: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.workers.start(&self.config.name, main)
    }

    /// Offers `job` to the queue, and does as configured where that is full.
    #[inline]
    pub(super) fn submit(&self, job: Job, offer: impl Fn(Queued) -> Result<(), Refused>) -> Result<(), Rejected> {
        match offer(self.tallies.queued(job)) {
            Ok(()) => Ok(()),
            Err(refused) => self.refused(refused, &offer),
        }
    }

    #[cold]
    fn refused(&self, refused: Refused, offer: &dyn Fn(Queued) -> Result<(), Refused>) -> Result<(), Rejected> {
        let Refused { queued, reason } = refused;
        let refused = match (reason, self.config.on_full) {
            (RejectedReason::Full, OnFull::CallerRuns) => {
                self.tallies.run_on_caller(queued.job);
                return Ok(());
            }
            (RejectedReason::Full, OnFull::Wait(limit)) => match self.room.wait(limit, queued, offer) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            },
            (reason, _) => Refused { queued, reason },
        };
        self.tallies.reject();
        Err(Rejected { job: refused.queued.job, reason: refused.reason })
    }

    /// Runs what `worker` took from the queue, on its thread.
    #[inline]
    pub(super) fn run(&self, worker: usize, queued: Queued) {
        if self.cut.load(Ordering::Relaxed) {
            return self.tallies.discard(queued);
        }
        self.tallies.run(worker, queued, || {
            if matches!(self.config.on_full, OnFull::Wait(_)) {
                self.room.freed();
            }
        });
    }

    /// Runs on this thread, or drops after a deadline, a job that was submitted as the pool closed and that no worker is
    /// left to take.
    pub(super) fn run_late(&self, queued: Queued) {
        if self.is_cut() {
            self.tallies.discard(queued);
        } else {
            self.tallies.run_on_caller(queued.job);
        }
    }

    /// Whether a closing's deadline has passed.
    pub(super) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    /// Waits for the workers to end, once the queue takes no more jobs. At the deadline `discard` is to drop what is
    /// queued. Answers how many threads were left behind.
    pub(super) fn close(&self, deadline: Option<Instant>, discard: impl Fn()) -> usize {
        self.room.wake_all();
        let cut = || {
            self.cut.store(true, Ordering::SeqCst);
            discard();
        };
        self.workers.join(deadline, &cut, &|worker| self.tallies.is_in_job(worker))
    }

    /// The deadline of the closing that a drop is: none, but where threads were left behind they are not waited for.
    pub(super) fn drop_deadline(&self) -> Option<Instant> {
        self.workers.were_left_behind().then(now)
    }
}
