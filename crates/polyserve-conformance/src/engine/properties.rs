//! The properties of stores over an engine.

use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::{
    Answer, Condition, Entity, EntityRepo, EntityRepoExt as _, Put, Removed, RepoAnswer, RepoError, Visit, park_until,
};

use super::{Connector, Declarations, EngineControl, EngineLimits, EngineSubject};
use crate::property::{Outcome, needs, within};
use crate::repo::outcome;

/// The max number of operations that a store holds. It is more than any property calls at a time.
const MAX_HELD: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// The max number of operations that a store holds that is to be full.
const MAX_HELD_IF_FULL: NonZeroUsize = NonZeroUsize::new(16).unwrap();
/// The max number of operations that a store holds that gets large entities.
const MAX_HELD_IF_LARGE: NonZeroUsize = NonZeroUsize::new(256).unwrap();
/// The max number of bytes that a store holds. It is more than the entities of any property but one have.
const MAX_BYTES: NonZeroUsize = NonZeroUsize::new(1 << 20).unwrap();
/// The number of bytes of a large entity.
const LARGE: usize = 1 << 16;
/// The number of puts, and of gets, that a full store is called with.
const CALLS: usize = 500;
/// The timeout of operations that a slow engine answers.
const LONG_TIMEOUT: Duration = Duration::from_secs(9);
/// The time after which a slow engine answers. It is longer than a third of the timeout: a store that tries more than once has
/// to wait for the first try, too. Two operations in turn are within the timeout.
const DELAY: Duration = Duration::from_millis(3_200);
/// The timeout of operations of a store that connects past a silent host. A sixth is longer than the half second of a status.
const MEDIUM_TIMEOUT: Duration = Duration::from_secs(6);
/// The timeout of operations that an engine does not answer.
const SHORT_TIMEOUT: Duration = Duration::from_secs(1);
/// The connect timeout if there is nothing to connect to.
const ABSENT_TIMEOUT: Duration = Duration::from_millis(200);

/// The limits of a store that holds more than a property calls at a time, and that connects within the max wait.
fn limits(declared: Declarations, timeout: Duration) -> EngineLimits {
    EngineLimits { timeout, connect_timeout: declared.max_wait, operations: MAX_HELD, bytes: MAX_BYTES }
}

/// A store holds a bounded number of operations. While its engine answers nothing, one more is answered with `Overloaded`, and
/// no call blocks. Once the engine goes on, the held operations are done, and the store serves again.
pub fn too_many_operations_are_overload(subject: &EngineSubject) -> Outcome {
    subject.run(|engine, declared| {
        let (first, second) = (Entity::new(1, "first", 0.5), Entity::new(2, "second", 0.5));
        // No operation ends by its timeout.
        let limits =
            EngineLimits { operations: MAX_HELD_IF_FULL, ..limits(declared, declared.max_wait.saturating_mul(12)) };
        let store = ConnectedStore::connect_with(&engine.connector(), declared, "overload", limits);
        assert_eq!(store.put(&first).unwrap(), Put::Created);
        let pause = Pause::begin(engine);
        let mut answers: Vec<_> = (0..CALLS).map(|_| unit(store.repo.put(first.clone()))).collect();
        let gets = (0..CALLS).map(|_| unit(store.repo.get(&1, Visit::new(&mut |_| ()))));
        if declared.reads_from_memory {
            gets.for_each(|get| store.settle("a get from memory", get).unwrap());
        } else {
            answers.extend(gets);
        }
        let held = store.rejects_but(MAX_HELD_IF_FULL.get(), answers);
        drop(pause);
        let mut done = 0;
        for answer in held {
            match store.settle("an operation that the store held", answer) {
                Ok(()) => done += 1,
                Err(RepoError::Overloaded) => {}
                Err(error) => panic!("an operation that the store held failed: {error:?}"),
            }
        }
        assert!(done > 0, "the store did no operation that it held");
        store.eventually("a put after the overload", || store.put(&second));
        for entity in [first, second] {
            let stored = store.eventually("a get after the overload", || store.get(entity.id));
            assert_eq!(stored, Some(entity));
        }
    })
}

