//! [`CrossbeamPool`]: threads around one channel that every worker receives from, crossbeam's.
//!
//! Closing the pool sets a flag and wakes the workers (`door`): what was queued is still received, then each worker
//! finds the channel closed and empty.
//!
//! Invariants: jobs are taken in the order in which they were sent, each by one worker; no wake-up is lost. Both are
//! the channel's.
//!
//! Cost of a job: a send at its submitter and a receive at its worker, an atomic exchange each; no lock around the
//! queue, and no system call unless a worker is parked. Bounded, the queue is an array that is allocated once;
//! unbounded, a list of blocks of 31 jobs.
//!
//! *Wins when* one queue is enough, which is most of the time: few cores, or jobs of some microseconds. In the bench
//! `executors` a job of one word takes 0.5 of what it takes `rayon::spawn`; the plain channel takes 0.4. *Loses when*
//! many workers take very short jobs, all from the same end of one queue; and, on one or two cores, when jobs arrive
//! one by one: a worker that finds the channel empty spins for some microseconds before it parks (crossbeam's issue
//! 821), on a core that the submitter could have used. Unbounded it is about a quarter dearer than bounded.
//!
//! Source: the array and list flavours of `crossbeam-channel`, after Vyukov's bounded MPMC queue.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use polyserve_core::sync::atomic::{AtomicBool, Ordering};
use polyserve_core::{Executor, Job, Rejected};

use super::base::Base;
use super::door::{Channel, Door};
use super::pool_config::{PoolConfig, Queue};
use super::stats::{PoolStats, Queued};
use crate::sync::channel::{self, Receiver, Sender, TrySendError};

/// A fixed number of threads around one crossbeam channel. See the module's source for how it works, and
/// [`executors`](crate::executors) for what it promises.
pub struct CrossbeamPool {
    shared: Arc<Shared>,
}

struct Shared {
    base: Base,
    door: Door<Ends>,
}

struct Ends {
    sender: Sender<Queued>,
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
            Queue::Bounded(most) => channel::bounded(most),
            Queue::Unbounded => channel::unbounded(),
        };
        let door = Door::new(Ends { sender, receiver }, workers);
        let pool = Self { shared: Arc::new(Shared { base, door }) };
        for worker in 0..workers {
            let shared = Arc::clone(&pool.shared);
            pool.shared.base.start(move || shared.work(worker))?; // on failure the drop of `pool` ends the others
        }
        Ok(pool)
    }

    /// What the pool has done so far. Cost: reads every worker's counts.
    pub fn stats(&self) -> PoolStats {
        let received = self.shared.door.channel.receiver.len() as u64;
        self.shared.base.tallies.stats(received.saturating_sub(self.shared.door.wake_ups()))
    }
}

impl Shared {
    fn work(&self, worker: usize) {
        while let Some(queued) = self.door.next() {
            self.base.run(worker, queued);
        }
    }
}

impl Channel for Ends {
    #[inline]
    fn try_send(&self, queued: Queued) -> Result<(), Queued> {
        self.sender.try_send(queued).map_err(TrySendError::into_inner)
    }

    #[inline]
    fn receive(&self, closed: &AtomicBool) -> Option<Queued> {
        if closed.load(Ordering::SeqCst) {
            return self.receiver.try_recv().ok();
        }
        self.receiver.recv().ok()
    }
}

impl Executor for CrossbeamPool {
    fn execute(&self, job: Job) -> Result<(), Rejected> {
        self.shared.base.submit(job, |queued| self.shared.door.offer(&self.shared.base, queued))
    }

    fn workers(&self) -> Option<usize> {
        Some(self.shared.base.config.workers)
    }

    fn close(&self, deadline: Option<Instant>) -> usize {
        self.shared.door.close();
        self.shared.base.close(deadline, || self.shared.door.empty(&self.shared.base))
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
