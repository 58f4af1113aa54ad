//! This project's services as `tower::Service`s, for use inside axum or under tower's middleware.
//!
//! The opposite direction, serving a `tower::Service`, is `TokioHyper::serve_tower` (feature `hyper`).

mod as_tower;

pub use as_tower::{AsTower, DrainBegun, ReplyBody};
#[cfg(feature = "http2")]
pub(crate) use as_tower::{caught, response};
