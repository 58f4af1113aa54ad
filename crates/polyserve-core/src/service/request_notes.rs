//! What a service finds out about a request, for the report of its answer.

use std::fmt;
use std::sync::{Arc, OnceLock};

/// What a service notes of a request, such as [its user](super::Request::note_user) and [its trace](super::Request::note_trace). For
/// the author of a server.
#[derive(Debug, Default)]
pub struct RequestNotes {
    user: OnceLock<Arc<str>>,
    trace: OnceLock<TraceId>,
}

impl RequestNotes {
    /// Creates empty notes.
    pub const fn new() -> Self {
        Self { user: OnceLock::new(), trace: OnceLock::new() }
    }

    /// Notes the user. Only the first one is kept.
    pub(super) fn set_user(&self, user: &Arc<str>) {
        let _ = self.user.set(Arc::clone(user)); // an error: there is one
    }

    /// Notes the trace. Only the first one is kept.
    pub(super) fn set_trace(&self, trace: TraceId) {
        let _ = self.trace.set(trace); // an error: there is one
    }

    /// Returns the user.
    pub fn user(&self) -> Option<&str> {
        self.user.get().map(|user| &**user)
    }

    /// Returns the trace.
    pub fn trace(&self) -> Option<TraceId> {
        self.trace.get().copied()
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
