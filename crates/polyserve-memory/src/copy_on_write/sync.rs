//! The synchronisation primitives of `copy_on_write`: those of std and arc-swap, or of a model checker.

// `OnceLock` is std's under a checker too, because no checker has one. So in a model the creation of a segment is not a
// separate step, and all threads see it at once. `shard` argues that a reader that has read a number of buckets also
// sees their segments. The model does not check that.
pub(super) use std::sync::{OnceLock, PoisonError};

pub(super) use polyserve_core::sync::atomic::{AtomicUsize, Ordering};
pub(super) use polyserve_core::sync::{Mutex, MutexGuard};

pub(super) use self::published::Published;

#[cfg(not(any(polyserve_loom, polyserve_shuttle)))]
mod published {
    use std::ops::Deref;

    use arc_swap::{ArcSwapAny, RefCnt};

    /// A cell for one shared value, or none. It is read without a lock and exchanged in one step.
    pub(crate) struct Published<T: RefCnt> {
        value: ArcSwapAny<Option<T>>,
    }

    impl<T: RefCnt> Published<T> {
        /// Creates an empty cell.
        pub(crate) fn empty() -> Self {
            Self { value: ArcSwapAny::new(None) }
        }

        /// Returns the present value and keeps it alive while it is used. Never waits.
        pub(crate) fn load(&self) -> impl Deref<Target = Option<T>> {
            self.value.load()
        }

        /// Publishes `value` and returns the previous value.
        pub(crate) fn swap(&self, value: Option<T>) -> Option<T> {
            self.value.swap(value)
        }
    }
}

/// The guarantees of arc-swap, for a checker that cannot instrument it. A value is represented by its index in a list
/// of all values, and the index is an atomic. A load acquires; an exchange acquires and releases. So a reader may see
/// an old value if nothing orders it after the new one. The lifetime of values is not modelled.
#[cfg(any(polyserve_loom, polyserve_shuttle))]
mod published {
    use std::ops::Deref;

    use super::{AtomicUsize, Ordering};

    pub(crate) struct Published<T> {
        current: AtomicUsize,
        /// std's mutex, so that the checker does not see a step.
        versions: std::sync::Mutex<Vec<Option<T>>>,
    }

    pub(crate) struct Loaded<T>(Option<T>);

    impl<T> Deref for Loaded<T> {
        type Target = Option<T>;

        fn deref(&self) -> &Option<T> {
            &self.0
        }
    }

    impl<T: Clone> Published<T> {
        pub(crate) fn empty() -> Self {
            Self { current: AtomicUsize::new(0), versions: std::sync::Mutex::new(vec![None]) }
        }

        fn version(&self, number: usize) -> Option<T> {
            self.versions.lock().expect("no poison")[number].clone()
        }

        pub(crate) fn load(&self) -> Loaded<T> {
            Loaded(self.version(self.current.load(Ordering::Acquire)))
        }

        pub(crate) fn swap(&self, value: Option<T>) -> Option<T> {
            let number = {
                let mut versions = self.versions.lock().expect("no poison");
                versions.push(value);
                versions.len() - 1
            };
            self.version(self.current.swap(number, Ordering::AcqRel))
        }
    }
}
