//! Executors on async runtimes, one strategy a file: CPU work as tasks that do not yield.
//!
//! | strategy | what a job is |
//! |---|---|
#![cfg_attr(feature = "tokio", doc = "| [`TokioTasks`] | a task of a tokio runtime with many threads |")]
#![cfg_attr(feature = "tokio", doc = "| [`TokioBlocking`] | a closure on tokio's blocking pool |")]
#![cfg_attr(feature = "smol", doc = "| [`SmolTasks`] | a task of async-executor, run by threads of this executor |")]
#![cfg_attr(feature = "futures", doc = "| [`FuturesTasks`] | a task of the futures crate's thread pool |")]
//!
//! A strategy's file has its runtime: it spawns tasks and ends the threads. What all executors share is in
//! [`polyserve_serving::executor`]: admission, counts, threads and closing. Shared parts of this crate:
//!
//! * `slots`: the slots in which jobs wait. `tasks`: running the job of a slot, and stopping the runtime.
//! * `counted_runtime` and `watch`: a tokio runtime, and a thread that wakes it for a job that it has overlooked.
//!
//! The crate's documentation lists what all of them promise.

#![allow(missing_debug_implementations)] // only an executor's type names its parts

#[cfg(feature = "tokio")]
mod counted_runtime;
#[cfg(feature = "futures")]
mod futures_tasks;
mod slots;
#[cfg(feature = "smol")]
mod smol_tasks;
mod tasks;
#[cfg(feature = "tokio")]
mod tokio_blocking;
#[cfg(feature = "tokio")]
mod tokio_tasks;
#[cfg(feature = "tokio")]
mod watch;

#[cfg(feature = "futures")]
pub use futures_tasks::FuturesTasks;
#[cfg(feature = "smol")]
pub use smol_tasks::SmolTasks;
#[cfg(feature = "tokio")]
pub use tokio_blocking::TokioBlocking;
#[cfg(feature = "tokio")]
pub use tokio_tasks::TokioTasks;

#[cfg(all(test, feature = "tokio", feature = "smol", feature = "futures"))]
mod tests;
