//! [`TokioTasks`]: a job is a task that does not yield, on a tokio runtime with as many threads as there are workers.
//!
//! What an async server does that computes in its handlers. A job from outside goes to the runtime's one inject queue,
//! a job's own job to its thread's queue, from where idle threads steal. Time and I/O drivers are off: idle threads are
//! parked.
//!
//! Invariant: a job does not wait for another to end while a thread is idle. tokio, whose tasks are to yield soon, does
//! not promise as much, and there are two places where a job would wait:
//!
//! * The slot for the task that is to run next on the same thread, which nobody steals from. A job's own job goes there;
//!   a second, empty task pushes it out.
//! * The queue of a thread that has taken several tasks out of the inject queue at once. It wakes nobody for them unless
//!   it was searching, and who looks for work between its two steps, out of the one queue and into the other, finds
//!   both empty and parks. So who begins a job while others wait and fewer run than there are threads has a thread
//!   woken: two empty tasks, the second of which pushes the first out of that slot, which wakes one.
//!
//! Cost of a job beside the queue's (`queue`): a task, which is an allocation and an entry in the runtime's list of all
//! tasks; two where a job submits it; two more where jobs wait although not all threads are busy.
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

impl Spawning {
    fn spawn_empty(&self) {
        drop(self.0.handle.spawn(async {}));
    }
}

impl Runtime for Spawning {
    #[inline]
    fn spawn(&self, task: Task<Self>) -> bool {
        let is_jobs_own = task.is_jobs_own();
        drop(self.0.handle.spawn(async move { task.run() }));
        if is_jobs_own {
            self.spawn_empty();
        }
        true
    }

    #[inline]
    fn others_wait(&self) {
        self.spawn_empty();
        self.spawn_empty();
    }

    fn stop(&self, drained: bool) {
        self.0.stop(drained);
    }

    fn join(&self) {
        self.0.join();
    }
}

executor!(TokioTasks);
