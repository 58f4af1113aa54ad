//! [`TokioBlocking`]: a job is a closure on tokio's blocking pool, which tokio's manual recommends for CPU work.
//!
//! The pool has one queue and one lock for all threads. Threads are started when jobs come, at most `workers`, and end
//! after 10 s without a job. The runtime around the pool runs no task. So it has neither timers nor I/O: a job that sleeps
//! with tokio's timers panics, in place of a wait without end.
//!
//! Invariant: the slots bound the pool's queue, which has no bound of its own.
//!
//! Cost of a job, in addition to that of `slots`: an allocation, the pool's lock twice, and a wake-up or a thread's start. The
//! bench `executors` compares it with tokio's `spawn_blocking` alone, without a bound.
//!
//! Source: tokio's `spawn_blocking`.
//!
//! *Wins when* jobs come in bursts, because threads that are not needed end. No record measures that. With tasks of a
//! second all executors are close (`docs/EXPERIMENTS.md`). *Loses when* jobs are short: a job of one word takes longer
//! than on any other executor here. Record: `docs/STRATEGIES.md`, "Executors for CPU work".

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use polyserve_serving::executor::{Pool, PoolShared};
use tokio::runtime::Builder;

use super::counted_runtime::CountedRuntime;
use super::tasks::{Runtime, Task, Tasks};

/// An executor on tokio's blocking pool. The [crate](crate#what-every-executor-promises) lists its guarantees.
///
/// Threads are started when jobs come.
pub type TokioBlocking = Pool<Tasks<BlockingRuntime>>;

/// A tokio runtime for its blocking pool.
pub struct BlockingRuntime(CountedRuntime);

impl Runtime for BlockingRuntime {
    const NAME: &'static str = "TokioBlocking";

    fn new(shared: &Arc<PoolShared>) -> io::Result<Self> {
        let mut builder = Builder::new_current_thread();
        builder.max_blocking_threads(shared.config.workers);
        CountedRuntime::start(builder, shared).map(Self)
    }

    #[inline]
    fn spawn(&self, task: Task<Self>) -> bool {
        // tokio panics if it has no thread and the system cannot start one. For the submitter this is the same as a full
        // queue.
        catch_unwind(AssertUnwindSafe(|| drop(self.0.handle.spawn_blocking(move || task.run())))).is_ok()
    }

    fn stop(&self, drained: bool) {
        self.0.stop(drained);
    }

    fn join(&self, deadline: Option<Instant>) {
        self.0.join(deadline);
    }
}
