//! Crowds: many connections that do nothing useful, next to a good client.
//!
//! An idle crowd behaves like browsers; a slow crowd behaves like attackers. The mode `hold` of a
//! [definition](crate::bench) measures servers with them.
//!
//! Cost: a descriptor and a port for each connection; a crowd has one thread, which sleeps while the crowd is idle.
//!
//! # Layout
//!
//! * `steps`: what the connections of a crowd send. `connection`: one connection. [`connection_opener`]: all of them, on
//!   their thread.

mod connection;
pub mod connection_opener;
mod steps;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use connection_opener::{Crowd, CrowdCounts, CrowdPlan};
pub(crate) use steps::{LARGE_ID, SMALL_ID};

/// The behaviour of a crowd's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CrowdKind {
    /// Send one request, read its answer, and stay idle.
    #[default]
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
    const ALL: [Self; 4] = [Self::Idle, Self::SlowHeads, Self::SlowBodies, Self::SlowReaders];

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its name in definitions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::SlowHeads => "slow-heads",
            Self::SlowBodies => "slow-bodies",
            Self::SlowReaders => "slow-readers",
        }
    }
}
