//! The results of writes, from what a write has replaced or removed.

use polyserve_core::{Conditional, Identifiable, Put, Removed};

/// Returns the result of a put that has replaced an entity, or none, or that was refused.
#[inline]
pub(crate) fn put_result<E: Identifiable>(replaced: Result<Option<E>, E>) -> Conditional<Put> {
    match replaced {
        Ok(Some(replaced)) => {
            replaced.recycle();
            Conditional::Done(Put::Replaced)
        }
        Ok(None) => Conditional::Done(Put::Created),
        Err(_) => Conditional::Refused,
    }
}

/// Returns the result of a remove that has taken an entity out, or none, or that was refused.
#[inline]
pub(crate) fn remove_result<E>(removed: &Conditional<Option<E>>) -> Conditional<Removed> {
    match removed {
        Conditional::Done(Some(_)) => Conditional::Done(Removed::Removed),
        Conditional::Done(None) => Conditional::Done(Removed::Absent),
        Conditional::Refused => Conditional::Refused,
    }
}