/// A store holds a bounded number of bytes. While its engine answers nothing, one more large entity is answered with `Overloaded`,
/// and no call blocks. Once the engine goes on, the held operations are done, and the store serves again.
///
/// It does not apply to a store that reads from memory, which has its entities there.
pub fn too_many_bytes_are_overload(subject: &EngineSubject) -> Outcome {
    subject.run(|engine, declared| {
        needs(!declared.reads_from_memory, "a store that reads from memory holds all its entities")?;
        // No operation ends by its timeout.
        let limits =
            EngineLimits { operations: MAX_HELD_IF_LARGE, ..limits(declared, declared.max_wait.saturating_mul(12)) };
        let store = ConnectedStore::connect_with(&engine.connector(), declared, "bytes", limits);
        let large = Entity::new(1, "x".repeat(LARGE), 0.5);
        assert_eq!(store.put(&large).unwrap(), Put::Created);
        let pause = Pause::begin(engine);
        let puts: Vec<_> = (0..MAX_HELD_IF_LARGE.get() / 2).map(|_| unit(store.repo.put(large.clone()))).collect();
        let held = store.rejects_but(MAX_BYTES.get() / LARGE + 1, puts);
        drop(pause);
        assert!(!held.is_empty(), "the store held no large entity");
        for answer in held {
            store.settle("a put that the store held", answer).expect("it was held");
        }
        // What was held is released.
        for id in 2..40 {
            store.put(&Entity { id, ..large.clone() }).expect("there is room for one");
        }
        assert_eq!(store.get(39).unwrap(), Some(Entity { id: 39, ..large }));
        Ok::<(), String>(())
    })
}

/// Answers of an engine that takes seconds for each are waited for. They are deferred: no call blocks its thread.
pub fn a_slow_engine_is_waited_for(subject: &EngineSubject) -> Outcome {
    subject.run(|engine, declared| {
        engine.before_slow_down();
        let store = ConnectedStore::connect(engine, declared, "slow", LONG_TIMEOUT);
        let (before, after) = (Entity::new(1, "before", 1.0), Entity::new(1, "after", 2.0));
        // A store with several connections opens them here.
        for id in 1..10 {
            assert_eq!(store.put(&Entity { id, ..before.clone() }).unwrap(), Put::Created);
        }
        engine.slow_down(DELAY);
        // One thread calls them all, and the engine has not answered.
        let repo = &store.repo;
        let gets: Vec<_> =
            (1..9).map(|id| store.deferred_read("a get", repo.get(&id, Visit::new(&mut |_| ())))).collect();
        let put = deferred("a put", repo.put(Entity::new(10, "new", 3.0)));
        let remove = deferred("a remove", repo.remove(&9));
        let len = store.deferred_read("a count", repo.len());
        let conditional = deferred("a conditional put", repo.put_if(after.clone(), &Condition::present()));
        for get in gets {
            store.settle("a get", get).expect("the engine answers within the timeout");
        }
        assert_eq!(store.settle("a put", put).expect("the engine answers within the timeout"), Put::Created);
        assert_eq!(store.settle("a remove", remove).expect("the engine answers within the timeout"), Removed::Removed);
        store.settle("a count", len).expect("the engine answers within the timeout");
        let done = store.settle("a conditional put", conditional).expect("the engine answers within the timeout");
        assert_eq!((done.done(), store.get(1).unwrap()), (Some(Put::Replaced), Some(after)));
    })
}

