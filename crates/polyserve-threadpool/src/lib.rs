//! Thread pools for polyserve: executors that run jobs, and servers on threads.
//!
//! # Executors
//!
//! They are in the folder `executors`, and take a [`PoolConfig`](polyserve_serving::executor::PoolConfig).
//!
//! * [`MpscPool`]: threads that share the standard library's channel, as the published pool does.
//! * [`CrossbeamPool`]: threads that share a channel of the `crossbeam-channel` crate.
//! * [`StealingPool`]: threads with a queue each, which take jobs from each other.
//!
//! ```
//! use polyserve_core::{Executor, Job};
//! use polyserve_serving::executor::PoolConfig;
//! use polyserve_threadpool::CrossbeamPool;
//!
//! let pool = CrossbeamPool::new(PoolConfig::new(2))?;
//! pool.execute(Job::new(|| println!("on a worker")))?;
//! assert_eq!(pool.close(None), 0); // runs the queued jobs, and joins the threads
//! assert_eq!(pool.stats().executed, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What every pool promises
//!
//! All that [`polyserve_serving::executor`] promises, and:
//!
//! * A job costs its queue's operations and two stores to a cache line of its worker. With the feature `queue-waits`, every
//!   61st job is sampled.
//! * An idle pool costs nothing: its workers are parked.
//! * If `execute` overlaps a `close`, and the workers of [`MpscPool`] or [`CrossbeamPool`] have ended by then, the job runs
//!   on a submitter's thread, inside `execute`, and counts as executed. If another submitter runs it, it may still be
//!   running when both calls have returned.
//!
//! # Servers
//!
//! They are in the folder `servers`, one strategy a file or a folder.
//!
//! | server | connections | a request costs |
//! |---|---|---|
//! | `Sequential` | one at a time | a read and a write |
//! | `ThreadPerConnection` | a new thread for each | a read and a write |
//! | `LeaderFollowers` | a thread for each; one thread at a time accepts, and then serves | a read and a write |
//! | `PoolClassic` | one job each on any [`Executor`](polyserve_core::Executor), as in the published servers | a poll, a read and a write |
//! | `PoolServer` | multiplexed over any [`Executor`](polyserve_core::Executor); an idle connection holds no worker | a read, a write, its share of a poll |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod executors;
#[cfg(all(test, any(polyserve_loom, polyserve_shuttle)))]
mod models;
// Not built for a model checker, which cannot model system calls.
#[cfg(not(any(polyserve_loom, polyserve_shuttle)))]
mod servers;
mod sync;

pub use executors::*;
#[cfg(not(any(polyserve_loom, polyserve_shuttle)))]
pub use servers::*;
