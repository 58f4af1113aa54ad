//! The modes `closed` and `compare`: each connection sends its next request after an answer. The mode `rate`: requests are due at a
//! fixed rate, whether or not earlier ones are answered.
//!
//! The mode `compare` ranks contestants at one cell, as `polyserve compare` does: shares of the limits, costs that do not count with
//! the reason, and the p99 at a fixed rate against a goal. The mode `closed` has a sweep, charts and claims in its place.

use std::time::Duration;

use serde::Deserialize;

use super::requests::{self, RequestSettings};
use super::{ReadKeys, check_goal, check_rate, check_slowed, check_times};
use crate::Misuse;
use crate::bench::definition::{Definition, optional_time, time};
use crate::bench::pattern::ContestantOrigin;
use crate::bench::sweep::SweepAxis;

/// A comparison has one cell.
pub(super) const COMPARE_READS: ReadKeys = ReadKeys { has_sizes: true, axes: &[], ..requests::READS };

/// Each connection sends its next request after an answer. The latencies at a fixed rate follow.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClosedMode {
    /// The measured time of a contestant at a cell in a round.
    #[serde(deserialize_with = "time")]
    pub slice: Duration,
    /// The time for verification and warm-up.
    #[serde(deserialize_with = "time")]
    pub warm_up: Duration,
    /// The number of requests that a contestant gets in a turn, in place of a time. Contestants are then measured one after the
    /// other, and not in slices. The mode `compare` does not read it.
    pub requests: Option<u64>,
    /// Whether latencies at a fixed rate are measured too.
    pub latency: bool,
    /// The measured time at the fixed rate. By default half of `slice`.
    #[serde(deserialize_with = "optional_time")]
    pub latency_slice: Option<Duration>,
    /// The fixed rate, in requests a second. By default half of the throughput of the slowest contestant at the cell, of those
    /// with at least a quarter of the best.
    pub rate: Option<f64>,
    /// The percentage of CPU time per request that a further copy of the baseline wastes. It must be found slower.
    pub slowed: Option<f64>,
    /// The variant of contestants.toml that all programs are built as, our own servers too; `None` for the running program.
    pub variant: Option<String>,
    /// The goal: the max p99 at the fixed rate. Contestants that meet it come first. Only the mode `compare` reads it.
    #[serde(deserialize_with = "optional_time")]
    pub p99: Option<Duration>,
    /// Whether the run ends as soon as each contestant differs from the baseline. The number of rounds is then the max. Only the
    /// mode `compare` reads it.
    pub stops_when_sure: bool,
}

impl Default for ClosedMode {
    fn default() -> Self {
        Self {
            slice: Duration::from_millis(200),
            warm_up: Duration::from_millis(60),
            requests: None,
            latency: true,
            latency_slice: None,
            rate: None,
            slowed: None,
            variant: None,
            p99: None,
            stops_when_sure: false,
        }
    }
}

impl ClosedMode {
    /// The closed loop, and the time at a fixed rate.
    pub(crate) fn requests(&self) -> RequestSettings {
        let Self { slice, warm_up, latency, latency_slice, rate, .. } = *self;
        RequestSettings { warm_up, slice, latency_slice: latency_slice.unwrap_or(slice / 2), rate, latency }
    }

    /// Checks what both modes read.
    fn check_common(&self, definition: &Definition) -> Result<(), Misuse> {
        if !self.latency && (self.rate.is_some() || self.p99.is_some() || self.latency_slice.is_some()) {
            return Err(definition.misuse("latency", "a rate and a p99 need latencies"));
        }
        self.check_slowed(definition)?;
        check_rate(definition, self.rate)?;
        let Self { slice, warm_up, latency_slice, .. } = *self;
        let latency_slice = latency_slice.unwrap_or(slice);
        check_times(definition, [("slice", slice), ("warm_up", warm_up), ("latency_slice", latency_slice)])
    }