/// While an engine answers nothing, operations end with `Unavailable` or `NotDone` by their timeout, and connecting ends with an error.
/// Once the engine goes on, the store serves again.
///
/// A store that reads from memory goes on to read, and its writes wait for the engine.
pub fn a_paused_engine_is_unavailable(subject: &EngineSubject) -> Outcome {
    subject.run(|engine, declared| {
        let store = ConnectedStore::connect(engine, declared, "paused", SHORT_TIMEOUT);
        let (before, after) = (Entity::new(1, "before", 1.0), Entity::new(1, "after", 2.0));
        store.put_new(&before);
        let pause = Pause::begin(engine);
        let calls = store.call_all(&after);
        for (what, answer) in &calls {
            assert_deferred(what, answer);
        }
        if declared.reads_from_memory {
            assert_eq!(store.get(1).unwrap(), Some(before.clone()));
            drop(pause);
            calls.into_iter().for_each(|(what, answer)| store.settle(what, answer).unwrap());
        } else {
            for (what, answer) in calls {
                store.expect_failure(what, answer);
            }
            let limits = EngineLimits { connect_timeout: ABSENT_TIMEOUT, ..store.limits.clone() };
            let connected = (pause.0.connector())("silent", &limits);
            assert!(connected.is_err(), "a store has connected to an engine that answers nothing");
            drop(pause);
        }
        let stored = store.eventually("a get after the engine went on", || store.get(1));
        // The put may have been done.
        assert!(stored == Some(before) || stored == Some(after), "{stored:?}");
        let new = Entity::new(2, "new", 3.0);
        store.eventually("a put after the engine went on", || store.put(&new));
        assert_eq!(store.eventually("a get after this put", || store.get(2)), Some(new));
    })
}

/// After an engine has ended, operations end with `Unavailable` or `NotDone` by their timeout, `status` is an error, and
/// connecting waits for the engine. Once the engine is back, the store serves again.
///
/// A store that reads from memory goes on to read, and its writes fail with a clear error until it is connected again.
pub fn a_stopped_engine_comes_back(subject: &EngineSubject) -> Outcome {
    subject.run(|engine, declared| {
        let store = ConnectedStore::connect(engine, declared, "stopped", SHORT_TIMEOUT);
        let (before, new) = (Entity::new(1, "before", 1.0), Entity::new(3, "new", 3.0));
        store.put_new(&before);
        engine.stop();
        for _ in 0..3 {
            for (what, answer) in store.call_all(&Entity::new(2, "lost", 2.0)) {
                store.expect_failure(what, answer);
            }
            if !declared.reads_from_memory {
                store.expect_failure("a status", store.repo.status());
            }
            if declared.reads_from_memory {
                assert_eq!(store.get(1).unwrap(), Some(before.clone()));
                assert_eq!(store.settle("a count", store.repo.len()).unwrap(), 1);
            }
        }
        let stores = if declared.reads_from_memory {
            drop(store); // the place of its entities is free again
            engine.restart();
            vec![ConnectedStore::connect(engine, declared, "stopped", SHORT_TIMEOUT)]
        } else {
            let connector = engine.connector();
            let limits = EngineLimits { connect_timeout: declared.max_wait, ..store.limits.clone() };
            let late = thread::spawn(move || ConnectedStore::connect_with(&connector, declared, "stopped", limits));
            engine.restart();
            let late = late.join().unwrap_or_else(|panic| resume_unwind(panic));
            vec![store, late]
        };
        for store in &stores {
            let stored = store.eventually("a get after the engine came back", || store.get(1));
            let expected = (!declared.forgets).then_some(&before);
            assert_eq!(stored.as_ref(), expected, "what is stored after the engine came back");
        }
        for store in &stores {
            store.eventually("a put after the engine came back", || store.put(&new));
            store.eventually("a status after the engine came back", || store.status());
            assert_eq!(store.eventually("a get after this put", || store.get(3)).as_ref(), Some(&new));
        }
    })
}

