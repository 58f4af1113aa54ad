//! The counters of a pool, and running a job so that a panic is counted.
//!
//! Invariant: a worker's counters are written by that worker alone. So counting is a load and a store on a cache line of
//! its own, and a reader adds up all workers. A sum is exact once the pool is closed. Before that it may miss jobs that
//! are just ending.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crossbeam_utils::CachePadded;
#[cfg(feature = "queue-waits")]
pub use hdrhistogram::Histogram;
use polyserve_core::panics::drop_payload;
use polyserve_core::sync::atomic::{AtomicU64, Ordering};
use polyserve_core::sync::now;
#[cfg(feature = "queue-waits")]
use polyserve_core::sync::{Mutex, lock};
use polyserve_core::{Job, isolated};

use super::queued_job::QueuedJob;

/// The counts of a pool.
///
/// ```
/// use polyserve_threadpool::{MpscPool, PoolConfig, PoolStats};
/// let pool = MpscPool::new(PoolConfig::new(1).name("worker"))?;
/// let stats: PoolStats = pool.stats();
/// assert_eq!((stats.executed, stats.panicked, stats.rejected), (0, 0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    /// The time from `execute` to the start of a job, in nanoseconds with two significant digits. It is sampled.
    /// Only with the feature `queue-waits`.
    ///
    /// Of each submitting thread's jobs the first is stamped, and every 61st after it, over all pools. 61 is a prime, so
    /// no pattern of powers of two is missed. A stamped job costs two clock reads and a lock that only
    /// the `stats` of a pool contends for. Other jobs cost a thread-local countdown.
    #[cfg(feature = "queue-waits")]
    pub waits: Histogram<u64>,
}

/// All counters of a pool.
pub(super) struct PoolCounters {
    workers: Box<[CachePadded<WorkerCounters>]>,
    /// Jobs that submitters ran, and how many of those panicked.
    run_by_callers: AtomicU64,
    panicked_on_callers: AtomicU64,
    discarded: AtomicU64,
    rejected: AtomicU64,
    /// The time at which stamps are zero.
    epoch: Instant,
}

struct WorkerCounters {
    /// Jobs begun and jobs ended. They differ while a job runs.
    taken: AtomicU64,
    ended: AtomicU64,
    panicked: AtomicU64,
    #[cfg(feature = "queue-waits")]
    waits: Mutex<Histogram<u64>>,
}

impl PoolCounters {
    pub(super) fn new(workers: usize) -> Self {
        let zero = || AtomicU64::new(0);
        let counters = || WorkerCounters {
            taken: zero(),
            ended: zero(),
            panicked: zero(),
            #[cfg(feature = "queue-waits")]
            waits: Mutex::new(histogram()),
        };
        Self {
            workers: (0..workers).map(|_| CachePadded::new(counters())).collect(),
            run_by_callers: zero(),
            panicked_on_callers: zero(),
            discarded: zero(),
            rejected: zero(),
            epoch: now(),
        }
    }

    /// Prepares `job` for a queue, with a stamp if it is sampled.
    #[inline]
    pub(super) fn queued(&self, job: Job) -> QueuedJob {
        QueuedJob::new(job, || self.now())
    }

    fn now(&self) -> u64 {
        u64::try_from(now().saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Runs a job. Must be called on the thread of `worker`. Calls `on_taken` once the job counts as taken.
    #[inline]
    pub(super) fn run(&self, worker: usize, queued: QueuedJob, on_taken: impl FnOnce()) {
        let counters = &self.workers[worker];
        let count = counters.taken.load(Ordering::Relaxed) + 1;
        // Release here, Acquire in `taken`: a thread that counts the job as taken also sees that it was submitted.
        counters.taken.store(count, Ordering::Release);
        on_taken();
        #[cfg(feature = "queue-waits")]
        if let Some(stamp) = queued.stamp {
            let waited = self.now().saturating_sub(stamp.get());
            let _ = lock(&counters.waits).record(waited); // it resizes, so no value is out of range
        }
        if !isolated(|| queued.job.run()) {
            counters.panicked.store(counters.panicked.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
        counters.ended.store(count, Ordering::Release);
    }

    /// Runs a job on a thread that is not a worker.
    pub(super) fn run_on_caller(&self, job: Job) {
        if !isolated(|| job.run()) {
            self.panicked_on_callers.fetch_add(1, Ordering::Relaxed);
        }
        self.run_by_callers.fetch_add(1, Ordering::Relaxed);
    }

    /// Drops a job without running it.
    pub(super) fn discard(&self, queued: QueuedJob) {
        // A captured value may panic in its `drop`.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(queued))).map_err(drop_payload);
        self.discarded.fetch_add(1, Ordering::Release);
    }

    /// Counts a job that was handed back.
    pub(super) fn reject(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of jobs that have left the queue.
    pub(super) fn taken(&self) -> u64 {
        let by_workers: u64 = self.workers.iter().map(|counters| counters.taken.load(Ordering::Acquire)).sum();
        by_workers + self.discarded.load(Ordering::Acquire)
    }

    /// Whether `worker` runs a job.
    pub(super) fn is_in_job(&self, worker: usize) -> bool {
        let counters = &self.workers[worker];
        counters.ended.load(Ordering::Acquire) != counters.taken.load(Ordering::Acquire)
    }

    pub(super) fn panicked(&self) -> u64 {
        let by_workers: u64 = self.workers.iter().map(|counters| counters.panicked.load(Ordering::Acquire)).sum();
        by_workers + self.panicked_on_callers.load(Ordering::Relaxed)
    }

    /// The counts of a pool in which `queued` jobs wait.
    pub(super) fn stats(&self, queued: u64) -> PoolStats {
        let by_workers: u64 = self.workers.iter().map(|counters| counters.ended.load(Ordering::Acquire)).sum();
        #[cfg(feature = "queue-waits")]
        let mut waits = histogram();
        #[cfg(feature = "queue-waits")]
        for counters in &self.workers {
            let _ = waits.add(&*lock(&counters.waits)); // it resizes too
        }
        PoolStats {
            executed: by_workers + self.run_by_callers.load(Ordering::Relaxed),
            panicked: self.panicked(),
            rejected: self.rejected.load(Ordering::Relaxed),
            queued,
            #[cfg(feature = "queue-waits")]
            waits,
        }
    }
}

#[cfg(feature = "queue-waits")]
fn histogram() -> Histogram<u64> {
    Histogram::new(2).expect("two significant digits are allowed")
}
