//! All of an executor but its runtime: what becomes of a job, and how the executor is closed.
//!
//! A closed executor is *drained* when nothing waits, and nothing runs but jobs that close it. Who finds it so first,
//! a closing or the job that ended last, has the runtime end its threads; a deadline does so before. Closings wait for
//! the threads' ends, which they are told of.
//!
//! Invariant: the runtime is not told to end its threads while a job waits that is to run.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use polyserve_core::executor::isolated;
use polyserve_core::sync::lock;
use polyserve_core::{Job, Rejected, RejectedReason};

use super::queue::{Look, Queue};
use super::tasks_config::TasksConfig;
use super::threads::Threads;

/// What runs tasks on threads.
pub(super) trait Runtime: Send + Sync + Sized + 'static {
    /// Has one of the threads run `task` some time. False where it could not take it; once it was stopped it may drop
    /// it.
    fn spawn(&self, task: Task<Self>) -> bool;

    /// Begins to end the threads, those in a job once that has ended; called once, from any thread, and does not wait.
    /// `drained`: no task waits that has something to run, and none runs but such as call this or wait for it.
    fn stop(&self, drained: bool);

    /// Waits for the last steps of the threads, which have all said that they end, and of what else it started. No thread
    /// of the runtime's calls it.
    fn join(&self);
}

/// An executor on a runtime.
pub(super) struct Tasks<R: Runtime> {
    shared: Arc<Shared<R>>,
}

struct Shared<R> {
    config: TasksConfig,
    queue: Arc<Queue>,
    threads: Arc<Threads>,
    panicked: AtomicU64,
    runtime: R,
}

/// What a runtime runs in a job's place: it knows where the job waits.
pub(super) struct Task<R: Runtime> {
    shared: Arc<Shared<R>>,
    place: usize,
}

impl<R: Runtime> Task<R> {
    /// Whether this thread, which submits it, is one of the executor's own.
    #[cfg(feature = "tokio")]
    pub(super) fn is_jobs_own(&self) -> bool {
        self.shared.threads.is_own()
    }

    /// Runs the job. Does not panic.
    #[inline]
    pub(super) fn run(self) {
        let Self { shared, place } = self;
        let queue = &shared.queue;
        let Some(job) = queue.take(place) else { return };
        if queue.is_cut() {
            return shared.discard(job);
        }
        queue.begin();
        if !isolated(|| job.run()) {
            shared.panicked.fetch_add(1, Ordering::SeqCst);
        }
        let look = queue.end();
        if look.is_closed() {
            shared.settle(look);
        }
    }
}

impl<R: Runtime> Tasks<R> {
    /// Starts the runtime that `start` makes.
    ///
    /// # Errors
    ///
    /// Where the configuration is not valid, or as `start` says.
    pub(super) fn new(
        config: TasksConfig,
        start: impl FnOnce(&TasksConfig, &Arc<Threads>, &Arc<Queue>) -> io::Result<R>,
    ) -> io::Result<Self> {
        config.validate()?;
        let threads = Threads::new();
        let (queue, panicked) = (Arc::new(Queue::new(config.queue)), AtomicU64::new(0));
        let runtime = start(&config, &threads, &queue)?;
        Ok(Self { shared: Arc::new(Shared { config, queue, threads, panicked, runtime }) })
    }

    #[inline]
    pub(super) fn execute(&self, job: Job) -> Result<(), Rejected> {
        let shared = &self.shared;
        if let Err(reason) = shared.queue.enter() {
            return Err(Rejected { job, reason });
        }
        let place = shared.queue.put(job);
        if shared.queue.is_cut() {
            return shared.take_back(place, RejectedReason::Closed);
        }
        if !shared.runtime.spawn(Task { shared: Arc::clone(shared), place }) {
            return shared.take_back(place, RejectedReason::Full);
        }
        Ok(())
    }

    /// How many tasks, and threads in one, keep it alive beside this handle.
    #[cfg(all(test, feature = "tokio", feature = "smol", feature = "futures"))]
    pub(super) fn other_handles(&self) -> usize {
        Arc::strong_count(&self.shared) - 1
    }

    #[cfg(all(test, feature = "tokio", feature = "smol", feature = "futures"))]
    pub(super) fn runtime(&self) -> &R {
        &self.shared.runtime
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
        shared.settle(shared.queue.look());
        let mut state = lock(&shared.threads.state);
        let mut late = false;
        loop {
            let is_over = match (late, closing.is_own) {
                _ if closing.is_own && state.alive <= state.closing => true,
                (true, _) => state.alive <= shared.queue.look().running(),
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
        // A thread that is past its last job is still here where it calls this.
        let left = state.alive.max(usize::from(closing.is_own));
        state.left_behind |= late && left > 0;
        drop(state);
        if left == 0 {
            shared.runtime.join();
        }
        left
    }
}

impl<R: Runtime> Shared<R> {
    /// Hands back a job that the runtime is not to have, if nobody has taken it meanwhile.
    #[cold]
    fn take_back(&self, place: usize, reason: RejectedReason) -> Result<(), Rejected> {
        let Some(job) = self.queue.take(place) else { return Ok(()) };
        self.settle(self.queue.leave());
        Err(Rejected { job, reason })
    }

    /// Drops a job unrun.
    #[cold]
    fn discard(&self, job: Job) {
        isolated(|| drop(job));
        self.settle(self.queue.leave());
    }

    /// Sees to a change of the queue's word: the last of a closed executor's jobs may have ended.
    #[cold]
    fn settle(&self, look: Look) {
        if !look.is_closed() {
            return;
        }
        let closing = lock(&self.threads.state).closing;
        if look.waiting() == 0 && look.running() <= closing {
            self.stop(true);
        }
        self.threads.notify();
    }

    /// A closing's deadline has passed.
    fn cut(&self) {
        self.queue.cut(|job| self.discard(job));
        self.stop(false);
        self.threads.notify();
    }

    fn stop(&self, drained: bool) {
        let mut state = lock(&self.threads.state);
        if !std::mem::replace(&mut state.stopped, true) {
            drop(state);
            self.runtime.stop(drained);
        }
    }
}

impl<R: Runtime> Drop for Tasks<R> {
    fn drop(&mut self) {
        // Threads that were left behind are not waited for.
        let left_behind = lock(&self.shared.threads.state).left_behind;
        self.close(left_behind.then(Instant::now));
    }
}

impl<R: Runtime> fmt::Debug for Tasks<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.config.fmt(f)
    }
}

/// Makes a tuple struct around [`Tasks`] an executor.
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
