//! What the kernel knows: cores and who is on them, what a process takes, and where and with what something was measured.

pub mod cores;
pub mod environment;
pub mod proc;

pub use cores::Cores;
pub use environment::{Build, Environment};
