//! All that threads meet at in `copy_on_write`. A model checker builds `shard.rs` over its own instead.

use std::ops::Deref;

use arc_swap::{ArcSwapAny, RefCnt};

pub(super) use std::sync::atomic::{AtomicUsize, Ordering};
pub(super) use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// A place for one shared value, or none, that is read without a lock and exchanged in one step.
pub(super) struct Published<T: RefCnt> {
    value: ArcSwapAny<Option<T>>,
}

impl<T: RefCnt> Published<T> {
    /// Without a value.
    pub(super) fn empty() -> Self {
        Self { value: ArcSwapAny::new(None) }
    }

    /// What is there now, kept while it is looked at. Never waits.
    pub(super) fn load(&self) -> impl Deref<Target = Option<T>> {
        self.value.load()
    }

    /// Publishes `value`, and hands out what was there.
    pub(super) fn swap(&self, value: Option<T>) -> Option<T> {
        self.value.swap(value)
    }
}
