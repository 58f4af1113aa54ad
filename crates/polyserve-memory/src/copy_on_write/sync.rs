//! All that threads meet at in `copy_on_write`: std's and arc-swap's, or a model checker's.

// `OnceLock` is std's under a checker too, for neither has one: making a segment is no step of its own there, and is seen by
// all at once. That a reader who is told of a bucket also sees its segment is argued in `shard`, not modelled.
pub(super) use std::sync::{OnceLock, PoisonError};

pub(super) use polyserve_core::sync::atomic::{AtomicUsize, Ordering};
pub(super) use polyserve_core::sync::{Mutex, MutexGuard};

pub(super) use self::published::Published;

#[cfg(not(any(polyserve_loom, polyserve_shuttle)))]
mod published {
    use std::ops::Deref;

    use arc_swap::{ArcSwapAny, RefCnt};

    /// A place for one shared value, or none, that is read without a lock and exchanged in one step.
    pub(crate) struct Published<T: RefCnt> {
        value: ArcSwapAny<Option<T>>,
    }

    impl<T: RefCnt> Published<T> {
        /// Without a value.
        pub(crate) fn empty() -> Self {
            Self { value: ArcSwapAny::new(None) }
        }

        /// What is there now, kept while it is looked at. Never waits.
        pub(crate) fn load(&self) -> impl Deref<Target = Option<T>> {
            self.value.load()
        }

        /// Publishes `value`, and hands out what was there.
        pub(crate) fn swap(&self, value: Option<T>) -> Option<T> {
            self.value.swap(value)
        }
    }
}

/// What arc-swap promises, for a checker that cannot see into it: a value is a number in a list of all that there were, and
/// the number is an atomic. A load acquires, an exchange does both; so a reader may find an old value where nothing tells
/// it of the new one. That values are kept for their readers is not modelled.
#[cfg(any(polyserve_loom, polyserve_shuttle))]
mod published {
    use std::ops::Deref;

    use super::{AtomicUsize, Ordering};

    pub(crate) struct Published<T> {
        current: AtomicUsize,
        /// std's: no step of its own.
        all: std::sync::Mutex<Vec<Option<T>>>,
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
            Self { current: AtomicUsize::new(0), all: std::sync::Mutex::new(vec![None]) }
        }

        fn at(&self, number: usize) -> Option<T> {
            self.all.lock().expect("no poison")[number].clone()
        }

        pub(crate) fn load(&self) -> Loaded<T> {
            Loaded(self.at(self.current.load(Ordering::Acquire)))
        }

        pub(crate) fn swap(&self, value: Option<T>) -> Option<T> {
            let number = {
                let mut all = self.all.lock().expect("no poison");
                all.push(value);
                all.len() - 1
            };
            self.at(self.current.swap(number, Ordering::AcqRel))
        }
    }
}
