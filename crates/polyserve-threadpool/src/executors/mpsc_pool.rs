//! [`MpscPool`]: the classic. Threads around one std channel whose receiving end is behind a lock.
//!
//! A worker waits for the lock, waits for a job with the lock in its hand, lets go of the lock and runs the job.
//! Closing the pool sets a flag and wakes the worker in the channel (`door`): what was queued is still received, then
//! each worker finds the channel closed and empty.
//!
//! Invariants: jobs are taken in the order in which they were sent, each by one worker, for there is one channel and
//! one lock around its end. No wake-up is lost, for the channel sees to the one worker that waits in it, and the lock
//! to the others. Whoever holds the lock waits for nothing but the channel; jobs run, and are dropped, without it.
//!
//! Cost of a job: a send and a count at its submitter; a lock and a receive at its worker. With more
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
use std::sync::Arc;
use std::time::Instant;

use crossbeam_utils::CachePadded;
use polyserve_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use polyserve_core::sync::{Mutex, lock};
use polyserve_core::{Executor, Job, Rejected};

use super::base::Base;
use super::door::{Channel, Door};
use super::pool_config::{PoolConfig, Queue};
use super::stats::{PoolStats, Queued};
use crate::sync::mpsc::{self, Receiver, Sender, SyncSender, TrySendError};

/// A fixed number of threads around one std channel. See the module's source for how it works, and
/// [`executors`](crate::executors) for what it promises.
pub struct MpscPool {
    shared: Arc<Shared>,
}

struct Shared {
    base: Base,
    door: Door<Ends>,
}

struct Ends {
    sending: Sending,
    /// How many were sent, wake-ups too: std's channel does not say how long it is.
    sent: CachePadded<AtomicU64>,
    receiving: CachePadded<Receiving>,
}

struct Receiving {
    receiver: Mutex<Receiver<Queued>>,
    /// How many were received. Written by who holds the lock.
    received: AtomicU64,
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
        let receiving = Receiving { receiver: Mutex::new(receiver), received: AtomicU64::new(0) };
        let ends = Ends { sending, sent: CachePadded::default(), receiving: CachePadded::new(receiving) };
        let pool = Self { shared: Arc::new(Shared { base, door: Door::new(ends, workers) }) };
        for worker in 0..workers {
            let shared = Arc::clone(&pool.shared);
            pool.shared.base.start(move || shared.work(worker))?; // on failure the drop of `pool` ends the others
        }
        Ok(pool)
    }

    /// What the pool has done so far. Cost: reads every worker's counts.
    pub fn stats(&self) -> PoolStats {
        let door = &self.shared.door;
        self.shared.base.tallies.stats(door.channel.len().saturating_sub(door.wake_ups()))
    }
}

impl Shared {
    fn work(&self, worker: usize) {
        while let Some(queued) = self.door.next() {
            self.base.run(worker, queued);
        }
    }
}

impl Ends {
    fn len(&self) -> u64 {
        let received = self.receiving.received.load(Ordering::Relaxed);
        self.sent.load(Ordering::Relaxed).saturating_sub(received)
    }
}

impl Channel for Ends {
    #[inline]
    fn try_send(&self, queued: Queued) -> Result<(), Queued> {
        match &self.sending {
            Sending::Bounded(sender) => sender.try_send(queued).map_err(|error| match error {
                TrySendError::Full(queued) | TrySendError::Disconnected(queued) => queued,
            })?,
            Sending::Unbounded(sender) => sender.send(queued).map_err(|error| error.0)?,
        }
        self.sent.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    #[inline]
    fn receive(&self, closed: &AtomicBool) -> Option<Queued> {
        let Receiving { receiver, received } = &*self.receiving;
        let receiver = lock(receiver);
        // Read with the lock in hand. Who comes after the first to take a wake-up then reads that it is closed, and
        // does not wait in the channel with the lock that others need to see that it is empty.
        let queued = if closed.load(Ordering::SeqCst) { receiver.try_recv().ok() } else { receiver.recv().ok() };
        received.store(received.load(Ordering::Relaxed) + u64::from(queued.is_some()), Ordering::Relaxed);
        queued
    }
}

impl Executor for MpscPool {
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
