//! Servers with an event loop on each core, for Linux. They share no runtime, no queue and no lock on the way of a request: each thread
//! has its own listener, its own connections and its own buffers. The connections are those of [`polyserve_serving`], as on every other
//! server: this crate waits for the kernel, and decides nothing about HTTP, time, limits or TLS.
//!
//! | server | waits with | a request costs |
//! |---|---|---|
//! | `Epoll` | `epoll(7)`, at the edge | a read, a write, and its share of one `epoll_wait` |
//! | `IoUring` | `io_uring(7)`, with receives that go on and buffers that the kernel selects | a write, and its share of one `io_uring_enter` |
//!
//! # Layout
//!
//! * `epoll`, `io_uring`: the servers and their event loops. The ring is [`polyserve_sys::ring`].
//! * `threads`: starts the threads of a run, and joins them.
//! * `per_core`: which of them runs here.
//! * `spread`: how loops hand new connections to each other.
//! * `loop_socket`: the socket of a connection, as other threads use it.
//! * `slots`: the connections of a loop, by numbers that are not used twice.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod epoll;
mod io_uring;
mod loop_socket;
mod per_core;
mod slots;
mod spread;
mod threads;

pub use epoll::Epoll;
pub use io_uring::IoUring;
pub use per_core::available;
