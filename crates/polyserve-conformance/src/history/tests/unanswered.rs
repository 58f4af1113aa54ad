//! Recordings of repos that do not answer, and recordings that are ended.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, Lookup, Put, Removed, RepoAnswer, RepoError, Visit,
};

use crate::history::record::BURST;
use crate::history::{Bursts, Recording, RecordingControl, RecordingWorkload};

/// A repo that returns the answers of a function.
struct FixedAnswers<F>(F);

impl<F> fmt::Debug for FixedAnswers<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FixedAnswers")
    }
}

impl<F: Fn() -> RepoAnswer<()> + Send + Sync + 'static> EntityRepo for FixedAnswers<F> {
    fn get(&self, &_id: &i64, _visit: Visit<'_>) -> RepoAnswer<Lookup> {
        self.0().map(|result| result.map(|()| Lookup::Absent))
    }
    fn put_if(&self, _entity: Entity, _condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        self.0().map(|result| result.map(|()| Conditional::Done(Put::Created)))
    }
    fn remove_if(&self, &_id: &i64, _condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        self.0().map(|result| result.map(|()| Conditional::Done(Removed::Absent)))
    }
    fn len(&self) -> RepoAnswer<u64> {
        self.0().map(|result| result.map(|()| 0))
    }
}

fn recorded(
    control: &RecordingControl,
    clients: u32,
    answer: impl Fn() -> RepoAnswer<()> + Send + Sync + 'static,
) -> Recording {
    let (operations, max_wait) = (100_000, Duration::from_millis(5));
    let workload = RecordingWorkload { operations, keys: 3, first_key: 1, seed: 0, conditions: false };
    let bursts = Bursts { operations, burst: BURST, max_wait, max_duration: Duration::MAX };
    bursts.record(&FixedAnswers(answer), clients, control, |_| workload).0
}

#[test]
fn a_repo_that_never_answers_ends_its_recording() {
    let recording = recorded(&RecordingControl::default(), 2, || Answer::later(pending()));
    let wrong = recording.wrong[0].to_string();
    assert!(wrong.contains("3 answers were lost one after the other; the last: nothing within 5ms"), "{wrong}");
    // More operations than a client runs between two rendezvous.
    let recording = recorded(&RecordingControl::default(), 2, || Answer::Now(Err(RepoError::Overloaded)));
    let wrong = recording.wrong[0].to_string();
    assert!(
        wrong.contains("1000 answers were lost one after the other; the last: the repo is overloaded, and"),
        "{wrong}"
    );
}

#[test]
fn a_client_that_is_stopped_asks_no_more() {
    let control = Arc::new(RecordingControl::default());
    let stop_control = Arc::clone(&control);
    let recording = recorded(&control, 1, move || {
        stop_control.stop();
        Answer::Now(Ok(()))
    });
    assert_eq!((recording.operations.len(), control.done(), recording.wrong), (1, 1, Vec::new()));
}
