//! The mode `closed`: each connection sends its next request after an answer.

use std::time::Duration;

use serde::Deserialize;

use super::requests::RequestSettings;
use super::{check_rate, check_times};
use crate::Misuse;
use crate::bench::definition::{Definition, time};
use crate::bench::sweep::SweepAxis;

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
    /// other, and not in slices.
    pub requests: Option<u64>,
    /// Whether latencies at a fixed rate are measured too.
    pub latency: bool,
    /// The fixed rate, in requests a second. By default half of the throughput of the slowest contestant at the cell, of those
    /// with at least a quarter of the best.
    pub rate: Option<f64>,
}

impl Default for ClosedMode {
    fn default() -> Self {
        let (slice, warm_up) = (Duration::from_millis(200), Duration::from_millis(60));
        Self { slice, warm_up, requests: None, latency: true, rate: None }
    }
}

impl ClosedMode {
    /// The closed loop, and half of its time at a fixed rate.
    pub fn requests(&self) -> RequestSettings {
        let Self { slice, warm_up, latency, rate, .. } = *self;
        RequestSettings { warm_up, slice, latency_slice: slice / 2, rate, latency }
    }

    pub(super) fn check(&self, definition: &Definition) -> Result<(), Misuse> {
        if self.requests == Some(0) {
            return Err(definition.misuse("requests", "it must be at least 1"));
        }
        let has_rate = [SweepAxis::Rate, SweepAxis::RatePercent].iter().any(|axis| definition.sweep.contains_key(axis));
        if has_rate && self.requests.is_some() {
            return Err(definition.misuse("requests", "a number of requests has no rate"));
        }
        check_rate(definition, self.rate)?;
        check_times(definition, [("slice", self.slice), ("warm_up", self.warm_up)])
    }
}
