//! [`SmolTasks`]: a job is a task that does not yield, on smol's async-executor, run by this executor's own threads.
//!
//! Every job goes to the async-executor's one queue. A thread that needs a job moves half of that queue to its own queue.
//! If the shared queue is empty, it steals from the other threads' queues. The threads park between jobs: no reactor runs.
//!
//! Invariant: after the stop, each thread empties the async-executor's queue before it ends, and each later submitter
//! empties it too. The tasks in it have no job by then. A task that stayed in the queue would keep the async-executor
//! alive, and the async-executor would keep the task.
//!
//! Cost of a job, in addition to `queue`'s: a task, which is an allocation and an entry in the async-executor's list of all
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
use std::thread::{self, JoinHandle};

use async_executor::Executor;
use futures_lite::future::block_on;
use polyserve_core::sync::lock;
use polyserve_core::{Completer, promise};

use super::tasks::{Backend, Task, Tasks, executor};
use super::tasks_config::TasksConfig;
use super::threads::Threads;

/// An executor on smol's async-executor. The [crate](crate#what-every-executor-promises) lists its guarantees.
///
/// ```
/// use polyserve_async::{SmolTasks, TasksConfig};
/// use polyserve_core::{Executor, Job};
///
/// let tasks = SmolTasks::new(TasksConfig::new(2))?;
/// tasks.execute(Job::new(|| println!("on a worker")))?;
/// assert_eq!(tasks.close(None), 0); // runs the queued jobs, and joins the threads
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SmolTasks(pub(super) Tasks<SmolBackend>);

pub(super) struct SmolBackend {
    executor: Arc<Executor<'static>>,
    /// One for each thread. The thread ends when its completer is dropped.
    ends: Mutex<Vec<Completer<()>>>,
    stopped: AtomicBool,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

impl SmolTasks {
    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration is not valid or a thread cannot be started. Threads that were started are
    /// ended.
    pub fn new(config: TasksConfig) -> io::Result<Self> {
        Ok(Self(Tasks::new(config, |config, threads, _| SmolBackend::start(config, threads))?))
    }
}

impl SmolBackend {
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

impl Backend for SmolBackend {
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
        // Under the lock, so that a concurrent close waits too.
        for handle in lock(&self.handles).drain(..) {
            let _ = handle.join(); // a job's panic was caught
        }
    }
}

executor!(SmolTasks);
