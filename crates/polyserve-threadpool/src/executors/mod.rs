//! Executors over a fixed number of threads, one strategy a file.
//!
//! | strategy | how a job finds its worker |
//! |---|---|
//! | [`MpscPool`] | std's channel; the receiving end is behind a lock |
//! | [`CrossbeamPool`] | a channel that any worker receives from |
//! | [`StealingPool`] | a queue for each worker, one for all, and work stealing |
//!
//! Shared parts have files of their own:
//!
//! * [`PoolConfig`]: the settings. `stats`: the counters behind [`PoolStats`]. `queued_job`: an item of a queue.
//! * `pool`: the shell of every pool: submitting and running a job, and closing, whatever the queue.
//! * `workers`: the threads are started, joined, or left behind.
//! * `closable_channel`: a channel is closed while other threads send. `space_waiters`: submitters wait for space.
//! * `admission` and `sleep`: the bound and the parking of [`StealingPool`].
//!
//! A strategy's file contains its queue, how a worker takes jobs from it, and the argument that no job is lost.
//!
//! # What every pool here promises
//!
//! All that [`Executor`](polyserve_core::Executor) requires, and:
//!
//! * `execute` allocates nothing. A job costs its queue's operations and two stores to a cache line of its worker. With the
//!   feature `queue-waits`, every 61st job has a stamp.
//! * An idle pool costs nothing: its workers are parked.
//! * A job may call `close` on its own pool. That close neither waits for the job's worker nor joins it, so it cannot
//!   deadlock. That worker counts as left behind. The same holds if the job drops the pool's last handle. Jobs that are
//!   still queued run on the other workers, or on that worker once its job returns.
//! * If `execute` overlaps a `close`, the job is handed back, or runs once. If the workers of [`MpscPool`] or
//!   [`CrossbeamPool`] have ended by then, the job runs on a submitter's thread, inside `execute`, and counts as executed.
//!   If another submitter runs it, it may still be running when both calls have returned.
//! * A `close` drops the jobs that are still queued at its deadline, mostly on the caller's thread. A later `close` may
//!   wait longer for the threads that were left behind. A drop does not wait for them.

mod admission;
mod closable_channel;
mod crossbeam_pool;
mod mpsc_pool;
mod pool;
mod pool_config;
mod queued_job;
mod sleep;
mod space_waiters;
mod stats;
mod stealing_pool;
mod workers;

pub use crossbeam_pool::CrossbeamPool;
pub use mpsc_pool::MpscPool;
pub use pool_config::{OnFull, PoolConfig, Queue};
#[cfg(feature = "queue-waits")]
pub use stats::Histogram;
pub use stats::PoolStats;
pub use stealing_pool::StealingPool;
