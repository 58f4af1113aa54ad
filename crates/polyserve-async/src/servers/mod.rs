//! Servers whose connections are tasks of an async runtime.
//!
//! | server | a connection is | a request costs |
//! |---|---|---|
//! | [`tokio_tcp`] | a task that any worker may run | a read and a write |
//! | [`tokio_hyper`] | a task that any worker may run, over hyper's codec | a read and a write |
//! | [`tokio_per_core`] | a task of the core that accepted it | a read and a write |
//! | [`smol`] | a task that any worker may run | a read, a write and a wait |
//! | [`futures_pool`] | a task that blocks its thread | a wait, a read and a write |
//!
//! # Layout
//!
//! * `runtime`: what a strategy needs of its runtime, and no more; `tokio_runtime` is tokio's,
//!   `smol_runtime` that of async-executor and async-io.
//! * `roll`: every open connection of a run, its deadline, and how a run ends; `place`: one of them.
//! * `connection`: one connection as a future, over any runtime; `accepting`: where they come from.
//! * `crew`: threads that run tasks until they are told to end.

#[cfg(any(feature = "tokio", feature = "smol"))]
mod accept_loop;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod connection_entry;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod connection_registry;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod connection_task;
#[cfg(feature = "futures")]
pub mod futures_pool;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod server_runtime;
#[cfg(feature = "smol")]
pub mod smol;
#[cfg(feature = "smol")]
mod smol_io;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod thread_group;
#[cfg(feature = "hyper")]
pub mod tokio_hyper;
#[cfg(feature = "tokio")]
mod tokio_io;
#[cfg(feature = "tokio")]
pub mod tokio_per_core;
#[cfg(feature = "tokio")]
pub mod tokio_tcp;

#[cfg(feature = "futures")]
pub use futures_pool::FuturesPool;
#[cfg(feature = "smol")]
pub use smol::Smol;
#[cfg(feature = "hyper")]
pub use tokio_hyper::TokioHyper;
#[cfg(feature = "tokio")]
pub use tokio_per_core::TokioPerCore;
#[cfg(feature = "tokio")]
pub use tokio_tcp::TokioTcp;
