//! [`CrossbeamPool`]: threads around one channel that every worker receives from, crossbeam's.
//!
//! Closing the pool drops the channel's only sender: what was queued is still received, then each worker learns that
//! there is no more.
//!
//! Invariants: jobs are taken in the order in which they were sent, each by one worker; no wake-up is lost. Both are
//! the channel's.
//!
//! Cost of a job: a read lock and a send at its submitter, a receive at its worker; no lock around the queue, and no
//! system call unless a worker is parked. Bounded, the queue is an array that is allocated once; unbounded, a list of
//! blocks of 31 jobs.
//!
//! *Wins when* one queue is enough, which is most of the time: few cores, or jobs of some microseconds. In the bench
//! `executors` a job of one word takes 0.6 of what it takes `rayon::spawn`; the plain channel takes 0.4. *Loses when*
//! many workers take very short jobs, all from the same end of one queue; and, on one or two cores, when jobs arrive
//! one by one: a worker that finds the channel empty spins for some microseconds before it parks (crossbeam's issue
//! 821), on a core that the submitter could have used. Unbounded it is a tenth to a quarter dearer than bounded.
//!
//! Source: the array and list flavours of `crossbeam-channel`, after Vyukov's bounded MPMC queue.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, TrySendError};
use polyserve_core::{Executor, Job, Rejected};

use super::base::{Base, Refused};
use super::door::Door;
use super::pool_config::{PoolConfig, Queue};
use super::stats::{PoolStats, Queued};

/// A fixed number of threads around one crossbeam channel. See the module's source for how it works, and
/// [`executors`](crate::executors) for what it promises.
pub struct CrossbeamPool {
    shared: Arc<Shared>,
}

struct Shared {
    base: Base,
    door: Door<Sender<Queued>>,
    receiver: Receiver<Queued>,
}

impl CrossbeamPool {
    /// Starts the pool.
    ///
    /// # Errors
    ///
    /// Where the configuration is not valid, or a thread cannot be started; the threads that were are ended.
    pub fn new(config: PoolConfig) -> io::Result<Self> {
        let base = Base::new(config)?;
        let workers = base.config.workers;
        let (sender, receiver) = match base.config.queue {
            Queue::Bounded(most) => crossbeam_channel::bounded(most),
            Queue::Unbounded => crossbeam_channel::unbounded(),
        };
        let pool = Self { shared: Arc::new(Shared { base, door: Door::new(sender), receiver }) };
        for worker in 0..workers {
            let shared = Arc::clone(&pool.shared);
            pool.shared.base.start(move || shared.work(worker))?; // on failure the drop of `pool` ends the others
        }
        Ok(pool)
    }

    /// What the pool has done so far. Cost: reads every worker's counts.
    pub fn stats(&self) -> PoolStats {
        self.shared.base.tallies.stats(self.shared.receiver.len() as u64)
    }
}

impl Shared {
    fn work(&self, worker: usize) {
        while let Ok(queued) = self.receiver.recv() {
            self.base.run(worker, queued);
        }
    }

    #[inline]
    fn offer(&self, queued: Queued) -> Result<(), Refused> {
        self.door.send(queued, |sender, queued| sender.try_send(queued).map_err(TrySendError::into_inner))
    }
}

impl Executor for CrossbeamPool {
    fn execute(&self, job: Job) -> Result<(), Rejected> {
        self.shared.base.submit(job, |queued| self.shared.offer(queued))
    }

    fn workers(&self) -> Option<usize> {
        Some(self.shared.base.config.workers)
    }

    fn close(&self, deadline: Option<Instant>) -> usize {
        self.shared.door.close();
        self.shared.base.close(deadline, || {
            self.shared.receiver.try_iter().for_each(|queued| self.shared.base.tallies.discard(queued));
        })
    }

    fn panicked(&self) -> u64 {
        self.shared.base.tallies.panicked()
    }

    fn may_wait(&self) -> bool {
        self.shared.base.config.may_wait()
    }
}

impl Drop for CrossbeamPool {
    fn drop(&mut self) {
        self.close(self.shared.base.drop_deadline());
    }
}

impl fmt::Debug for CrossbeamPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrossbeamPool").field("config", &self.shared.base.config).finish_non_exhaustive()
    }
}
