//! How throughput, CPU time, latency and memory of servers grow: along connections, stored entities, workers and payload.
//!
//! A point is a contestant at a value of an axis; all other settings stay at their base. Every point has its own process in
//! every round, and the points of a round are measured in turn over all contestants, in an order that changes. A closed
//! loop measures throughput, CPU time and memory; a fixed rate measures latency from the intended start.
//!
//! An axis has one rate: half of the throughput of the slowest contestant at the ends of the axis, measured before the first
//! round. So latencies can be compared along the axis and across contestants. For a faster server, the rate is a smaller share
//! of its throughput.
//!
//! On the axis [`Rate`](Axis::Rate) the rate itself grows, as a share of the null server's throughput, and there is no closed
//! loop: the figures are the cost and the latency below saturation.
//!
//! Repos are measured without HTTP in [`stores`](crate::stores).
//!
//! Invariant: every answer is checked; a point with a wrong answer has no figures in any round. Cost: points x rounds x
//! about a second, and more if a million entities must be stored first.
//!
//! # Layout
//!
//! * [`bench`](mod@bench): measures a point of a server. [`experiment`]: the experiment in the framework.
//! * [`report`]: the result. [`growth`]: curves through points. [`table`]: tables and CSV.

pub mod bench;
pub mod experiment;
pub mod growth;
pub mod report;
pub mod table;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use experiment::Scale;
pub use report::{Metric, Report};

/// The name of the experiment and of its record.
pub const NAME: &str = "scale";

/// The setting that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Concurrent connections.
    Connections,
    /// Stored entities.
    Keys,
    /// Workers of the server, or threads of a store without a server.
    Workers,
    /// Bytes of an entity's description.
    Payload,
    /// Requests a second, in per cent of the null server's throughput.
    Rate,
}

impl Axis {
    /// All axes.
    pub const ALL: [Self; 5] = [Self::Connections, Self::Keys, Self::Workers, Self::Payload, Self::Rate];

    /// Its name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Keys => "keys",
            Self::Workers => "workers",
            Self::Payload => "payload",
            Self::Rate => "rate",
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The settings of a point: its value on every axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PointSettings {
    /// Concurrent connections.
    pub connections: usize,
    /// Stored entities.
    pub keys: u64,
    /// Workers; `None` for the server's default.
    pub workers: Option<usize>,
    /// Bytes of an entity's description.
    pub payload_bytes: usize,
}

impl PointSettings {
    /// These settings, but with `x` on `axis`.
    #[must_use]
    pub fn at(self, axis: Axis, x: u64) -> Self {
        let count = usize::try_from(x).unwrap_or(usize::MAX);
        match axis {
            Axis::Connections => Self { connections: count, ..self },
            Axis::Keys => Self { keys: x, ..self },
            Axis::Workers => Self { workers: Some(count), ..self },
            Axis::Payload => Self { payload_bytes: count, ..self },
            Axis::Rate => self,
        }
    }
}
