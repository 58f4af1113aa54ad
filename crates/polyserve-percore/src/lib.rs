//! Servers with an event loop on each core, for Linux. They share no runtime, no queue and no lock on the way of a request: each thread
//! has its own listener, its own connections and its own buffers. The connections are those of [`polyserve_serving`], as on every other
//! server: this crate waits for the kernel, and decides nothing about HTTP, time, limits or TLS.
//!
//! | server | waits with | a request costs |
//! |---|---|---|
//! | `Epoll` | `epoll(7)`, at the edge | a read, a write, and its share of one `epoll_wait` |
//!
//! # Layout
//!
//! * `epoll`: the server and its event loop.
//! * `threads`: starts the threads of a run, and joins them.
//! * `slots`: the connections of a loop, by numbers that are not used twice.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod epoll;
mod slots;
mod threads;

pub use epoll::Epoll;
