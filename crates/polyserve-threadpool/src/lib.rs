//! Thread pools for polyserve: executors that run jobs, and servers on threads.
//!
//! # Layout
//!
//! * [`executors`]: [`MpscPool`], [`CrossbeamPool`] and [`StealingPool`]. All take a [`PoolConfig`].
//! * `servers`: the servers, one strategy a file or a folder.
#![forbid(unsafe_code)]

pub mod executors;
#[cfg(all(test, any(polyserve_loom, polyserve_shuttle)))]
mod models;
mod sync;

pub use executors::{CrossbeamPool, MpscPool, OnFull, PoolConfig, PoolStats, Queue, StealingPool};

// Not under a model checker: it does not see system calls.
#[cfg(not(any(polyserve_loom, polyserve_shuttle)))]
pub mod servers;
#[cfg(not(any(polyserve_loom, polyserve_shuttle)))]
pub use servers::{LeaderFollowers, PoolClassic, PoolServer, Sequential, ThreadPerConnection};
