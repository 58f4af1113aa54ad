//! The parts of an executor that do not depend on its backend: the settings, the counts, the threads, and what happens to a
//! job before and after it is in a queue.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use polyserve_core::panics::drop_payload;
use polyserve_core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use polyserve_core::{Job, Rejected, RejectedReason};

use super::admission::Admission;
use super::pool_config::{OnFull, PoolConfig};
use super::space_waiters::SpaceWaiters;
use super::stats::{JobCounter, PoolStats, add_one_alone, add_one_shared};
use super::threads::ThreadRegistry;

/// The parts of an executor that do not depend on its backend.
pub struct PoolShared {
    /// The valid settings.
    pub config: PoolConfig,
    /// The threads.
    pub threads: Arc<ThreadRegistry>,
    admission: Admission,
    workers: Box<[CachePadded<JobCounter>]>,
    /// Jobs that submitters ran.
    callers: CachePadded<JobCounter>,
    discarded: AtomicU64,
    rejected: AtomicU64,
    space_waiters: SpaceWaiters,
    /// The deadline of a close has passed. From then on, jobs taken from the queue are dropped and not run.
    cut: AtomicBool,
    /// How long sampled jobs have waited.
    #[cfg(feature = "queue-waits")]
    pub(super) waits: super::sampled_waits::SampledWaits,
}

/// The counts of an executor's jobs at one moment. If they are unchanged later, no job was submitted, begun or ended in between.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JobCounts {
    /// The number of jobs that were admitted and have not begun.
    pub waiting: u64,
    /// The number of jobs that run.
    pub running: u64,
    /// The number of jobs that have ended.
    pub ended: u64,
}

impl PoolShared {
    /// The shared parts of an executor with this number of counters: see [`Backend::counters`](super::Backend::counters).
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration is not valid.
    pub fn new(config: PoolConfig, counters: usize) -> io::Result<Arc<Self>> {
        config.validate()?;
        Ok(Arc::new(Self {
            admission: Admission::new(config.queue.bound()),
            config,
            threads: ThreadRegistry::new(),
            workers: (0..counters).map(|_| CachePadded::new(JobCounter::new())).collect(),
            callers: CachePadded::new(JobCounter::new()),
            discarded: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            space_waiters: SpaceWaiters::default(),
            cut: AtomicBool::new(false),
            #[cfg(feature = "queue-waits")]
            waits: super::sampled_waits::SampledWaits::default(),
        }))
    }

    /// Admits one job to a queue that has no bound, no close and no count of its own. The job must then be queued. Returns the
    /// number of jobs that were admitted before.
    ///
    /// # Errors
    ///
    /// Returns [`RejectedReason::Closed`] after the close, and [`RejectedReason::Full`] at the bound.
    #[inline]
    pub fn admit(&self) -> Result<u64, RejectedReason> {
        self.admission.admit(|| self.taken())
    }

    /// Admits no more jobs.
    pub fn close_queue(&self) {
        self.admission.close();
    }

