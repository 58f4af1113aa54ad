//! Thread pools for polyserve: executors that run jobs, one strategy a file.
//!
//! # Layout
//!
//! * [`executors`]: [`MpscPool`], the classic; [`CrossbeamPool`]; [`StealingPool`]. All take a [`PoolConfig`].
#![forbid(unsafe_code)]

pub mod executors;
#[cfg(all(test, any(polyserve_loom, polyserve_shuttle)))]
mod models;
mod sync;

pub use executors::{CrossbeamPool, MpscPool, OnFull, PoolConfig, PoolStats, Queue, StealingPool};

// They wait in the system, where no model checker follows.
#[cfg(not(any(polyserve_loom, polyserve_shuttle)))]
pub mod servers;
#[cfg(not(any(polyserve_loom, polyserve_shuttle)))]
pub use servers::{PoolServer, Sequential, ThreadPerConnection};
