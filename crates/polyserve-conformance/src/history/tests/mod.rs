//! Tests of the checker: known verdicts, a search that tries every order, and histories that are right by
//! construction.

mod brute;
mod by_hand;
mod form;
mod made;
mod overlaps;
mod unanswered;

use polyserve_core::{Put, Removed};

use super::{Action, CheckVerdict, History, Operation, ReadValue, check};

/// An operation of key 1 from a text: `0 put 5 created 10..20`, `1 get 5 30..40`, `1 get absent 30..40`, `2 remove
/// removed 50..60`. An operation whose answer was lost ends with `unknown 50..`.
fn operation(text: &str) -> Operation {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (process, rest) = (words[0].parse().unwrap(), &words[1..words.len() - 1]);
    let (called, returned) = words[words.len() - 1].split_once("..").unwrap();
    let action = match *rest {
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
