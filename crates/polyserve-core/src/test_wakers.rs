//! Wakers for tests: one that counts, and one that panics.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

/// A waker that counts. The count is an atomic of std, which is no step of a model and adds no executions.
#[derive(Default)]
pub(crate) struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl CountingWaker {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Returns a waker that panics. No model has one.
#[cfg(not(any(polyserve_loom, polyserve_shuttle)))]
pub(crate) fn panicking() -> std::task::Waker {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker");
        }
    }
    Arc::new(Panics).into()
}