    /// Only a server of ours can be slowed.
    fn check_slowed(&self, definition: &Definition) -> Result<(), Misuse> {
        check_slowed(definition, self.slowed)?;
        let baseline = definition.baseline.as_ref().or(definition.contestants.first());
        let why = match baseline.map(|baseline| (baseline.origin, &baseline.name)) {
            Some((ContestantOrigin::Peer, name)) => format!("a server of ours as the baseline, and {name} is not one"),
            Some((ContestantOrigin::Reference, name)) => {
                format!("a server as the baseline: {name} has no service to slow down")
            }
            _ => return Ok(()),
        };
        self.slowed.map_or(Ok(()), |_| Err(definition.misuse("slowed", format!("slowed needs {why}"))))
    }

    pub(super) fn check(&self, definition: &Definition) -> Result<(), Misuse> {
        let unread = [("p99", self.p99.is_some()), ("stops_when_sure", self.stops_when_sure)];
        if let Some((key, _)) = unread.into_iter().find(|(_, is_given)| *is_given) {
            return Err(definition.misuse(key, "the mode closed does not read it; the mode compare does"));
        }
        if self.requests == Some(0) {
            return Err(definition.misuse("requests", "it must be at least 1"));
        }
        let has_rate = [SweepAxis::Rate, SweepAxis::RatePercent].iter().any(|axis| definition.sweep.contains_key(axis));
        if has_rate && self.requests.is_some() {
            return Err(definition.misuse("requests", "a number of requests has no rate"));
        }
        if self.slowed.is_some() && self.requests.is_some() {
            return Err(definition.misuse("requests", "a slowed server is measured for a time"));
        }
        self.check_common(definition)
    }

    /// Checks the mode `compare`.
    pub(super) fn check_comparison(&self, definition: &Definition) -> Result<(), Misuse> {
        let Definition { controls, charts, columns, published, claims, .. } = definition;
        let unread = [
            ("controls", controls.is_empty()),
            ("chart", charts.is_empty()),
            ("columns", columns.is_empty()),
            ("published", published.is_empty()),
            ("claim", claims.is_empty()),
            ("requests", self.requests.is_none()),
        ];
        if let Some((key, _)) = unread.into_iter().find(|(_, is_empty)| !is_empty) {
            return Err(definition.misuse(key, "the mode compare does not read it; the mode closed does"));
        }
        check_goal(definition, self.p99)?;
        self.check_common(definition)
    }
}

/// Requests are due at a fixed rate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RateMode {
    /// The measured time of a contestant at a cell in a round.
    #[serde(deserialize_with = "time")]
    pub slice: Duration,
    /// The time for verification and warm-up.
    #[serde(deserialize_with = "time")]
    pub warm_up: Duration,
    /// The rate, in requests a second, unless the sweep has a rate.
    pub rate: Option<f64>,
}

impl Default for RateMode {
    fn default() -> Self {
        Self { slice: Duration::from_millis(200), warm_up: Duration::from_millis(60), rate: None }
    }
}

impl RateMode {
    /// The fixed rate, without a closed loop.
    pub(crate) fn requests(&self) -> RequestSettings {
        let Self { slice, warm_up, rate } = *self;
        RequestSettings { warm_up, slice: Duration::ZERO, latency_slice: slice, rate, latency: true }
    }

    pub(super) fn check(&self, definition: &Definition) -> Result<(), Misuse> {
        let axes = [SweepAxis::Rate, SweepAxis::RatePercent];
        if self.rate.is_none() && !axes.iter().any(|axis| definition.sweep.contains_key(axis)) {
            let why = "a rate needs `rate` in the mode or in the sweep, or `rate_percent` in the sweep";
            return Err(definition.misuse("kind", why));
        }
        check_rate(definition, self.rate)?;
        check_times(definition, [("slice", self.slice), ("warm_up", self.warm_up)])
    }
}
