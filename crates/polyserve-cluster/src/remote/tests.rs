use std::fmt;
use std::future::IntoFuture as _;
use std::pin::pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};

use polyserve_core::Entity;
use tokio::sync::Notify;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

use super::*;

/// An engine that counts three entities, when it is notified, and removes none.
struct StubbornEngine(Arc<Notify>);

impl Engine for StubbornEngine {
    const NAME: &'static str = "stubborn";
    type Connection = ();
    type Version = ();

    async fn connection(&self, _: Option<&()>) -> Result<(), EngineFailure> {
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

/// Collects the events of this process.
struct Events(Sender<String>);

impl Subscriber for Events {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
                self.0 += &format!("{field}={value:?} ");
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        let _ = self.0.send(text.0);
    }
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
    let (sender, events) = channel();
    tracing::subscriber::set_global_default(Events(sender)).expect("no other test sets it");
    let event_with = |text: &str| events.iter().find(|event| event.contains(text)).expect("the subscriber stays");

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
