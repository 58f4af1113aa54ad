//! The claims of one article share one error: the probability that chance alone decides any of them is at most 5 %.
//!
//! Each claim is judged by intervals, so it can be judged at any error. Holm's procedure begins with 5 % divided by the
//! number of claims. Each decided claim raises the error of the remaining claims. Claims that no interval decides count
//! too.
//!
//! Invariant: a claim that is undecided at 5 % alone stays undecided. Cost: at most `n (n + 1) / 2` judgements for n
//! claims.
//!
//! Source: Holm, "A simple sequentially rejective multiple test procedure", 1979.

use crate::report::{Claim, ClaimVerdict};

use crate::statistics::ERROR_PROBABILITY;

/// Returns the claims, with the verdicts that remain if they share one error. Each function of `claims` judges its
/// claim at an error. `others` is the number of the article's claims that no interval decides. The printed figures are
/// of 5 %.
pub(crate) fn sharing(claims: &[Box<dyn Fn(f64) -> Claim + '_>], others: usize) -> Vec<Claim> {
    let mut judged: Vec<Claim> = claims.iter().map(|claim| claim(ERROR_PROBABILITY)).collect();
    let total = claims.len() + others;
    let is_decided = |claim: &Claim| claim.verdict != ClaimVerdict::Undecided;
    let mut open: Vec<usize> = (0..claims.len()).filter(|place| is_decided(&judged[*place])).collect();
    let mut decided = 0;
    let next = |open: &[usize], decided: usize| {
        let error = ERROR_PROBABILITY / (total - decided) as f64;
        open.iter().position(|place| is_decided(&claims[*place](error)))
    };
    while let Some(place) = next(&open, decided) {
        open.remove(place);
        decided += 1;
    }
    for place in open {
        let claim = &mut judged[place];
        claim.verdict = ClaimVerdict::Undecided;
        claim.figure.push_str(&format!("; no verdict, because {total} claims share an error of 5 % (Holm)"));
    }
    judged
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A claim that holds at this error and above.
    fn claim(min_error: f64, holds: bool) -> Box<dyn Fn(f64) -> Claim> {
        Box::new(move |error| {
            Claim::new("any", "claim", (error >= min_error).then_some(holds), format!("decided from {min_error} on"))
        })
    }

    fn verdicts(claims: &[(f64, bool)], others: usize) -> Vec<ClaimVerdict> {
        let claims: Vec<_> = claims.iter().map(|(min_error, holds)| claim(*min_error, *holds)).collect();
        sharing(&claims, others).iter().map(|claim| claim.verdict).collect()
    }

    #[test]
    fn claims_of_one_article_share_the_error() {
        let (confirmed, refuted, undecided) = (ClaimVerdict::Confirmed, ClaimVerdict::Refuted, ClaimVerdict::Undecided);
        assert_eq!(verdicts(&[], 3), []);
        assert_eq!(verdicts(&[(0.04, true)], 0), [confirmed]);
        assert_eq!(verdicts(&[(0.04, true)], 1), [undecided], "the other claim counts");
        assert_eq!(verdicts(&[(0.04, true), (0.001, false)], 0), [confirmed, refuted], "0.025, then 0.05");
        assert_eq!(verdicts(&[(0.04, true), (0.03, true)], 0), [undecided; 2]);
        assert_eq!(verdicts(&[(0.2, true), (0.02, true), (0.01, false)], 0), [undecided, confirmed, refuted]);
        let claims = [claim(0.03, true), claim(0.04, true)];
        let figure = &sharing(&claims, 0)[0].figure;
        assert_eq!(figure, "decided from 0.03 on; no verdict, because 2 claims share an error of 5 % (Holm)");
    }
}
