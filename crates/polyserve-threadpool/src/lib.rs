//! Thread pools for polyserve: executors that run jobs, and servers on threads.
//!
//! # Executors
//!
//! They are in [`executors`], and take a [`PoolConfig`].
//!
//! * [`MpscPool`]: threads that share the standard library's channel, as the published pool does.
//! * [`CrossbeamPool`]: threads that share a channel of the `crossbeam-channel` crate.
//! * [`StealingPool`]: threads with a queue each, which take jobs from each other.
//!
//! # Servers
//!
//! They are in `servers`, one strategy a file or a folder.
//!
//! * `Sequential`: one thread serves one connection at a time. It is the baseline.
//! * `ThreadPerConnection`: a new thread for each connection. It is the textbook server.
//! * `LeaderFollowers`: a thread for each connection; one thread at a time accepts, and then serves.
//! * `PoolClassic`: each connection is one job on an executor, as in the published servers.
//! * `PoolServer`: the jobs of an executor share all connections; an idle connection holds no worker.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod executors;
#[cfg(all(test, any(polyserve_loom, polyserve_shuttle)))]
mod models;
mod sync;

pub use executors::{CrossbeamPool, MpscPool, OnFull, PoolConfig, PoolStats, Queue, StealingPool};

// Not built for a model checker, which cannot model system calls.
#[cfg(not(any(polyserve_loom, polyserve_shuttle)))]
pub mod servers;
#[cfg(not(any(polyserve_loom, polyserve_shuttle)))]
pub use servers::{LeaderFollowers, PoolClassic, PoolServer, Sequential, ThreadPerConnection};
