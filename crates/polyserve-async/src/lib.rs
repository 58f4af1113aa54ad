//! Servers and executors on async runtimes for polyserve, one strategy a file. Nothing is built but what a feature names.
//!
//! # Layout
//!
//! * [`servers`]: how connections become tasks.
//! * `tower`: services of this project where a `tower::Service` is wanted.
//! * [`executors`]: how CPU work becomes tasks of the same runtimes.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `tokio` | `tokio_tcp`, `tokio_per_core`, and executors on tokio |
//! | `hyper` | `tokio_hyper` (with `tokio`) |
//! | `http2` | HTTP/2 with prior knowledge in `tokio_hyper`, off until it is asked for |
//! | `tower` | a service as a `tower::Service`; with `hyper`, a `tower::Service` on `tokio_hyper` |
//! | `smol` | `smol`, and an executor on it |
//! | `futures` | `futures_pool`, and an executor on it |
#![forbid(unsafe_code)]

pub mod executors;
pub mod servers;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(any(feature = "hyper", feature = "tower"))]
mod types;
