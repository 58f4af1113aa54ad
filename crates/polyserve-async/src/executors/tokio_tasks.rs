//! [`TokioTasks`]: a job is a task that does not yield, on a tokio runtime with as many threads as there are workers.
//!
//! What an async server does that computes in its handlers. A job from outside goes to the runtime's one inject queue,
//! a job's own job to its thread's queue, from where idle threads steal. Time and I/O drivers are off: idle threads are
//! parked.
//!
//! Invariant: a job does not wait for another to end while a thread is idle, or not for longer than [`Watch`] takes to
//! look. tokio, whose tasks are to yield soon, does not promise as much. There are three places where a job would wait:
//!
//! * The slot for the task that is to run next on the same thread, which nobody steals from. A job's own job goes there;
//!   a second, empty task pushes it out.
//! * The queue of a thread that has taken several tasks out of the inject queue at once. It wakes nobody for them unless
//!   it was searching, and who looks for work between its two steps, out of the one queue and into the other, finds
//!   both empty and parks.
//! * The inject queue: a thread that may not search, since half of them do, parks without a last look, and it still
//!   counted as awake when the task came.
//!
//! In the last two an empty task from outside wakes a thread, which finds the job too.
//!
//! Cost of a job beside the queue's (`queue`) and the watch's (`watch`): a task, which is an allocation and an entry in
//! the runtime's list of all tasks; two where a job submits it.
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
use super::watch::Watch;

/// Jobs as tasks of a tokio runtime. See [`executors`](crate::executors) for what it promises.
#[derive(Debug)]
pub struct TokioTasks(pub(super) Tasks<Spawning>);

pub(super) struct Spawning {
    runtime: TokioRuntime,
    /// None where there is one worker.
    pub(super) watch: Option<Watch>,
}

impl TokioTasks {
    /// Starts the runtime, and a thread that mostly sleeps (`watch`) where there is more than one worker.
    ///
    /// # Errors
    ///
    /// Where the configuration is not valid, or the runtime or that thread cannot be made.
    ///
    /// # Panics
    ///
    /// Where the system has no thread left for a worker: tokio panics, and waits for those that it has started.
    pub fn new(config: TasksConfig) -> io::Result<Self> {
        let tasks = Tasks::new(config, |config, threads, queue| {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(config.workers);
            let runtime = TokioRuntime::start(builder, config, threads)?;
            let handle = runtime.handle.clone();
            let wake = move || drop(handle.spawn(async {}));
            let watch = (config.workers > 1).then(|| Watch::start(queue, config.workers, wake)).transpose();
            match watch {
                Ok(watch) => Ok(Spawning { runtime, watch }),
                Err(error) => {
                    runtime.stop(false);
                    Err(error)
                }
            }
        })?;
        Ok(Self(tasks))
    }
}

impl Runtime for Spawning {
    #[inline]
    fn spawn(&self, task: Task<Self>) -> bool {
        let is_jobs_own = task.is_jobs_own();
        drop(self.runtime.handle.spawn(async move { task.run() }));
        if is_jobs_own {
            drop(self.runtime.handle.spawn(async {}));
        }
        if let Some(watch) = &self.watch {
            watch.submitted();
        }
        true
    }

    fn stop(&self, drained: bool) {
        if let Some(watch) = &self.watch {
            watch.end();
        }
        self.runtime.stop(drained);
    }

    fn join(&self) {
        if let Some(watch) = &self.watch {
            watch.join();
        }
        self.runtime.join();
    }
}

executor!(TokioTasks);
