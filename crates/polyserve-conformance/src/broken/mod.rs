//! To come.
pub mod repos;
