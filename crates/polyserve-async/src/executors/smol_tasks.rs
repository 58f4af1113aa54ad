//! [`SmolTasks`]: a job is a task that does not yield, on smol's async-executor, run by this executor's own threads.
//!
//! Every job goes to the async-executor's one queue. A thread that needs a job moves half of that queue to its own queue.
//! If the shared queue is empty, it steals from the other threads' queues. The threads park between jobs: no reactor runs.
//!
//! Invariant: after the stop, each thread empties the async-executor's queue before it ends, and each later submitter
//! empties it too. The tasks in it have no job by then. A task that stayed in the queue would keep the async-executor
//! alive, and the async-executor would keep the task.
//!
//! Cost of a job, in addition to that of `slots`: a task, which is an allocation and an entry in the async-executor's list of all
//! tasks behind one lock, and a search for a sleeping thread.
//!
//! Source: async-executor, as the smol crate runs it.
//!
//! *Wins when* short jobs must be tasks of a runtime: a job of one word takes less time than on `TokioTasks`.
//! *Loses when* jobs need no runtime: such a job takes much less time on `CrossbeamPool`, and on rayon. With tasks of a
//! second all executors are close (`docs/EXPERIMENTS.md`). Record: `docs/STRATEGIES.md`, "Executors for CPU work".

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_executor::Executor;
use futures_lite::future::block_on;
use polyserve_core::sync::lock;
use polyserve_core::{Completer, promise};
use polyserve_serving::executor::{Pool, PoolConfig, PoolShared};

use super::tasks::{Runtime, Task, Tasks};

/// An executor on smol's async-executor. The [crate](crate#what-every-executor-promises) lists its guarantees.
pub type SmolTasks = Pool<Tasks<SmolRuntime>>;

/// An async-executor, and what ends its threads.
pub struct SmolRuntime {
    executor: Executor<'static>,
    /// One for each thread. The thread ends when its completer is dropped.
    ends: Mutex<Vec<Completer<()>>>,
    stopped: AtomicBool,
}

impl Runtime for SmolRuntime {
    const NAME: &'static str = "SmolTasks";

    fn new(_: &Arc<PoolShared>) -> io::Result<Self> {
        Ok(Self { executor: Executor::new(), ends: Mutex::default(), stopped: AtomicBool::new(false) })
    }

    #[inline]
    fn spawn(&self, task: Task<Self>) -> bool {
        self.executor.spawn(async move { task.run() }).detach();
        if self.stopped.load(Ordering::SeqCst) {
            while self.executor.try_tick() {}
        }
        true
    }

    fn threads(config: &PoolConfig) -> usize {
        config.workers
    }

    fn work(&self) {
        let (completer, end) = promise(());
        let mut ends = lock(&self.ends);
        if self.stopped.load(Ordering::SeqCst) {
            drop(completer);
        } else {
            ends.push(completer);
        }
        drop(ends);
        block_on(self.executor.run(end.into_future()));
        while self.executor.try_tick() {}
    }

    fn stop(&self, _drained: bool) {
        self.stopped.store(true, Ordering::SeqCst);
        lock(&self.ends).clear();
    }
}
