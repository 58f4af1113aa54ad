//! `entity`: the entity store over HTTP. Routing, JSON and status codes are decided here and nowhere else.

use std::any::type_name;
use std::error::Error;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::path::{self, MAX_ID};
use super::{Body, Head, Method, Reply, Request, Service, Status};
use crate::answer::Answer;
use crate::entity::{Entity, Identifiable};
use crate::json::InvalidEntity;
use crate::repo::{EntityRepo, Lookup, Put, Removed, RepoError};

/// The service that stores, shows and removes the entities of a repo: the published [`Entity`], or a type of your own.
///
/// ```
/// # use polyserve_core::{Answer, Entity, EntityRepo, Identifiable, Lookup, Put, Removed, RepoError};
/// # #[derive(Debug, Default)]
/// # struct Nothing;
/// # impl<E: Identifiable> EntityRepo<E> for Nothing {
/// #     fn get(&self, _: &E::Id, _: &mut dyn FnMut(E::View<'_>)) -> Answer<Result<Lookup<E>, RepoError>> { Answer::Now(Ok(Lookup::Absent)) }
/// #     fn put(&self, _: E) -> Answer<Result<Put, RepoError>> { Answer::Now(Ok(Put::Created)) }
/// #     fn remove(&self, _: &E::Id) -> Answer<Result<Removed, RepoError>> { Answer::Now(Ok(Removed::Absent)) }
/// #     fn len(&self) -> Answer<Result<u64, RepoError>> { Answer::Now(Ok(0)) }
/// # }
/// # let repo = Nothing;
/// use polyserve_core::service::EntityService;
///
/// let service: EntityService<_> = EntityService::new(repo).at("/entities");
/// ```
///
/// Cost of a GET: one call of the repo. For the published entity there is no allocation if the repo answers now.
pub struct EntityService<R, E = Entity> {
    repo: R,
    prefix: String,
    strict_media_type: bool,
    entity: PhantomData<fn() -> E>,
}

impl<R: EntityRepo<E>, E: Identifiable> EntityService<R, E> {
    /// Creates a service over `repo`; its entities are at `/{id}`. To use the repo outside the server as well, pass an
    /// `Arc` and keep a clone.
    pub fn new(repo: R) -> Self {
        Self { repo, prefix: String::new(), strict_media_type: false, entity: PhantomData }
    }

