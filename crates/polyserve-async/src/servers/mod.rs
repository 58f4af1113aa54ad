//! Servers that run each connection as a task of an async runtime.
//!
//! | server | a connection is | a request costs |
//! |---|---|---|
//! | [`tokio_tcp`] | a task that any worker may run | a read and a write |
//! | [`tokio_hyper`] | a task that any worker may run, over hyper's codec | a read and a write |
//! | [`tokio_per_core`] | a task of the core that accepted it | a read and a write |
//! | [`smol`] | a task that any worker may run | a read, a write and a wait |
//!
//! # Layout
//!
//! They share these parts:
//!
//! * `async_listener`: a listener that a task awaits connections from.
//! * `connection_task`: one connection on our codec, from accept to close.
//! * `connection_registry`: all open connections of a run, their deadlines, and the end of the run; `connection_entry`:
//!   one of them.
//! * `async_socket`: the interface to a runtime's sockets; `tokio_socket` and `smol_socket` implement it.
//! * `thread_group`: threads that run tasks until they receive a message to end.

#[cfg(any(feature = "tokio", feature = "smol"))]
mod async_listener;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod async_socket;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod connection_entry;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod connection_registry;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod connection_task;
#[cfg(feature = "smol")]
pub mod smol;
#[cfg(feature = "smol")]
mod smol_socket;
#[cfg(any(feature = "tokio", feature = "smol"))]
mod thread_group;
#[cfg(feature = "hyper")]
pub mod tokio_hyper;
#[cfg(feature = "tokio")]
pub mod tokio_per_core;
#[cfg(feature = "tokio")]
mod tokio_socket;
#[cfg(feature = "tokio")]
pub mod tokio_tcp;

#[cfg(feature = "smol")]
pub use smol::Smol;
#[cfg(feature = "hyper")]
pub use tokio_hyper::TokioHyper;
#[cfg(feature = "tokio")]
pub use tokio_per_core::TokioPerCore;
#[cfg(feature = "tokio")]
pub use tokio_tcp::TokioTcp;
