//! [`FuturesTasks`]: a job is a task that does not yield, on the thread pool of the futures crate.
//!
//! That pool is std's channel with its receiving end behind a lock: the classic once more, with a task in place of a
//! closure.
//!
//! Its threads end when the last handle of the pool is dropped, of which every task has two: one job that is stuck
//! would keep all of them. So each is ended by a task that unwinds it. These tasks are the last in the channel; each
//! thread takes one. The pool offers no way to join: `close` returns when the threads have said that they end, some
//! steps before they have.
//!
//! Invariant: nothing is sent after those tasks, for the handle is gone with them: what is in a channel that nobody
//! receives from would keep the pool for ever.
//!
//! Cost of a job beside the queue's (`queue`): three allocations (the future, its waker, the channel's block for some),
//! a lock to send and one to receive.
//!
//! *Wins when* the order of jobs is to be kept with a runtime's tasks. *Loses when* jobs are short: in the bench
//! `executors`, on one core, a job of one word takes three to four times what it takes rayon, and four to five times what
//! it takes `MpscPool`, which is the same channel without tasks.
//!
//! Source: `futures-executor`'s `ThreadPool`.

use std::io;
use std::panic::resume_unwind;
use std::sync::{Arc, RwLock};

use futures_executor::ThreadPool;
use polyserve_core::sync::{read, write};

use super::base::{Runtime, Task, Tasks, executor};
use super::tasks_config::TasksConfig;
use super::threads::Threads;

/// Jobs as tasks of the futures crate's thread pool. See [`executors`](crate::executors) for what it promises.
#[derive(Debug)]
pub struct FuturesTasks(pub(super) Tasks<Futures>);

pub(super) struct Futures {
    /// Until it is stopped.
    pool: RwLock<Option<ThreadPool>>,
    workers: usize,
    threads: Arc<Threads>,
}

impl FuturesTasks {
    /// Starts the pool.
    ///
    /// # Errors
    ///
    /// Where the configuration is not valid, or a thread cannot be started; those that were are ended.
    pub fn new(config: TasksConfig) -> io::Result<Self> {
        let tasks = Tasks::new(config, |config, threads, _| {
            let adopting = Arc::clone(threads);
            let mut builder = ThreadPool::builder();
            builder.pool_size(config.workers).name_prefix(format!("{}-", config.name));
            let pool = builder.after_start(move |_| adopting.adopt()).create()?;
            (0..config.workers).for_each(|_| threads.started());
            Ok(Futures { pool: RwLock::new(Some(pool)), workers: config.workers, threads: Arc::clone(threads) })
        })?;
        Ok(Self(tasks))
    }
}

impl Runtime for Futures {
    #[inline]
    fn spawn(&self, task: Task<Self>) -> bool {
        if let Some(pool) = &*read(&self.pool) {
            pool.spawn_ok(async move { task.run() });
        }
        true
    }

    fn stop(&self, _drained: bool) {
        let mut own = write(&self.pool);
        let Some(pool) = own.take() else { return };
        for _ in 0..self.workers {
            let threads = Arc::clone(&self.threads);
            pool.spawn_ok(async move {
                threads.ended();
                resume_unwind(Box::new("the end of the thread")); // not a panic: nothing is printed
            });
        }
    }

    fn join(&self) {}
}

executor!(FuturesTasks);
