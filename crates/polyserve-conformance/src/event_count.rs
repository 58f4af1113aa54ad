//! A count of events, for tests that wait for them.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use polyserve_core::sync::lock;

/// A count of events, which threads can wait for. Clones share the count.
#[derive(Clone, Debug)]
pub(crate) struct EventCount {
    shared: Arc<(Mutex<usize>, Condvar)>,
    max_wait: Duration,
}

/// The time for which the kit waits for events that must not happen.
const QUIET_TIME: Duration = Duration::from_millis(100);

impl EventCount {
    /// Creates a count at zero, which is waited for as long as this.
    pub(crate) fn new(max_wait: Duration) -> Self {
        Self { shared: Arc::default(), max_wait }
    }

    /// Counts one event.
    pub(crate) fn add(&self) {
        *lock(&self.shared.0) += 1;
        self.shared.1.notify_all();
    }

    pub(crate) fn get(&self) -> usize {
        *lock(&self.shared.0)
    }

    /// Waits until the count is at least `n`. Returns whether it was reached in time.
    pub(crate) fn reaches(&self, n: usize) -> bool {
        self.reaches_within(n, self.max_wait)
    }

    /// Returns whether the count reaches `n` within a short time. For events that must not happen.
    pub(crate) fn reaches_soon(&self, n: usize) -> bool {
        self.reaches_within(n, QUIET_TIME)
    }

    fn reaches_within(&self, n: usize, max_wait: Duration) -> bool {
        let (count, changed) = &*self.shared;
        let waited = changed.wait_timeout_while(lock(count), max_wait, |count| *count < n);
        *waited.unwrap_or_else(PoisonError::into_inner).0 >= n
    }

    /// Another count, at zero.
    pub(crate) fn another(&self) -> Self {
        Self::new(self.max_wait)
    }

    /// A value that counts once as it is dropped.
    pub(crate) fn token(&self) -> Token {
        Token(self.clone())
    }
}

/// Counts once as it is dropped.
#[derive(Debug)]
pub(crate) struct Token(EventCount);

impl Drop for Token {
    fn drop(&mut self) {
        self.0.add();
    }
}
