//! A recorded history of racing clients, checked.

use std::time::{Duration, Instant};

use super::race::{RACERS, lockstep_within};
use super::{Answers, RepoSubject};
use crate::history::{History, Operation, RepoClient, Script, Watch, judge};
use crate::property::Outcome;

/// Operations in all, of so few keys that clients meet.
const OPERATIONS: u64 = 20_000;
const KEYS: u64 = 4;
/// A repo that goes over a network has shown enough by then.
const LONGEST: Duration = Duration::from_secs(2);

/// What racing clients put, get and remove has an order in which every answer is right, and in which an operation that
/// returned before another was called comes first.
///
/// Not run if no two operations of a key overlap: such a history shows nothing.
pub fn linearizable(subject: &RepoSubject) -> Outcome {
    subject.run_to_outcome(|store| {
        let script = Script { operations: OPERATIONS, keys: KEYS, first_key: 1, seed: 0 };
        // Between two meetings with the others; a repo in memory has done a few before the last has left a meeting.
        let together = if store.answers == Answers::Now { 128 } else { 8 };
        let watch = Watch::default();
        let (start, steps) = (Instant::now(), OPERATIONS / together / RACERS as u64);
        let steps = lockstep_within(LONGEST, RACERS, steps as usize, |racer, step| {
            let first = (step * RACERS + racer) as u64 * together;
            let done =
                RepoClient::new(&*store.repo, &watch).burst(&script, first..first + together, racer as u32, start);
            done.unwrap_or_else(|wrong| panic!("{wrong}"))
        });
        let operations: Vec<Operation> = steps.into_iter().flatten().flatten().collect();
        let history = History::new(operations).unwrap_or_else(|invalid| panic!("{invalid}"));
        assert_eq!(history.unknown(), 0, "operations that failed, or were not answered");
        judge(&history)
    })
}
