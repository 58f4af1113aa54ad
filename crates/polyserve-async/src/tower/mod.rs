//! This project's services as `tower::Service`s, and `tower::Service`s as services of this project.
//!
//! | type | direction |
//! |---|---|
//! | [`AsTower`] | a service of this project inside axum or under tower's middleware |
//! | `FromTower` (feature `tokio`) | a `tower::Service` on any server; bodies are complete before they are passed on |
//! | `TokioHyper::serve_tower` (feature `hyper`) | a `tower::Service` on `tokio_hyper`; bodies stream in both directions |

mod as_tower;
#[cfg(feature = "tokio")]
mod from_tower;
#[cfg(feature = "tokio")]
mod target;

pub use as_tower::{AsTower, DrainBegun, ReplyBody};
#[cfg(feature = "http2")]
pub(crate) use as_tower::{caught, response};
#[cfg(feature = "tokio")]
pub use from_tower::FromTower;
#[cfg(feature = "tokio")]
pub use target::{OfPeers, OfRequests, TowerTarget};
