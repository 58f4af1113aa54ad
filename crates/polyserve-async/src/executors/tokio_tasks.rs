//! [`TokioTasks`]: a job is a task that does not yield, on a tokio runtime with as many threads as there are workers.
//!
//! What an async server does that computes in its handlers. A job from outside goes to the runtime's one inject queue,
//! a job's own job to its thread's queue, from where idle threads steal. Time and I/O drivers are off: idle threads are
//! parked.
//!
//! Invariant: a job is never only in the slot for the task that is to run next on the same thread, which tokio lets
//! nobody steal from: it would wait for as long as its submitter runs, with other threads idle. A second, empty task
//! pushes it out.
//!
//! Cost of a job beside the queue's (`queue`): a task, which is an allocation and an entry in the runtime's list of all
//! tasks; two where a job submits it.
//!
//! *Wins when* jobs are large beside their dispatch, and are to share threads with what else runs on tokio. *Loses when*
//! jobs are short: in the bench `executors`, on one core, a job of one word takes four to six times what it takes rayon,
//! as it does with tokio's `spawn` alone.
//!
//! Source: tokio's multi-thread scheduler; "Making the Tokio scheduler 10x faster", 2019.

use std::io;

use tokio::runtime::Builder;

use super::base::{Runtime, Task, Tasks, executor};
use super::tasks_config::TasksConfig;
use super::tokio_runtime::TokioRuntime;

/// Jobs as tasks of a tokio runtime. See [`executors`](crate::executors) for what it promises.
#[derive(Debug)]
pub struct TokioTasks(pub(super) Tasks<Spawning>);

pub(super) struct Spawning(TokioRuntime);

impl TokioTasks {
    /// Starts the runtime.
    ///
    /// # Errors
    ///
    /// Where the configuration is not valid, or the runtime cannot be made.
    ///
    /// # Panics
    ///
    /// Where the system has no thread left for a worker: tokio panics, and waits for those that it has started.
    pub fn new(config: TasksConfig) -> io::Result<Self> {
        let tasks = Tasks::new(config, |config, threads| {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(config.workers);
            TokioRuntime::start(builder, config, threads).map(Spawning)
        })?;
        Ok(Self(tasks))
    }
}

impl Runtime for Spawning {
    #[inline]
    fn spawn(&self, task: Task<Self>) -> bool {
        let is_jobs_own = task.is_jobs_own();
        drop(self.0.handle.spawn(async move { task.run() }));
        if is_jobs_own {
            drop(self.0.handle.spawn(async {}));
        }
        true
    }

    fn stop(&self, drained: bool) {
        self.0.stop(drained);
    }

    fn join(&self) {
        self.0.join();
    }
}

executor!(TokioTasks);
