//! How what a server can do, and what it takes, grows: along connections, stored entities, workers and payload.
//!
//! A point is a contestant at a place of an axis; all else stays at its base. Every point is a process of its own in
//! every round, and the points of a round are taken in turn over all contestants, in an order that changes. In closed loop
//! it shows throughput, CPU time and memory; at a fixed rate, latency from the intended start. The rate is one for an
//! axis: half of what the slowest of its ends sustains, whoever's it is, found before the first round. So latencies
//! compare along the axis and across contestants; a server that is faster is asked for less of what it could do.
//!
//! Repos are measured without HTTP in [`stores`](crate::stores).
//!
//! Invariant: every answer is checked; a point with a wrong one has no figures in any round. Cost: points x rounds x about
//! a second, more where a million entities must be stored first.
//!
//! # Layout
//!
//! * [`bench`](mod@bench): a point of a server. [`experiment`]: all of them, in turn.
//! * [`report`]: what came of it; [`growth`]: the curves through it, `curves`: of which figures; [`table`]: for people, and CSV.

pub mod bench;
mod curves;
pub mod experiment;
pub mod growth;
pub mod report;
pub mod table;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use experiment::Scale;
pub use report::{Metric, Report};

/// The experiment's name, and its file's.
pub const NAME: &str = "scale";

/// What grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Connections at a time.
    Connections,
    /// Entities that are stored.
    Keys,
    /// Workers of the server; of a store without one, threads.
    Workers,
    /// Bytes of an entity's description.
    Payload,
}

impl Axis {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Connections, Self::Keys, Self::Workers, Self::Payload];

    /// Its name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Keys => "keys",
            Self::Workers => "workers",
            Self::Payload => "payload",
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where on all axes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Connections at a time.
    pub connections: usize,
    /// Entities that are stored.
    pub keys: u64,
    /// Workers; `None` where the server's default is taken.
    pub workers: Option<usize>,
    /// Bytes of an entity's description.
    pub payload_bytes: usize,
}

impl Place {
    /// This place, but at `x` of `axis`.
    #[must_use]
    pub fn at(self, axis: Axis, x: u64) -> Self {
        let count = usize::try_from(x).unwrap_or(usize::MAX);
        match axis {
            Axis::Connections => Self { connections: count, ..self },
            Axis::Keys => Self { keys: x, ..self },
            Axis::Workers => Self { workers: Some(count), ..self },
            Axis::Payload => Self { payload_bytes: count, ..self },
        }
    }
}
