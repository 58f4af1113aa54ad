//! The published stress scenario: PUTs of new ids, GETs and racing updates. As published, the groups run one after the other, each
//! with all its connections at once; in a milder form all groups run at once. Every answer is verified, and then the final
//! state of the store.
//!
//! Each round has a new server in a process of its own. A server of ours prints its own counts and its store's count of
//! entities at its end, and both are compared with the clients' counts. Other servers print only part of this. The figures
//! are no measure of speed.
//!
//! Invariant: a round in which something was wrong has figures and an error count, and fails the command. It is not measured
//! again. Cost: a thread for each client.
//!
//! # Layout
//!
//! * [`scenario`]: the requests. [`verify`]: whether an answer is right. [`subject`]: the server's process.
//! * [`connection`], [`client`], `threads`: the clients. [`round`]: one run against a new server. [`outcome`]: its outcome.
//! * [`experiment`]: the experiment. [`report`]: its result. [`table`]: tables and CSV. [`claims`]: the verdicts on the
//!   published claims.

pub mod claims;
pub mod client;
pub mod connection;
pub mod experiment;
#[cfg(test)]
mod fixtures;
pub mod outcome;
pub mod report;
pub mod round;
pub mod scenario;
pub mod subject;
pub mod table;
mod threads;
pub mod verify;

pub use client::{ConnectionMode, ConnectionPolicy};
pub use experiment::Stress;
pub use report::Report;
pub use scenario::Scenario;
pub use subject::Subject;

/// The experiment's name.
pub const NAME: &str = "stress";
