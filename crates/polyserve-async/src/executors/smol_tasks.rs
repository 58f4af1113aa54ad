//! [`SmolTasks`]: a job is a task that does not yield, on smol's async-executor, which threads of ours run.
//!
//! Every job goes to the executor's one queue; a thread that comes for one takes half of what is there to a queue of its
//! own, and steals from the others' where there is nothing. The threads park between jobs: no reactor runs.
//!
//! Invariant: a thread that was told to end empties the executor's queue before it does, and so does who submits after
//! that; what is in there then are tasks without a job. Otherwise tasks and executor would keep each other alive.
//!
//! Cost of a job beside the queue's (`queue`): a task, which is an allocation and an entry in the executor's list of all
//! tasks behind one lock, and a look for a thread that sleeps.
//!
//! *Wins when* a small runtime is wanted, with threads of one's own. *Loses when* jobs are short: in the bench
//! `executors`, on one core, a job of one word takes two and a half to four times what it takes rayon, two thirds to
//! three quarters of what it takes `TokioTasks`.
//!
//! Source: async-executor, as the smol crate runs it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use async_executor::Executor;
use futures_lite::future::block_on;
use polyserve_core::sync::lock;
use polyserve_core::{Completer, promise};

use super::base::{Runtime, Task, Tasks, executor};
use super::tasks_config::TasksConfig;
use super::threads::Threads;

/// Jobs as tasks of async-executor. See [`executors`](crate::executors) for what it promises.
#[derive(Debug)]
pub struct SmolTasks(pub(super) Tasks<Smol>);

pub(super) struct Smol {
    executor: Arc<Executor<'static>>,
    /// A thread ends when its one is completed, or dropped.
    ends: Mutex<Vec<Completer<()>>>,
    stopped: AtomicBool,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

impl SmolTasks {
    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// Where the configuration is not valid, or a thread cannot be started; those that were are ended.
    pub fn new(config: TasksConfig) -> io::Result<Self> {
        Ok(Self(Tasks::new(config, |config, threads, _| Smol::start(config, threads))?))
    }
}

impl Smol {
    fn start(config: &TasksConfig, threads: &Arc<Threads>) -> io::Result<Self> {
        let smol = Self {
            executor: Arc::default(),
            ends: Mutex::default(),
            stopped: AtomicBool::new(false),
            handles: Mutex::default(),
        };
        for index in 0..config.workers {
            let (completer, end) = promise(());
            let (executor, its_threads) = (Arc::clone(&smol.executor), Arc::clone(threads));
            let main = move || {
                its_threads.adopt();
                block_on(executor.run(end.into_future()));
                while executor.try_tick() {}
                drop(executor);
                its_threads.ended();
            };
            let handle =
                thread::Builder::new().name(format!("{}-{index}", config.name)).spawn(main).inspect_err(|_| {
                    smol.stop(true);
                    smol.join();
                })?;
            threads.started();
            lock(&smol.ends).push(completer);
            lock(&smol.handles).push(handle);
        }
        Ok(smol)
    }
}

impl Runtime for Smol {
    #[inline]
    fn spawn(&self, task: Task<Self>) -> bool {
        self.executor.spawn(async move { task.run() }).detach();
        if self.stopped.load(Ordering::SeqCst) {
            while self.executor.try_tick() {}
        }
        true
    }

    fn stop(&self, _drained: bool) {
        self.stopped.store(true, Ordering::SeqCst);
        lock(&self.ends).clear();
    }

    fn join(&self) {
        // With the lock in hand, so that others who close wait too.
        for handle in lock(&self.handles).drain(..) {
            let _ = handle.join(); // a job's panic does not get this far
        }
    }
}

executor!(SmolTasks);
