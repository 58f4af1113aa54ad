//! The machine: its cores and their use, the resources of a process, and the environment of a measurement.

pub mod cores;
mod environment;
pub mod proc;

pub use cores::Cores;
pub use environment::{Build, Environment};
