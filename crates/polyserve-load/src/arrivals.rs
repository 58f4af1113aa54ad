//! The spacing of an open loop's requests.

use std::fmt;
use std::str::FromStr;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng as _;
use serde::{Deserialize, Serialize};

/// How the due times of an open loop are spaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// A Poisson process: independent clients, with bursts. The default, because queues form in bursts.
    #[default]
    Poisson,
    /// Equal intervals. They hide queueing: below saturation no request meets another one.
    Even,
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Poisson => "poisson",
            Self::Even => "even",
        })
    }
}

impl FromStr for Arrivals {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "poisson" => Ok(Self::Poisson),
            "even" => Ok(Self::Even),
            _ => Err(format!("{text:?} is neither poisson nor even")),
        }
    }
}

/// An interval of a Poisson process with this mean.
pub(crate) fn interval(random: &mut ChaCha8Rng, mean: f64) -> f64 {
    // The logarithm is finite.
    -unit(random).ln() * mean
}

/// A number above 0 and at most 1, with 53 bits.
pub(crate) fn unit(random: &mut ChaCha8Rng) -> f64 {
    ((random.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
}