    /// Whether no more jobs are admitted.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.admission.is_closed()
    }

    /// The number of admitted jobs that have not begun, and that were not dropped.
    #[inline]
    pub fn waiting(&self) -> u64 {
        self.admission.waiting(|| self.taken())
    }

    /// Whether jobs are still admitted, and none waits.
    pub fn is_open_and_empty(&self) -> bool {
        self.admission.is_open_and_empty(|| self.taken())
    }

    /// Whether no more jobs are admitted, and none waits.
    pub fn is_closed_and_empty(&self) -> bool {
        self.admission.is_closed_and_empty(|| self.taken())
    }

    /// Returns the counts of the admitted jobs. Once no job waits in the closed queue, the number of running jobs is exact: it is
    /// read last.
    pub fn counts(&self) -> JobCounts {
        let waiting = self.waiting();
        JobCounts { waiting, running: self.running(), ended: self.ended() }
    }

    /// Offers `job` to the queue. If the queue is full, follows [`OnFull`].
    #[inline]
    pub(super) fn submit(
        self: &Arc<Self>,
        job: Job,
        offer: impl Fn(Job) -> Result<(), Rejected>,
    ) -> Result<(), Rejected> {
        #[cfg(feature = "queue-waits")]
        let job = super::sampled_waits::sampled(self, job);
        offer(job).or_else(|rejected| self.rejected(rejected, &offer))
    }

    #[cold]
    fn rejected(&self, rejected: Rejected, offer: &dyn Fn(Job) -> Result<(), Rejected>) -> Result<(), Rejected> {
        let Rejected { job, reason } = rejected;
        let rejected = match (reason, self.config.on_full) {
            (RejectedReason::Full, OnFull::CallerRuns) => {
                self.run_on_caller(job);
                return Ok(());
            }
            (RejectedReason::Full, OnFull::Wait(limit)) => {
                self.space_waiters.freed(); // the offer may have been admitted and withdrawn, and others found the queue full
                self.space_waiters.wait(limit, job, offer)
            }
            (reason, _) => Err(Rejected { job, reason }),
        };
        if rejected.is_err() {
            self.rejected.fetch_add(1, Ordering::Relaxed);
        }
        rejected
    }

    /// Runs a job that was taken from the queue, on the only thread that uses counter `worker`. Drops it if the deadline of
    /// a close has passed.
    #[inline]
    pub fn run(&self, worker: usize, job: Job) {
        if self.cut.load(Ordering::Relaxed) {
            return self.discard(job);
        }
        self.workers[worker].run(job, add_one_alone, || self.on_taken());
    }

    /// As [`run`](Self::run), on any thread.
    ///
    /// # Cost
    ///
    /// Two atomic exchanges on a cache line that all threads of the executor share.
    #[inline]
    pub fn run_shared(&self, job: Job) {
        if self.is_cut() {
            return self.discard(job);
        }
        self.workers[0].run(job, add_one_shared, || self.on_taken());
    }

    /// Wakes a submitter that waits for space, after a job has left the queue.
    #[inline]
    fn on_taken(&self) {
        if self.config.may_wait() {
            self.space_waiters.freed();
        }
    }

    /// Runs a job on a thread that is not one of the executor's, or is in another job.
    fn run_on_caller(&self, job: Job) {
        self.callers.run(job, add_one_shared, || {});
    }

    /// Handles a job that was submitted during the close and that no thread will take. Runs it on this thread, or drops it
    /// if the deadline has passed.
    pub fn run_after_close(&self, job: Job) {
        if self.is_cut() {
            self.discard(job);
        } else {
            self.run_on_caller(job);
        }
    }

    /// Drops a job that was taken from the queue, without running it.
    pub fn discard(&self, job: Job) {
        // A captured value may panic in its `drop`.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(job))).map_err(drop_payload);
        self.withdraw();
    }

    /// Counts a job that was taken from the queue and that does not run.
    pub fn withdraw(&self) {
        add_one_shared(&self.discarded);
    }

    /// Begins to drop jobs that are taken from the queue.
    pub(super) fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    /// Whether the deadline of a close has passed.
    pub fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    /// Wakes the submitters that wait for space, because the executor is closed.
    pub(super) fn end_waits(&self) {
        self.space_waiters.wake_all();
    }

    /// The number of jobs that have left the queue.
    fn taken(&self) -> u64 {
        self.sum(|counter| counter.taken.load(Ordering::SeqCst)) + self.discarded.load(Ordering::SeqCst)
    }

    /// The number of jobs that the threads of the executor have ended.
    fn ended(&self) -> u64 {
        self.sum(|counter| counter.ended.load(Ordering::SeqCst))
    }

    /// The number of jobs that run on the threads of the executor. It may count a job that has just ended, and misses none
    /// that began before the call.
    pub(super) fn running(&self) -> u64 {
        self.sum(|counter| {
            let ended = counter.ended.load(Ordering::SeqCst);
            counter.taken.load(Ordering::SeqCst) - ended
        })
    }

    pub(super) fn panicked(&self) -> u64 {
        self.sum(|counter| counter.panicked.load(Ordering::Acquire)) + self.callers.panicked.load(Ordering::Relaxed)
    }

    fn sum(&self, count: impl Fn(&JobCounter) -> u64) -> u64 {
        self.workers.iter().map(|counter| count(counter)).sum()
    }

    /// The counts of the executor. `queued` is the number of jobs that wait.
    pub(super) fn stats(&self, queued: u64) -> PoolStats {
        PoolStats {
            executed: self.ended() + self.callers.ended.load(Ordering::Relaxed),
            panicked: self.panicked(),
            rejected: self.rejected.load(Ordering::Relaxed),
            queued,
            #[cfg(feature = "queue-waits")]
            waits: self.waits.get(),
        }
    }
}
