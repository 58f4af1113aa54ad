//! [`TokioBlocking`]: a job is a closure on tokio's blocking pool, as tokio's manual has CPU work done.
//!
//! One queue and one lock for all threads, which are started as jobs come and end after 10 s without one; at most as
//! many as there are workers. The runtime around the pool runs no task.
//!
//! Cost of a job beside the queue's (`queue`): an allocation, the pool's lock twice, and a wake-up or a thread's start.
//!
//! *Wins when* jobs come in bursts: threads that are not needed end. *Loses when* jobs are short: in the bench
//! `executors`, on one core, a job of one word takes four to six times what it takes rayon. tokio's `spawn_blocking`
//! alone, without a bound, takes more.
//!
//! Source: tokio's `spawn_blocking`.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::runtime::Builder;

use super::base::{Runtime, Task, Tasks, executor};
use super::tasks_config::TasksConfig;
use super::tokio_runtime::TokioRuntime;

/// Jobs on tokio's blocking pool. See [`executors`](crate::executors) for what it promises.
#[derive(Debug)]
pub struct TokioBlocking(pub(super) Tasks<Blocking>);

pub(super) struct Blocking(TokioRuntime);

impl TokioBlocking {
    /// Makes the runtime; threads are started as jobs come.
    ///
    /// # Errors
    ///
    /// Where the configuration is not valid, or the runtime cannot be made.
    pub fn new(config: TasksConfig) -> io::Result<Self> {
        let tasks = Tasks::new(config, |config, threads, _| {
            let mut builder = Builder::new_current_thread();
            builder.max_blocking_threads(config.workers);
            TokioRuntime::start(builder, config, threads).map(Blocking)
        })?;
        Ok(Self(tasks))
    }
}

impl Runtime for Blocking {
    #[inline]
    fn spawn(&self, task: Task<Self>) -> bool {
        // tokio panics where there is no thread and the system has none: to a submitter that is a want of room.
        catch_unwind(AssertUnwindSafe(|| drop(self.0.handle.spawn_blocking(move || task.run())))).is_ok()
    }

    fn stop(&self, drained: bool) {
        self.0.stop(drained);
    }

    fn join(&self) {
        self.0.join();
    }
}

executor!(TokioBlocking);
