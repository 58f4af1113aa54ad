//! Recorded histories: what is sent, lost answers, and the end of a recording.

use std::collections::HashSet;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use polyserve_conformance::broken::repos::RepoFlaw;
use polyserve_conformance::broken::servers::{Flaw, PlainServer};
use polyserve_conformance::history::{
    Call, CallAnswer, CheckVerdict, EntityForm, History, HttpTarget, Operation, Precondition, Recording,
    RecordingControl, RecordingWorkload, check, record_http, record_in_process,
};
use polyserve_conformance::repo::{LaterReference, Reference};
use polyserve_core::http::{Method, StatusCode};
use polyserve_core::{Answer, EntityRepo, EntityService, Reply, Request, Running, ServerConfig, ServerExt, Service};

const MAX_WAIT: Duration = Duration::from_secs(30);

fn workload(operations: u64) -> RecordingWorkload {
    RecordingWorkload { operations, keys: 3, first_key: -1, seed: 42, conditions: false }
}

fn serving(service: impl Service, flaw: Option<Flaw>) -> Running {
    let server = PlainServer::flawed(ServerConfig::default(), flaw);
    server.unwrap().serve(SocketAddr::from(([127, 0, 0, 1], 0)), Arc::new(service)).unwrap()
}

fn recorded(running: &Running, operations: u64) -> Recording {
    record(running.local_addr(), &workload(operations), MAX_WAIT)
}

/// Records four clients of the server at `addr`.
fn record(addr: SocketAddr, workload: &RecordingWorkload, max_wait: Duration) -> Recording {
    record_http(&[addr.into()], EntityForm::Published, workload, 4, max_wait, &RecordingControl::default())
}

fn entities() -> EntityService<Reference> {
    EntityService::new(Reference::default())
}

/// The history of a recording without a wrong answer. It has an order.
#[track_caller]
fn in_order(recording: Recording) -> History {
    assert_eq!(recording.wrong, []);
    let history = History::new(recording.operations).unwrap();
    let verdict = check(&history);
    assert!(matches!(verdict, CheckVerdict::Linearizable), "{verdict:?}");
    history
}

#[test]
fn a_script_is_the_same_every_time_and_no_value_is_put_twice() {
    let workload = workload(10_000);
    let (mut values, mut keys, mut calls) = (HashSet::new(), HashSet::new(), [0; 3]);
    for number in 0..workload.operations {
        let (key, call, condition) = workload.step(number);
        assert_eq!(workload.step(number), (key, call, condition));
        assert_eq!(condition, None);
        keys.insert(key);
        calls[match call {
            Call::Get => 0,
            Call::Put(value) => {
                assert!(values.insert(value), "{value} is put twice");
                1
            }
            Call::Remove => 2,
        }] += 1;
    }
    assert_eq!(keys, HashSet::from([-1, 0, 1]));
    let [gets, puts, removes] = calls;
    assert!((4_500..5_500).contains(&gets) && (2_700..3_300).contains(&puts) && removes > 1_700, "{calls:?}");
    let reseeded = RecordingWorkload { seed: 43, ..workload };
    assert!((0..100).any(|number| reseeded.step(number) != workload.step(number)));
}

#[test]
fn every_operation_is_recorded() {
    let repos: [Arc<dyn EntityRepo>; 2] = [Arc::new(Reference::default()), Arc::new(LaterReference::default())];
    for repo in repos {
        let control = RecordingControl::default();
        let history = in_order(record_in_process(&repo, &workload(1_003), 3, &control));
        assert_eq!((history.operations().len(), history.unknown(), control.done()), (1_003, 0, 1_003));
        assert_eq!(history.keys().values().sum::<usize>(), 1_003);
    }
    let running = serving(entities(), None);
    let history = in_order(recorded(&running, 1_003));
    assert_eq!((history.operations().len(), history.unknown()), (1_003, 0));
    // The next recording does not contain the entities that the first one left.
    let _ = in_order(recorded(&running, 100));
}

/// Each condition decides some writes: it holds for some of them and refuses others.
#[test]
fn conditions_hold_and_are_refused() {
    let workload = RecordingWorkload { conditions: true, ..workload(4_000) };
    let control = RecordingControl::default();
    let repo: Arc<dyn EntityRepo> = Arc::new(Reference::default());
    let in_process = in_order(record_in_process(&repo, &workload, 3, &control));
    let running = serving(entities().etags(true), None);
    let over_http = in_order(record(running.local_addr(), &workload, MAX_WAIT));
    for history in [in_process, over_http] {
        let mut counts = [[0; 2]; 3];
        for operation in history.operations() {
            let Some((condition, answer)) = operation.condition.zip(operation.answer) else { continue };
            let index = match condition {
                Precondition::Absent => 0,
                Precondition::Present => 1,
                Precondition::Value(_) => 2,
            };
            counts[index][usize::from(answer != CallAnswer::Refused)] += 1;
        }
        assert!(counts.as_flattened().iter().all(|count| *count > 10), "[refused, done] by condition: {counts:?}");
    }
}

