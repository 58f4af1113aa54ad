//! Answers now and deferred, with a visit or without, polled or dropped.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread;

use polyserve_core::{Answer, Entity, Lookup, Put, Removed, RepoAnswer, Shown, Visit};

use super::RepoSubject;
use super::race::{RACERS, lockstep, stamp, stamped};
use super::store::Answers;
use super::store::{Store, outcome};
use crate::property::Outcome;

/// A visit is called before the call returns if the answer is `Visited`. Otherwise it is never called. By its type, it is
/// not called twice. A repo that answers for the call of another visit is found here.
pub fn visit_is_called_exactly_once(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        store.put(Entity::new(7, "seven", 7.0));
        store.put(Entity::new(8, "eight", 8.0));
        store.remove(8);
        for (id, is_stored) in [(7, true), (8, false), (9, false), (7, true)] {
            let mut visits = 0;
            let answer = store.repo.get(&id, Visit::new(&mut |_| visits += 1));
            let now = answer.is_now();
            let found = store.settle("get", answer);
            match &found {
                Lookup::Visited(_) => {
                    assert_eq!(visits, 1, "how often the visit of a get that answers Visited was called");
                    assert!(now, "the visit was called, and the answer was deferred: what it saw cannot be used");
                }
                Lookup::Fetched(_) | Lookup::Absent => {
                    assert_eq!(visits, 0, "how often the visit of a get that answers {found:?} was called");
                }
            }
            assert_eq!(found != Lookup::Absent, is_stored, "whether get({id}) finds it");
        }
    })
}

/// Every operation answers as declared: now and with a visit, or later and without one. A repo may declare that it does
/// either.
pub fn now_means_now(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        for round in 0..16 {
            promised(&store, "put of a new id", store.repo.put(Entity::new(7, "new", 1.0)));
            promised(&store, "put of a known id", store.repo.put(Entity::new(7, "known", 2.0)));
            promised(&store, "get of an absent id", store.repo.get(&8, Visit::new(&mut |_| ())));
            let found = promised(&store, "get of a known id", store.repo.get(&7, Visit::new(&mut |_| ())));
            let visited = matches!(found, Lookup::Visited(_));
            assert!(visited || store.answers != Answers::Now, "round {round}: a repo in memory answered {found:?}");
            promised(&store, "len", store.repo.len());
            promised(&store, "remove of a known id", store.repo.remove(&7));
            promised(&store, "remove of an absent id", store.repo.remove(&7));
        }
    })
}

fn promised<T>(store: &Store, what: &str, answer: RepoAnswer<T>) -> T {
    match (store.answers, answer.is_now()) {
        (Answers::Now, false) => panic!("{what} answers later, of a repo that is declared to answer now"),
        (Answers::Later, true) => panic!("{what} answers now, of a repo that is declared to answer later"),
        _ => store.settle(what, answer),
    }
}

/// A visit that panics fails its own operation and nothing else. No lock stays held, and no entity is lost. Every operation
/// works on all threads, also at the same time.
pub fn a_panicking_visit_costs_one_answer(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        let entities = [7, 8, 9].map(|id| stamped(id, id as u64));
        entities.iter().for_each(|entity| _ = store.put(entity.clone()));
        for round in 0..3 {
            panic_in_visit(&store, 7);
            all_works(&store, &entities, round);
            panic_in_visit(&store, 7);
            panic_in_visit(&store, 8);
            thread::scope(|scope| _ = scope.spawn(|| all_works(&store, &entities, round)));
        }
        let steps = lockstep(RACERS, 500, |racer, step| match racer {
            0 => panic_in_visit(&store, 7),
            1 => _ = store.put(stamped(7, step as u64)),
            _ => _ = stamp(&store.get(7).expect("the entity is there after the panic")),
        });
        store.expect(7, Some(&stamped(7, steps.len() as u64 - 1)));
    })
}

/// Calls `get` with a visit that panics, and asserts that the result is no success.
fn panic_in_visit(store: &Store, id: i64) {
    let mut visited = false;
    let get = AssertUnwindSafe(|| {
        let mut visit = |_: Shown<'_>| {
            visited = true;
            resume_unwind(Box::new("the visit's own panic")); // past the hook, which would print it
        };
        outcome(store.max_wait, "get with a visit that panics", store.repo.get(&id, Visit::new(&mut visit)))
    });
    match catch_unwind(get) {
        Ok(Ok(found)) => assert!(!visited, "the visit panicked, and get answered {found:?}"),
        Ok(Err(_)) => assert!(visited, "get failed without having called the visit"),
        Err(panic) if panic.downcast_ref::<&str>() == Some(&"the visit's own panic") => {}
        Err(panic) => resume_unwind(panic),
    }
}

fn all_works(store: &Store, entities: &[Entity], round: u64) {
    entities.iter().for_each(|entity| store.expect(entity.id, Some(entity)));
    for entity in entities {
        assert_eq!(store.put(stamped(entity.id, 100 + round)), Put::Replaced, "put after a visit has panicked");
        assert_eq!(store.put(entity.clone()), Put::Replaced, "put after a visit has panicked");
    }
    assert_eq!(store.put(stamped(10, round)), Put::Created, "put of a new id after a visit has panicked");
    assert_eq!(store.remove(10), Removed::Removed, "remove after a visit has panicked");
    assert_eq!(store.len(), entities.len() as u64, "len after a visit has panicked");
    entities.iter().for_each(|entity| store.expect(entity.id, Some(entity)));
}

