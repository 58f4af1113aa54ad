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
//! The crate's documentation lists what every pool promises.

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
