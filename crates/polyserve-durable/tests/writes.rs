//! Writes over repos in memory and entity types that misbehave, and the limits of the queue.

mod common;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use polyserve_core::figures::FigureValue;
use polyserve_core::{
    Answer, Condition, Conditional, Entity, EntityRepo, EntityRepoExt, Identifiable, Lookup, Put, Removed, RepoAnswer,
    RepoError, Visit,
};
use polyserve_durable::{Durable, DurableOptions};
use polyserve_memory::{Actor, StdMutex};
use serde::{Deserialize, Serialize};

use common::TestDir;

/// A repo that rejects writes as overloaded, and holds back the gets of the log's thread.
#[derive(Debug, Default)]
struct SlowRepo {
    entities: StdMutex,
    /// The number of writes to reject.
    rejections: AtomicU32,
    barrier: Arc<Barrier>,
}

/// A place where the log's thread waits.
#[derive(Debug, Default)]
struct Barrier {
    /// Whether the barrier is closed, and whether a thread waits at it.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Barrier {
    fn set_closed(&self, is_closed: bool) {
        self.state.lock().unwrap().0 = is_closed;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        while state.0 {
            state.1 = true;
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap();
        }
    }

    /// Waits until a thread waits at the closed barrier.
    fn wait_for_arrival(&self) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| !state.1).unwrap());
    }
}

impl SlowRepo {
    fn is_rejected(&self) -> bool {
        let decrement = |count: u32| count.checked_sub(1);
        self.rejections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, decrement).is_ok()
    }
}

impl EntityRepo for SlowRepo {
    fn get(&self, id: &i64, visit: Visit<'_>) -> RepoAnswer<Lookup> {
        if thread::current().name() == Some("log") {
            self.barrier.pass();
        }
        self.entities.get(id, visit)
    }

    fn put_if(&self, entity: Entity, condition: &Condition) -> RepoAnswer<Conditional<Put>> {
        if self.is_rejected() {
            return Answer::Now(Err(RepoError::Overloaded));
        }
        self.entities.put_if(entity, condition)
    }

    fn remove_if(&self, id: &i64, condition: &Condition) -> RepoAnswer<Conditional<Removed>> {
        if self.is_rejected() {
            return Answer::Now(Err(RepoError::Overloaded));
        }
        self.entities.remove_if(id, condition)
    }

    fn len(&self) -> RepoAnswer<u64> {
        self.entities.len()
    }
}

fn ids<R: EntityRepo>(store: &Durable<R>) -> Vec<i64> {
    (0..100).filter(|id| store.fetch(id).wait().unwrap().is_some()).collect()
}

/// Regression test: the repo in memory was overloaded, and the store stopped all writes, although the write was on the disk.
#[test]
fn figures_have_each_batch_and_outlive_the_store() {
    let directory = TestDir::new("figures");
    let store = Durable::open(&*directory, StdMutex::new()).unwrap();
    let figures = store.figures().expect("a durable store counts");
    for id in 0..3 {
        store.put(Entity::new(id, "one after the other", 0.5)).wait().unwrap();
    }
    drop(store);
    let read = figures.read();
    let value = |name| &read.iter().find(|figure| figure.name == name).expect("it is counted").value;
    let FigureValue::Durations(times) = value("polyserve_durable_sync_duration") else { panic!("{read:?}") };
    let FigureValue::Sizes(sizes) = value("polyserve_durable_batch_writes") else { panic!("{read:?}") };
    assert_eq!((times.count(), sizes.count(), sizes.sum), (3, 3, 3));
    assert!(times.sum > 0);
    assert_eq!(value("polyserve_durable_queued"), &FigureValue::Bytes(0));
    Durable::open(&*directory, StdMutex::<Entity>::new()).expect("the figures hold no lock");
}

/// Regression test: it was an error of the store, over HTTP 500.
#[test]
fn an_entity_that_is_too_large_for_the_log_is_refused() {
    let store = Durable::temporary(std::env::temp_dir(), StdMutex::new()).unwrap();
    let put = store.put(Entity::new(1, "x".repeat(65 << 20), 0.5)).wait();
    assert!(matches!(put, Err(RepoError::TooLarge(_))), "{put:?}");
    assert_eq!(store.put(Entity::new(1, "x", 0.5)).wait().unwrap(), Put::Created);
}

#[test]
fn an_overloaded_memory_delays_a_write() {
    let dir = TestDir::new("overloaded");
    let store = Durable::open(&*dir, SlowRepo::default()).unwrap();
    let overload = |times| store.memory().rejections.store(times, Ordering::Relaxed);
    overload(5);
    let nan = Entity::new(1, "has no JSON", f64::NAN);
    assert_eq!(store.put(nan).wait().unwrap(), Put::Created);
    overload(5);
    assert_eq!(store.put(Entity::new(2, "text", 0.5)).wait().unwrap(), Put::Created);
    overload(5);
    assert_eq!(store.remove(&1).wait().unwrap(), Removed::Removed);
    overload(1);
    assert_eq!(store.put(Entity::new(3, "text", f64::NAN)).wait().unwrap(), Put::Created);
    assert!(store.fetch(&3).wait().unwrap().unwrap().value.is_nan());
    assert_eq!(ids(&store), [2, 3]);
}

