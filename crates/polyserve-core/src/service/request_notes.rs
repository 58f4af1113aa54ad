//! What a service finds out about a request, for the report of its answer.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What a service notes of a request, such as [its user](super::Request::note_user) and [its trace](super::Request::note_trace). For
/// the author of a server.
#[derive(Debug, Default)]
pub struct RequestNotes {
    user: OnceLock<Arc<str>>,
    /// The halves of the trace, of which the number is not 0. One service notes it, so the halves are of one trace.
    trace: [AtomicU64; 2],
}

impl RequestNotes {
    /// Creates empty notes.
    pub const fn new() -> Self {
        Self { user: OnceLock::new(), trace: [const { AtomicU64::new(0) }; 2] }
    }

    /// Notes the user. Only the first one is kept.
    pub(super) fn set_user(&self, user: &Arc<str>) {
        let _ = self.user.set(Arc::clone(user)); // an error: there is one
    }

    /// Notes the trace. Only the first one is kept.
    pub(super) fn set_trace(&self, trace: TraceId) {
        if self.trace().is_none() {
            let halves = [(trace.0 >> 64) as u64, trace.0 as u64];
            self.trace.iter().zip(halves).for_each(|(half, value)| half.store(value, Ordering::Relaxed));
        }
    }

    /// Returns the user.
    pub fn user(&self) -> Option<&str> {
        self.user.get().map(|user| &**user)
    }

    /// Returns the trace.
    pub fn trace(&self) -> Option<TraceId> {
        let [high, low] = [&self.trace[0], &self.trace[1]].map(|half| u128::from(half.load(Ordering::Relaxed)));
        Some(TraceId(high << 64 | low)).filter(|trace| trace.0 != 0)
    }

    /// Returns the notes, and leaves none.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}

/// The number of a trace, which all requests that belong together have (W3C Trace Context, 3.2.2.3). Its text has 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId(pub u128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