/// A store that checks a condition and then writes has histories without an order, also over HTTP.
#[test]
fn a_store_that_checks_then_writes_is_caught_over_http() {
    let running = serving(EntityService::<_>::new(RepoFlaw::ChecksThenWrites.repo()).etags(true), None);
    let caught = (0..20).find_map(|seed| {
        let workload = RecordingWorkload { conditions: true, keys: 1, seed, ..workload(4_000) };
        let recording = record(running.local_addr(), &workload, MAX_WAIT);
        assert_eq!(recording.wrong, []);
        match check(&History::new(recording.operations).unwrap()) {
            CheckVerdict::NotLinearizable(violation) => Some(violation),
            _ => None,
        }
    });
    let violation = caught.expect("20 histories have an order");
    assert!(violation.core.iter().any(|operation| operation.condition.is_some()), "{violation}");
    println!("{violation}");
}

#[test]
fn a_recording_that_is_stopped_ends() {
    let control = RecordingControl::default();
    control.stop();
    let repo: Arc<dyn EntityRepo> = Arc::new(Reference::default());
    assert!(record_in_process(&repo, &workload(1_000_000), 3, &control).operations.is_empty());
    let running = serving(entities(), None);
    let targets = [HttpTarget::from(running.local_addr())];
    let recording = record_http(&targets, EntityForm::Published, &workload(1_000_000), 3, MAX_WAIT, &control);
    assert_eq!((recording.operations, recording.wrong), (Vec::new(), Vec::new()));
}

/// The entity service with lost answers: some are lost before the operation, some after it.
struct Lossy {
    entities: EntityService<Reference>,
    asked: AtomicU64,
}

impl Service for Lossy {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        let lost = || Answer::Now(Reply::problem(StatusCode::SERVICE_UNAVAILABLE, "It is lost."));
        match self.asked.fetch_add(1, SeqCst) % 20 {
            7 => lost(),
            13 => {
                let _done = self.entities.call(request, body).wait();
                body.clear();
                lost()
            }
            _ => self.entities.call(request, body),
        }
    }
}

#[test]
fn lost_answers_are_unknown_whether_or_not_they_had_an_effect() {
    let lossy = Lossy { entities: entities(), asked: AtomicU64::new(0) };
    let running = serving(lossy, None);
    let history = in_order(recorded(&running, 2_000));
    assert!((150..250).contains(&history.unknown()), "{} of 2 000", history.unknown());
}

/// A connection that is closed without a byte costs one answer, not the recording.
#[test]
fn closed_connections_are_opened_again() {
    let running = serving(entities(), Some(Flaw::ClosesAfterEveryAnswer));
    let history = in_order(recorded(&running, 500));
    assert_eq!(history.operations().iter().filter(|operation| operation.process < 4).count(), 500);
}

/// Loses the answer to the first request, which is a removal before the recording, and applies it during the
/// recording.
struct LateRemove {
    entities: EntityService<Reference>,
    asked: AtomicU64,
}

impl Service for LateRemove {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        match self.asked.fetch_add(1, SeqCst) {
            0 => return Answer::Now(Reply::problem(StatusCode::SERVICE_UNAVAILABLE, "It is lost.")),
            100 => drop(self.entities.repo().remove(&-1).wait()),
            _ => {}
        }
        self.entities.call(request, body)
    }
}

#[test]
fn a_removal_that_was_lost_before_the_recording_may_come_in_it() {
    let late = LateRemove { entities: entities(), asked: AtomicU64::new(0) };
    let history = in_order(recorded(&serving(late, None), 500));
    let lost: Vec<_> = history.operations().iter().filter(|operation| operation.process >= 4).copied().collect();
    let (call, condition, answer) = (Call::Remove, None, None);
    assert_eq!(lost, [Operation { process: 4, key: -1, call, condition, answer, called: 0, returned: u64::MAX }]);
    assert_eq!(history.operations().len(), 501);
}

/// Answers a GET with the entity of another id.
struct AnswersOtherId(EntityService<Reference>);

impl Service for AnswersOtherId {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        if request.head.method != Method::GET {
            return self.0.call(request, body);
        }
        body.extend_from_slice(br#"{"id":77,"description":"3","value":3}"#);
        Answer::Now(Reply::new(StatusCode::OK, "application/json", polyserve_core::Body::InPlace))
    }
}

#[test]
fn an_answer_that_cannot_be_ends_the_recording() {
    let running = serving(AnswersOtherId(entities()), None);
    let recording = recorded(&running, 1_000_000);
    assert!(recording.operations.len() < 1_000_000);
    assert!(recording.wrong[0].to_string().contains("has the id 77"), "{:?}", recording.wrong);
}

#[test]
fn a_server_that_is_not_there_ends_the_recording() {
    let closed_addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let recording = record(closed_addr, &workload(10), Duration::from_millis(50));
    assert!(recording.wrong[0].to_string().contains("no connection within 50ms"), "{:?}", recording.wrong);
}

/// Regression test: an interim answer was taken for the final one, and ended the recording. An answer that is chunked, or ends with its
/// connection, was malformed, and ended it too.
#[test]
fn answers_of_any_framing_are_read() {
    for flaw in [
        Flaw::SendsEarlyHints,
        Flaw::AnswersInChunks,
        Flaw::EndsBodiesWithTheConnection,
        Flaw::EndsBodiesOfHttp10WithTheConnection,
        Flaw::AnswersInHttp10,
    ] {
        let history = in_order(recorded(&serving(entities(), Some(flaw)), 300));
        assert_eq!((history.operations().len(), history.unknown()), (300, 0), "{flaw:?}");
        let found = history.operations().iter().filter(|it| matches!(it.answer, Some(CallAnswer::Found(_)))).count();
        assert!(found > 20, "{flaw:?}: {found} GETs found an entity");
    }
}
