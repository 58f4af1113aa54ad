//! A program's subscriber that panics at each event, for example because it writes to a full disk.

mod common;

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use polyserve_core::{Entity, EntityRepo, RepoError};
use polyserve_durable::Durable;
use polyserve_memory::Sharded;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use common::TestDir;

static HAS_PANICKED: AtomicBool = AtomicBool::new(false);

struct Panicking;

impl Subscriber for Panicking {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        HAS_PANICKED.store(true, Ordering::Relaxed);
        panic!("the event cannot be written");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Regression test: a panic of the subscriber ended the thread of the log, and all later writes were answered with `Closed`.
#[test]
fn a_subscriber_that_panics_does_not_end_the_log() {
    tracing::subscriber::set_global_default(Panicking).unwrap();
    let dir = TestDir::new("events");
    let store = Durable::open(dir.join("store"), Sharded::new()).unwrap();
    fs::rename(dir.join("store"), dir.join("elsewhere")).unwrap();
    let put = |id| store.put(Entity::new(id, "text", 0.5)).wait();
    let deadline = Instant::now() + Duration::from_secs(60);
    let error = loop {
        match put(1) {
            Ok(_) => assert!(Instant::now() < deadline, "the store does not stop"),
            Err(error) => break error,
        }
    };
    for error in [error, put(1).unwrap_err(), store.status().wait().unwrap_err()] {
        assert!(matches!(error, RepoError::ReadOnly(_)), "{error:?}");
    }
    assert!(HAS_PANICKED.load(Ordering::Relaxed));
}
