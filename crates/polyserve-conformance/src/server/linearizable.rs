//! Concurrent clients of one store over HTTP: their history is linearizable.

use polyserve_core::Identifiable;

use super::prelude::*;
use crate::history::{EntityForm, History, RecordingControl, RecordingWorkload, outcome_of, record_http};

const OPERATIONS: u64 = 1_000;
const CLIENTS: u32 = 4;

/// The number of recordings after which a history without overlaps is reported as not run.
const ATTEMPTS: usize = 3;

/// The puts, gets and removes of concurrent clients have an order in which every answer is right. Tested over a store that
/// answers now and over a store that answers later.
///
/// Not run if no two operations of a key overlap in any of three recordings: such a history shows nothing.
pub(super) fn linearizable_over_http(subject: &ServerSubject) -> Outcome {
    of_form::<Entity>(subject, EntityForm::Published)
}

/// The same for entities with a text as their id and a nested field, at a prefix. Their paths are percent-encoded.
pub(super) fn named_entities_are_linearizable(subject: &ServerSubject) -> Outcome {
    of_form::<NamedEntity>(subject, EntityForm::Named)
}

/// The same with conditional puts and removes of both types: `If-None-Match: *`, `If-Match: *`, and `If-Match` with a tag that
/// the client has seen.
pub(super) fn conditional_writes_are_linearizable_over_http(subject: &ServerSubject) -> Outcome {
    let conditions = true;
    let now = attempts(|| record::<Entity>(subject, EntityForm::Published, conditions, Reference::default()));
    let later = attempts(|| record::<NamedEntity>(subject, EntityForm::Named, conditions, LaterReference::default()));
    if now == Outcome::Held { later } else { now }
}

fn of_form<E: Identifiable>(subject: &ServerSubject, form: EntityForm) -> Outcome {
    let now = attempts(|| record::<E>(subject, form, false, Reference::default()));
    let later = attempts(|| record::<E>(subject, form, false, LaterReference::default()));
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
fn record<E: Identifiable>(
    subject: &ServerSubject,
    form: EntityForm,
    conditions: bool,
    repo: impl EntityRepo<E>,
) -> Outcome {
    let service =
        EntityService::new(repo).at(form.prefix()).expect("the prefixes of the kit are valid").etags(conditions);
    let live = subject.live(service, |_| ());
    let workload = RecordingWorkload { operations: OPERATIONS, keys: 3, first_key: 1, seed: 0, conditions };
    let recording = record_http(live.addr, form, &workload, CLIENTS, subject.patience, &RecordingControl::default());
    if let Some(wrong) = recording.wrong.first() {
        panic!("{wrong}");
    }
    let history = History::new(recording.operations).unwrap_or_else(|invalid| panic!("{invalid}"));
    // A server may close an idle connection for a waiting one just as the next request arrives.
    let unknown = history.unknown();
    assert!(unknown < history.operations().len() / 2, "{unknown} of {OPERATIONS} operations were not answered");
    outcome_of(&history)
}
