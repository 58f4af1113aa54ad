//! Servers that run each connection as a task of an async runtime.
//!
//! | server | a connection is | a request costs |
//! |---|---|---|
//! | `tokio_tcp` | a task that any worker may run | a read and a write |
//! | `tokio_hyper` | a task that any worker may run, over hyper's codec | a read and a write |
//! | `tokio_per_core` | a task of the core that accepted it | a read and a write |
//! | `smol` | a task that any worker may run | a read, a write and a wait |
//!
//! # Layout
//!
//! Two files show the way of a connection, from accept to close:
//!
//! | server | accept loop | connection loop |
//! |---|---|---|
//! | `tokio_tcp`, `tokio_per_core`, `smol` | the server's own file | `connection_task` |
//! | `tokio_hyper` | `tokio_hyper/mod.rs` | `tokio_hyper/connection.rs` |
//!
//! The rest is in `toolkit`, which lists its parts in one sentence each, and in the helpers of `tokio_hyper`.

#[cfg(any(feature = "tokio", feature = "smol"))]
mod connection_task;
#[cfg(feature = "smol")]
mod smol;
#[cfg(feature = "hyper")]
mod tokio_hyper;
#[cfg(feature = "tokio")]
mod tokio_per_core;
#[cfg(feature = "tokio")]
mod tokio_tcp;
#[cfg(any(feature = "tokio", feature = "smol"))]
pub(crate) mod toolkit;

#[cfg(feature = "smol")]
pub use smol::Smol;
#[cfg(all(feature = "hyper", feature = "tower"))]
pub use tokio_hyper::RequestBody;
#[cfg(feature = "hyper")]
pub use tokio_hyper::TokioHyper;
#[cfg(feature = "tokio")]
pub use tokio_per_core::TokioPerCore;
#[cfg(feature = "tokio")]
pub use tokio_tcp::TokioTcp;
