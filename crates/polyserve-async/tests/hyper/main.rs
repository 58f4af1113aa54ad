//! `tokio_hyper` over HTTP/1.
#![cfg(feature = "hyper")]

mod bodies;
mod differences;
mod edges;
mod memory;
mod support;
