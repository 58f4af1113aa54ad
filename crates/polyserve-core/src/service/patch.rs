//! `PATCH /{id}` by JSON Merge Patch (RFC 7396): the service reads the entity, merges, and writes the result if the entity is still
//! the one that was read. If it is not, the service begins again.
//!
//! Invariant: the patch was applied to exactly the entity that the write replaced, so no other write is lost. The condition of the
//! request is evaluated on that entity too. The store only needs its conditional write.
//!
//! Cost: the entity is copied, its JSON is written and hashed, read and written again, and hashed under the lock of the write. An
//! attempt fails only if another write has been done.

use std::error::Error;
use std::sync::Arc;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};

use super::entity_reply::{absent_reply, entity_reply, error_reply, precondition_failed, unwritable};
use super::media_type::MediaType;
use super::{Body, Head, Reply};
use crate::answer::Answer;
use crate::condition::{Condition, Conditional, ETag};
use crate::entity::Identifiable;
use crate::json::{BodyFault, InvalidEntity};
use crate::log::LogThrottles;
use crate::merge_patch::{Unmergeable, merge};
use crate::repo::{EntityRepo, EntityRepoExt};
use crate::stack;

/// The media type of a merge patch.
pub(super) const MEDIA_TYPE: &str = "application/merge-patch+json";

/// The maximum number of times that a patch is tried.
const MAX_ATTEMPTS: usize = 32;

/// The types other than [`MEDIA_TYPE`] that are taken by default. None of them names another format of patches: they are plain JSON, and
/// what clients send if their user has named no type.
const NO_OTHER_PATCH: [&str; 5] =
    ["application/json", "text/json", "text/plain", "application/x-www-form-urlencoded", "application/octet-stream"];

/// Refuses a Content-Type that is not that of a merge patch. An absent and an empty one are accepted, and [`NO_OTHER_PATCH`] unless
/// `strict`.
pub(super) fn check_media_type(head: &Head<'_>, strict: bool) -> Result<(), Reply> {
    let is_merge_patch = |value: &[u8]| {
        let is_taken = |found: MediaType<'_>| {
            found.is(MEDIA_TYPE) || (!strict && NO_OTHER_PATCH.iter().any(|name| found.is(name)))
        };
        value.trim_ascii().is_empty() || MediaType::read(value).is_some_and(is_taken)
    };
    if head.headers.all(&CONTENT_TYPE).all(is_merge_patch) {
        return Ok(());
    }
    let detail = format!("The Content-Type is not that of a merge patch: send {MEDIA_TYPE}.");
    Err(accept_patch(Reply::problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)))
}

/// Adds the field that names the format of patches (RFC 5789, section 3.1).
pub(super) fn accept_patch(reply: Reply) -> Reply {
    reply.with_field(HeaderName::from_static("accept-patch"), HeaderValue::from_static(MEDIA_TYPE))
}

/// A merge patch.
pub(super) struct Patch {
    /// Its text, which is JSON.
    pub(super) json: String,
    /// The max length of the entity's JSON after it. A patch may make a longer entity shorter.
    pub(super) max_length: usize,
}

/// Returns the answer to a patch.
pub(super) fn patch<E: Identifiable>(
    repo: Arc<impl EntityRepo<E>>,
    id: E::Id,
    condition: Condition,
    patch: Patch,
    etags: bool,
    failures: Arc<LogThrottles>,
) -> Answer<Reply> {
    Answer::polled(Box::pin(async move {
        for _ in 0..MAX_ATTEMPTS {
            match attempt::<E>(&*repo, &id, &condition, &patch, etags, &failures).await {
                Ok(Some(reply)) | Err(reply) => return reply,
                Ok(None) => {}
            }
        }
        let detail = "Other writes to the entity came in between each time: nothing was changed.";
        Reply::problem(StatusCode::SERVICE_UNAVAILABLE, detail).with_field(RETRY_AFTER, HeaderValue::from_static("1"))
    }))
}

/// Tries once. Returns `None` if another write was done between the read and the write.
///
/// # Errors
///
/// Returns the answer if the patch is not done.
async fn attempt<E: Identifiable>(
    repo: &impl EntityRepo<E>,
    id: &E::Id,
    condition: &Condition,
    patch: &Patch,
    etags: bool,
    failures: &LogThrottles,
) -> Result<Option<Reply>, Reply> {
    let (put, patched) = {
        let stored = match repo.fetch(id).await {
            Ok(Some(entity)) => stack::for_values(move || json_of(id, &entity, failures))?,
            Ok(None) => return Err(absent_reply(id)),
            Err(error) => return Err(error_reply(failures, &error)),
        };
        let version = ETag::of(&stored);
        let etag = etags.then_some(version);
        if !condition.if_match_holds(etag) || !condition.if_none_match_holds(etag) {
            return Err(precondition_failed());
        }
        stack::for_values(|| {
            let (entity, patched) = patched::<E>(id, &stored, patch, failures)?;
            Ok((repo.put_if(entity, &Condition::matches(version)), patched))
        })?
    };
    match put.await {
        Ok(Conditional::Done(_)) => {
            let etag = etags.then(|| ETag::of(&patched));
            Ok(Some(entity_reply(Body::Owned(patched), etag)))
        }
        Ok(Conditional::Refused) => Ok(None),
        Err(error) => Err(error_reply(failures, &error)),
    }
}

fn json_of<E: Identifiable>(id: &E::Id, entity: &E, failures: &LogThrottles) -> Result<Vec<u8>, Reply> {
    let mut json = Vec::with_capacity(128);
    entity.write_json(&mut json).map_err(|error| unwritable(failures, id, &*error))?;
    Ok(json)
}

/// Says of the result of a patch what is wrong with a body. The client has not sent this text, so a place in it says nothing.
fn of_result(fault: &BodyFault) -> String {
    format!("The result of the patch {}.", fault.what())
}

/// Returns the entity after the patch, and its JSON.
fn patched<E: Identifiable>(
    id: &E::Id,
    stored: &[u8],
    patch: &Patch,
    failures: &LogThrottles,
) -> Result<(E, Vec<u8>), Reply> {
    let unprocessable = |why: String| Reply::problem(StatusCode::UNPROCESSABLE_ENTITY, why);
    let merged = match str::from_utf8(stored).map_err(|_| Unmergeable::Target).and_then(|json| merge(json, &patch.json))
    {
        Ok(merged) => merged,
        Err(Unmergeable::Patch(why)) => return Err(unprocessable(why)),
        Err(Unmergeable::Target) => {
            let error = Box::<dyn Error + Send + Sync>::from("its JSON cannot be patched");
            return Err(unwritable(failures, id, &*error));
        }
    };
    let entity =
        E::read_json(&merged).map_err(|(InvalidEntity::NotJson(fault) | InvalidEntity::NotAnEntity(fault))| {
            unprocessable(of_result(&fault))
        })?;
    if entity.id() != id {
        return Err(Reply::problem(StatusCode::BAD_REQUEST, "The id in the patch is not the one in the path."));
    }
    let json = json_of(id, &entity, failures)?;
    if json.len() > patch.max_length.max(stored.len()) {
        let detail = format!(
            "The result of the patch has {} bytes, and a body has at most {}: nothing was changed.",
            json.len(),
            patch.max_length
        );
        return Err(Reply::problem(StatusCode::PAYLOAD_TOO_LARGE, detail));
    }
    Ok((entity, json))
}
