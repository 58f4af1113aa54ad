//! The keys and samples of a comparison, and the other lines of its record.
//!
//! Cost: one line for each fact.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::turn::{Measurement, Role};

/// The `kind` of a [`BoundFact`]'s line.
pub(super) const BOUND: &str = "bound";
/// The `kind` of the line of a [`Rate`](crate::turn::Rate) that is not given.
pub(super) const RATE: &str = "rate";
/// The `kind` of the line of [`OtherProcesses`].
pub(super) const OTHERS: &str = "other_processes";

/// The sample of a cell: the contestant's role and its figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The contestant's role.
    pub role: Role,
    /// Its figures.
    #[serde(flatten)]
    pub measurement: Measurement,
}

/// A contestant in a round.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The round; 0 for a calibration, and for a contestant that was not started.
    pub round: usize,
    /// The contestant's name.
    pub name: String,
    /// The number of the calibration; 0 in rounds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde calls it so
fn is_zero(attempt: &usize) -> bool {
    *attempt == 0
}

impl Key {
    /// A contestant in a round.
    pub fn new(round: usize, name: &str) -> Self {
        Self { round, name: name.to_owned(), attempt: 0 }
    }

    /// A calibration of a contestant.
    pub(super) fn calibration(attempt: usize, name: &str) -> Self {
        Self { attempt, ..Self::new(0, name) }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { round: 0, name, attempt: 0 } => f.write_str(name),
            Self { round: 0, name, attempt } => write!(f, "calibration {attempt}: {name}"),
            Self { round, name, .. } => write!(f, "round {round}: {name}"),
        }
    }
}

/// The bound that a contestant's shape sets on the wait of a connection. The line's kind is `bound`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BoundFact {
    pub(super) name: String,
    pub(super) bound: String,
}

/// The share of the cores' time that other processes used. The line's kind is `other_processes`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct OtherProcesses {
    pub(super) share: f64,
}
