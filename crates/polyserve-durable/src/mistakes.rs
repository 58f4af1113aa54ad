//! Mistakes that tests make on purpose, to see that the simulated disk catches them. Each thread has its own.

use std::cell::Cell;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// Checksums are not looked at.
    ChecksumIgnored,
    /// A write is shown to readers before its fsync.
    PublishedBeforeSync,
}

thread_local! {
    static MADE: Cell<Option<Mistake>> = const { Cell::new(None) };
}

/// Whether this thread makes the mistake.
pub(crate) fn is_made(mistake: Mistake) -> bool {
    MADE.get() == Some(mistake)
}

/// Makes a mistake while `run` runs.
pub(crate) fn making<T>(mistake: Mistake, run: impl FnOnce() -> T) -> T {
    MADE.set(Some(mistake));
    let result = run();
    MADE.set(None);
    result
}
