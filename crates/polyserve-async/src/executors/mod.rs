//! Executors on async runtimes, one strategy a file: CPU work as tasks that do not yield.
//!
//! | strategy | what a job is |
//! |---|---|
#![cfg_attr(feature = "tokio", doc = "| [`TokioTasks`] | a task of a tokio runtime with many threads |")]
#![cfg_attr(feature = "tokio", doc = "| [`TokioBlocking`] | a closure on tokio's blocking pool |")]
#![cfg_attr(feature = "smol", doc = "| [`SmolTasks`] | a task of async-executor, run by threads of this executor |")]
#![cfg_attr(feature = "futures", doc = "| [`FuturesTasks`] | a task of the futures crate's thread pool |")]
//!
//! Shared parts have files of their own:
//!
//! * `tasks_config`: the settings. `queue`: the slots in which jobs wait. `threads`: the count of the threads.
//! * `tasks`: running a job and closing an executor, for any runtime.
//! * `counted_runtime` and `watch`: a tokio runtime, and a thread that wakes it for a job that it has overlooked.
//!
//! A strategy's file has its backend: it spawns tasks and ends the threads.
//!
//! # Promises
//!
//! Every executor here keeps the contract of [`Executor`](polyserve_core::Executor). In addition:
//!
//! * Jobs wait in slots of the executor, and the runtime's task has only the index of a slot. The slots bound the queue, and
//!   waiting jobs can be dropped while all threads are stuck. The runtimes offer neither. The runtime decides the order in
//!   which jobs run.
//! * `execute` allocates nothing except what the runtime allocates for a task.
//! * A job may call `close` on its own executor, or drop its last handle. That close neither waits for the job's thread nor
//!   joins it: the thread counts as left behind. Queued jobs still run.
//! * If `execute` overlaps a `close`, the job is handed back or runs once.
//! * When its deadline passes, a `close` drops the queued jobs without running them, mostly on the caller's thread. A
//!   later `close` may wait for the threads that were left behind. A drop does not wait for them.
//! * Other tasks that a job spawns on the runtime are not counted and not waited for. They are cancelled when the runtime
//!   ends.

#[cfg(feature = "tokio")]
mod counted_runtime;
#[cfg(feature = "futures")]
mod futures_tasks;
#[cfg(any(feature = "tokio", feature = "smol", feature = "futures"))]
mod queue;
#[cfg(feature = "smol")]
mod smol_tasks;
#[cfg(any(feature = "tokio", feature = "smol", feature = "futures"))]
mod tasks;
#[cfg(any(feature = "tokio", feature = "smol", feature = "futures"))]
mod tasks_config;
#[cfg(any(feature = "tokio", feature = "smol", feature = "futures"))]
mod threads;
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
#[cfg(any(feature = "tokio", feature = "smol", feature = "futures"))]
pub use tasks_config::TasksConfig;
#[cfg(feature = "tokio")]
pub use tokio_blocking::TokioBlocking;
#[cfg(feature = "tokio")]
pub use tokio_tasks::TokioTasks;

#[cfg(all(test, feature = "tokio", feature = "smol", feature = "futures"))]
mod tests;
