use std::future::IntoFuture as _;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use polyserve_conformance::log::messages;
use polyserve_core::{Entity, InvalidEntity};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::engine::StoredPage;
use super::*;

/// An engine that counts three entities, when it is notified, and removes none.
struct StubbornEngine(Arc<Notify>);

impl Engine for StubbornEngine {
    const NAME: &'static str = "stubborn";
    type Connection = ();
    type Version = ();

    async fn connection(self: &Rc<Self>, _: Option<&()>, _: Option<&str>) -> Result<(), EngineFailure> {
        Ok(())
    }

    fn suspect(&self, (): &()) {}

    async fn get(&self, (): &(), _: &str) -> Result<Option<Stored<()>>, EngineFailure> {
        Ok(None)
    }

    async fn put(&self, (): &(), _: &str, _: &[u8]) -> Result<Put, EngineFailure> {
        unreachable!()
    }

    async fn remove(&self, (): &(), _: &str) -> Result<Removed, EngineFailure> {
        unreachable!()
    }

    async fn put_over(&self, (): &(), _: &str, _: Option<&Stored<()>>, _: &[u8]) -> Result<bool, EngineFailure> {
        unreachable!()
    }

    async fn remove_seen(&self, (): &(), _: &str, _: &Stored<()>) -> Result<bool, EngineFailure> {
        unreachable!()
    }

    async fn try_write(&self, (): &(), _: &str) -> Result<(), EngineFailure> {
        unreachable!()
    }

    async fn page(&self, (): &(), _: &str, _: Option<&str>, _: usize) -> Result<StoredPage, EngineFailure> {
        unreachable!()
    }

    async fn len(&self, (): &(), _: &str) -> Result<u64, EngineFailure> {
        self.0.notified().await;
        Ok(3)
    }

    async fn clear(&self, (): &(), _: &str) -> Result<(), EngineFailure> {
        Err(EngineFailure::Rejected("it keeps everything".into()))
    }
}

type Temporary = Remote<Entity, StubbornEngine>;

fn temporary(prefix: &str) -> (Temporary, Arc<Notify>) {
    let notify = Arc::new(Notify::new());
    let engine = StubbornEngine(Arc::clone(&notify));
    let mut store = Temporary::connect(StoreLimits::default(), prefix.into(), || engine).expect("it connects");
    store.make_temporary();
    (store, notify)
}

/// Drops a store when it is woken.
struct DropsOnWake(Mutex<Option<Arc<Temporary>>>);

impl Wake for DropsOnWake {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
    }
}

