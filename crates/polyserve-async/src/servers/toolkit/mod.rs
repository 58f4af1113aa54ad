//! The parts that the servers of this crate share. A reader of a server need not open them.
//!
//! | part | what it does |
//! |---|---|
//! | `AsyncListener` | its `accept` waits for the next connection; in a drain it returns what is left in the kernel's queue, and then `None` |
//! | `AsyncSocket` | a socket of tokio or async-io; its `poll_io` tries an operation once the socket is ready, else it waits |
//! | `AsyncConnection` | a connection of the table that all servers share (`serving::ConnectionTable`): its socket, and the waker of its task |
//! | `OwnedRuntime` | a tokio runtime that a server starts for a run, and ends with it |
//! | `TaskWaker` | the waker of a connection's task; with an overload policy it notes when the task was woken |
//! | `ThreadGroup` | threads that each run tasks until they receive a signal to end |

mod async_connection;
mod async_listener;
mod async_socket;
mod thread_group;
#[cfg(feature = "tokio")]
mod tokio_runtime;
mod wake_stamp;

pub(crate) use async_connection::{AsyncConnection, start_main};
pub(crate) use async_listener::AsyncListener;
#[cfg(feature = "tokio")]
pub(crate) use async_socket::TokioSocket;
pub(crate) use async_socket::{AsyncSocket, Direction, Transfer};
#[cfg(feature = "smol")]
pub(crate) use async_socket::{SmolSocket, block_on};
pub(crate) use thread_group::ThreadGroup;
#[cfg(feature = "tokio")]
pub(crate) use tokio_runtime::{OwnedRuntime, listen_on, start_on};
pub(crate) use wake_stamp::TaskWaker;
