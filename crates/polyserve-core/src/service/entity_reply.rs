//! The answers of the entity service: what a store has found or done, as a status, header fields and a body.

use std::error::Error;
use std::fmt;

use http::header::{LOCATION, RETRY_AFTER};
use http::{HeaderValue, StatusCode};

use super::known_forms::KnownForm;
use super::path;
use super::reply::APPLICATION_JSON;
use super::{Body, Reply};
use crate::condition::{Condition, ETag};
use crate::entity::Identifiable;
use crate::log::{LogThrottles, in_one_line};
use crate::repo::{Lookup, Put, Removed, RepoError};
use crate::text::shortened;
use crate::throttled;

/// Returns the answer to a GET, if no visit has shown the entity. `form` returns the form of its JSON.
pub(super) fn get_reply<E: Identifiable>(
    id: &E::Id,
    found: Result<Lookup<E>, RepoError>,
    condition: &Condition,
    failures: &LogThrottles,
    form: impl FnOnce(&[u8]) -> KnownForm,
) -> Reply {
    match found {
        Ok(Lookup::Fetched(entity)) => {
            let mut json = Vec::with_capacity(128);
            if let Err(error) = entity.write_json(&mut json) {
                return unwritable(failures, id, &*error);
            }
            match shown(form(&json), condition) {
                Ok(etag) => entity_reply(Body::Owned(json), etag),
                Err(reply) => reply,
            }
        }
        // A repo that visits answers now, and that answer does not come here.
        Ok(Lookup::Visited(_) | Lookup::Absent) => absent_reply(id),
        Err(error) => error_reply(failures, &error),
    }
}

/// Returns the tag of an entity that a GET is to show, or another answer as an error if the condition asks for it.
pub(super) fn shown(form: KnownForm, condition: &Condition) -> Result<Option<ETag>, Reply> {
    match refusal(form.etag, condition) {
        None => Ok(form.etag),
        Some(reply) => Err(reply),
    }
}

/// Returns the answer to a GET of a stored entity with this tag if the condition does not hold. The order is that of RFC 9110,
/// 13.2.2.
pub(super) fn refusal(etag: Option<ETag>, condition: &Condition) -> Option<Reply> {
    if !condition.if_match_holds(etag) {
        return Some(precondition_failed());
    }
    if !condition.if_none_match_holds(etag) {
        return Some(tagged(Reply::empty(StatusCode::NOT_MODIFIED), etag));
    }
    None
}

/// Returns the answer to a GET.
#[inline]
pub(super) fn entity_reply(json: Body, etag: Option<ETag>) -> Reply {
    tagged(Reply::of_type(StatusCode::OK, APPLICATION_JSON.clone(), json), etag)
}

#[inline]
fn tagged(reply: Reply, etag: Option<ETag>) -> Reply {
    match etag {
        Some(etag) => reply.with_etag(etag),
        None => reply,
    }
}

pub(super) fn precondition_failed() -> Reply {
    let detail = "The entity is not in the state that the request's condition names: nothing was changed.";
    Reply::problem(StatusCode::PRECONDITION_FAILED, detail)
}

/// Returns the answer to a PUT of an entity with this id.
pub(super) fn stored_reply(
    prefix: &str,
    id: &impl fmt::Display,
    etag: Option<ETag>,
    failures: &LogThrottles,
    put: Result<Put, RepoError>,
) -> Reply {
    let reply = match put {
        Ok(Put::Created) => {
            let created = Reply::empty(StatusCode::CREATED);
            match HeaderValue::try_from(path::location(prefix, id)) {
                Ok(location) => created.with_field(LOCATION, location),
                Err(_) => created, // an encoded path is a valid value
            }
        }
        Ok(Put::Replaced) => Reply::empty(StatusCode::OK),
        Err(error) => return error_reply(failures, &error),
    };
    tagged(reply, etag)
}

/// Returns the answer to a DELETE.
pub(super) fn removed_reply(
    id: &impl fmt::Display,
    failures: &LogThrottles,
    removed: Result<Removed, RepoError>,
) -> Reply {
    match removed {
        Ok(Removed::Removed) => Reply::empty(StatusCode::NO_CONTENT),
        Ok(Removed::Absent) => absent_reply(id),
        Err(error) => error_reply(failures, &error),
    }
}

pub(super) fn absent_reply(id: &impl fmt::Display) -> Reply {
    Reply::problem(StatusCode::NOT_FOUND, format_args!("There is no entity {}.", shortened(id.to_string(), 100)))
}

pub(super) fn unwritable(
    failures: &LogThrottles,
    id: &impl fmt::Display,
    error: &(dyn Error + Send + Sync + 'static),
) -> Reply {
    throttled!(of failures, warn, error = in_one_line(error), "an entity could not be written as JSON");
    let detail = format!("The entity {} has no JSON form.", shortened(id.to_string(), 100));
    Reply::problem(StatusCode::INTERNAL_SERVER_ERROR, detail)
}

/// Returns the answer to an operation that the repo has failed, and logs the failure, throttled by `failures`.
pub(super) fn error_reply(failures: &LogThrottles, error: &RepoError) -> Reply {
    match error {
        RepoError::Closed | RepoError::Overloaded | RepoError::NotDone(_) | RepoError::Unavailable(_) => {
            if error.source().is_some() {
                throttled!(of failures, warn, error = in_one_line(error), "the repo is unavailable");
            }
            let reply = Reply::problem(StatusCode::SERVICE_UNAVAILABLE, format_args!("For now, {error}."));
            reply.with_field(RETRY_AFTER, HeaderValue::from_static("1"))
        }
        RepoError::Full(_) => {
            throttled!(of failures, warn, error = in_one_line(error), "the repo has no room");
            Reply::problem(StatusCode::INSUFFICIENT_STORAGE, "The store has no room: the write was not done.")
        }
        RepoError::TooLarge(_) => {
            throttled!(of failures, warn, error = in_one_line(error), "an entity is too large for the repo");
            let detail = "The entity is larger than the store can hold: the write was not done.";
            Reply::problem(StatusCode::PAYLOAD_TOO_LARGE, detail)
        }
        RepoError::ReadOnly(reason) => {
            // The repo has reported it once. A message for each write could fill the disk.
            tracing::debug!(error = in_one_line(error), "the repo takes no more writes");
            Reply::problem(StatusCode::INTERNAL_SERVER_ERROR, read_only(reason))
        }
        RepoError::Malformed(_) => {
            throttled!(of failures, warn, error = in_one_line(error), "the repo has something that is no entity");
            let detail = format!("The store has a fault: {error}.");
            Reply::problem(StatusCode::INTERNAL_SERVER_ERROR, detail)
        }
        RepoError::Other(_) => {
            throttled!(of failures, warn, error = in_one_line(error), "the repo failed");
            Reply::problem(StatusCode::INTERNAL_SERVER_ERROR, "The store failed.")
        }
    }
}

/// The detail of [`RepoError::ReadOnly`].
pub(super) fn read_only(reason: &dyn fmt::Display) -> String {
    format!("The store takes no more writes: {reason}.")
}
