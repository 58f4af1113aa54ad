//! [`CrossbeamPool`]: threads around one crossbeam channel that every worker receives from.
//!
//! Closing the pool sets a flag and wakes the workers (`closable_channel`). Queued jobs are still received. Then each
//! worker finds the channel closed and empty, and ends.
//!
//! Invariants: jobs are taken in the order in which they were sent, each by one worker, and no wake-up is lost. The
//! channel guarantees both.
//!
//! Cost of a job: a send by its submitter and a receive by its worker, one atomic exchange each. There is no lock around
//! the queue, and no system call unless a worker is parked. A bounded queue is one array. An unbounded queue is a list of
//! blocks of 31 jobs, and costs a little more (`executors`). A worker that finds the channel empty spins for a moment
//! before it parks (crossbeam's issue 821), on a core that the submitter could use.
//!
//! Source: the array and list flavours of `crossbeam-channel`, after Vyukov's bounded MPMC queue.
//!
//! *Wins when* jobs are short: on one core, a job of one word takes less time than on any other executor here, and on
//! rayon. *Loses when* nothing that was measured. With tasks of a second all executors are close
//! (`docs/EXPERIMENTS.md`). Many workers that take very short jobs from one queue were not measured. Record:
//! `docs/STRATEGIES.md`, "Executors for CPU work".

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use polyserve_core::sync::atomic::{AtomicBool, Ordering};
use polyserve_core::{Executor, Job, Rejected};

use super::closable_channel::{Channel, ClosableChannel};
use super::pool_config::{PoolConfig, Queue};
use super::pool_shared::PoolShared;
use super::queued_job::QueuedJob;
use super::stats::PoolStats;
use crate::sync::channel::{self, Receiver, Sender, TrySendError};

/// A pool with a fixed number of threads, which receive jobs from one crossbeam channel.
///
/// The module's source explains how it works. [`executors`](crate::executors) lists what it promises.
///
/// ```
/// use polyserve_core::{Executor, Job};
/// use polyserve_threadpool::{PoolConfig, CrossbeamPool};
///
/// let pool = CrossbeamPool::new(PoolConfig::new(2))?;
/// pool.execute(Job::new(|| println!("on a worker")))?;
/// assert_eq!(pool.close(None), 0); // runs the queued jobs, and joins the threads
/// assert_eq!(pool.stats().executed, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CrossbeamPool {
    inner: Arc<CrossbeamInner>,
}

struct CrossbeamInner {
    shared: PoolShared,
    channel: ClosableChannel<CrossbeamChannel>,
}

struct CrossbeamChannel {
    sender: Sender<QueuedJob>,
    receiver: Receiver<QueuedJob>,
}

impl CrossbeamPool {
    /// Starts the pool.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration is not valid or a thread cannot be started. Threads that were started are
    /// ended.
    pub fn new(config: PoolConfig) -> io::Result<Self> {
        let shared = PoolShared::new(config)?;
        let workers = shared.config.workers;
        let (sender, receiver) = match shared.config.queue {
            Queue::Bounded(capacity) => channel::bounded(capacity),
            Queue::Unbounded => channel::unbounded(),
        };
        let channel = ClosableChannel::new(CrossbeamChannel { sender, receiver }, workers);
        let pool = Self { inner: Arc::new(CrossbeamInner { shared, channel }) };
        for worker in 0..workers {
            let inner = Arc::clone(&pool.inner);
            pool.inner.shared.start(move || inner.work(worker))?; // on failure the drop of `pool` ends the other threads
        }
        Ok(pool)
    }

    /// Returns the counts of the pool. Cost: reads every worker's counters.
    pub fn stats(&self) -> PoolStats {
        let received = self.inner.channel.inner.receiver.len() as u64;
        self.inner.shared.counters.stats(received.saturating_sub(self.inner.channel.wake_ups()))
    }
}

impl CrossbeamInner {
    fn work(&self, worker: usize) {
        while let Some(queued) = self.channel.next() {
            self.shared.run(worker, queued);
        }
    }
}

impl Channel for CrossbeamChannel {
    #[inline]
    fn try_send(&self, queued: QueuedJob) -> Result<(), QueuedJob> {
        self.sender.try_send(queued).map_err(TrySendError::into_inner)
    }

    #[inline]
    fn receive(&self, closed: &AtomicBool) -> Option<QueuedJob> {
        if closed.load(Ordering::SeqCst) {
            return self.receiver.try_recv().ok();
        }
        self.receiver.recv().ok()
    }
}

impl Executor for CrossbeamPool {
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

impl Drop for CrossbeamPool {
    fn drop(&mut self) {
        self.close(self.inner.shared.drop_deadline());
    }
}

impl fmt::Debug for CrossbeamPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrossbeamPool").field("config", &self.inner.shared.config).finish_non_exhaustive()
    }
}
