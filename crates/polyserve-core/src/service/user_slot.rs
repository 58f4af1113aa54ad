//! The name of the user that a service finds for a request, for the report of its answer.

use std::sync::{Arc, OnceLock};

/// The place in which a service [notes](super::Request::note_user) the user of a request. For the author of a server.
#[derive(Debug, Default)]
pub struct UserSlot(OnceLock<Arc<str>>);

impl UserSlot {
    /// Creates a slot without a user.
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// Notes the user. Only the first one is kept.
    pub(super) fn set(&self, user: &Arc<str>) {
        let _ = self.0.set(Arc::clone(user)); // an error: there is one
    }

    /// Returns the user, and leaves none.
    pub fn take(&mut self) -> Option<Arc<str>> {
        self.0.take()
    }
}
