//! The parts of an executor that do not depend on its runtime: running a job, and closing.
//!
//! A closed executor is *drained* if no job waits and every running job is itself in a call of `close`. The backend is
//! stopped by the first thread that finds the executor drained: a thread in `close`, or the thread of the last job. If a
//! deadline passes first, the backend is stopped then. Each close waits until the threads have reported their end.
//!
//! Invariant: the backend is not stopped while a job waits that must run.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use polyserve_core::sync::lock;
use polyserve_core::{Job, Rejected, RejectedReason, isolated};

use super::queue::{JobQueue, Snapshot};
use super::tasks_config::TasksConfig;
use super::threads::Threads;

/// A runtime: it runs tasks on threads.
pub(super) trait Backend: Send + Sync + Sized + 'static {
    /// Runs `task` on one of the threads. Returns false if it cannot. A stopped backend may drop the task.
    fn spawn(&self, task: Task<Self>) -> bool;

    /// Begins to end the threads. A thread that runs a job ends after the job. Called once, from any thread. Does not wait.
    ///
    /// `drained`: no job waits, and all running jobs are in a `close` of this executor.
    fn stop(&self, drained: bool);

    /// Joins the threads, which have all reported their end. Not called on a thread of the backend.
    fn join(&self);
}

/// An executor on a runtime.
pub(super) struct Tasks<R: Backend> {
    shared: Arc<TasksShared<R>>,
}

struct TasksShared<R> {
    config: TasksConfig,
    queue: Arc<JobQueue>,
    threads: Arc<Threads>,
    panicked: AtomicU64,
    backend: R,
}

/// The task that a backend runs for one job: the index of the job's slot.
pub(super) struct Task<R: Backend> {
    shared: Arc<TasksShared<R>>,
    slot: usize,
}

impl<R: Backend> Task<R> {
    /// Whether the current thread, which submits the task, belongs to the executor.
    #[cfg(feature = "tokio")]
    pub(super) fn is_submitted_by_own_thread(&self) -> bool {
        self.shared.threads.is_own()
    }

    /// Runs the job. Does not panic.
    #[inline]
    pub(super) fn run(self) {
        let Self { shared, slot } = self;
        let queue = &shared.queue;
        let Some(job) = queue.take(slot) else { return };
        if queue.is_cut() {
            return shared.discard(job);
        }
        queue.begin();
        if !isolated(|| job.run()) {
            shared.panicked.fetch_add(1, Ordering::SeqCst);
        }
        let snapshot = queue.end();
        if snapshot.is_closed() {
            shared.settle(snapshot);
        }
    }
}

impl<R: Backend> Tasks<R> {
    /// An executor on the backend that `start` makes.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration is not valid, or the error of `start`.
    pub(super) fn new(
        config: TasksConfig,
        start: impl FnOnce(&TasksConfig, &Arc<Threads>, &Arc<JobQueue>) -> io::Result<R>,
    ) -> io::Result<Self> {
        config.validate()?;
        let threads = Threads::new();
        let (queue, panicked) = (Arc::new(JobQueue::new(config.queue)), AtomicU64::new(0));
        let backend = start(&config, &threads, &queue)?;
        Ok(Self { shared: Arc::new(TasksShared { config, queue, threads, panicked, backend }) })
    }

    #[inline]
    pub(super) fn execute(&self, job: Job) -> Result<(), Rejected> {
        let shared = &self.shared;
        if let Err(reason) = shared.queue.enter() {
            return Err(Rejected { job, reason });
        }
        let slot = shared.queue.put(job);
        if shared.queue.is_cut() {
            return shared.take_back(slot, RejectedReason::Closed);
        }
        if !shared.backend.spawn(Task { shared: Arc::clone(shared), slot }) {
            return shared.take_back(slot, RejectedReason::Full);
        }
        Ok(())
    }

    /// The number of other references to the shared part: tasks, and threads in a task.
    #[cfg(all(test, feature = "tokio", feature = "smol", feature = "futures"))]
    pub(super) fn other_handles(&self) -> usize {
        Arc::strong_count(&self.shared) - 1
    }

