//! Tests of the checker: known verdicts, a search that tries every order, and histories that are right by
//! construction.

mod brute;
mod by_hand;
mod form;
mod made;
mod overlaps;
mod unanswered;

use super::json::OperationLine;
use super::{Call, CallAnswer, CheckVerdict, History, Operation, Precondition, check, mixed};

/// An operation of key 1 from a text: `0 put 5 created 10..20`, `1 get 5 30..40`, `1 get absent 30..40`, `2 remove
/// removed 50..60`. An operation whose answer was lost ends with `unknown 50..`. Conditions are `0 put 6 if 5 refused
/// 10..20` and `2 remove if present removed 50..60`.
fn operation(text: &str) -> Operation {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [process, op, ref rest @ .., outcome, times] = words[..] else { panic!("{text}") };
    let (value, condition) = match *rest {
        [] => (None, None),
        ["if", condition] => (None, Some(condition)),
        [value] => (Some(value), None),
        [value, "if", condition] => (Some(value), Some(condition)),
        _ => panic!("{text}"),
    };
    let condition = condition.map(|condition| match condition {
        "absent" => Precondition::Absent,
        "present" => Precondition::Present,
        value => Precondition::Value(value.parse().unwrap()),
    });
    let (call, returned) = times.split_once("..").unwrap();
    let found: Option<u64> = outcome.parse().ok();
    let line = OperationLine {
        process: process.parse().unwrap(),
        op: op.to_owned().into(),
        key: 1,
        value: value.map(|value| value.parse().unwrap()).or(found),
        condition,
        call: call.parse().unwrap(),
        returned: returned.parse().ok(),
        outcome: if found.is_some() { "found".into() } else { outcome.to_owned().into() },
    };
    line.operation().unwrap()
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
fn applied(call: Call, condition: Option<Precondition>, state: Option<u64>) -> (CallAnswer, Option<u64>) {
    let is_refused = condition.is_some_and(|condition| !holds(condition, state));
    match (call, state) {
        (Call::Get, None) | (Call::Remove, None) => (CallAnswer::Absent, None),
        (Call::Get, Some(value)) => (CallAnswer::Found(value), state),
        _ if is_refused => (CallAnswer::Refused, state),
        (Call::Put(value), None) => (CallAnswer::Created, Some(value)),
        (Call::Put(value), Some(_)) => (CallAnswer::Replaced, Some(value)),
        (Call::Remove, Some(_)) => (CallAnswer::Removed, None),
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
        self.0 = mixed(self.0);
        (self.0 >> 16) % limit
    }
}

/// The number of random histories. The environment may ask for more.
fn cases(usual: u64) -> u64 {
    std::env::var("POLYSERVE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}
