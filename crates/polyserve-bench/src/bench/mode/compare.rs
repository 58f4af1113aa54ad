//! The mode `compare`: contestants side by side at one cell, as `polyserve compare` measures them.
//!
//! The report is a ranking: shares of the limits, costs that do not count with the reason, and the p99 at a fixed rate against a
//! goal. The mode [`closed`](super::closed) has a sweep, charts and claims in its place.
//!
//! Cost: that of a [comparison](crate::compare).

use std::time::Duration;

use serde::Deserialize;

use super::requests::RequestSettings;
use super::{ReadKeys, check_rate, check_slowed, check_times};
use crate::Misuse;
use crate::bench::definition::{Definition, optional_time, time};
use crate::bench::pattern::ContestantOrigin;

/// What the mode reads of a definition.
pub(super) const READS: ReadKeys = ReadKeys {
    origins: &[ContestantOrigin::Catalog, ContestantOrigin::Peer, ContestantOrigin::Reference],
    has_sizes: false,
    axes: &[],
    workload: &[
        "service",
        "requests",
        "mix",
        "keys",
        "dist",
        "payload",
        "connections",
        "pipeline",
        "close",
        "arrivals",
    ],
};

/// Contestants side by side.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CompareMode {
    /// The measured time of a contestant in a round.
    #[serde(deserialize_with = "time")]
    pub slice: Duration,
    /// The time for verification and warm-up.
    #[serde(deserialize_with = "time")]
    pub warm_up: Duration,
    /// Whether latencies at a fixed rate are measured too.
    pub latency: bool,
    /// The fixed rate, in requests a second. By default half of the throughput of the slowest contestant, of those with at least
    /// a quarter of the best.
    pub rate: Option<f64>,
    /// The goal: the max p99 at the fixed rate. Contestants that meet it come first.
    #[serde(deserialize_with = "optional_time")]
    pub p99: Option<Duration>,
    /// The percentage of CPU time per request that a further copy of the baseline wastes. It must be found slower.
    pub slowed: Option<f64>,
    /// Whether the run ends as soon as each contestant differs from the baseline. The number of rounds is then the max.
    pub stops_when_sure: bool,
    /// The variant of contestants.toml that all programs are built as, our own servers too; `None` for the running program.
    pub variant: Option<String>,
}

impl Default for CompareMode {
    fn default() -> Self {
        Self {
            slice: Duration::from_millis(200),
            warm_up: Duration::from_millis(60),
            latency: true,
            rate: None,
            p99: None,
            slowed: None,
            stops_when_sure: false,
            variant: None,
        }
    }
}

impl CompareMode {
    /// The closed loop, and half of its time at a fixed rate.
    pub fn requests(&self) -> RequestSettings {
        let Self { slice, warm_up, latency, rate, .. } = *self;
        RequestSettings { warm_up, slice, latency_slice: slice / 2, rate, latency }
    }

    pub(super) fn check(&self, definition: &Definition) -> Result<(), Misuse> {
        let Definition { controls, charts, columns, published, claims, workload, .. } = definition;
        let unread = [
            ("controls", controls.is_empty()),
            ("chart", charts.is_empty()),
            ("columns", columns.is_empty()),
            ("published", published.is_empty()),
            ("claim", claims.is_empty()),
        ];
        if let Some((key, _)) = unread.into_iter().find(|(_, is_empty)| !is_empty) {
            return Err(definition.misuse(key, "the mode compare does not read it; the mode closed does"));
        }
        if !self.latency && (self.rate.is_some() || self.p99.is_some()) {
            return Err(definition.misuse("latency", "a rate and a p99 need latencies"));
        }
        let is_peer = |origin| origin == ContestantOrigin::Peer;
        if let Some(service) = &workload.service
            && definition.contestants.iter().chain(&definition.baseline).any(|pattern| is_peer(pattern.origin))
        {
            let why = format!("a foreign server does not have the service {service}");
            return Err(definition.misuse("contestants", why));
        }
        check_slowed(definition, self.slowed)?;
        let baseline = definition.baseline.as_ref().or(definition.contestants.first());
        let why = match baseline.map(|baseline| (baseline.origin, &baseline.name)) {
            Some((ContestantOrigin::Peer, name)) => {
                Some(format!("a server of ours as the baseline, and {name} is not one"))
            }
            Some((ContestantOrigin::Reference, name)) => {
                Some(format!("a server as the baseline: {name} has no service to slow down"))
            }
            _ => None,
        };
        if let Some(why) = why.filter(|_| self.slowed.is_some()) {
            return Err(definition.misuse("slowed", format!("slowed needs {why}")));
        }
        check_rate(definition, self.rate)?;
        check_times(
            definition,
            [("slice", self.slice), ("warm_up", self.warm_up), ("p99", self.p99.unwrap_or(self.slice))],
        )
    }
}
