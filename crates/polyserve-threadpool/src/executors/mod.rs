//! Executors over a fixed number of threads, one strategy a file.
//!
//! | strategy | how a job finds its worker |
//! |---|---|
//! | [`MpscPool`] | std's channel; the receiving end is behind a lock |
//! | [`CrossbeamPool`] | a channel that any worker receives from |
//! | [`StealingPool`] | a queue for each worker, one for all, and work stealing |
//!
//! A strategy's file contains its queue, how a worker takes jobs from it, and the argument that no job is lost. What all
//! executors share is in [`polyserve_serving::executor`]: settings, admission, counts, threads and closing. Two parts have
//! files of their own: `closable_channel` closes a channel while other threads send, and `sleep` parks the workers of
//! [`StealingPool`].
//!
//! The crate's documentation lists what every pool promises.

#![allow(missing_debug_implementations)] // only an executor's type names its parts

mod closable_channel;
mod crossbeam_pool;
mod mpsc_pool;
mod sleep;
mod stealing_pool;

pub use crossbeam_pool::CrossbeamPool;
pub use mpsc_pool::MpscPool;
#[cfg(feature = "queue-waits")]
pub use polyserve_serving::executor::Histogram;
pub use stealing_pool::StealingPool;
