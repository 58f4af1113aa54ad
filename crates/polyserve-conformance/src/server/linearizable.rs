//! Concurrent clients of one store over HTTP: their history is linearizable.

use polyserve_core::EntityRepo;

use super::services::{LaterRepo, MapRepo};
use super::status_table::over;
use super::subject::ServerSubject;
use crate::history::{History, RecordingControl, RecordingWorkload, outcome_of, record_http};
use crate::property::Outcome;

const OPERATIONS: u64 = 2_000;
const CLIENTS: u32 = 4;

/// The number of recordings after which a history without overlaps is reported as not run.
const ATTEMPTS: usize = 3;

/// The puts, gets and removes of concurrent clients have an order in which every answer is right. Tested over a store that
/// answers now and over a store that answers later.
///
/// Not run if no two operations of a key overlap in any of three recordings: such a history shows nothing.
pub fn linearizable_over_http(subject: &ServerSubject) -> Outcome {
    let now = attempts(|| record(subject, MapRepo::default()));
    let later = attempts(|| record(subject, LaterRepo::new()));
    if now == Outcome::Held { later } else { now }
}

/// Repeats a recording that shows nothing.
fn attempts(mut recording: impl FnMut() -> Outcome) -> Outcome {
    let mut outcome = recording();
    for _ in 1..ATTEMPTS {
        if outcome == Outcome::Held {
            break;
        }
        outcome = recording();
    }
    outcome
}

#[track_caller]
fn record(subject: &ServerSubject, repo: impl EntityRepo) -> Outcome {
    let live = over(subject, repo);
    let workload = RecordingWorkload { operations: OPERATIONS, keys: 3, first_key: 1, seed: 0 };
    let recording = record_http(live.addr, &workload, CLIENTS, subject.patience, &RecordingControl::default());
    if let Some(wrong) = recording.wrong.first() {
        panic!("{wrong}");
    }
    let history = History::new(recording.operations).unwrap_or_else(|invalid| panic!("{invalid}"));
    // A server may close an idle connection for a waiting one just as the next request arrives.
    let unknown = history.unknown();
    assert!(unknown < history.operations().len() / 2, "{unknown} of {OPERATIONS} operations were not answered");
    outcome_of(&history)
}
