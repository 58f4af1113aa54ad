//! This project's services inside axum, and axum routers on `tokio_hyper`.
#![cfg(all(feature = "hyper", feature = "tower"))]

mod bodies;
mod drain;
mod limits;
mod nested;
mod peers;
mod support;
