//! Concurrent clients of one store over HTTP: their history is linearizable.

use polyserve_core::Identifiable;

use super::prelude::*;
use crate::history::{EntityForm, History, RecordingControl, RecordingWorkload, outcome_of, record_http};

const OPERATIONS: u64 = 1_000;
/// The operations over each of many pairs of a server and a repo.
const PAIR_OPERATIONS: u64 = 300;
const CLIENTS: u32 = 4;

/// The number of recordings after which a history without overlaps is reported as not run.
const ATTEMPTS: usize = 3;

/// The puts, gets and removes of concurrent clients have an order in which every answer is right. Tested over a store that
/// answers now and over a store that answers later.
///
/// Not run if no two operations of a key overlap in any of three recordings: such a history shows nothing.
pub(super) fn linearizable_over_http(subject: &ServerSubject) -> Result<(), String> {
    of_form::<Entity>(subject, EntityForm::Published)
}

/// The same for entities with a text as their id and a nested field, at a prefix. Their paths are percent-encoded.
pub(super) fn named_entities_are_linearizable(subject: &ServerSubject) -> Result<(), String> {
    of_form::<NamedEntity>(subject, EntityForm::Named)
}

/// The same with conditional puts and removes of both types: `If-None-Match: *`, `If-Match: *`, and `If-Match` with a tag that
/// the client has seen. So of two clients that create an entity, or add to the number that both have read, one is refused.
pub(super) fn conditional_writes_are_linearizable_over_http(subject: &ServerSubject) -> Result<(), String> {
    let now = recorded(subject, EntityForm::Published, Some(OPERATIONS), Reference::<Entity>::default);
    recorded(subject, EntityForm::Named, Some(OPERATIONS), LaterReference::<NamedEntity>::default).and(now)
}

/// Does the same over repos that `new_repo` makes, which are empty: for pairs of a server and a repo. There are few operations,
/// because there are many pairs.
///
/// # Panics
///
/// Panics if there is no such order, or an answer is impossible.
pub fn conditional_writes_are_linearizable_over<E: Identifiable, R: EntityRepo<E>>(
    subject: &ServerSubject,
    form: EntityForm,
    new_repo: impl Fn() -> R,
) -> Outcome {
    recorded::<E, R>(subject, form, Some(PAIR_OPERATIONS), new_repo).into()
}

fn of_form<E: Identifiable>(subject: &ServerSubject, form: EntityForm) -> Result<(), String> {
    let now = recorded(subject, form, None, Reference::<E>::default);
    recorded(subject, form, None, LaterReference::<E>::default).and(now)
}

/// Records clients over new repos, with this number of operations under conditions if it is given. Repeats a recording that shows nothing.
#[track_caller]
fn recorded<E: Identifiable, R: EntityRepo<E>>(
    subject: &ServerSubject,
    form: EntityForm,
    conditional: Option<u64>,
    new_repo: impl Fn() -> R,
) -> Result<(), String> {
    let mut outcome = Ok(());
    for _ in 0..ATTEMPTS {
        outcome = record(subject, form, conditional, new_repo()).into();
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// Records clients over this repo.
#[track_caller]
fn record<E: Identifiable>(
    subject: &ServerSubject,
    form: EntityForm,
    conditional: Option<u64>,
    repo: impl EntityRepo<E>,
) -> Outcome {
    let (conditions, operations) = (conditional.is_some(), conditional.unwrap_or(OPERATIONS));
    let service =
        EntityService::new(repo).at(form.prefix()).expect("the prefixes of the kit are valid").etags(conditions);
    let live = subject.live(service, defaults());
    let workload = RecordingWorkload { operations, keys: 3, first_key: 1, seed: 0, conditions };
    let control = RecordingControl::default();
    let recording = record_http(&[live.addr.into()], form, &workload, CLIENTS, subject.max_wait, &control);
    if let Some(wrong) = recording.wrong.first() {
        panic!("{wrong}");
    }
    let history = History::new(recording.operations).unwrap_or_else(|invalid| panic!("{invalid}"));
    // A server may close an idle connection for a waiting one just as the next request arrives.
    let unknown = history.unknown();
    assert!(unknown < history.operations().len() / 2, "{unknown} of {operations} operations were not answered");
    outcome_of(&history)
}
