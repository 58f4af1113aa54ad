//! The backend of every executor on a runtime: jobs wait in slots, and a task of the runtime runs the job of its slot.
//!
//! A closed executor is *drained* if no job waits and every running job is itself in a call of `close`. The runtime is
//! stopped by the first thread that finds the executor drained: a thread in `close`, or the thread of the last job. If a
//! deadline passes first, the runtime is stopped then.
//!
//! Invariant: the runtime is not stopped while a job waits that must run. The last job to end and a close both change a
//! count first and then read the counts of the other. So one of the two finds the executor drained.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use polyserve_core::{ConfigError, Job, Rejected, RejectedReason};
use polyserve_serving::executor::{Backend, PoolConfig, PoolInner, PoolShared};

use super::slots::Slots;

/// A runtime: it runs tasks on threads.
pub(super) trait Runtime: Send + Sync + Sized + 'static {
    /// The name of the executor's type.
    const NAME: &'static str;

    /// Creates the runtime of an executor.
    fn new(shared: &Arc<PoolShared>) -> io::Result<Self>;

    /// Runs `task` on one of the threads. Returns false if it cannot. A stopped runtime may drop the task.
    fn spawn(&self, task: Task<Self>) -> bool;

    /// The number of threads that the runtime does not start, and that [`work`](Self::work) for it.
    fn threads(_: &PoolConfig) -> usize {
        0
    }

    /// The main function of those threads.
    fn work(&self) {}

    /// Begins to end the threads. A thread that runs a job ends after the job. Called once, from any thread. Does not wait.
    ///
    /// `drained`: no job waits, and all running jobs are in a `close` of this executor.
    fn stop(&self, drained: bool);

    /// Joins the runtime's threads, which have all reported their end. Not called on one of them.
    fn join(&self, _deadline: Option<Instant>) {}
}

/// The slots in which jobs wait, and the runtime.
pub struct Tasks<R> {
    slots: Slots,
    pub(super) runtime: R,
    stopped: AtomicBool,
}

/// The task that a runtime runs for one job: the index of the job's slot.
pub(super) struct Task<R: Runtime> {
    pool: Arc<PoolInner<Tasks<R>>>,
    slot: usize,
}

impl<R: Runtime> Task<R> {
    /// Whether the current thread, which submits the task, belongs to the executor.
    #[cfg(feature = "tokio")]
    pub(super) fn is_submitted_by_own_thread(&self) -> bool {
        self.pool.shared.threads.is_own()
    }

    /// Runs the job. Does not panic.
    #[inline]
    pub(super) fn run(self) {
        let PoolInner { shared, backend } = &*self.pool;
        let Some(job) = backend.slots.take(self.slot) else { return };
        shared.run_shared(job);
        backend.settle(shared);
    }
}

#[allow(private_bounds)] // a runtime is no seam
impl<R: Runtime> Tasks<R> {
    /// Handles a change of the counts. If the executor is closed: stops the runtime if it is drained, and notifies each
    /// close.
    #[inline]
    fn settle(&self, shared: &PoolShared) {
        if shared.is_closed() {
            self.settle_closed(shared);
        }
    }

    #[cold]
    fn settle_closed(&self, shared: &PoolShared) {
        let closing = shared.threads.closing() as u64;
        let counts = shared.counts();
        if counts.waiting == 0 && counts.running <= closing {
            self.stop(true);
        }
        shared.threads.notify();
    }

    fn stop(&self, drained: bool) {
        if !self.stopped.swap(true, Ordering::SeqCst) {
            self.runtime.stop(drained);
        }
    }
}

impl<R: Runtime> Backend for Tasks<R> {
    const NAME: &'static str = R::NAME;

    /// CPU work does not wait. The runtimes have the same default.
    const WORKERS_PER_CORE: usize = 1;

    type Own = ();

    fn counters(_: &PoolConfig) -> usize {
        1
    }

    fn new(shared: &Arc<PoolShared>) -> io::Result<(Self, Vec<()>)> {
        let Some(capacity) = shared.config.queue.bound() else {
            return Err(ConfigError::new("queue", "Unbounded", "bounded on a runtime").into());
        };
        let (runtime, stopped) = (R::new(shared)?, AtomicBool::new(false));
        Ok((Self { slots: Slots::new(capacity), runtime, stopped }, vec![(); R::threads(&shared.config)]))
    }

    #[inline]
    fn offer(pool: &Arc<PoolInner<Self>>, job: Job) -> Result<(), Rejected> {
        let PoolInner { shared, backend: Self { slots, runtime, .. } } = &**pool;
        let admitted = match shared.admit() {
            Ok(admitted) => admitted,
            Err(reason) => return Err(Rejected { job, reason }),
        };
        let slot = slots.put(admitted, job);
        let reason = if shared.is_cut() {
            RejectedReason::Closed
        } else if runtime.spawn(Task { pool: Arc::clone(pool), slot }) {
            return Ok(());
        } else {
            RejectedReason::Full
        };
        // The job is handed back, unless another thread has taken it meanwhile.
        let Some(job) = slots.take(slot) else { return Ok(()) };
        shared.withdraw();
        pool.backend.settle(shared);
        Err(Rejected { job, reason })
    }

    fn work(&self, _: &PoolShared, _: usize, (): ()) {
        self.runtime.work();
    }

    fn close(&self, shared: &PoolShared) {
        self.settle(shared);
    }

    fn discard(&self, shared: &PoolShared) {
        self.slots.take_all().for_each(|job| shared.discard(job));
        self.stop(false);
        shared.threads.notify();
    }

    fn has_started_all(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    fn join(&self, deadline: Option<Instant>) {
        self.runtime.join(deadline);
    }
}
