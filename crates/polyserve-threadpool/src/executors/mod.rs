//! Executors over a fixed number of threads, one strategy a file.
//!
//! | strategy | how a job finds its worker |
//! |---|---|
//! | [`MpscPool`] | std's channel; the receiving end is behind a lock |
//! | [`CrossbeamPool`] | a channel that any worker receives from |
//! | [`StealingPool`] | a queue for each worker, one for all, and theft |
//!
//! What they share is in files of its own: [`PoolConfig`]; the counts ([`PoolStats`]); the threads, which are started,
//! joined or left behind (`workers`); how a channel is closed while others send (`door`); submitters that wait for room
//! (`room`); what is to be done with a job that finds none (`base`). A strategy's file is its queue, its worker's loop,
//! and the argument that no job is lost.
//!
//! # What every pool here promises
//!
//! All that [`Executor`](polyserve_core::Executor) says, and:
//!
//! * `execute` allocates nothing: the cost of a job is its queue's, two stores to a cache line of its worker's own, and
//!   the stamp of every 61st job (see [`PoolStats::waits`]).
//! * An idle pool costs nothing: its workers are parked.
//! * `close` called by a job of the pool's own neither waits for that job's worker nor joins it, so it cannot deadlock:
//!   that worker counts as left behind. The same holds where the job drops the pool's last handle. Jobs that are still
//!   queued are run by the other workers, or by that one once its job returns.
//! * A job whose `execute` overlaps a `close` is handed back, or runs once. In [`MpscPool`] and [`CrossbeamPool`], where
//!   the workers have ended by then, it runs on the thread of a submitter, within its `execute`, and counts as executed;
//!   such a job that another submitter runs may still be running when both calls have returned.
//! * `close` with a deadline that has passed drops the queued jobs unrun, on the caller's thread for the most part. A
//!   later `close` may wait longer for the threads that were left behind; a drop does not wait for them.

mod base;
mod crossbeam_pool;
mod door;
mod gate;
mod mpsc_pool;
mod pool_config;
mod room;
mod sleep;
mod stats;
mod stealing_pool;
mod workers;

pub use crossbeam_pool::CrossbeamPool;
pub use mpsc_pool::MpscPool;
pub use pool_config::{OnFull, PoolConfig, Queue};
pub use stats::{Histogram, PoolStats};
pub use stealing_pool::StealingPool;