/// An operation can start before earlier answers have come. Answers can be awaited in any order.
pub fn many_answers_at_once(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        let puts: Vec<_> = (0..64).map(|id| store.repo.put(stamped(id, id as u64))).collect();
        for put in puts.into_iter().rev() {
            assert_eq!(store.settle("one put of many", put), Put::Created);
        }
        let (mut gets, mut removes) = (Vec::new(), Vec::new());
        for id in 0..32 {
            gets.push((id, store.repo.get(&id, Visit::new(&mut |_| ()))));
            removes.push(store.repo.remove(&(id + 32)));
        }
        for remove in removes {
            assert_eq!(store.settle("one remove of many", remove), Removed::Removed);
        }
        for (id, get) in gets.into_iter().rev() {
            if let Lookup::Fetched(entity) = store.settle("one get of many", get) {
                assert_eq!(entity, stamped(id, id as u64), "what get({id}) fetched");
            }
        }
        (0..64).for_each(|id| store.expect(id, (id < 32).then(|| stamped(id, id as u64)).as_ref()));
    })
}

/// An answer may be polled under different wakers, and on another thread than the operation's.
pub fn answers_can_be_awaited_from_any_thread(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        for round in 0..32 {
            assert_eq!(handed_on(&store, round, store.repo.put(stamped(7, round))), Put::Created);
            assert_eq!(handed_on(&store, round, store.repo.put(stamped(7, round + 1))), Put::Replaced);
            assert_ne!(handed_on(&store, round, store.repo.get(&7, Visit::new(&mut |_| ()))), Lookup::Absent);
            assert_eq!(handed_on(&store, round, store.repo.get(&8, Visit::new(&mut |_| ()))), Lookup::Absent);
            assert_eq!(handed_on(&store, round, store.repo.len()), 1);
            assert_eq!(handed_on(&store, round, store.repo.remove(&7)), Removed::Removed);
        }
    })
}

/// Polls an answer with a waker that does nothing. Then waits for the answer with another waker, on this thread or on a
/// second one.
fn handed_on<T: Send + 'static>(store: &Store, round: u64, answer: RepoAnswer<T>) -> T {
    if answer.is_now() {
        return store.settle("the operation", answer);
    }
    let mut future = answer.into_future();
    let unheard = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
    if let Poll::Ready(result) = unheard {
        return store.settle("the operation", Answer::Now(result));
    }
    let wait = || store.settle("an answer that was polled under another waker before", Answer::Later(Box::pin(future)));
    if round.is_multiple_of(2) {
        return wait();
    }
    let waited = thread::scope(|scope| scope.spawn(wait).join());
    waited.unwrap_or_else(|panic| resume_unwind(panic))
}

/// An answer may be dropped, polled or not. The store goes on, and no later operation waits for it.
pub fn later_answers_survive_being_dropped(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        const KEPT_ID: i64 = 100;
        store.put(stamped(KEPT_ID, 1));
        for round in 0..16 {
            for id in 0..4 {
                store.put(stamped(id, 1));
                given_up(round, store.repo.put(stamped(id, 2)));
                given_up(round, store.repo.get(&id, Visit::new(&mut |_| ())));
                given_up(round, store.repo.remove(&id));
                given_up(round, store.repo.len());
                // The operations may have taken effect at any time, or not. A stored entity is complete.
                if let Some(entity) = store.get(id) {
                    stamp(&entity);
                }
                store.expect(KEPT_ID, Some(&stamped(KEPT_ID, 1)));
            }
            store.len();
            assert_eq!(store.put(stamped(KEPT_ID + 1, 2)), Put::Created, "a put after answers were dropped");
            assert_eq!(store.remove(KEPT_ID + 1), Removed::Removed, "a remove after answers were dropped");
        }
    })
}

/// Drops an answer. In every second round, polls it first.
fn given_up<T>(round: u64, answer: Answer<T>) {
    let mut future = answer.into_future();
    if round.is_multiple_of(2) {
        let _ = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
    }
}

/// If the repo is dropped, an awaited answer still comes. It may be an error.
pub fn a_dropped_repo_still_answers(subject: &RepoSubject) -> Outcome {
    subject.run(|store| {
        let puts: Vec<_> = (0..32).map(|id| store.repo.put(stamped(id, 1))).collect();
        let get = store.repo.get(&0, Visit::new(&mut |_| ()));
        let (remove, len) = (store.repo.remove(&1), store.repo.len());
        let Store { repo, max_wait, .. } = store;
        drop(repo); // the last reference
        for put in puts {
            let _ = outcome(max_wait, "a put of a dropped repo", put);
        }
        let _ = outcome(max_wait, "a get of a dropped repo", get);
        let _ = outcome(max_wait, "a remove of a dropped repo", remove);
        let _ = outcome(max_wait, "the len of a dropped repo", len);
    })
}
