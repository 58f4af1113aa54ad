//! Why a cell has no sample.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::compare::Unfit;

/// Why a cell has no sample: the reason, and one sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Absence {
    /// The reason.
    pub reason: Reason,
    /// One sentence, or a few lines of a contestant's output.
    pub why: String,
}

/// The reason of an [`Absence`]. It decides what a later run does, and the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The contestant is not installed, was not built, or cannot serve the cell's settings.
    NotAvailable,
    /// The measurement failed for a reason that may be the machine's. A later run tries again.
    Failed,
    /// The contestant did wrong: a wrong answer, a crash, a wrong count. No later run tries again.
    Wrong,
    /// The contestant did not finish within its time limit. No later run tries again; the command does not fail.
    TimedOut,
}

impl Absence {
    /// An absence of a contestant that is not installed, was not built, or cannot serve the cell's settings.
    pub fn not_available(why: impl Into<String>) -> Self {
        Self { reason: Reason::NotAvailable, why: why.into() }
    }

    /// An absence after a failure that may be the machine's.
    pub fn failed(why: impl Into<String>) -> Self {
        Self { reason: Reason::Failed, why: why.into() }
    }

    /// An absence of a contestant that did wrong.
    pub fn wrong(why: impl Into<String>) -> Self {
        Self { reason: Reason::Wrong, why: why.into() }
    }

    /// An absence of a contestant that was too slow to be measured.
    pub fn timed_out(why: impl Into<String>) -> Self {
        Self { reason: Reason::TimedOut, why: why.into() }
    }

    /// Returns true if no later run measures the cell again.
    pub fn is_final(&self) -> bool {
        matches!(self.reason, Reason::Wrong | Reason::TimedOut)
    }

    /// Returns true if the contestant did wrong.
    pub fn is_wrong(&self) -> bool {
        self.reason == Reason::Wrong
    }
}

/// A cell without a sample, as reports list it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failed<K> {
    /// The cell.
    #[serde(flatten)]
    pub key: K,
    /// Why.
    pub why: String,
    /// Whether the contestant did wrong.
    pub wrong: bool,
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl From<Unfit> for Absence {
    fn from(Unfit { why, wrong }: Unfit) -> Self {
        Self { reason: if wrong { Reason::Wrong } else { Reason::Failed }, why }
    }
}

/// Records of format 2 and earlier have a field `wrong` in place of the reason.
impl<'de> Deserialize<'de> for Absence {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Fields {
            reason: Option<Reason>,
            why: String,
            #[serde(default)]
            wrong: bool,
        }
        let Fields { reason, why, wrong } = Fields::deserialize(deserializer)?;
        let reason = reason.unwrap_or(if wrong { Reason::Wrong } else { Reason::Failed });
        Ok(Self { reason, why })
    }
}
