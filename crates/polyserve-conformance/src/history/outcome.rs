//! A recorded history as the outcome of a property.

use super::{CheckVerdict, History, check};
use crate::property::Outcome;

/// Returns [`Outcome::Held`] if the history is linearizable, and [`Outcome::NotRun`] if it shows nothing about races.
///
/// # Panics
///
/// Panics with the violation if the history is not linearizable, and if the search reached a limit.
#[track_caller]
pub(crate) fn outcome_of(history: &History) -> Outcome {
    match check(history) {
        CheckVerdict::Linearizable => history.shows_nothing().map_or(Outcome::Held, Outcome::NotRun),
        CheckVerdict::NotLinearizable(violation) => panic!("not linearizable: {violation}"),
        CheckVerdict::Undecided(key, why) => {
            panic!("whether the history of key {key} is linearizable is not known: {why}")
        }
    }
}
