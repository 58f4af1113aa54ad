//! [`MpscPool`]: the classic pool, threads around one std channel with a lock around its receiving end.
//!
//! A worker takes the lock, waits for a job while it holds the lock, releases the lock and runs the job. Closing the pool
//! sets a flag and wakes the worker in the channel (`closable_channel`). Queued jobs are still received. Then each worker
//! finds the channel closed and empty, and ends.
//!
//! Invariants: jobs are taken in the order in which they were sent, each by one worker, because there is one channel and
//! one lock around its end. No wake-up is lost: the channel wakes the one worker that waits in it, and the lock wakes the
//! others. The worker that holds the lock waits only for the channel. Jobs run, and are dropped, without the lock.
//!
//! Cost of a job: a send and a count by its submitter; a lock and a receive by its worker. If more than one worker is
//! idle, a job costs two wake-ups instead of one: the worker in the channel, and the next worker in the lock. A bounded
//! queue is one array. An unbounded queue is a list of blocks.
//!
//! Source: the thread pool of the Rust book's last chapter, and of the published entity servers.
//!
//! *Wins when* only std may be used, or it is to be compared with published thread pools. On one core, a job of one
//! word takes less time than on rayon. With tasks of a second all executors are close (`docs/EXPERIMENTS.md`).
//! *Loses when* jobs are short: a job of one word takes longer than on `CrossbeamPool`. The lock serialises the
//! workers, and a worker that is preempted while it holds the lock stops all of them. Record: `docs/STRATEGIES.md`,
//! "Executors for CPU work".

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_utils::CachePadded;
use polyserve_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use polyserve_core::sync::{Mutex, lock};
use polyserve_core::{Executor, Job, Rejected};

use super::closable_channel::{Channel, ClosableChannel};
use super::pool_config::{PoolConfig, Queue};
use super::pool_shared::PoolShared;
use super::queued_job::QueuedJob;
use super::stats::PoolStats;
use crate::sync::mpsc::{self, Receiver, Sender, SyncSender, TrySendError};

/// A pool with a fixed number of threads, which receive jobs from one std channel.
///
/// The module's source explains how it works. [`executors`](crate::executors) lists what it promises.
///
/// ```
/// use polyserve_core::{Executor, Job};
/// use polyserve_threadpool::{PoolConfig, MpscPool};
///
/// let pool = MpscPool::new(PoolConfig::new(2))?;
/// pool.execute(Job::new(|| println!("on a worker")))?;
/// assert_eq!(pool.close(None), 0); // runs the queued jobs, and joins the threads
/// assert_eq!(pool.stats().executed, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MpscPool {
    inner: Arc<MpscInner>,
}

struct MpscInner {
    shared: PoolShared,
    channel: ClosableChannel<MpscChannel>,
}

struct MpscChannel {
    sending: SendHalf,
    /// The number of items sent, including wake-ups. std's channel does not report its length.
    sent: CachePadded<AtomicU64>,
    receiving: CachePadded<ReceiveHalf>,
}

struct ReceiveHalf {
    receiver: Mutex<Receiver<QueuedJob>>,
    /// The number of items received. Written only by the thread that holds the lock.
    received: AtomicU64,
}

enum SendHalf {
    Bounded(SyncSender<QueuedJob>),
    Unbounded(Sender<QueuedJob>),
}

impl MpscPool {
    /// Starts the pool.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration is not valid or a thread cannot be started. Threads that were started are
    /// ended.
    pub fn new(config: PoolConfig) -> io::Result<Self> {
        let shared = PoolShared::new(config)?;
        let workers = shared.config.workers;
        let (sending, receiver) = match shared.config.queue {
            Queue::Bounded(capacity) => {
                let (sender, receiver) = mpsc::sync_channel(capacity);
                (SendHalf::Bounded(sender), receiver)
            }
            Queue::Unbounded => {
                let (sender, receiver) = mpsc::channel();
                (SendHalf::Unbounded(sender), receiver)
            }
        };
        let receiving = ReceiveHalf { receiver: Mutex::new(receiver), received: AtomicU64::new(0) };
        let channel = MpscChannel { sending, sent: CachePadded::default(), receiving: CachePadded::new(receiving) };
        let pool = Self { inner: Arc::new(MpscInner { shared, channel: ClosableChannel::new(channel, workers) }) };
        for worker in 0..workers {
            let inner = Arc::clone(&pool.inner);
            pool.inner.shared.start(move || inner.work(worker))?; // on failure the drop of `pool` ends the other threads
        }
        Ok(pool)
    }

    /// Returns the counts of the pool. Cost: reads every worker's counters.
    pub fn stats(&self) -> PoolStats {
        let channel = &self.inner.channel;
        self.inner.shared.counters.stats(channel.inner.len().saturating_sub(channel.wake_ups()))
    }
}

impl MpscInner {
    fn work(&self, worker: usize) {
        while let Some(queued) = self.channel.next() {
            self.shared.run(worker, queued);
        }
    }
}

impl MpscChannel {
    fn len(&self) -> u64 {
        let received = self.receiving.received.load(Ordering::Relaxed);
        self.sent.load(Ordering::Relaxed).saturating_sub(received)
    }
}

impl Channel for MpscChannel {
    #[inline]
    fn try_send(&self, queued: QueuedJob) -> Result<(), QueuedJob> {
        match &self.sending {
            SendHalf::Bounded(sender) => sender.try_send(queued).map_err(|error| match error {
                TrySendError::Full(queued) | TrySendError::Disconnected(queued) => queued,
            })?,
            SendHalf::Unbounded(sender) => sender.send(queued).map_err(|error| error.0)?,
        }
        self.sent.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    #[inline]
    fn receive(&self, closed: &AtomicBool) -> Option<QueuedJob> {
        let ReceiveHalf { receiver, received } = &*self.receiving;
        let receiver = lock(receiver);
        // The flag is read under the lock. A worker that gets the lock after a wake-up was received then reads *closed*.
        // It does not wait in the channel while it holds the lock that others need to find the channel empty.
        let queued = if closed.load(Ordering::SeqCst) { receiver.try_recv().ok() } else { receiver.recv().ok() };
        received.store(received.load(Ordering::Relaxed) + u64::from(queued.is_some()), Ordering::Relaxed);
        queued
    }
}

impl Executor for MpscPool {
    fn execute(&self, job: Job) -> Result<(), Rejected> {
        self.inner.shared.submit(job, |queued| self.inner.channel.offer(&self.inner.shared, queued))
    }

    fn workers(&self) -> Option<usize> {
        Some(self.inner.shared.config.workers)
    }

    fn close(&self, deadline: Option<Instant>) -> usize {
        self.inner.channel.close();
        self.inner.shared.close(deadline, || self.inner.channel.drain(&self.inner.shared))
    }

    fn panicked(&self) -> u64 {
        self.inner.shared.counters.panicked()
    }

    fn may_wait(&self) -> bool {
        self.inner.shared.config.may_wait()
    }
}

impl Drop for MpscPool {
    fn drop(&mut self) {
        self.close(self.inner.shared.drop_deadline());
    }
}

impl fmt::Debug for MpscPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MpscPool").field("config", &self.inner.shared.config).finish_non_exhaustive()
    }
}
