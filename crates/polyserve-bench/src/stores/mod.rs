//! Stores without a server: threads that get, put and remove directly on a repo, and on the same maps used bare.
//!
//! The mode [`store`](crate::bench::mode::store) of a definition measures them. Each [`StoreRun`] is a process, so no run shares
//! memory with another one.
//!
//! # Layout
//!
//! * [`run`](mod@run): what a process measures. `process`: the process.
//! * [`entities`]: the stored entities and their checks. [`workload`]: operations, as chunks that are made ahead.
//! * `store`: the operations that the loops measure; [`bare`]: maps without the trait; [`erased`]: stores of any type.
//!   `window`: many operations outstanding. [`phase`](mod@phase): threads at one store, leg by leg.

pub mod bare;
pub mod entities;
pub mod erased;
pub mod phase;
pub(crate) mod process;
pub mod run;
pub(crate) mod store;
pub(crate) mod window;
pub mod workload;

#[cfg(test)]
mod tests;

pub use run::StoreRun;
pub use workload::StoreOperation;
