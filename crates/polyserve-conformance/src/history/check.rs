//! The checker: key after key.

use std::fmt;

use super::plan::{Register, Window};
use super::search::{Found, search};
use super::{History, Operation, Violation, minimise};

/// What a history is.
#[derive(Clone, Debug)]
#[must_use]
pub enum Verdict {
    /// There is an order in which all answers are right.
    Linearizable,
    /// There is none; and a few operations that show it.
    NotLinearizable(Box<Violation>),
    /// It is not known: the search for an order of this key's operations was too much.
    GaveUp(i64, GaveUp),
}

/// Why a search was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaveUp {
    /// More than 128 operations of one key are on their way at the same time.
    TooManyAtOnce,
    /// There are more possibilities at a time than [`Limits::configurations`].
    TooManyConfigurations,
    /// There are more in all than [`Limits::steps`].
    TooManySteps,
}

impl fmt::Display for GaveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooManyAtOnce => "more than 128 operations were on their way at the same time",
            Self::TooManyConfigurations => "too much may have happened at one time to remember it all",
            Self::TooManySteps => "too much may have happened to go through it all",
        })
    }
}

/// What a search may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Different possibilities that are remembered at a time, of 32 bytes each. Five times as many are there while the next
    /// are collected.
    pub configurations: usize,
    /// Possibilities that are gone through for one key; and once more, to find the few operations that show a violation.
    pub steps: u64,
}

impl Default for Limits {
    /// A million, at most some 200 MB; and 4 000 million, some minutes.
    fn default() -> Self {
        Self { configurations: 1_000_000, steps: 4_000_000_000 }
    }
}

/// Checks a history, within the usual limits.
pub fn check(history: &History) -> Verdict {
    check_within(history, &Limits::default())
}

/// Checks a history. Where one key is found out the others are not looked at.
pub fn check_within(history: &History, limits: &Limits) -> Verdict {
    let mut operations = history.operations().to_vec();
    operations.sort_unstable_by_key(|operation| (operation.key, operation.called));
    let mut gave_up = None;
    for key in operations.chunk_by(|one, other| one.key == other.key) {
        match one_key(key, limits) {
            Verdict::Linearizable => {}
            Verdict::GaveUp(key, why) => gave_up = gave_up.or(Some(Verdict::GaveUp(key, why))),
            found @ Verdict::NotLinearizable(_) => return found,
        }
    }
    gave_up.unwrap_or(Verdict::Linearizable)
}

/// Checks the operations of one key, by their calls.
fn one_key(operations: &[Operation], limits: &Limits) -> Verdict {
    let register = Register::new(operations);
    let plan = register.plan(&Window::WHOLE, |_| false);
    match search(&plan, &mut { *limits }) {
        Found::Order => Verdict::Linearizable,
        Found::GaveUp(why) => Verdict::GaveUp(operations[0].key, why),
        Found::Stuck(item) => {
            let stuck = plan.items[item as usize];
            let core = minimise::minimise(&register, stuck.place as usize, stuck.returned, limits);
            Verdict::NotLinearizable(Box::new(Violation::new(&register, &core)))
        }
    }
}
