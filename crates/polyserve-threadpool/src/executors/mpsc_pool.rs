//! [`MpscPool`]: the classic. Threads around one std channel whose receiving end is behind a lock.
//!
//! A worker waits for the lock, waits for a job with the lock in its hand, lets go of the lock and runs the job.
//! Closing the pool closes the channel: what was queued is still received, then each worker learns that there is no
//! more.
//!
//! Invariants: jobs are taken in the order in which they were sent, each by one worker, for there is one channel and
//! one lock around its end. No wake-up is lost, for the channel sees to the one worker that waits in it, and the lock
//! to the others. Whoever holds the lock waits for nothing but the channel; jobs run, and are dropped, without it.
//!
//! Cost of a job: a read lock, a send and two counts at its submitter; a lock and a receive at its worker. With more
//! than one idle worker a job costs two wake-ups in place of one: the worker in the channel, and the next one in the
//! lock. Bounded, the queue is an array that is allocated once; unbounded, blocks of a list.
//!
//! *Wins when* it is to be understood, or compared with what the articles publish. *Loses when* jobs are short: the
//! lock serialises the workers, and a worker that is preempted with the lock in its hand stops all of them. In the
//! bench `executors`, on one core, a job of one word takes 1.5 times what it takes `CrossbeamPool`; with submitter and
//! workers on different cores the two are alike, for there the job's memory is most of the cost.
//!
//! Source: the thread pool of the Rust book's last chapter, and of the published entity servers.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TrySendError};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use polyserve_core::sync::lock;
use polyserve_core::{Executor, Job, Rejected};

use super::base::{Base, Refused};
use super::door::Door;
use super::pool_config::{PoolConfig, Queue};
use super::stats::{PoolStats, Queued};

/// A fixed number of threads around one std channel. See the module's source for how it works, and
/// [`executors`](crate::executors) for what it promises.
pub struct MpscPool {
    shared: Arc<Shared>,
}

struct Shared {
    base: Base,
    door: Door<Sending>,
    receiver: Mutex<Receiver<Queued>>,
    /// std's channel does not say how long it is.
    sent: CachePadded<AtomicU64>,
}

enum Sending {
    Bounded(SyncSender<Queued>),
    Unbounded(Sender<Queued>),
}

impl MpscPool {
    /// Starts the pool.
    ///
    /// # Errors
    ///
    /// Where the configuration is not valid, or a thread cannot be started; the threads that were are ended.
    pub fn new(config: PoolConfig) -> io::Result<Self> {
        let base = Base::new(config)?;
        let workers = base.config.workers;
        let (sending, receiver) = match base.config.queue {
            Queue::Bounded(most) => {
                let (sender, receiver) = mpsc::sync_channel(most);
                (Sending::Bounded(sender), receiver)
            }
            Queue::Unbounded => {
                let (sender, receiver) = mpsc::channel();
                (Sending::Unbounded(sender), receiver)
            }
        };
        let (door, receiver) = (Door::new(sending), Mutex::new(receiver));
        let pool = Self { shared: Arc::new(Shared { base, door, receiver, sent: CachePadded::default() }) };
        for worker in 0..workers {
            let shared = Arc::clone(&pool.shared);
            pool.shared.base.start(move || shared.work(worker))?; // on failure the drop of `pool` ends the others
        }
        Ok(pool)
    }

    /// What the pool has done so far. Cost: reads every worker's counts.
    pub fn stats(&self) -> PoolStats {
        let tallies = &self.shared.base.tallies;
        let taken = tallies.taken();
        tallies.stats(self.shared.sent.load(Ordering::Relaxed).saturating_sub(taken))
    }
}

impl Shared {
    fn work(&self, worker: usize) {
        while let Some(queued) = self.receive() {
            self.base.run(worker, queued);
        }
    }

    /// The next job; `None` when the channel is closed and empty.
    fn receive(&self) -> Option<Queued> {
        lock(&self.receiver).recv().ok()
    }

    fn offer(&self, queued: Queued) -> Result<(), Refused> {
        self.door.send(queued, |sending, queued| match sending {
            Sending::Bounded(sender) => sender.try_send(queued).map_err(|error| match error {
                TrySendError::Full(queued) | TrySendError::Disconnected(queued) => queued,
            }),
            Sending::Unbounded(sender) => sender.send(queued).map_err(|error| error.0),
        })?;
        self.sent.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Drops what is queued. No worker waits with the lock in its hand any more: the channel is closed.
    fn discard(&self) {
        while let Some(queued) = self.receive() {
            self.base.tallies.discard(queued);
        }
    }
}

impl Executor for MpscPool {
    fn execute(&self, job: Job) -> Result<(), Rejected> {
        self.shared.base.submit(job, |queued| self.shared.offer(queued))
    }

    fn workers(&self) -> Option<usize> {
        Some(self.shared.base.config.workers)
    }

    fn close(&self, deadline: Option<Instant>) -> usize {
        self.shared.door.close();
        self.shared.base.close(deadline, || self.shared.discard())
    }

    fn panicked(&self) -> u64 {
        self.shared.base.tallies.panicked()
    }

    fn may_wait(&self) -> bool {
        self.shared.base.config.may_wait()
    }
}

impl Drop for MpscPool {
    fn drop(&mut self) {
        self.close(self.shared.base.drop_deadline());
    }
}

impl fmt::Debug for MpscPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MpscPool").field("config", &self.shared.base.config).finish_non_exhaustive()
    }
}