/// A store that lists a host which is silent connects to another one, however short a status waits: after the engine was paused,
/// statuses alone make the store healthy again.
pub fn statuses_alone_connect_past_a_silent_host(subject: &EngineSubject) -> Outcome {
    subject.run(|engine, declared| {
        let (connector, limits) = (engine.connector_past_a_silent_host()?, limits(declared, MEDIUM_TIMEOUT));
        let store = ConnectedStore::connect_with(&connector, declared, "silent", limits);
        store.eventually("a status", || store.status());
        let pause = Pause::begin(engine);
        // The store gives up the connections that it has.
        store.expect_failure("a status", store.repo.status());
        drop(pause);
        store.eventually("a status after the engine went on", || store.status());
        Ok::<(), String>(())
    })
}

/// While an engine refuses to store entities, yet answers reads, each write that would store one ends with `NotDone` or `Full`, is
/// not done, and is not acknowledged. `status` is an error too. Once the engine accepts writes again, so does the store.
pub fn a_refused_write_is_not_acknowledged(subject: &EngineSubject) -> Outcome {
    subject.run(|engine, declared| {
        // Long: the last attempt of a write that is refused gets only a part of the timeout, and has to be answered in it.
        let store = ConnectedStore::connect(engine, declared, "refused", LONG_TIMEOUT);
        let (before, after) = (Entity::new(1, "before", 1.0), Entity::new(1, "after", 2.0));
        assert_eq!(store.put(&before).unwrap(), Put::Created);
        store.eventually("a status before the engine refuses writes", || store.status());
        engine.refuse_writes()?;
        let (present, absent) = (Condition::present(), Condition::absent());
        let puts = [
            ("a put of an entity that is stored", unit(store.repo.put(after.clone()))),
            ("a put of a new entity", unit(store.repo.put(Entity { id: 2, ..after.clone() }))),
            ("a conditional put of an entity that is stored", unit(store.repo.put_if(after.clone(), &present))),
            ("a conditional put of a new entity", unit(store.repo.put_if(Entity { id: 2, ..after.clone() }, &absent))),
        ];
        let assert_unchanged = |what: &str| {
            assert_eq!(store.get(1).unwrap().as_ref(), Some(&before), "after {what}");
            assert_eq!(store.get(2).unwrap(), None, "after {what}");
        };
        for (what, answer) in puts {
            match store.settle(what, answer) {
                Err(RepoError::NotDone(_) | RepoError::Full(_)) => {}
                Err(error) => panic!("the engine refuses writes for now, and {what} failed with {error:?}"),
                Ok(()) => panic!("the engine refuses writes, and {what} succeeded"),
            }
            assert_unchanged(what);
        }
        // A store that reads from memory may know of the refusal only by a write. A status may have a timeout of its own, which
        // is shorter than that of the store.
        store.eventually("a status", || match store.status() {
            Err(RepoError::NotDone(_) | RepoError::Full(_)) => Ok(()),
            Err(error @ RepoError::Unavailable(_)) => Err(error),
            status => panic!("the engine refuses writes for now, and a status is {status:?}"),
        });
        assert_unchanged("a status");
        // The engine may remove entities. The answer has to be true.
        let removed = store.settle("a remove", store.repo.remove(&1));
        let stored = store.get(1).unwrap();
        match &removed {
            Ok(removed) => assert_eq!((*removed, stored), (Removed::Removed, None)),
            Err(RepoError::NotDone(_) | RepoError::Full(_)) => assert_eq!(stored, Some(before)),
            Err(error) => panic!("the engine refuses writes for now, and a remove failed with {error:?}"),
        }
        engine.accept_writes();
        store.eventually("a put after the engine accepts writes", || store.put(&after));
        store.eventually("a status after the engine accepts writes", || store.status());
        assert_eq!(store.get(1).unwrap(), Some(after));
        Ok::<(), String>(())
    })
}

