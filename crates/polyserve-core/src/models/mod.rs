//! Models: code of this crate that a model checker runs in every order that matters. See `ci/models.sh`, and "Model checking"
//! in docs/DESIGN.md.
//!
//! They are in the crate because they run private code, for instance a timer that ends. The checker is loom: the code waits
//! with locks and parking alone and is small, and loom leaves no order out.

mod promise;
mod shutdown;
mod timer;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

/// A waker that counts. The count is an atomic of std, which is no step of the model and adds no executions.
#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl CountingWaker {
    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}
