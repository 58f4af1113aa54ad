//! [`TokioTasks`]: a job is a task that does not yield, on a tokio runtime with one thread for each worker.
//!
//! This is how an async server runs computations inside its handlers. A job from outside goes to the runtime's one inject
//! queue. A job that a job submits goes to its thread's queue, from which idle threads steal. The runtime has timers and
//! I/O, for futures that a job spawns on it.
//!
//! Invariant: while a thread is idle, no job waits for another job to end, except until [`WatchThread`] detects
//! it. tokio expects tasks to yield soon and does not promise this. There are three places in which a job could wait:
//!
//! * A thread's slot for its next task, which no other thread steals from. A job that a job submits goes there. An empty
//!   task that is spawned after it moves it to the thread's queue.
//! * The queue of a thread that takes several tasks out of the inject queue at once. Unless that thread was searching for
//!   work, it wakes no other thread. A thread that searches while the tasks are between the two queues finds both empty and
//!   parks.
//! * The inject queue. If half of the threads are searching, another thread parks without a last check. The runtime may
//!   count it as awake when a task comes, and wakes no thread.
//!
//! In the last two cases the watch spawns an empty task from outside. That wakes a thread, which also finds the job.
//!
//! Cost of a job, in addition to those of `slots` and `watch`: a task, which is an allocation and an entry in the runtime's list
//! of all tasks. A job that a job submits costs two tasks. The bench `executors` compares it with tokio's `spawn` alone.
//!
//! Source: tokio's multi-thread scheduler; "Making the Tokio scheduler 10x faster", 2019.
//!
//! *Wins when* jobs share threads with other work on tokio, and are long: with tasks of a second all executors are
//! close (`docs/EXPERIMENTS.md`). *Loses when* jobs are short: a job of one word takes much longer than on rayon, and
//! on `CrossbeamPool`. Record: `docs/STRATEGIES.md`, "Executors for CPU work".

use std::io;
use std::sync::Arc;
use std::time::Instant;

use polyserve_serving::executor::{Pool, PoolShared};

use super::counted_runtime::CountedRuntime;
use super::tasks::{Runtime, Task, Tasks};
use super::watch::WatchThread;
use crate::runtime_threads::multi_thread;

/// An executor on a tokio runtime. The [crate](crate#what-every-executor-promises) lists its guarantees.
///
/// ```
/// use polyserve_async::TokioTasks;
/// use polyserve_core::{Executor, Job};
/// use polyserve_serving::executor::PoolConfig;
///
/// let tasks = TokioTasks::new(PoolConfig::new(2))?;
/// tasks.execute(Job::new(|| println!("on a worker")))?;
/// assert_eq!(tasks.close(None), 0); // runs the queued jobs, and joins the threads
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// With more than one worker, it also has the thread of `watch`, which mostly sleeps.
///
/// `new` panics if the system cannot start a thread for a worker: tokio panics after it has ended the threads that it
/// started.
pub type TokioTasks = Pool<Tasks<TokioRuntime>>;

/// A tokio runtime, and the thread that watches over its wake-ups.
pub struct TokioRuntime {
    runtime: CountedRuntime,
    shared: Arc<PoolShared>,
    /// `None` if there is one worker.
    pub(super) watch: Option<WatchThread>,
}

impl Runtime for TokioRuntime {
    const NAME: &'static str = "TokioTasks";

    fn new(shared: &Arc<PoolShared>) -> io::Result<Self> {
        let workers = shared.config.workers;
        let mut builder = multi_thread(workers)?;
        if shared.config.polls_after_each_job {
            builder.event_interval(1);
        }
        let runtime = CountedRuntime::start(builder, shared)?;
        let (handle, watched) = (runtime.handle.clone(), Arc::clone(shared));
        let wake = move || drop(handle.spawn(async {}));
        let watch = (workers > 1).then(|| WatchThread::start(workers, move || watched.counts(), wake)).transpose();
        let watch = watch.inspect_err(|_| runtime.stop(false))?;
        Ok(Self { runtime, shared: Arc::clone(shared), watch })
    }

    #[inline]
    fn spawn(&self, task: Task<Self>) -> bool {
        let is_own = task.is_submitted_by_own_thread();
        drop(self.runtime.handle.spawn(async move { task.run() }));
        if is_own {
            drop(self.runtime.handle.spawn(async {}));
        }
        if let Some(watch) = &self.watch {
            watch.submitted(self.shared.waiting());
        }
        true
    }

    fn stop(&self, drained: bool) {
        if let Some(watch) = &self.watch {
            watch.end();
        }
        self.runtime.stop(drained);
    }

    fn join(&self, deadline: Option<Instant>) {
        if let Some(watch) = &self.watch {
            watch.join();
        }
        self.runtime.join(deadline);
    }
}
