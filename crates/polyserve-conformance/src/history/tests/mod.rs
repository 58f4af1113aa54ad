//! Tests of the checker: known verdicts, a search that tries every order, and histories that are right by
//! construction.

mod brute;
mod by_hand;
mod form;
mod made;
mod overlaps;
mod unanswered;

use polyserve_core::{Conditional, Put, Removed};

use super::{Action, CheckVerdict, History, Operation, Precondition, ReadValue, check};

/// An operation of key 1 from a text: `0 put 5 created 10..20`, `1 get 5 30..40`, `1 get absent 30..40`, `2 remove
/// removed 50..60`. An operation whose answer was lost ends with `unknown 50..`. Conditions are `0 put 6 if 5 refused
/// 10..20` and `2 remove if present removed 50..60`.
fn operation(text: &str) -> Operation {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (process, rest) = (words[0].parse().unwrap(), &words[1..words.len() - 1]);
    let (called, returned) = words[words.len() - 1].split_once("..").unwrap();
    let done = |answer| match answer {
        "refused" => Some(Conditional::Refused),
        "unknown" => None,
        answer => Some(Conditional::Done(answer)),
    };
    let action = match *rest {
        ["put", value, "if", condition, answer] => {
            let put =
                done(answer).map(|put| put.map(|put| if put == "created" { Put::Created } else { Put::Replaced }));
            Action::PutIf(value.parse().unwrap(), precondition(condition), put)
        }
        ["remove", "if", condition, answer] => {
            let removed = |answer| if answer == "removed" { Removed::Removed } else { Removed::Absent };
            Action::RemoveIf(precondition(condition), done(answer).map(|answer| answer.map(removed)))
        }
        ["put", value, "created"] => Action::Put(value.parse().unwrap(), Some(Put::Created)),
        ["put", value, "replaced"] => Action::Put(value.parse().unwrap(), Some(Put::Replaced)),
        ["put", value, "unknown"] => Action::Put(value.parse().unwrap(), None),
        ["get", "absent"] => Action::Get(Some(ReadValue::Absent)),
        ["get", "unknown"] => Action::Get(None),
        ["get", value] => Action::Get(Some(ReadValue::Value(value.parse().unwrap()))),
        ["remove", "removed"] => Action::Remove(Some(Removed::Removed)),
        ["remove", "absent"] => Action::Remove(Some(Removed::Absent)),
        ["remove", "unknown"] => Action::Remove(None),
        _ => panic!("{text}"),
    };
    let returned = if returned.is_empty() { u64::MAX } else { returned.parse().unwrap() };
    Operation { process, key: 1, action, called: called.parse().unwrap(), returned }
}

fn precondition(text: &str) -> Precondition {
    match text {
        "absent" => Precondition::Absent,
        "present" => Precondition::Present,
        value => Precondition::Value(value.parse().unwrap()),
    }
}

/// Whether a condition holds in a state of the register.
fn holds(condition: Precondition, state: Option<u64>) -> bool {
    match condition {
        Precondition::Absent => state.is_none(),
        Precondition::Present => state.is_some(),
        Precondition::Value(value) => state == Some(value),
    }
}

/// The right answer to an operation in a state of the register, and the state that it leaves.
fn applied(action: Action, state: Option<u64>) -> (Action, Option<u64>) {
    let put = if state.is_some() { Put::Replaced } else { Put::Created };
    let removed = if state.is_some() { Removed::Removed } else { Removed::Absent };
    match action {
        Action::Get(_) => (Action::Get(Some(state.map_or(ReadValue::Absent, ReadValue::Value))), state),
        Action::Put(value, _) => (Action::Put(value, Some(put)), Some(value)),
        Action::Remove(_) => (Action::Remove(Some(removed)), None),
        Action::PutIf(value, condition, _) if holds(condition, state) => {
            (Action::PutIf(value, condition, Some(Conditional::Done(put))), Some(value))
        }
        Action::PutIf(value, condition, _) => (Action::PutIf(value, condition, Some(Conditional::Refused)), state),
        Action::RemoveIf(condition, _) if state.is_none() || holds(condition, state) => {
            (Action::RemoveIf(condition, Some(Conditional::Done(removed))), None)
        }
        Action::RemoveIf(condition, _) => (Action::RemoveIf(condition, Some(Conditional::Refused)), state),
    }
}

/// The operation without its answer.
fn unanswered(action: Action) -> Action {
    match action {
        Action::Get(_) => Action::Get(None),
        Action::Put(value, _) => Action::Put(value, None),
        Action::Remove(_) => Action::Remove(None),
        Action::PutIf(value, condition, _) => Action::PutIf(value, condition, None),
        Action::RemoveIf(condition, _) => Action::RemoveIf(condition, None),
    }
}

/// A condition that names one of the values from 1 to `values`, or none.
fn drawn_condition(draws: &mut Draws, values: u64) -> Precondition {
    match draws.below(6) {
        0 => Precondition::Absent,
        1 => Precondition::Present,
        _ => Precondition::Value(1 + draws.below(values)),
    }
}

fn history(lines: &[&str]) -> History {
    History::new(lines.iter().map(|line| operation(line)).collect()).unwrap()
}

/// Whether there is an order.
fn passes(history: &History) -> bool {
    match check(history) {
        CheckVerdict::Linearizable => true,
        CheckVerdict::NotLinearizable(_) => false,
        CheckVerdict::Undecided(_, why) => panic!("{why}: {history:?}"),
    }
}

/// Random numbers from a seed.
struct Draws(u64);

impl Draws {
    /// A number below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        // Xorshift (Marsaglia, 2003).
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % limit
    }
}

/// The number of random histories. The environment may ask for more.
fn cases(usual: u64) -> u64 {
    std::env::var("POLYSERVE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}