#[test]
fn a_temporary_store_warns_of_what_it_leaves() {
    let messages = messages();
    let event_with = |text: &str| {
        let (_, event) = messages.iter().find(|(_, event)| event.contains(text)).expect("the subscriber stays");
        event
    };

    let (store, notify) = temporary("kept/");
    notify.notify_one();
    drop(store);
    let event = event_with("kept/");
    assert!(event.contains("left=3"), "{event}");

    let (store, notify) = temporary("on_thread/");
    let store = Arc::new(store);
    let mut answer = pin!(store.len().into_future());
    let waker = Waker::from(Arc::new(DropsOnWake(Mutex::new(Some(store)))));
    assert!(answer.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    notify.notify_one();
    let event = event_with("on_thread/");
    assert!(event.contains("was dropped on its I/O thread"), "{event}");
}

/// An engine with one large value. It replaces no value before it is notified.
#[derive(Default)]
struct LargeEngine(Arc<Notify>);

/// The number of bytes of the large value.
const LARGE: usize = 64 << 10;

impl Engine for LargeEngine {
    const NAME: &'static str = "large";
    type Connection = ();
    type Version = ();

    async fn connection(self: &Rc<Self>, _: Option<&()>, _: Option<&str>) -> Result<(), EngineFailure> {
        Ok(())
    }

    fn suspect(&self, (): &()) {}

    async fn get(&self, (): &(), key: &str) -> Result<Option<Stored<()>>, EngineFailure> {
        if key != "1" {
            return Ok(None);
        }
        let mut value = Vec::with_capacity(LARGE);
        value.extend_from_slice(br#"{"id":1,"value":0.5,"description":""#);
        value.resize(LARGE - 2, b'a');
        value.extend_from_slice(br#""}"#);
        Ok(Some(Stored { value, version: () }))
    }

    async fn put(&self, (): &(), _: &str, _: &[u8]) -> Result<Put, EngineFailure> {
        unreachable!()
    }

    async fn remove(&self, (): &(), _: &str) -> Result<Removed, EngineFailure> {
        unreachable!()
    }

    async fn put_over(&self, (): &(), _: &str, _: Option<&Stored<()>>, _: &[u8]) -> Result<bool, EngineFailure> {
        self.0.notified().await;
        Ok(true)
    }

    async fn remove_seen(&self, (): &(), _: &str, _: &Stored<()>) -> Result<bool, EngineFailure> {
        self.0.notified().await;
        Ok(true)
    }

    async fn try_write(&self, (): &(), _: &str) -> Result<(), EngineFailure> {
        unreachable!()
    }

    async fn page(&self, (): &(), _: &str, _: Option<&str>, _: usize) -> Result<StoredPage, EngineFailure> {
        unreachable!()
    }

    async fn len(&self, (): &(), _: &str) -> Result<u64, EngineFailure> {
        Ok(1)
    }

    async fn clear(&self, (): &(), _: &str) -> Result<(), EngineFailure> {
        unreachable!()
    }
}

/// Regression test: the bytes of answers had no bound. Callers that called and did not poll held as many as they liked.
#[test]
fn answers_that_are_not_taken_are_bounded_in_bytes() {
    const FIT: usize = 16;
    let (number, bytes) = (|number| NonZeroUsize::new(number).expect("it is not 0"), FIT * LARGE);
    let limits = StoreLimits::default().max_in_flight(number(1)).max_bytes(number(bytes));
    let store =
        Remote::<Entity, LargeEngine>::connect(limits, String::new(), LargeEngine::default).expect("it connects");
    for _ in 0..3 {
        let gets: Vec<_> = (0..100).map(|_| store.get(&1)).collect();
        // The operations are answered in turn, so all gets are when this is.
        store.len().wait().expect("a count is small");
        assert!(matches!(store.get(&2).wait(), Err(RepoError::Overloaded)));
        let results: Vec<_> = gets.into_iter().map(Answer::wait).collect();
        let taken = results.iter().filter(|result| matches!(result, Ok(Lookup::Fetched(_)))).count();
        let refused = results.iter().filter(|result| matches!(result, Err(RepoError::Overloaded))).count();
        assert_eq!((taken, refused), (FIT, 100 - FIT));
        assert!(matches!(store.get(&2).wait(), Ok(Lookup::Absent)), "all answers are taken");
    }
}

/// Regression test: the bytes that writes with a condition had fetched had no bound.
#[test]
fn what_conditional_writes_hold_is_bounded_in_bytes() {
    const FIT: usize = 8;
    let number = |number| NonZeroUsize::new(number).expect("it is not 0");
    let limits = StoreLimits::default().max_in_flight(number(100)).max_bytes(number(FIT * LARGE));
    let notify = Arc::new(Notify::new());
    let engine = LargeEngine(Arc::clone(&notify));
    let store = Remote::<Entity, LargeEngine>::connect(limits, String::new(), || engine).expect("it connects");
    let (entity, present) = (Entity::new(1, "small", 0.5), Condition::present());
    for _ in 0..2 {
        let writes: Vec<_> = (0..40)
            .map(|number| match number % 2 {
                0 => store.put_if(&entity, &present).map(|put| put.map(drop)),
                _ => store.remove_if(&1, &present).map(|removed| removed.map(drop)),
            })
            .collect();
        // The operations start in turn, so all writes have when this has.
        assert!(matches!(store.get(&2).wait(), Err(RepoError::Overloaded)));
        notify.notify_waiters();
        let results: Vec<_> = writes.into_iter().map(Answer::wait).collect();
        let done = results.iter().filter(|result| result.is_ok()).count();
        let refused = results.iter().filter(|result| matches!(result, Err(RepoError::Overloaded))).count();
        assert_eq!((done, refused), (FIT, 40 - FIT));
        assert!(matches!(store.get(&2).wait(), Ok(Lookup::Absent)), "all writes have ended");
    }
}

/// An entity of a type with a `read_json` of its own, which takes the stack of a deeply nested value and grows none.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Deep {
    id: i64,
}

impl Identifiable for Deep {
    type Id = i64;

    fn id(&self) -> &i64 {
        &self.id
    }

    fn read_json(body: &[u8]) -> Result<Self, InvalidEntity> {
        let local = 0_u8;
        take_stack((&raw const local).addr());
        Ok(Self { id: Entity::read_json(body)?.id })
    }
}

/// The stack of a deeply nested value in bytes.
const TAKEN: usize = 7 << 20;

/// Recurses until it is [`TAKEN`] bytes below the address `start`.
fn take_stack(start: usize) {
    let taken = [0_u8; 1_024];
    if start.abs_diff(black_box(&raw const taken).addr()) < TAKEN {
        take_stack(start);
    }
    black_box(&taken);
}

/// A condition is evaluated on the I/O thread. A stack that overflows ends this program.
#[test]
fn the_io_thread_has_stack_for_any_entity() {
    let limits = StoreLimits::default();
    let store = Remote::<Deep, LargeEngine>::connect(limits, String::new(), LargeEngine::default).expect("it connects");
    let removed = store.remove_if(&1, &Condition::absent()).wait();
    assert!(matches!(removed, Ok(Conditional::Refused)), "{removed:?}");
}
