//! The checker. It checks one key after the other.

use super::plan::{Register, Window};
use super::search::{LimitExceeded, SearchLimits, SearchResult, search};
use super::{History, Operation, Violation, minimise};
use crate::property::Outcome;

/// The result of a check.
#[derive(Clone, Debug)]
#[must_use]
pub enum CheckVerdict {
    /// There is an order in which all answers are right.
    Linearizable,
    /// There is no such order. The violation holds a few operations that show it.
    NotLinearizable(Box<Violation>),
    /// Undecided: the search for an order of this key's operations reached a limit.
    Undecided(i64, LimitExceeded),
}

/// Checks a history, within the default limits.
///
/// An order alone does not show that operations raced: see [`History::shows_nothing`].
pub fn check(history: &History) -> CheckVerdict {
    check_within(history, &SearchLimits::default())
}

/// Checks a history. Stops at the first key that has no order.
pub fn check_within(history: &History, limits: &SearchLimits) -> CheckVerdict {
    let mut operations = history.operations().to_vec();
    operations.sort_unstable_by_key(|operation| (operation.key, operation.called));
    let mut undecided = None;
    for key in operations.chunk_by(|one, other| one.key == other.key) {
        match one_key(key, limits) {
            CheckVerdict::Linearizable => {}
            CheckVerdict::Undecided(key, why) => undecided = undecided.or(Some(CheckVerdict::Undecided(key, why))),
            found @ CheckVerdict::NotLinearizable(_) => return found,
        }
    }
    undecided.unwrap_or(CheckVerdict::Linearizable)
}

/// Checks the operations of one key, which are sorted by their calls.
fn one_key(operations: &[Operation], limits: &SearchLimits) -> CheckVerdict {
    let register = Register::new(operations);
    let plan = register.plan(&Window::WHOLE, |_| false);
    match search(&plan, &mut { *limits }) {
        SearchResult::Order => CheckVerdict::Linearizable,
        SearchResult::LimitExceeded(why) => CheckVerdict::Undecided(operations[0].key, why),
        SearchResult::Stuck(item) => {
            let stuck = plan.items[item as usize];
            let core = minimise::minimise(&register, stuck.place as usize, stuck.returned, limits);
            CheckVerdict::NotLinearizable(Box::new(Violation::new(&register, &core)))
        }
    }
}

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
