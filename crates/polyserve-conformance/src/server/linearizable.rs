//! Concurrent clients of one store: what they see over HTTP has an order.

use polyserve_core::EntityRepo;

use super::services::{LaterRepo, MapRepo};
use super::status_table::over;
use super::subject::ServerSubject;
use crate::history::{History, Script, Verdict, Watch, check, record_http};
use crate::property::Outcome;

const OPERATIONS: u64 = 2_000;
const CLIENTS: u32 = 4;

/// What concurrent clients put, get and remove can be put in an order in which every answer is right, over a store that
/// answers now and over one that answers later; and most of them are answered.
pub fn linearizable_over_http(subject: &ServerSubject) -> Outcome {
    try_over(subject, MapRepo::default());
    try_over(subject, LaterRepo::new());
    Outcome::Held
}

#[track_caller]
fn try_over(subject: &ServerSubject, repo: impl EntityRepo) {
    let live = over(subject, repo);
    let script = Script { operations: OPERATIONS, keys: 3, first_key: 1, seed: 0 };
    let recording = record_http(live.addr, &script, CLIENTS, subject.patience, &Watch::default());
    if let Some(wrong) = recording.wrong.first() {
        panic!("{wrong}");
    }
    let history = History::new(recording.operations).unwrap_or_else(|senseless| panic!("{senseless}"));
    // A server that closes an idle connection for one that waits may meet its next request.
    let unknown = history.unknown();
    assert!(unknown < history.operations().len() / 2, "{unknown} of {OPERATIONS} operations were not answered");
    match check(&history) {
        Verdict::Linearizable => {}
        Verdict::NotLinearizable(violation) => panic!("not linearizable: {violation}"),
        Verdict::GaveUp(key, why) => panic!("whether the history of {key} is linearizable is not known: {why}"),
    }
}
