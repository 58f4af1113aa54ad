//! The counts of an executor, and running a job so that a panic is counted.
//!
//! Invariant: the counter of a worker is written by that worker alone. So counting is a load and a store on a cache line of
//! its own, and a reader adds up all workers. The threads of a runtime have no numbers. They share one counter, and
//! exchange its values. A sum is exact once the executor is closed. Before that it may miss jobs that are just ending.

use polyserve_core::sync::atomic::{AtomicU64, Ordering};
use polyserve_core::{Job, isolated};

/// The counts of an executor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolStats {
    /// The number of jobs that have ended, including those that panicked.
    pub executed: u64,
    /// The number of jobs that have panicked.
    pub panicked: u64,
    /// The number of jobs that were handed back, because the queue was full or closed.
    pub rejected: u64,
    /// The number of jobs that wait for a worker now.
    pub queued: u64,
    /// The time from `execute` to the start of a job on a worker, in nanoseconds with two significant digits. It is sampled.
    /// Only with the feature `queue-waits`.
    ///
    /// Of each submitting thread's jobs the first is sampled, and every 61st after it, over all executors. 61 is a prime,
    /// so no pattern of powers of two is missed. A sampled job costs two clock reads, an allocation and a lock, which sampled
    /// jobs of the same executor share. Other jobs cost a thread-local countdown.
    #[cfg(feature = "queue-waits")]
    pub waits: super::Histogram<u64>,
}

/// The jobs that one worker, or several threads, have run.
pub(super) struct JobCounter {
    /// Jobs begun and jobs ended. They differ while a job runs.
    pub(super) taken: AtomicU64,
    pub(super) ended: AtomicU64,
    pub(super) panicked: AtomicU64,
}

impl JobCounter {
    pub(super) fn new() -> Self {
        let [taken, ended, panicked] = [0; 3].map(AtomicU64::new);
        Self { taken, ended, panicked }
    }

    /// Runs a job, and counts it with `add_one`. Calls `on_taken` once the job counts as taken.
    #[inline]
    pub(super) fn run(&self, job: Job, add_one: impl Fn(&AtomicU64), on_taken: impl FnOnce()) {
        add_one(&self.taken);
        on_taken();
        if !isolated(|| job.run()) {
            add_one(&self.panicked);
        }
        add_one(&self.ended);
    }
}

/// Adds one to a counter that only this thread writes. A thread that reads the new value also sees what came before it.
#[inline]
pub(super) fn add_one_alone(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Release);
}

/// Adds one to a counter that other threads write too. Sequentially consistent: the drain of a runtime needs it.
#[inline]
pub(super) fn add_one_shared(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::SeqCst);
}