    #[cfg(all(test, feature = "tokio", feature = "smol", feature = "futures"))]
    pub(super) fn backend(&self) -> &R {
        &self.shared.backend
    }

    pub(super) fn workers(&self) -> usize {
        self.shared.config.workers
    }

    pub(super) fn panicked(&self) -> u64 {
        self.shared.panicked.load(Ordering::SeqCst)
    }

    pub(super) fn close(&self, deadline: Option<Instant>) -> usize {
        let shared = &self.shared;
        shared.queue.close();
        let closing = shared.threads.closing();
        shared.settle(shared.queue.snapshot());
        let mut state = lock(&shared.threads.state);
        let mut late = false;
        loop {
            let is_over = match (late, closing.is_own) {
                _ if closing.is_own && state.alive <= state.closing => true,
                (true, _) => state.alive <= shared.queue.snapshot().running(),
                (false, false) => state.stopped && state.alive == 0,
                (false, true) => false,
            };
            if is_over {
                break;
            }
            if !late && deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                late = true;
                drop(state);
                shared.cut();
                state = lock(&shared.threads.state);
                continue;
            }
            state = shared.threads.wait(state, deadline.filter(|_| !late));
        }
        // A thread that has reported its end may call this from the destructor of a thread-local.
        let left = state.alive.max(usize::from(closing.is_own));
        state.left_behind |= late && left > 0;
        drop(state);
        if left == 0 {
            shared.backend.join();
        }
        left
    }
}

impl<R: Backend> TasksShared<R> {
    /// Hands back a job that was not spawned, unless another thread has taken it meanwhile.
    #[cold]
    fn take_back(&self, slot: usize, reason: RejectedReason) -> Result<(), Rejected> {
        let Some(job) = self.queue.take(slot) else { return Ok(()) };
        self.settle(self.queue.discard_one());
        Err(Rejected { job, reason })
    }

    /// Drops a job without running it.
    #[cold]
    fn discard(&self, job: Job) {
        isolated(|| drop(job));
        self.settle(self.queue.discard_one());
    }

    /// Handles a change of the queue. If the executor is closed: stops the backend if it is drained, and notifies each close.
    #[cold]
    fn settle(&self, snapshot: Snapshot) {
        if !snapshot.is_closed() {
            return;
        }
        let closing = lock(&self.threads.state).closing;
        if snapshot.waiting() == 0 && snapshot.running() <= closing {
            self.stop(true);
        }
        self.threads.notify();
    }

    /// Drops the queued jobs and stops the backend, because the deadline of a close has passed.
    fn cut(&self) {
        self.queue.cut(|job| self.discard(job));
        self.stop(false);
        self.threads.notify();
    }

    fn stop(&self, drained: bool) {
        let mut state = lock(&self.threads.state);
        if !std::mem::replace(&mut state.stopped, true) {
            drop(state);
            self.backend.stop(drained);
        }
    }
}

impl<R: Backend> Drop for Tasks<R> {
    fn drop(&mut self) {
        // A drop does not wait again for threads that a close left behind.
        let left_behind = lock(&self.shared.threads.state).left_behind;
        self.close(left_behind.then(Instant::now));
    }
}

impl<R: Backend> fmt::Debug for Tasks<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.config.fmt(f)
    }
}

/// Implements `Executor` for a tuple struct around [`Tasks`].
macro_rules! executor {
    ($name:ident) => {
        impl polyserve_core::Executor for $name {
            fn execute(&self, job: polyserve_core::Job) -> Result<(), polyserve_core::Rejected> {
                self.0.execute(job)
            }

            fn workers(&self) -> Option<usize> {
                Some(self.0.workers())
            }

            fn close(&self, deadline: Option<std::time::Instant>) -> usize {
                self.0.close(deadline)
            }

            fn panicked(&self) -> u64 {
                self.0.panicked()
            }
        }
    };
}
pub(super) use executor;
