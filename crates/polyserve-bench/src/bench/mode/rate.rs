//! The mode `rate`: requests are due at a fixed rate, whether or not earlier ones are answered.

use std::time::Duration;

use serde::Deserialize;

use super::requests::RequestSettings;
use super::{check_rate, check_times};
use crate::Misuse;
use crate::bench::definition::{Definition, time};
use crate::bench::sweep::SweepAxis;

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
    pub fn requests(&self) -> RequestSettings {
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
