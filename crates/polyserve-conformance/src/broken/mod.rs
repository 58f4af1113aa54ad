//! To come.
pub mod repos;

pub mod executors;

pub mod servers;
