//! The mode `closed`: each connection sends its next request after an answer.

use std::time::Duration;

use serde::Deserialize;

use super::requests::RequestSettings;
use super::{check_rate, check_times};
use crate::Misuse;
use crate::bench::definition::{Definition, time};

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
    /// Whether latencies at a fixed rate are measured too.
    pub latency: bool,
    /// The fixed rate, in requests a second. By default half of the throughput of the slowest contestant at the cell, of those
    /// with at least a quarter of the best.
    pub rate: Option<f64>,
}

impl Default for ClosedMode {
    fn default() -> Self {
        Self { slice: Duration::from_millis(200), warm_up: Duration::from_millis(60), latency: true, rate: None }
    }
}

impl ClosedMode {
    /// The closed loop, and half of its time at a fixed rate.
    pub fn requests(&self) -> RequestSettings {
        let Self { slice, warm_up, latency, rate } = *self;
        RequestSettings { warm_up, slice, latency_slice: slice / 2, rate, latency }
    }

    pub(super) fn check(&self, definition: &Definition) -> Result<(), Misuse> {
        check_rate(definition, self.rate)?;
        check_times(definition, [("slice", self.slice), ("warm_up", self.warm_up)])
    }
}
