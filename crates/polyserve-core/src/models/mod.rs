//! What a model checker runs of this crate, in every order that matters: `ci/models.sh`, and "Model checking" in
//! docs/DESIGN.md.
//!
//! They are here, and not among the tests from outside, because they run what is private: a timer that ends, for one.
//! loom's: all of this waits with locks and parking alone, it is small, and loom leaves no order out.

mod promise;
mod shutdown;
mod timer;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

/// A waker that counts. The count is std's: no step of its own, so that it adds no executions.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Count {
    fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}
