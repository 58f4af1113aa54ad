//! [`FuturesTasks`]: a job is a task that does not yield, on the thread pool of the futures crate.
//!
//! That pool is a channel of the standard library with a lock around its receiver. Its messages are tasks.
//!
//! The pool's threads end when its last handle is dropped. Every task has two handles, so one stuck job would keep all
//! threads. So each thread is ended by a task that panics, which unwinds the thread. These tasks are the last in the
//! channel, and each thread takes one.
//!
//! The pool cannot join its threads. `close` returns when the threads have reported their end, shortly before they end.
//!
//! Invariant: no task is sent after these tasks, because the executor drops its handle when it sends them. A task in a
//! channel without receivers would keep the pool for ever.
//!
//! Cost of a job, in addition to that of `slots`: three allocations (the future, its waker, and a share of the channel's block), a
//! lock to send and a lock to receive.
//!
//! Source: `futures-executor`'s `ThreadPool`.
//!
//! *Wins when* a program has this pool already, and jobs are long: with tasks of a second all executors are close
//! (`docs/EXPERIMENTS.md`). *Loses when* jobs are short: a job of one word takes longer than on rayon, and than on
//! `MpscPool`, which is the same channel without tasks. Record: `docs/STRATEGIES.md`, "Executors for CPU work".

use std::io;
use std::panic::resume_unwind;
use std::sync::{Arc, RwLock};

use futures_executor::ThreadPool;
use polyserve_core::sync::{read, write};
use polyserve_serving::executor::{Pool, PoolConfig, PoolShared, ThreadRegistry};

use super::tasks::{Runtime, Task, Tasks};

/// An executor on the futures crate's thread pool. The [crate](crate#what-every-executor-promises) lists its guarantees.
pub type FuturesTasks = Pool<Tasks<FuturesRuntime>>;

/// The thread pool of the futures crate.
pub struct FuturesRuntime {
    /// `None` once it is stopped.
    pool: RwLock<Option<ThreadPool>>,
    workers: usize,
    threads: Arc<ThreadRegistry>,
}

impl Runtime for FuturesRuntime {
    const NAME: &'static str = "FuturesTasks";

    fn new(shared: &Arc<PoolShared>) -> io::Result<Self> {
        let PoolConfig { workers, name, .. } = &shared.config;
        let (threads, adopting) = (Arc::clone(&shared.threads), Arc::clone(&shared.threads));
        let mut builder = ThreadPool::builder();
        builder.pool_size(*workers).name_prefix(format!("{name}-")).after_start(move |_| adopting.adopt());
        let pool = builder.create()?;
        (0..*workers).for_each(|_| threads.started());
        Ok(Self { pool: RwLock::new(Some(pool)), workers: *workers, threads })
    }

    #[inline]
    fn spawn(&self, task: Task<Self>) -> bool {
        if let Some(pool) = &*read(&self.pool) {
            pool.spawn_ok(async move { task.run() });
        }
        true
    }

    fn stop(&self, _drained: bool) {
        let mut guard = write(&self.pool);
        let Some(pool) = guard.take() else { return };
        for _ in 0..self.workers {
            let threads = Arc::clone(&self.threads);
            pool.spawn_ok(async move {
                threads.ended();
                resume_unwind(Box::new("the end of the thread")); // does not run the panic hook
            });
        }
    }
}
