//! What a pool counts, and how a job is run so that a panic is one of the counts.
//!
//! Invariant: a worker's counts are written by that worker alone, so that counting is a load and a store on a cache
//! line of its own; whoever asks adds them up. A sum is exact once the pool is closed, and may lag by the jobs that are
//! just ending before that.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crossbeam_utils::CachePadded;
pub use hdrhistogram::Histogram;
use polyserve_core::Job;
use polyserve_core::executor::{dispose, isolated};
use polyserve_core::sync::atomic::{AtomicU64, Ordering};
use polyserve_core::sync::{Mutex, lock, now, thread_local};

/// What a pool has done so far.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PoolStats {
    /// Jobs that have ended, by a panic too.
    pub executed: u64,
    /// Jobs that have panicked.
    pub panicked: u64,
    /// Jobs that were handed back, full or closed.
    pub rejected: u64,
    /// Jobs that wait for a worker now.
    pub queued: u64,
    /// How long jobs waited, from `execute` to their start, in nanoseconds with two significant digits.
    ///
    /// Each submitting thread has its first job stamped and from there every 61st, over all pools: a prime, so that no
    /// pattern of powers of two hides from it. A stamped job costs two readings of the clock and a lock that only
    /// [`stats`](crate::MpscPool::stats) contends for; the others cost a thread-local countdown.
    pub waits: Histogram<u64>,
}

/// A job in a queue. A stamp in place of an `Instant` keeps it at 32 bytes, and a job without one is no dearer.
pub(super) struct Queued {
    pub(super) job: Job,
    stamp: Option<NonZeroU64>,
}

/// The stamp of what is no job.
const WAKE_UP: NonZeroU64 = NonZeroU64::MAX;

impl Queued {
    /// What is sent to have a worker look around. It costs jobs no field of its own.
    pub(super) fn wake_up() -> Self {
        Self { job: Job::new(|| {}), stamp: Some(WAKE_UP) }
    }

    #[inline]
    pub(super) fn is_wake_up(&self) -> bool {
        self.stamp == Some(WAKE_UP)
    }
}

/// Of how many jobs a thread submits one is stamped.
const SAMPLE: u32 = 61;

fn is_sampled() -> bool {
    thread_local! {
        static LEFT: Cell<u32> = const { Cell::new(0) };
    }
    LEFT.with(|left| {
        let before = left.get();
        left.set(before.checked_sub(1).unwrap_or(SAMPLE - 1));
        before == 0
    })
}

/// All counts of a pool.
pub(super) struct Tallies {
    of_workers: Box<[CachePadded<Tally>]>,
    /// Jobs that submitters ran, and those of them that panicked.
    by_callers: AtomicU64,
    callers_panicked: AtomicU64,
    discarded: AtomicU64,
    rejected: AtomicU64,
    /// Where stamps count from.
    epoch: Instant,
}

struct Tally {
    /// Jobs begun, and jobs ended: they differ while a job runs.
    taken: AtomicU64,
    ended: AtomicU64,
    panicked: AtomicU64,
    waits: Mutex<Histogram<u64>>,
}

impl Tallies {
    pub(super) fn new(workers: usize) -> Self {
        let zero = || AtomicU64::new(0);
        let tally = || Tally { taken: zero(), ended: zero(), panicked: zero(), waits: Mutex::new(histogram()) };
        Self {
            of_workers: (0..workers).map(|_| CachePadded::new(tally())).collect(),
            by_callers: zero(),
            callers_panicked: zero(),
            discarded: zero(),
            rejected: zero(),
            epoch: now(),
        }
    }

    /// Makes `job` ready for a queue, with a stamp if it is its turn.
    #[inline]
    pub(super) fn queued(&self, job: Job) -> Queued {
        let stamp = if is_sampled() { NonZeroU64::new(self.now().clamp(1, WAKE_UP.get() - 1)) } else { None };
        Queued { job, stamp }
    }

    fn now(&self) -> u64 {
        u64::try_from(now().saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Runs a job on the thread of `worker`, and on no other. `taken` is called once the job counts as taken.
    #[inline]
    pub(super) fn run(&self, worker: usize, queued: Queued, taken: impl FnOnce()) {
        let tally = &self.of_workers[worker];
        let count = tally.taken.load(Ordering::Relaxed) + 1;
        // Release, and Acquire in `taken`: who counts the job as taken knows that it was submitted.
        tally.taken.store(count, Ordering::Release);
        taken();
        if let Some(stamp) = queued.stamp {
            let waited = self.now().saturating_sub(stamp.get());
            let _ = lock(&tally.waits).record(waited); // it grows, so that nothing is out of its range
        }
        if !isolated(|| queued.job.run()) {
            tally.panicked.store(tally.panicked.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
        tally.ended.store(count, Ordering::Release);
    }

    /// Runs a job on a thread that is no worker's.
    pub(super) fn run_on_caller(&self, job: Job) {
        if !isolated(|| job.run()) {
            self.callers_panicked.fetch_add(1, Ordering::Relaxed);
        }
        self.by_callers.fetch_add(1, Ordering::Relaxed);
    }

    /// Drops a job unrun.
    pub(super) fn discard(&self, queued: Queued) {
        // What it has captured may panic as it is dropped.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(queued))).map_err(dispose);
        self.discarded.fetch_add(1, Ordering::Release);
    }

    /// Counts a job that was handed back.
    pub(super) fn reject(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// How many jobs have left the queue.
    pub(super) fn taken(&self) -> u64 {
        let by_workers: u64 = self.of_workers.iter().map(|tally| tally.taken.load(Ordering::Acquire)).sum();
        by_workers + self.discarded.load(Ordering::Acquire)
    }

    /// Whether `worker` is in a job.
    pub(super) fn is_in_job(&self, worker: usize) -> bool {
        let tally = &self.of_workers[worker];
        tally.ended.load(Ordering::Acquire) != tally.taken.load(Ordering::Acquire)
    }

    pub(super) fn panicked(&self) -> u64 {
        let by_workers: u64 = self.of_workers.iter().map(|tally| tally.panicked.load(Ordering::Acquire)).sum();
        by_workers + self.callers_panicked.load(Ordering::Relaxed)
    }

    /// The counts, of a pool that has `queued` jobs waiting.
    pub(super) fn stats(&self, queued: u64) -> PoolStats {
        let by_workers: u64 = self.of_workers.iter().map(|tally| tally.ended.load(Ordering::Acquire)).sum();
        let mut waits = histogram();
        for tally in &self.of_workers {
            let _ = waits.add(&*lock(&tally.waits)); // it grows, too
        }
        PoolStats {
            executed: by_workers + self.by_callers.load(Ordering::Relaxed),
            panicked: self.panicked(),
            rejected: self.rejected.load(Ordering::Relaxed),
            queued,
            waits,
        }
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new(2).expect("two significant digits are allowed")
}
