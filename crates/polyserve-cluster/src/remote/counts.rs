//! [`EngineCounts`]: what happens to the connections of a store, for metrics.
//!
//! A store has an I/O thread of its own, so the counts are a local of that thread: what opens a connection, or repeats an attempt,
//! needs no handle.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use polyserve_core::figures::{FigureValue, StoreFigure, StoreFigures};

/// The counts of a store over an engine.
#[derive(Debug, Default)]
pub(crate) struct EngineCounts {
    opened: AtomicU64,
    failed: AtomicU64,
    retries: AtomicU64,
}

thread_local! {
    /// The counts of the store that this I/O thread belongs to.
    static OF_THIS_THREAD: RefCell<Option<Arc<EngineCounts>>> = const { RefCell::new(None) };
}

impl EngineCounts {
    /// From now on, what happens on this thread is counted here.
    pub(super) fn count_this_thread(self: Arc<Self>) {
        OF_THIS_THREAD.set(Some(self));
    }
}

/// Counts a try to open a connection.
pub(super) fn count_opening(is_open: bool) {
    add_one(|counts| if is_open { &counts.opened } else { &counts.failed });
}

/// Counts an attempt that failed and is repeated.
pub(super) fn count_retry() {
    add_one(|counts| &counts.retries);
}

fn add_one(which: impl FnOnce(&EngineCounts) -> &AtomicU64) {
    OF_THIS_THREAD.with_borrow(|counts| {
        if let Some(counts) = counts {
            which(counts).fetch_add(1, Ordering::Relaxed);
        }
    });
}

impl StoreFigures for EngineCounts {
    fn read(&self) -> Vec<StoreFigure> {
        [
            ("polyserve_engine_connections_opened", "Connections to the engine that were opened", &self.opened),
            (
                "polyserve_engine_connection_failures",
                "Connections to the engine that could not be opened",
                &self.failed,
            ),
            ("polyserve_engine_retries", "Attempts that failed and were repeated", &self.retries),
        ]
        .map(|(name, help, count)| StoreFigure::new(name, help, FigureValue::Count(count.load(Ordering::Relaxed))))
        .into()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_counts_for_its_store() {
        let counts = Arc::new(EngineCounts::default());
        let of_thread = Arc::clone(&counts);
        count_opening(true); // this thread has no store
        let count = move || {
            of_thread.count_this_thread();
            [true, false, true].into_iter().for_each(count_opening);
            count_retry();
        };
        thread::spawn(count).join().expect("it does not panic");
        let read: Vec<FigureValue> = counts.read().into_iter().map(|figure| figure.value).collect();
        assert_eq!(read, [2, 1, 1].map(FigureValue::Count));
    }
}
