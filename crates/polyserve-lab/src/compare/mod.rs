//! Strategies side by side on this machine: every contestant in a process of its own, in turn, round by round, with an
//! interval for every ratio and the baseline entered twice.
//!
//! # Layout
//!
//! * [`statistics`]: what may be said of ratios.

pub mod cores;
pub mod launch;
pub mod proc;
pub mod process;
pub mod statistics;
