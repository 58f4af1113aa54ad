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
    /// The published figures, with units; `None` if nothing more than the claim was published.
    pub published: Option<String>,
    /// Whether it holds here.
    pub verdict: ClaimVerdict,
    /// The figures that decide it, with units; or why there are none. The first one decides; `; ` separates the others.
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
        self.serialize(f)
    }
}

impl Claim {
    /// The claim of `experiment` without published figures. It is undecided if `holds` is `None`.
    pub(crate) fn new(experiment: &str, claim: &str, holds: Option<bool>, figure: String) -> Self {
        let verdict = match holds {
            Some(true) => ClaimVerdict::Confirmed,
            Some(false) => ClaimVerdict::Refuted,
            None => ClaimVerdict::Undecided,
        };
        Self { experiment: experiment.to_owned(), claim: claim.to_owned(), published: None, verdict, figure }
    }

    /// The first of its figures: the one that decides it.
    pub fn first_figure(&self) -> &str {
        self.figure.split("; ").next().unwrap_or_default()
    }

    /// The claim with its published figures.
    #[must_use]
    pub(crate) fn with_published(self, published: impl Into<String>) -> Self {
        Self { published: Some(published.into()), ..self }
    }
}

/// The number of claims with each verdict: `3 confirmed, 1 refuted, 0 undecided`.
pub fn counted_verdicts(claims: &[Claim]) -> String {
    let count = |verdict| {
        let count = claims.iter().filter(|claim| claim.verdict == verdict).count();
        format!("{count} {verdict}")
    };
    [ClaimVerdict::Confirmed, ClaimVerdict::Refuted, ClaimVerdict::Undecided].map(count).join(", ")
}

/// Claims for people. The first line of a claim has its verdict. The figures of this machine and the published ones follow, a
/// line for each.
pub(crate) fn shown_claims(claims: &[Claim]) -> String {
    let shown = claims.iter().map(|Claim { claim, published, verdict, figure, .. }| {
        let published =
            published.as_ref().map_or_else(String::new, |published| format!("    published: {published}\n"));
        format!("{verdict}: {claim}\n    here: {figure}\n{published}")
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_figures_have_a_line_of_their_own() {
        let claim = Claim::new("any", "more is faster", Some(true), "1.05".into());
        assert_eq!(shown_claims(std::slice::from_ref(&claim)), "confirmed: more is faster\n    here: 1.05\n");
        let claim = claim.with_published("1.04");
        assert_eq!(shown_claims(&[claim]), "confirmed: more is faster\n    here: 1.05\n    published: 1.04\n");
    }

    #[test]
    fn the_first_figure_decides_and_verdicts_are_counted() {
        let claims = [Some(true), None, Some(true)].map(|holds| Claim::new("any", "c", holds, "1.05; 2 rounds".into()));
        assert_eq!(claims[0].first_figure(), "1.05");
        assert_eq!(counted_verdicts(&claims), "2 confirmed, 0 refuted, 1 undecided");
    }
}
