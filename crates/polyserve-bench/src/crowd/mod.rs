//! How a server serves one good client while many other connections do nothing useful.
//!
//! The other connections are the crowd. An idle crowd behaves like browsers; a slow crowd behaves like attackers. Measured are
//! the good client's figures, and what an idle connection costs the server.
//!
//! Invariant: only a server with right answers has figures. Each figure is compared with the same figure without the crowd,
//! from the same process or from slices in turn. Cost: a descriptor and a port for each connection; a crowd has one thread,
//! which sleeps while the crowd is idle.
//!
//! # Layout
//!
//! * `steps`: what the connections of a crowd send. `connection`: one connection. [`connection_opener`]: all of them, on
//!   their thread.
//! * [`bench`](mod@bench): measures a server with and without a crowd. [`experiment`]: the experiment in the framework.
//! * [`report`]: samples and the result. [`table`]: tables of them.

pub mod bench;
mod connection;
pub mod connection_opener;
pub mod experiment;
pub mod report;
mod steps;
pub mod table;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use bench::CrowdBench;
pub use connection_opener::{Crowd, CrowdCounts, CrowdPlan};
pub use experiment::Crowds;
pub use report::{CrowdOutcome, CrowdRow, Report};

/// The behaviour of a crowd's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum CrowdKind {
    /// Send one request, read its answer, and stay idle.
    Idle,
    /// Send a request head byte by byte, without an end.
    SlowHeads,
    /// Send the body of a PUT byte by byte, without an end.
    SlowBodies,
    /// Pipeline requests for large answers, and read a few bytes at each turn.
    SlowReaders,
}

impl CrowdKind {
    /// All kinds, the harmless kind first.
    pub const ALL: [Self; 4] = [Self::Idle, Self::SlowHeads, Self::SlowBodies, Self::SlowReaders];

    /// Its name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::SlowHeads => "slow-heads",
            Self::SlowBodies => "slow-bodies",
            Self::SlowReaders => "slow-readers",
        }
    }
}
