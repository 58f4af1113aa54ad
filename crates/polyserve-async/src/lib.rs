//! Servers and executors on async runtimes for polyserve, one strategy a file. A strategy is built only if its feature is on.
//!
//! # Layout
//!
//! * [`servers`]: how connections become tasks.
//! * `tower`: services of this project as `tower::Service`s, and the other way.
//! * [`executors`]: how CPU work becomes tasks of the same runtimes.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `tokio` | `tokio_tcp`, `tokio_per_core`, and executors on tokio |
//! | `hyper` | `tokio_hyper` (with `tokio`) |
//! | `http2` | HTTP/2 with prior knowledge in `tokio_hyper`, off by default |
//! | `tower` | a service as a `tower::Service`; with `tokio`, a `tower::Service` as a service; with `hyper`, one on `tokio_hyper` |
//! | `smol` | `smol`, and an executor on it |
//! | `futures` | an executor on the thread pool of the futures crate |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

pub mod executors;
pub mod servers;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(any(feature = "hyper", feature = "tower"))]
mod types;