/// After an engine has ended the connections of a store that was idle, the store uses none of them: each write is done, and none
/// fails. If [`EngineSubject::may_leave_a_write_unknown`] is declared, one of 27 writes may have an unknown end.
pub fn a_connection_that_ended_loses_no_write(subject: &EngineSubject) -> Outcome {
    subject.run(|engine, declared| {
        let store = ConnectedStore::connect(engine, declared, "ended", LONG_TIMEOUT);
        let mut unknown = None;
        for round in 0..3 {
            // A store with several connections opens them here.
            for id in 1..10 {
                store.put(&Entity::new(id, "before", f64::from(round))).unwrap();
            }
            engine.end_connections()?;
            let put = |id| (id, store.repo.put(Entity::new(id, "after", f64::from(round))));
            for (id, answer) in (1..10).map(put).collect::<Vec<_>>() {
                match store.settle("a put", answer) {
                    Ok(Put::Replaced) => {}
                    Err(RepoError::Unavailable(_)) if declared.may_leave_a_write_unknown && unknown.is_none() => {
                        unknown = Some((round, id));
                    }
                    put => {
                        panic!("put {id} after all connections ended in round {round}: {put:?}; before: {unknown:?}")
                    }
                }
            }
            for id in (1..10).filter(|id| unknown != Some((round, *id))) {
                assert_eq!(store.get(id).unwrap(), Some(Entity::new(id, "after", f64::from(round))));
            }
        }
        Ok::<(), String>(())
    })
}

/// Connecting to a place without an engine ends with an error that names the engine.
pub fn an_absent_engine_is_an_error(subject: &EngineSubject) -> Outcome {
    let (connector, text) = ((subject.absent.0)(), subject.absent_error.clone());
    let limits = EngineLimits { connect_timeout: ABSENT_TIMEOUT, ..limits(subject.declared, SHORT_TIMEOUT) };
    within(subject.declared.max_wait, "connecting", move || {
        match connector("absent", &limits) {
            Ok(_) => panic!("a store has connected, and there is no engine"),
            Err(error) => assert!(error.to_string().contains(&text), "the error lacks {text:?}: {error}"),
        }
        Outcome::Held
    })
}

/// A pause of an engine. It ends when this is dropped, also by a panic: the drop of a store may wait for its engine.
struct Pause<'a>(&'a mut dyn EngineControl);

impl<'a> Pause<'a> {
    fn begin(engine: &'a mut dyn EngineControl) -> Self {
        engine.pause();
        Self(engine)
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.0.resume();
    }
}

/// A connected store, and its limits.
struct ConnectedStore {
    repo: Arc<dyn EntityRepo>,
    limits: EngineLimits,
    declared: Declarations,
}

impl ConnectedStore {
    fn connect(engine: &dyn EngineControl, declared: Declarations, name_space: &str, timeout: Duration) -> Self {
        Self::connect_with(&engine.connector(), declared, name_space, limits(declared, timeout))
    }

    fn connect_with(connector: &Connector, declared: Declarations, name_space: &str, limits: EngineLimits) -> Self {
        match connector(name_space, &limits) {
            Ok(repo) => Self { repo, limits, declared },
            Err(error) => panic!("a store cannot connect: {error}"),
        }
    }

    /// Waits for the result of `answer` within the max wait.
    fn settle<T>(&self, what: &str, answer: RepoAnswer<T>) -> Result<T, RepoError> {
        outcome(self.declared.max_wait, what, answer)
    }

    fn put(&self, entity: &Entity) -> Result<Put, RepoError> {
        self.settle("a put", self.repo.put(entity.clone()))
    }

    fn status(&self) -> Result<(), RepoError> {
        self.settle("a status", self.repo.status())
    }

    fn get(&self, id: i64) -> Result<Option<Entity>, RepoError> {
        self.settle("a get", self.repo.fetch(&id))
    }

    /// Asserts that the answer to a read is deferred, unless the store reads from memory.
    fn deferred_read<T>(&self, what: &str, answer: Answer<T>) -> Answer<T> {
        if self.declared.reads_from_memory { answer } else { deferred(what, answer) }
    }

