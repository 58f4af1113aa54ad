//! Executors on async runtimes, one strategy a file: CPU work as tasks that do not yield.
//!
//! | strategy | what a job is |
//! |---|---|
#![cfg_attr(feature = "tokio", doc = "| [`TokioTasks`] | a task of a tokio runtime with many threads |")]
#![cfg_attr(feature = "tokio", doc = "| [`TokioBlocking`] | a closure on tokio's blocking pool |")]
#![cfg_attr(feature = "smol", doc = "| [`SmolTasks`] | a task of async-executor, run by threads of ours |")]
#![cfg_attr(feature = "futures", doc = "| [`FuturesTasks`] | a task of the futures crate's thread pool |")]
//!
//! What they share is in files of its own: `TasksConfig`; where jobs wait (`queue`); the threads, which are counted
//! (`threads`); what is done with a job and how an executor is closed (`base`); who sees to a job that a runtime has
//! overlooked (`watch`). A strategy's file is its runtime: how a task is spawned, and how its threads are made to end.
//!
//! # What every executor here promises
//!
//! All that [`Executor`](polyserve_core::Executor) says, and:
//!
//! * A job waits in the executor's own slots, and the runtime's task only names the slot. None of these runtimes bounds
//!   what waits, and none can drop what waits while all its threads are stuck; so the slots do both. The order in which
//!   jobs run is the runtime's.
//! * Beside what the runtime allocates for a task, `execute` allocates nothing.
//! * `close` called by a job of the executor's own neither waits for that job's thread nor joins it: that thread counts
//!   as left behind. The same holds where the job drops the last handle. What is queued still runs.
//! * A job whose `execute` overlaps a `close` is handed back, or runs once.
//! * `close` with a deadline that has passed drops the queued jobs unrun, on the caller's thread for the most part. A
//!   later `close` may wait longer for the threads that were left behind; a drop does not wait for them.
//! * What else a job spawns on the runtime is not counted, not waited for, and cancelled where the runtime ends.

#[cfg(any(feature = "tokio", feature = "smol", feature = "futures"))]
mod base;
#[cfg(feature = "futures")]
mod futures_tasks;
#[cfg(any(feature = "tokio", feature = "smol", feature = "futures"))]
mod queue;
#[cfg(feature = "smol")]
mod smol_tasks;
#[cfg(any(feature = "tokio", feature = "smol", feature = "futures"))]
mod tasks_config;
#[cfg(any(feature = "tokio", feature = "smol", feature = "futures"))]
mod threads;
#[cfg(feature = "tokio")]
mod tokio_blocking;
#[cfg(feature = "tokio")]
mod tokio_runtime;
#[cfg(feature = "tokio")]
mod tokio_tasks;
#[cfg(feature = "tokio")]
mod watch;

#[cfg(feature = "futures")]
pub use futures_tasks::FuturesTasks;
#[cfg(feature = "smol")]
pub use smol_tasks::SmolTasks;
#[cfg(any(feature = "tokio", feature = "smol", feature = "futures"))]
pub use tasks_config::TasksConfig;
#[cfg(feature = "tokio")]
pub use tokio_blocking::TokioBlocking;
#[cfg(feature = "tokio")]
pub use tokio_tasks::TokioTasks;

#[cfg(all(test, feature = "tokio", feature = "smol", feature = "futures"))]
mod tests;
