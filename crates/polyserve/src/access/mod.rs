//! Access to a service: the users with tokens, and the hosts that requests may name.
//!
//! Each is a service around another one, so every server has it: [`Authenticated`] and [`AllowedHosts`]. What they refuse is counted by
//! reason in [`Refusals`], which [`Metrics`](crate::metrics::Metrics) shows.
//!
//! A server refuses malformed requests itself, before any service sees them. Everything else is judged here first.
//!
//! # Layout
//!
//! * `users`: the file of users.
//! * `authenticated`: the service that asks for a user.
//! * `hosts`: the service that asks for a host of a list.
//! * `refusals`: the counts.

mod authenticated;
mod hosts;
mod refusals;
mod users;

pub use authenticated::Authenticated;
pub use hosts::{AllowedHosts, InvalidHost};
pub use refusals::{RefusalReason, Refusals};
pub use users::{InvalidUsers, Scopes, Users, token_line};
