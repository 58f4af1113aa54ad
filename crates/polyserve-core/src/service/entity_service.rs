//! `entity`: the entity store over HTTP. Routing, JSON and status codes are decided here and nowhere else.

use std::sync::Arc;

use super::entity_json::{self, NoEntity};
use super::{Body, Head, Method, Reply, Request, Service, Status};
use crate::answer::Answer;
use crate::entity::EntityRef;
use crate::repo::{EntityRepo, Lookup, Put, Removed, RepoError};

/// The service that stores, shows and removes the entities of a repo.
///
/// Cost of a GET: one call of the repo, and no allocation if the repo answers now.
#[derive(Debug)]
pub struct EntityService<R> {
    repo: R,
    strict_media_type: bool,
}

impl<R: EntityRepo> EntityService<R> {
    /// Creates a service over `repo`. To use the repo outside the server as well, pass an `Arc` and keep a clone.
    pub fn new(repo: R) -> Self {
        Self { repo, strict_media_type: false }
    }

    /// Sets whether a PUT with a `Content-Type` other than JSON is answered with 415. Off by default: only the body
    /// is checked. A PUT without `Content-Type` is accepted either way.
    #[must_use]
    pub fn strict_media_type(mut self, strict: bool) -> Self {
        self.strict_media_type = strict;
        self
    }

    /// Returns the repo.
    pub fn repo(&self) -> &R {
        &self.repo
    }

    /// Creates a service over `repo` in the form that servers expect.
    pub fn shared(repo: R) -> Arc<dyn Service> {
        Arc::new(Self::new(repo))
    }

    fn get(&self, id: i64, body: &mut Vec<u8>) -> Answer<Reply> {
        let mut show = |entity: EntityRef<'_>| entity_json::write(entity, body);
        match self.repo.get(id, &mut show) {
            Answer::Now(found) => Answer::Now(got(id, found, Body::InPlace)),
            Answer::Later(future) => Answer::later(async move { got(id, future.await, Body::Static(&[])) }),
        }
    }

    fn put(&self, id: Option<i64>, body: &[u8]) -> Answer<Reply> {
        let entity = match entity_json::read(body) {
            Ok(entity) => entity,
            Err(NoEntity::NotJson(why)) => return Answer::Now(Reply::problem(Status::BAD_REQUEST, why)),
            Err(NoEntity::NotAnEntity(why)) => return Answer::Now(Reply::problem(Status::UNPROCESSABLE_CONTENT, why)),
        };
        let key = entity.id;
        if id.is_some_and(|id| id != key) {
            let detail = "The entity's id is not the one in the path.";
            return Answer::Now(Reply::problem(Status::BAD_REQUEST, detail));
        }
        self.repo.put(entity).map(move |put| match put {
            Ok(Put::Created) => {
                header(Reply::empty(Status::CREATED), "Location", format!("/{}", itoa::Buffer::new().format(key)))
            }
            Ok(Put::Replaced) => Reply::empty(Status::OK),
            Err(error) => failed(&error),
        })
    }

    fn remove(&self, id: i64) -> Answer<Reply> {
        self.repo.remove(id).map(move |removed| match removed {
            Ok(Removed::Removed) => Reply::empty(Status::NO_CONTENT),
            Ok(Removed::Absent) => absent(id),
            Err(error) => failed(&error),
        })
    }
}

impl<R: EntityRepo> Service for EntityService<R> {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        let route = match route(&request.head, self.strict_media_type) {
            Ok(route) => route,
            Err(refusal) => return Answer::Now(refusal),
        };
        match route {
            Route::Get(id) => self.get(id, body),
            Route::Put(id) => self.put(id, request.body),
            Route::Remove(id) => self.remove(id),
        }
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        route(head, self.strict_media_type).err()
    }
}

enum Route {
    Get(i64),
    Put(Option<i64>),
    Remove(i64),
}

const ALLOW_ROOT: &str = "PUT, OPTIONS";
const ALLOW_ENTITY: &str = "GET, HEAD, PUT, DELETE, OPTIONS";
const ALLOW_SERVER: &str = "GET, HEAD, PUT, DELETE, OPTIONS";

/// Decides by the head alone: returns the operation, or a refusal.
fn route(head: &Head<'_>, strict_media_type: bool) -> Result<Route, Reply> {
    let path = head.path();
    let segment = match path.strip_prefix('/') {
        Some("") => None,
        Some(segment) => Some(segment),
        None => return Err(options(head.method, ALLOW_SERVER)), // `*`
    };
    let id = match segment {
        None => None,
        Some(deep) if memchr::memchr(b'/', deep.as_bytes()).is_some() => {
            return Err(Reply::problem(Status::NOT_FOUND, "There is nothing at this path: entities are at /{id}."));
        }
        Some(segment) => Some(parse_id(segment).ok_or_else(|| {
            Reply::problem(Status::BAD_REQUEST, "The path is not an id: a whole number that fits 64 bits.")
        })?),
    };
    match (head.method, id) {
        (Method::Get | Method::Head, Some(id)) => Ok(Route::Get(id)),
        (Method::Put, id) => {
            check_coding(head)?;
            if strict_media_type {
                check_media_type(head)?;
            }
            Ok(Route::Put(id))
        }
        (Method::Delete, Some(id)) => Ok(Route::Remove(id)),
        (method, Some(_)) => Err(options(method, ALLOW_ENTITY)),
        (method, None) => Err(options(method, ALLOW_ROOT)),
    }
}

