//! The limits of a search, and which of them it reached.

use std::fmt;

/// The reason for which a search stopped without a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitExceeded {
    /// More than 128 operations of one key overlap.
    TooManyAtOnce,
    /// There are more possibilities at a time than [`SearchLimits::configurations`].
    TooManyConfigurations,
    /// There are more possibilities in total than [`SearchLimits::steps`].
    TooManySteps,
}

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooManyAtOnce => "more than 128 operations overlap",
            Self::TooManyConfigurations => "the number of possible states at one time exceeds the limit",
            Self::TooManySteps => "the number of possible states in total exceeds the limit",
        })
    }
}

/// The limits of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchLimits {
    /// The number of different possibilities that are kept at a time, of 32 bytes each. Up to five times as many exist while
    /// the next ones are collected.
    pub configurations: usize,
    /// The number of possibilities that are examined for one key. The search for the few operations that show a violation
    /// has the same limit once more.
    pub steps: u64,
}

impl Default for SearchLimits {
    /// One million configurations, which is at most about 200 MiB; and 4 000 million steps, which is some minutes.
    fn default() -> Self {
        Self { configurations: 1_000_000, steps: 4_000_000_000 }
    }
}
