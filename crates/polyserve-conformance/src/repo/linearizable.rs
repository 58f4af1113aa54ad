//! The history of racing clients is linearizable.
//!
//! The check finds every wrong race of single operations: two first puts that both create, puts that leave different entities
//! for different readers, a lost put, a stale read, reads that go backwards, a torn entity, removes and puts that do not
//! balance, and a put that a racing remove takes. With conditions, it also finds two creations of one id, and a remove of
//! another entity than the one that its tag names.

use std::time::Duration;

use super::RepoSubject;
use super::race::RACERS;
use super::store::Answers;
use crate::history::{Bursts, History, MAX_WAIT, RecordingControl, RecordingWorkload, outcome_of};
use crate::property::Outcome;

/// The number of operations.
const OPERATIONS: u64 = 20_000;
/// The number of keys at a time: few, so that the clients overlap.
const KEYS: u64 = 4;
/// The number of operations of all clients after which they go on with new keys, so that first puts race, too.
const OPERATIONS_OF_KEYS: u64 = 512;
/// The maximum time. In this time a slow repo completes enough operations.
const MAX_DURATION: Duration = Duration::from_secs(2);

/// The puts, gets and removes of racing clients have an order in which every answer is right. In this order, an operation
/// that returned before another was called comes first.
///
/// Not run if no two operations of a key overlap: such a history shows nothing.
pub fn linearizable(subject: &RepoSubject) -> Outcome {
    recorded(subject, false)
}

/// The same with conditions: that an id is absent, that it is present, and that its entity has a tag that the client has
/// seen.
pub fn conditional_writes_are_linearizable(subject: &RepoSubject) -> Outcome {
    recorded(subject, true)
}

fn recorded(subject: &RepoSubject, conditions: bool) -> Outcome {
    subject.run(move |store| {
        // Threads leave a rendezvous one after the other. A repo in memory needs a larger number of operations between two,
        // because the first threads finish several operations before the last thread leaves.
        let burst = if store.answers == Answers::Now { 128 } else { 8 };
        let bursts = Bursts { operations: OPERATIONS, burst, max_wait: MAX_WAIT, max_duration: MAX_DURATION };
        let workload = |number| {
            let first_key = first_key_of(number);
            RecordingWorkload { operations: OPERATIONS, keys: KEYS, first_key, seed: 0, conditions }
        };
        let control = RecordingControl::default();
        let (recording, first_loss) = bursts.record(&*store.repo, RACERS as u32, &control, workload);
        if let Some(wrong) = recording.wrong.first() {
            panic!("{wrong}");
        }
        let history = History::new(recording.operations).unwrap_or_else(|invalid| panic!("{invalid}"));
        assert_eq!(history.unknown(), 0, "operations that failed, or were not answered; the first: {first_loss:?}");
        let outcome = outcome_of(&history);
        let ids = 1..first_key_of(OPERATIONS) + KEYS as i64;
        let stored = ids.filter(|id| store.get(*id).is_some()).count();
        assert_eq!(store.len(), stored as u64, "the length after the race");
        outcome
    })
}

/// The first key of the operation with this number.
fn first_key_of(number: u64) -> i64 {
    (1 + number / OPERATIONS_OF_KEYS * KEYS).cast_signed()
}
