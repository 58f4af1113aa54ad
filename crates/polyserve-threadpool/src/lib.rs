//! Thread pools for polyserve: executors that run jobs, one strategy a file.
//!
//! # Layout
//!
//! * [`executors`]: [`MpscPool`], the classic; [`CrossbeamPool`]; [`StealingPool`]. All take a [`PoolConfig`].
#![forbid(unsafe_code)]

pub mod executors;

pub use executors::{CrossbeamPool, MpscPool, OnFull, PoolConfig, PoolStats, Queue, StealingPool};

pub mod servers;
pub use servers::{PoolServer, Sequential, ThreadPerConnection};