    /// Sets the prefix of all paths: with `/accounts`, entities are at `/accounts/{id}`. Empty by default.
    ///
    /// # Panics
    ///
    /// Panics if `prefix` is neither empty nor begins with `/`, if it ends with `/`, or if it has a byte that may not stand
    /// in a path as it is.
    #[must_use]
    pub fn at(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = path::checked_prefix(prefix.into());
        self
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

    fn get(&self, id: E::Id, body: &mut Vec<u8>) -> Answer<Reply> {
        let mut written = Ok(());
        let mut show = |entity: E::View<'_>| written = E::write_json(entity, body);
        match self.repo.get(&id, &mut show) {
            Answer::Now(found) => Answer::Now(match written {
                Ok(()) => got::<E>(&id, found, Body::InPlace),
                Err(error) => {
                    body.clear();
                    unwritable(&*error)
                }
            }),
            Answer::Later(future) => Answer::later(async move { got::<E>(&id, future.await, Body::Static(&[])) }),
        }
    }

    fn put(&self, id: Option<E::Id>, body: &[u8]) -> Answer<Reply> {
        let entity = match E::read_json(body) {
            Ok(entity) => entity,
            Err(InvalidEntity::NotJson(why)) => return Answer::Now(Reply::problem(Status::BAD_REQUEST, why)),
            Err(InvalidEntity::NotAnEntity(why)) => {
                return Answer::Now(Reply::problem(Status::UNPROCESSABLE_CONTENT, why));
            }
        };
        let key = entity.id().clone();
        match id {
            Some(id) if id == key => {} // an id that stands in a path was checked with the path
            Some(_) => {
                let detail = "The entity's id is not the one in the path.";
                return Answer::Now(Reply::problem(Status::BAD_REQUEST, detail));
            }
            None => {
                if let Err(why) = path::check_id(&key) {
                    return Answer::Now(Reply::problem(Status::UNPROCESSABLE_CONTENT, why));
                }
            }
        }
        match self.repo.put(entity) {
            Answer::Now(put) => Answer::Now(stored(&self.prefix, &key, put)),
            Answer::Later(future) => {
                let prefix = self.prefix.clone();
                Answer::later(async move { stored(&prefix, &key, future.await) })
            }
        }
    }

    fn remove(&self, id: E::Id) -> Answer<Reply> {
        self.repo.remove(&id).map(move |removed| match removed {
            Ok(Removed::Removed) => Reply::empty(Status::NO_CONTENT),
            Ok(Removed::Absent) => absent(&id),
            Err(error) => failed(&error),
        })
    }

    /// Decides by the head alone: returns the operation, or a refusal.
    fn route(&self, head: &Head<'_>) -> Result<Route<E::Id>, Reply> {
        let path = head.path();
        if path == "*" {
            return Err(options(head.method, ALLOW_SERVER));
        }
        let segment = match path.strip_prefix(self.prefix.as_str()) {
            Some("/") => None,
            Some("") if !self.prefix.is_empty() => None,
            Some(rest) => match rest.strip_prefix('/') {
                Some(segment) if memchr::memchr(b'/', segment.as_bytes()).is_none() => Some(segment),
                _ => return Err(self.nothing_here()),
            },
            None => return Err(self.nothing_here()),
        };
        let id = match segment {
            None => None,
            Some(segment) => Some(path::parse_id::<E>(segment).ok_or_else(|| {
                let form = type_name::<E::Id>().rsplit("::").next().unwrap_or_default();
                let detail = format!("The path is not an id: {form} of at most {MAX_ID} bytes.");
                Reply::problem(Status::BAD_REQUEST, detail)
            })?),
        };
        match (head.method, id) {
            (Method::Get | Method::Head, Some(id)) => Ok(Route::Get(id)),
            (Method::Put, id) => {
                check_coding(head)?;
                if self.strict_media_type {
                    check_media_type(head)?;
                }
                Ok(Route::Put(id))
            }
            (Method::Delete, Some(id)) => Ok(Route::Remove(id)),
            (method, Some(_)) => Err(options(method, ALLOW_ENTITY)),
            (method, None) => Err(options(method, ALLOW_ROOT)),
        }
    }

    fn nothing_here(&self) -> Reply {
        let detail = format!("There is nothing at this path: entities are at {}/{{id}}.", self.prefix);
        Reply::problem(Status::NOT_FOUND, detail)
    }
}

impl<R: EntityRepo<E>, E: Identifiable> Service for EntityService<R, E> {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        let route = match self.route(&request.head) {
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
        self.route(head).err()
    }
}

impl<R: fmt::Debug, E> fmt::Debug for EntityService<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntityService").field("repo", &self.repo).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

enum Route<I> {
    Get(I),
    Put(Option<I>),
    Remove(I),
}

const ALLOW_ROOT: &str = "PUT, OPTIONS";
const ALLOW_ENTITY: &str = "GET, HEAD, PUT, DELETE, OPTIONS";
const ALLOW_SERVER: &str = "GET, HEAD, PUT, DELETE, OPTIONS";

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

fn got<E: Identifiable>(id: &E::Id, found: Result<Lookup<E>, RepoError>, visited: Body) -> Reply {
    match found {
        Ok(Lookup::Visited) => Reply::new(Status::OK, "application/json", visited),
        Ok(Lookup::Fetched(entity)) => {
            let mut body = Vec::with_capacity(128);
            match E::write_json(entity.view(), &mut body) {
                Ok(()) => Reply::new(Status::OK, "application/json", Body::Owned(body)),
                Err(error) => unwritable(&*error),
            }
        }
        Ok(Lookup::Absent) => absent(id),
        Err(error) => failed(&error),
    }
}

/// Returns the answer to a PUT of an entity with this id.
fn stored(prefix: &str, id: &impl fmt::Display, put: Result<Put, RepoError>) -> Reply {
    match put {
        Ok(Put::Created) => header(Reply::empty(Status::CREATED), "Location", path::location(prefix, id)),
        Ok(Put::Replaced) => Reply::empty(Status::OK),
        Err(error) => failed(&error),
    }
}

fn absent(id: &impl fmt::Display) -> Reply {
    Reply::problem(Status::NOT_FOUND, format_args!("There is no entity {}.", path::shortened(id)))
}

fn unwritable(error: &(dyn Error + Send + Sync + 'static)) -> Reply {
    tracing::warn!(error = error as &dyn Error, "an entity could not be written as JSON");
    Reply::problem(Status::INTERNAL_SERVER_ERROR, "The entity has no JSON form.")
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