/// Returns the answer to OPTIONS, or to a method that is not allowed.
fn options(method: Method, allow: &'static str) -> Reply {
    let reply = if method == Method::Options {
        Reply::empty(Status::NO_CONTENT)
    } else {
        let detail = format!("{} is not allowed here: {allow} are.", method.as_str());
        Reply::problem(Status::METHOD_NOT_ALLOWED, detail)
    };
    header(reply, "Allow", allow.into())
}

/// Parses an id: `-?[0-9]+`, within an i64. A percent-encoded digit counts as the digit (RFC 3986, 6.2.2.2).
fn parse_id(segment: &str) -> Option<i64> {
    if segment.starts_with('+') {
        return None;
    }
    segment.parse().ok().or_else(|| {
        let plain = if segment.contains('%') { decode_digits(segment)? } else { return None };
        plain.parse().ok()
    })
}

fn decode_digits(segment: &str) -> Option<String> {
    let mut plain = String::with_capacity(segment.len());
    let mut chars = segment.chars();
    while let Some(c) = chars.next() {
        let c = match c {
            '%' => {
                let (high, low) = (chars.next()?.to_digit(16)?, chars.next()?.to_digit(16)?);
                char::from_u32(high * 16 + low)?
            }
            c => c,
        };
        plain.push(Some(c).filter(|c| c.is_ascii_digit() || *c == '-')?);
    }
    Some(plain)
}

/// Refuses a body with a content coding, because the service does not decode any (RFC 9110, 8.4).
fn check_coding(head: &Head<'_>) -> Result<(), Reply> {
    let codings = head.headers.all("content-encoding").flat_map(|value| value.split(|&b| b == b','));
    let is_identity = |coding: &[u8]| coding.is_empty() || coding.eq_ignore_ascii_case(b"identity");
    if codings.map(<[u8]>::trim_ascii).all(is_identity) {
        return Ok(());
    }
    let detail = "The Content-Encoding is not supported: send the body without one.";
    Err(header(Reply::problem(Status::UNSUPPORTED_MEDIA_TYPE, detail), "Accept-Encoding", "identity".into()))
}

fn check_media_type(head: &Head<'_>) -> Result<(), Reply> {
    if head.headers.all("content-type").all(is_json) {
        return Ok(());
    }
    let detail = "The Content-Type is not JSON: send application/json or none.";
    Err(Reply::problem(Status::UNSUPPORTED_MEDIA_TYPE, detail))
}

/// Whether a Content-Type is JSON. An empty one counts as absent.
fn is_json(value: &[u8]) -> bool {
    let essence = value.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
    if value.trim_ascii().is_empty() || essence.eq_ignore_ascii_case(b"application/json") {
        return true;
    }
    let suffix = essence.len().checked_sub(5).and_then(|at| essence.get(at..));
    essence.eq_ignore_ascii_case(b"text/json")
        || (essence.contains(&b'/') && suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case(b"+json")))
}

fn got(id: i64, found: Result<Lookup, RepoError>, visited: Body) -> Reply {
    match found {
        Ok(Lookup::Visited) => Reply::new(Status::OK, "application/json", visited),
        Ok(Lookup::Fetched(entity)) => {
            let mut body = Vec::with_capacity(64 + entity.description.len());
            entity_json::write(entity.as_ref(), &mut body);
            Reply::new(Status::OK, "application/json", Body::Owned(body))
        }
        Ok(Lookup::Absent) => absent(id),
        Err(error) => failed(&error),
    }
}

fn absent(id: i64) -> Reply {
    Reply::problem(Status::NOT_FOUND, format_args!("There is no entity {id}."))
}

fn failed(error: &RepoError) -> Reply {
    match error {
        RepoError::Closed | RepoError::Overloaded => {
            let reply = Reply::problem(Status::SERVICE_UNAVAILABLE, format_args!("For now, {error}."));
            header(reply, "Retry-After", "1".into())
        }
        RepoError::Other(_) => {
            tracing::warn!(error = error as &dyn std::error::Error, "the repo failed");
            Reply::problem(Status::INTERNAL_SERVER_ERROR, "The store failed.")
        }
    }
}

fn header(reply: Reply, name: &'static str, value: String) -> Reply {
    reply.with_header(name, value).expect("a header field of our own is valid")
}
