//! This project's services where a `tower::Service` is wanted: inside axum, or under any middleware of tower.
//!
//! The other way round, a `tower::Service` as a server, is `TokioHyper::serve_tower` (feature `hyper`).

mod as_tower;

pub use as_tower::{AsTower, ReplyBody};
