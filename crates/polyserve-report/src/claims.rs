//! Claims of the published experiments, with a verdict from the measurements here.
//!
//! Invariant: a verdict has the figures that decide it. If no figure decides it, it is undecided.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A published claim and its verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The experiment.
    pub experiment: String,
    /// The claim, in one sentence.
    pub claim: String,
    /// Whether it holds here.
    pub verdict: ClaimVerdict,
    /// The figures that decide it, with units; or why there are none.
    pub figure: String,
}

/// A verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimVerdict {
    /// It holds here too.
    Confirmed,
    /// It does not hold here.
    Refuted,
    /// The measurement does not decide.
    Undecided,
}

impl fmt::Display for ClaimVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Confirmed => "confirmed",
            Self::Refuted => "refuted",
            Self::Undecided => "undecided",
        })
    }
}

impl Claim {
    /// Says of what `experiment` claims whether it `holds`; `None` where that is not to be told.
    pub fn new(experiment: &str, claim: &str, holds: Option<bool>, figure: String) -> Self {
        let verdict = match holds {
            Some(true) => ClaimVerdict::Confirmed,
            Some(false) => ClaimVerdict::Refuted,
            None => ClaimVerdict::Undecided,
        };
        Self { experiment: experiment.to_owned(), claim: claim.to_owned(), verdict, figure }
    }
}

/// Claims for people: the verdict and the claim in a line, the figure in the next.
pub fn shown_claims(claims: &[Claim]) -> String {
    let shown = claims.iter().map(|Claim { claim, verdict, figure, .. }| format!("{verdict}: {claim}\n    {figure}\n"));
    shown.collect()
}
