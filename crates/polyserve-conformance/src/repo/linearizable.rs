//! The history of racing clients is linearizable.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use polyserve_core::sync::lock;

use super::RepoSubject;
use super::race::{RACERS, lockstep_within};
use super::store::Answers;
use crate::history::{History, Operation, RecordingControl, RecordingWorkload, RepoClient, outcome_of};
use crate::property::Outcome;

/// The number of operations. The keys are few, so that the clients overlap.
const OPERATIONS: u64 = 20_000;
const KEYS: u64 = 4;
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
    subject.run_to_outcome(move |store| {
        let workload = RecordingWorkload { operations: OPERATIONS, keys: KEYS, first_key: 1, seed: 0, conditions };
        // The number of operations between two rendezvous. Threads leave a rendezvous one after the other. A repo in memory
        // needs a larger number, because the first threads finish several operations before the last thread leaves.
        let together = if store.answers == Answers::Now { 128 } else { 8 };
        let control = RecordingControl::default();
        let new_client = |_| Mutex::new(RepoClient::new(&*store.repo, &control));
        let clients: [Mutex<RepoClient<'_>>; RACERS] = std::array::from_fn(new_client);
        let (start, steps) = (Instant::now(), OPERATIONS / together / RACERS as u64);
        let steps = lockstep_within(MAX_DURATION, RACERS, steps as usize, |racer, step| {
            let first = (step * RACERS + racer) as u64 * together;
            let done = lock(&clients[racer]).burst(&workload, first..first + together, racer as u32, start);
            done.unwrap_or_else(|wrong| panic!("{wrong}"))
        });
        let operations: Vec<Operation> = steps.into_iter().flatten().flatten().collect();
        let history = History::new(operations).unwrap_or_else(|invalid| panic!("{invalid}"));
        let first_loss = clients.iter().find_map(|client| lock(client).first_loss().map(String::from));
        assert_eq!(history.unknown(), 0, "operations that failed, or were not answered; the first: {first_loss:?}");
        outcome_of(&history)
    })
}