    /// Calls each operation that depends on the engine. The writes are of `entity`, and of an id that is absent.
    fn call_all(&self, entity: &Entity) -> Vec<(&'static str, RepoAnswer<()>)> {
        let (repo, condition) = (&self.repo, Condition::absent());
        let mut calls = vec![
            ("a put", unit(repo.put(entity.clone()))),
            ("a conditional put", unit(repo.put_if(entity.clone(), &condition))),
            ("a remove", unit(repo.remove(&9))),
            ("a conditional remove", unit(repo.remove_if(&9, &condition))),
        ];
        if !self.declared.reads_from_memory {
            calls.push(("a get", unit(repo.get(&1, Visit::new(&mut |_| ())))));
            calls.push(("a count", unit(repo.len())));
        }
        calls
    }

    /// Asserts that an operation ends by its timeout with the error of an engine that does not answer. The error of a store
    /// that reads from memory is that of its disk.
    fn expect_failure(&self, what: &str, answer: RepoAnswer<()>) {
        match self.settle(what, answer) {
            Err(RepoError::Unavailable(_) | RepoError::NotDone(_)) => {}
            Err(RepoError::ReadOnly(_) | RepoError::Other(_)) if self.declared.reads_from_memory => {}
            Err(error) => panic!("the engine does not answer, and {what} failed with {error:?}"),
            Ok(()) => panic!("the engine does not answer, and {what} succeeded"),
        }
    }

    /// Waits within the max wait until at most `max` operations are not answered, and returns these. Asserts that the others are
    /// rejected as overload.
    fn rejects_but(&self, max: usize, answers: Vec<RepoAnswer<()>>) -> Vec<RepoAnswer<()>> {
        let mut waiting: Vec<_> = answers.into_iter().map(IntoFuture::into_future).collect();
        let rejected = park_until(Some(Instant::now() + self.declared.max_wait), |cx| {
            waiting.retain_mut(|future| match Pin::new(future).poll(cx) {
                Poll::Pending => true,
                Poll::Ready(Err(RepoError::Overloaded)) => false,
                Poll::Ready(result) => panic!("the engine is paused, and an operation got {result:?}"),
            });
            if waiting.len() <= max { Poll::Ready(()) } else { Poll::Pending }
        });
        assert!(rejected.is_some(), "the store holds {} operations, which is more than {max}", waiting.len());
        waiting.into_iter().map(|future| Answer::Later(Box::pin(future))).collect()
    }

    /// Repeats the put of a new entity until it is done, within the max wait.
    fn put_new(&self, entity: &Entity) {
        // An attempt that failed by its timeout may have stored the entity.
        let mut expected = vec![Put::Created];
        let put = self.eventually("a put", || {
            let put = self.put(entity);
            if put.is_err() {
                expected.push(Put::Replaced);
            }
            put
        });
        assert!(expected.contains(&put), "the put of a new entity: {put:?}");
    }

    /// Repeats an operation until it is done, within the max wait.
    fn eventually<T>(&self, what: &str, mut operation: impl FnMut() -> Result<T, RepoError>) -> T {
        let deadline = Instant::now() + self.declared.max_wait;
        loop {
            match operation() {
                Ok(done) => return done,
                Err(error) => assert!(Instant::now() < deadline, "{what} fails: {error:?}"),
            }
            // Between two looks at an engine, which cannot notify the kit.
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Asserts that an answer is deferred, because the engine has not answered yet.
fn assert_deferred<T>(what: &str, answer: &Answer<T>) {
    assert!(!answer.is_now(), "{what} has answered before its engine: the answer is wrong, or the call has waited");
}

/// Returns an answer that is deferred.
fn deferred<T>(what: &str, answer: Answer<T>) -> Answer<T> {
    assert_deferred(what, &answer);
    answer
}

/// Drops the value of an answer, so that different answers have one type.
fn unit<T: Send + 'static>(answer: RepoAnswer<T>) -> RepoAnswer<()> {
    answer.map(|result| result.map(drop))
}