#[test]
fn a_flood_of_gets_stops_no_write() {
    let dir = TestDir::new("flood");
    let single = NonZeroUsize::MIN;
    let store = Durable::open(&*dir, Actor::<Entity>::with(single, single).unwrap()).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    drop(store.get(&1, Visit::new(&mut |_| {}))); // the message stays in the mailbox
                }
            });
        }
        for id in 0..100 {
            let put = loop {
                match store.put(Entity::new(id, "text", 0.5)).wait() {
                    Err(RepoError::Overloaded) => thread::yield_now(), // nothing was written
                    put => break put,
                }
            };
            if put.is_err() {
                is_over.store(true, Ordering::Relaxed);
            }
            assert_eq!(put.unwrap(), Put::Created, "{id}");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    drop(store);
    assert_eq!(ids(&Durable::open(&*dir, StdMutex::new()).unwrap()).len(), 100);
}

/// Fills the queue of a store while its log's thread waits. `waiting` writes are accepted, and the next one is not.
fn fill(name: &str, options: &DurableOptions, waiting: i64) {
    let dir = TestDir::new(name);
    let barrier = Arc::new(Barrier::default());
    let memory = SlowRepo { barrier: Arc::clone(&barrier), ..SlowRepo::default() };
    let store = Durable::open_with(&*dir, memory, options).unwrap();
    let put = |id| store.put(Entity::new(id, "text", 0.5));
    barrier.set_closed(true);
    let first = put(0);
    barrier.wait_for_arrival();
    let accepted: Vec<_> = (1..=waiting).map(put).collect();
    for id in 50..53 {
        assert!(matches!(put(id).wait(), Err(RepoError::Overloaded)), "{id}");
    }
    assert!(matches!(store.remove(&0).wait(), Err(RepoError::Overloaded)));
    barrier.set_closed(false);
    for answer in accepted.into_iter().chain([first]) {
        assert_eq!(answer.wait().unwrap(), Put::Created);
    }
    let expected: Vec<i64> = (0..=waiting).collect();
    assert_eq!(ids(&store), expected);
    drop(store);
    let store = Durable::open(&*dir, StdMutex::new()).unwrap();
    assert_eq!(ids(&store), expected);
    assert_eq!(store.put(Entity::new(50, "text", 0.5)).wait().unwrap(), Put::Created);
}

#[test]
fn a_full_queue_rejects_writes_and_loses_none() {
    fill("queue", &DurableOptions::default().queue(3), 3);
}

#[test]
fn a_queue_with_too_many_bytes_rejects_writes_and_loses_none() {
    // The id, the two lengths and the kind of a record, and its JSON.
    let put = 1 + 9 + r#"{"id":1,"description":"text","value":0.5}"#.len() as u64;
    fill("bytes", &DurableOptions::default().queue_bytes(2 * put), 2);
    // A write that alone is larger than the limit is taken if nothing waits.
    fill("bytes-one", &DurableOptions::default().queue_bytes(1), 1);
}

/// An id with code that panics on the thread of the log. Its text names the function.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct FragileId(String);

impl FragileId {
    fn check(&self, function: &str) {
        let is_on_log = thread::current().name() == Some("log");
        assert!(!is_on_log || thread::panicking() || self.0 != function, "{function} panics");
    }
}

impl Clone for FragileId {
    fn clone(&self) -> Self {
        self.check("clone");
        Self(self.0.clone())
    }
}

impl Drop for FragileId {
    fn drop(&mut self) {
        self.check("drop");
    }
}

impl Hash for FragileId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.check("hash");
        self.0.hash(state);
    }
}

impl fmt::Display for FragileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for FragileId {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Fragile {
    id: FragileId,
}

impl Identifiable for Fragile {
    type Id = FragileId;

    fn id(&self) -> &FragileId {
        &self.id
    }
}

/// Regression test: code of the id panicked outside of a `catch_unwind`, and the thread of the log ended.
#[test]
fn a_panic_in_an_id_fails_no_other_write() {
    let dir = TestDir::new("fragile");
    let open = || Durable::<_, Fragile>::open(&*dir, StdMutex::of::<Fragile>()).unwrap();
    let store = open();
    let id = |text: &str| FragileId(text.to_owned());
    let put = |text: &str| store.put(Fragile { id: id(text) }).wait();
    for function in ["hash", "clone"] {
        assert!(put(function).is_err(), "{function}");
        assert_eq!(put(&format!("after {function}")).unwrap(), Put::Created);
        assert!(store.remove(&id(function)).wait().is_err() || function == "clone", "{function}");
        assert_eq!(put(&format!("after {function}")).unwrap(), Put::Replaced);
    }
    // A write is answered, also if the drop of its id panics.
    assert_eq!(store.remove(&id("drop")).wait().unwrap(), Removed::Absent);
    assert_eq!(put("after drop").unwrap(), Put::Created);
    drop(store);
    let store = open();
    for text in ["after hash", "after clone", "after drop"] {
        assert!(store.fetch(&id(text)).wait().unwrap().is_some(), "{text}");
    }
    assert_eq!(store.recovery().entities, 3);
}
