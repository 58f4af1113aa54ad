//! `entity`: the entity store over HTTP. Routing, JSON and status codes are decided here and nowhere else.

use std::any::TypeId;
use std::error::Error;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::header::{ACCEPT_ENCODING, ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};

use super::entity_reply::{
    absent_reply, entity_reply, error_reply, get_reply, precondition_failed, refusal, removed_reply, shown,
    stored_reply, unwritable,
};
use super::known_forms::{KnownForm, KnownForms};
use super::media_type::MediaType;
use super::page::{self, PageQuery};
use super::patch::{self, Patch};
use super::path;
use super::preconditions;
use super::{Body, Head, InvalidRoute, Reply, Request, Service};
use crate::answer::Answer;
use crate::condition::{Condition, Conditional, ETag};
use crate::entity::{Entity, Identifiable};
use crate::json::{self, InvalidEntity};
use crate::log::LogThrottles;
use crate::repo::{EntityRepo, Lookup, Put, RepoAnswer, RepoError, Visit};
use crate::stack;

/// The service that stores, shows and removes the entities of a repo: the published [`Entity`], or a type of your own.
///
/// ```
/// # use polyserve_core::{Answer, Condition, Conditional, EntityRepo, Identifiable, Lookup, Put, Removed, RepoAnswer, Visit};
/// # #[derive(Debug, Default)]
/// # struct Nothing;
/// # impl<E: Identifiable> EntityRepo<E> for Nothing {
/// #     fn get(&self, _: &E::Id, _: Visit<'_, E>) -> RepoAnswer<Lookup<E>> { Answer::Now(Ok(Lookup::Absent)) }
/// #     fn put_if(&self, _: E, _: &Condition) -> RepoAnswer<Conditional<Put>> { Answer::Now(Ok(Conditional::Refused)) }
/// #     fn remove_if(&self, _: &E::Id, _: &Condition) -> RepoAnswer<Conditional<Removed>> { Answer::Now(Ok(Conditional::Refused)) }
/// #     fn len(&self) -> RepoAnswer<u64> { Answer::Now(Ok(0)) }
/// # }
/// # let repo = Nothing;
/// use polyserve_core::EntityService;
///
/// let service: EntityService<_> = EntityService::new(repo).at("/entities")?;
/// # Ok::<(), polyserve_core::InvalidRoute>(())
/// ```
///
/// Cost of a GET: one call of the repo. For the published entity there is no allocation if the repo answers now.
pub struct EntityService<R, E: Identifiable = Entity> {
    repo: Arc<R>,
    prefix: String,
    strict_media_type: bool,
    etags: bool,
    known: KnownForms<E::Id>,
    /// The repo has answered a get later.
    gets_later: AtomicBool,
    failures: Arc<LogThrottles>,
    entity: PhantomData<fn() -> E>,
}

impl<R: EntityRepo<E>, E: Identifiable> EntityService<R, E> {
    /// Creates a service over `repo`; its entities are at `/{id}`. To use the repo outside the server as well, pass an
    /// `Arc` and keep a clone.
    ///
    /// ```
    /// use polyserve_core::{Entity, EntityRepo, EntityService, RepoError};
    /// use std::sync::Arc;
    ///
    /// fn serve(store: impl EntityRepo) -> Result<EntityService<Arc<impl EntityRepo>>, RepoError> {
    ///     let store = Arc::new(store);
    ///     let service = EntityService::new(Arc::clone(&store));
    ///     store.put(Entity::new(1, "stored by the program", 0.5)).wait()?;
    ///     assert_eq!(service.repo().len().wait()?, 1);
    ///     Ok(service)
    /// }
    /// ```
    pub fn new(repo: R) -> Self {
        Self {
            repo: Arc::new(repo),
            prefix: String::new(),
            strict_media_type: false,
            etags: false,
            known: KnownForms::default(),
            gets_later: AtomicBool::new(false),
            failures: Arc::default(),
            entity: PhantomData,
        }
    }

    /// Sets the prefix of all paths: with `/accounts`, entities are at `/accounts/{id}`. Empty by default. Several services
    /// share a server by [`Routes::entities`](super::Routes::entities).
    ///
    /// # Errors
    ///
    /// Returns [`InvalidRoute::Malformed`] if `prefix` is neither empty nor begins with `/`, if it ends with `/`, or if it has a
    /// byte that may not stand in a path as it is.
    pub fn at(mut self, prefix: impl Into<String>) -> Result<Self, InvalidRoute> {
        let prefix = prefix.into();
        if !path::is_prefix(&prefix) {
            return Err(InvalidRoute::Malformed { prefix });
        }
        self.prefix = prefix;
        Ok(self)
    }

    /// Sets whether a PUT with a `Content-Type` other than JSON is answered with 415. Off by default: only the body
    /// is checked. A PUT without `Content-Type` is accepted either way.
    ///
    /// A PATCH is a JSON Merge Patch (RFC 7396). Its type is `application/merge-patch+json`, or absent. Unless this is set, plain JSON
    /// and the types that clients send by themselves are accepted too: `text/plain`, that of a form, and
    /// `application/octet-stream`. Any other type, such as that of another format of patches, is always answered with 415.
    #[must_use]
    pub fn strict_media_type(mut self, strict: bool) -> Self {
        self.strict_media_type = strict;
        self
    }

    /// Sets whether an answer with an entity has an [`ETag`]. Off by default: an entity then has no tag.
    ///
    /// `If-Match` and `If-None-Match` are always evaluated (RFC 9110, section 13). `*` is judged by whether the entity exists.
    /// If entities have no tags, a list of tags names none: in `If-Match` it does not hold, in `If-None-Match` it does.
    ///
    /// A PUT is answered with a tag only if its body was, byte for byte, what a GET shows (RFC 9110, 9.3.4).
    ///
    /// ```
    /// use polyserve_core::{EntityRepo, EntityService, InvalidRoute, Service};
    ///
    /// fn strict(store: impl EntityRepo) -> Result<impl Service, InvalidRoute> {
    ///     Ok(EntityService::new(store).at("/entities")?.strict_media_type(true).etags(true))
    /// }
    /// ```
    #[must_use]
    pub fn etags(mut self, etags: bool) -> Self {
        self.etags = etags;
        self
    }

    /// Returns the prefix of all paths, as [`at`](Self::at) has set it.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the repo.
    pub fn repo(&self) -> &R {
        &self.repo
    }

    fn get(&self, id: &E::Id, condition: &Condition, head_only: bool, body: &mut Vec<u8>) -> Answer<Reply> {
        // These may be answered without the JSON.
        let is_short = head_only || !condition.is_always();
        let version = if is_short || self.etags { self.repo.version(id) } else { None };
        if is_short && let Some(form) = self.known.get(id, version) {
            if let Some(reply) = refusal(form.etag, condition) {
                return Answer::Now(reply);
            }
            if head_only {
                return Answer::Now(entity_reply(Body::Omitted(Some(form.length)), form.etag));
            }
        }
        if is_short
            && !self.etags
            && let Some(reply) = refusal(None, condition)
        {
            return self.if_stored(id.clone(), reply);
        }
        let mut written = Ok(());
        let found = self.repo.get(id, Visit::new(&mut |entity| written = entity.write_json(body)));
        match (found, written) {
            (Answer::Now(Ok(Lookup::Visited(_))), Ok(())) => match shown(self.form(id, version, body), condition) {
                Ok(etag) => Answer::Now(entity_reply(Body::InPlace, etag)),
                Err(reply) => {
                    body.clear();
                    Answer::Now(reply)
                }
            },
            (found, written) => self.not_in_place(id, version, condition, found, written, body),
        }
    }

    /// Does the same for a GET without a condition, of an entity without a tag.
    #[inline]
    fn get_json(&self, id: &E::Id, body: &mut Vec<u8>) -> Answer<Reply> {
        let mut failed = None;
        let found = self.repo.get(
            id,
            Visit::new(&mut |entity| {
                if let Err(error) = entity.write_json(body) {
                    failed = Some(error);
                }
            }),
        );
        match found {
            Answer::Now(Ok(Lookup::Visited(_visited))) if failed.is_none() => Answer::Now(Reply::json_in_place()),
            found => self.not_in_place(id, None, &ALWAYS, found, failed.map_or(Ok(()), Err), body),
        }
    }

    /// Returns the answer to a GET if its JSON is not in `body`.
    #[inline(never)]
    fn not_in_place(
        &self,
        id: &E::Id,
        version: Option<u64>,
        condition: &Condition,
        found: RepoAnswer<Lookup<E>>,
        written: Result<(), Box<dyn Error + Send + Sync>>,
        body: &mut Vec<u8>,
    ) -> Answer<Reply> {
        if let Err(error) = written {
            body.clear();
            return Answer::Now(unwritable(&self.failures, id, &*error));
        }
        match found {
            Answer::Now(found) => {
                let form = |json: &[u8]| self.form(id, version, json);
                Answer::Now(get_reply::<E>(id, found, condition, &self.failures, form))
            }
            Answer::Later(future) => {
                let (id, condition, etags) = (id.clone(), condition.clone(), self.etags);
                let (repo, known, failures) = (Arc::clone(&self.repo), self.known.clone(), Arc::clone(&self.failures));
                Answer::later(async move {
                    let found = future.await;
                    let is_current = |version| repo.version(&id) == Some(version);
                    let form = |json: &[u8]| known.of(&id, version, json, etags, is_current);
                    stack::for_values(|| get_reply::<E>(&id, found, &condition, &failures, form))
                })
            }
        }
    }

    /// Returns `reply` if the entity is stored.
    fn if_stored(&self, id: E::Id, reply: Reply) -> Answer<Reply> {
        let failures = Arc::clone(&self.failures);
        self.repo.get(&id, Visit::new(&mut |_| ())).map(move |found| match found {
            Ok(Lookup::Visited(_) | Lookup::Fetched(_)) => reply,
            Ok(Lookup::Absent) => absent_reply(&id),
            Err(error) => error_reply(&failures, &error),
        })
    }

    /// Returns the form of `json`, which a get has found after the repo gave `version`.
    fn form(&self, id: &E::Id, version: Option<u64>, json: &[u8]) -> KnownForm {
        self.known.of(id, version, json, self.etags, |version| self.repo.version(id) == Some(version))
    }

    /// Whether a condition does not hold now, if that can be told without the repo's writers. A write that is refused so takes
    /// neither a lock nor the time of a thread that others wait for, as that of a log. If the repo answers gets later, only a form that
    /// is known tells it: see [`written`](Self::written).
    fn refuses(&self, id: &E::Id, condition: &Condition) -> bool {
        let Some(version) = self.repo.version(id) else { return false };
        let form = self.known.get(id, Some(version)).or_else(|| {
            if !condition.compares_tags() || self.gets_later.load(Ordering::Relaxed) {
                return None;
            }
            let mut json = Vec::new();
            let mut is_written = false;
            match self.repo.get(id, Visit::new(&mut |entity| is_written = entity.write_json(&mut json).is_ok())) {
                Answer::Later(_) => self.gets_later.store(true, Ordering::Relaxed),
                Answer::Now(_) => {}
            }
            is_written.then(|| self.form(id, Some(version), &json))
        });
        form.is_some_and(|form| refusal(form.etag, condition).is_some())
    }

    #[allow(clippy::inline_always)] // for each PUT
    #[inline(always)]
    fn put(&self, id: Option<&E::Id>, condition: &Condition, request: &[u8], scratch: &mut Vec<u8>) -> Answer<Reply> {
        let entity = match E::read_json(request) {
            Ok(entity) => entity,
            Err(error @ InvalidEntity::NotJson(_)) => {
                return Answer::Now(Reply::problem(StatusCode::BAD_REQUEST, error));
            }
            Err(error @ InvalidEntity::NotAnEntity(_)) => {
                return Answer::Now(Reply::problem(StatusCode::UNPROCESSABLE_ENTITY, error));
            }
        };
        let key = entity.id().clone();
        if id.is_some_and(|id| *id != key) {
            let detail = "The entity's id is not the one in the path.";
            return Answer::Now(Reply::problem(StatusCode::BAD_REQUEST, detail));
        }
        // A segment of a path is a valid id, but a type may read it as another one, such as an empty one.
        if let Err(why) = path::check_id(&key) {
            return Answer::Now(Reply::problem(StatusCode::UNPROCESSABLE_ENTITY, why));
        }
        if !condition.is_always() && self.refuses(&key, condition) {
            return Answer::Now(precondition_failed());
        }
        let etag = if self.etags { tag_of_request(&entity, request, scratch) } else { None };
        if condition.is_always() {
            return match self.repo.put(entity) {
                Answer::Now(Ok(Put::Replaced)) if etag.is_none() => Answer::Now(Reply::empty(StatusCode::OK)),
                Answer::Now(put) => Answer::Now(stored_reply(&self.prefix, &key, etag, &self.failures, put)),
                Answer::Later(future) => {
                    let (prefix, failures) = (self.prefix.clone(), Arc::clone(&self.failures));
                    Answer::later(async move { stored_reply(&prefix, &key, etag, &failures, future.await) })
                }
            };
        }
        let (prefix, failures) = (self.prefix.clone(), Arc::clone(&self.failures));
        let put = self.repo.put_if(entity, condition);
        self.written(key.clone(), put, condition, move |put| stored_reply(&prefix, &key, etag, &failures, put))
    }

    /// Returns `reply` to a write with a condition, or 412 if the repo has refused it.
    ///
    /// If the repo answers gets later, the thread that commits its writes has compared the tags, and so has written the JSON of the
    /// entity and hashed it. Then the entity is read, so that its form is known: further conditions on this version that do not hold
    /// are refused without that thread.
    fn written<T: Send + 'static>(
        &self,
        id: E::Id,
        written: RepoAnswer<Conditional<T>>,
        condition: &Condition,
        reply: impl FnOnce(Result<T, RepoError>) -> Reply + Send + 'static,
    ) -> Answer<Reply> {
        let (repo, known, etags) = (Arc::clone(&self.repo), self.known.clone(), self.etags);
        let notes = condition.compares_tags() && self.gets_later.load(Ordering::Relaxed);
        written.then(move |written| match written {
            Ok(Conditional::Done(done)) => Answer::Now(reply(Ok(done))),
            Ok(Conditional::Refused) if notes => note_form(repo, known, id, etags).map(|()| precondition_failed()),
            Ok(Conditional::Refused) => Answer::Now(precondition_failed()),
            Err(error) => Answer::Now(reply(Err(error))),
        })
    }

    fn patch(&self, id: E::Id, condition: Condition, request: &Request<'_>) -> Answer<Reply> {
        let patch = match json::check(request.body) {
            Ok(patch) => patch,
            Err(why) => return Answer::Now(Reply::problem(StatusCode::BAD_REQUEST, why)),
        };
        if !condition.is_always() && self.refuses(&id, &condition) {
            return Answer::Now(precondition_failed());
        }
        // It holds for no entity, so none needs to be written as JSON.
        if !condition.compares_tags() && refusal(None, &condition).is_some() {
            return self.if_stored(id, precondition_failed());
        }
        let (repo, failures) = (Arc::clone(&self.repo), Arc::clone(&self.failures));
        let patch = Patch { json: patch.to_owned(), max_length: request.max_body() };
        patch::patch(repo, id, condition, patch, self.etags, failures)
    }

    fn remove(&self, id: &E::Id, condition: &Condition) -> Answer<Reply> {
        if condition.is_always() {
            return match self.repo.remove(id) {
                Answer::Now(removed) => Answer::Now(removed_reply(id, &self.failures, removed)),
                Answer::Later(future) => {
                    let (id, failures) = (id.clone(), Arc::clone(&self.failures));
                    Answer::later(async move { removed_reply(&id, &failures, future.await) })
                }
            };
        }
        if self.refuses(id, condition) {
            return Answer::Now(precondition_failed());
        }
        let (key, failures) = (id.clone(), Arc::clone(&self.failures));
        let removed = self.repo.remove_if(id, condition);
        self.written(id.clone(), removed, condition, move |removed| removed_reply(&key, &failures, removed))
    }

    /// Answers any request. The stack is enough for values.
    #[inline(never)]
    fn call_any(&self, request: &Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        let route = match self.route(&request.head) {
            Ok(route) => route,
            Err(refusal) => return Answer::Now(refusal),
        };
        let read;
        let condition = if preconditions::are_absent(&request.head) {
            &ALWAYS
        } else {
            match preconditions::condition(&request.head, self.etags) {
                Ok(condition) => {
                    read = condition;
                    &read
                }
                Err(refusal) => return Answer::Now(refusal),
            }
        };
        match route {
            Route::Get(id) => self.get(&id, condition, request.head.method == Method::HEAD, body),
            Route::Put(id) => self.put(id.as_ref(), condition, request.body, body),
            Route::Remove(id) => self.remove(&id, condition),
            Route::Patch(id) => self.patch(id, condition.clone(), request),
            Route::Page(query) => match refusal(None, condition) {
                Some(reply) => Answer::Now(reply),
                None => page::page(&self.repo, &query, &self.failures, body),
            },
        }
    }

    #[cold]
    fn call_on_new_stack(&self, request: &Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        stack::for_values(|| self.call_any(request, body))
    }

    /// Returns the id of a GET of an entity that is shown without a tag, if the id is a number and there is no condition.
    #[inline]
    fn id_of_plain_get(&self, head: &Head<'_>) -> Option<E::Id> {
        let rest = head.target.strip_prefix('/').filter(|_| head.method == Method::GET)?;
        // One branch: the compiler takes code behind many branches for cold, and inlines nothing there.
        let is_plain = self.prefix.is_empty() & !self.etags & preconditions::are_absent(head);
        // What the published entity reads as an id has no query. Another type may read anything.
        let may_have_query = TypeId::of::<E>() != TypeId::of::<Entity>();
        if !is_plain || may_have_query && rest.contains('?') { None } else { path::parse_number::<E>(rest) }
    }

    /// Whether a request is a PUT to `/` of which the head has nothing to be checked.
    #[inline]
    fn is_plain_put(&self, head: &Head<'_>) -> bool {
        let is_root = head.target == "/" && head.method == Method::PUT;
        let is_plain = self.prefix.is_empty() & !self.etags & !self.strict_media_type;
        is_root && is_plain & preconditions::are_absent_from_put(head)
    }

    /// Decides by the head alone: returns the operation, or a refusal.
    fn route(&self, head: &Head<'_>) -> Result<Route<E::Id>, Reply> {
        let path = head.path();
        if path == "*" {
            return Err(options(head.method, ALLOW_SERVER));
        }
        // A memcmp(3) with AVX-512 is slow if an empty text has no memory: it masks a load from an invalid address.
        let rest = if self.prefix.is_empty() { Some(path) } else { path.strip_prefix(self.prefix.as_str()) };
        let id = match rest.map(|rest| (rest, rest.strip_prefix('/'))) {
            Some(("/", _)) => None,
            Some(("", _)) if !self.prefix.is_empty() => None,
            Some((_, Some(segment))) => match path::parse_id::<E>(segment) {
                Some(id) => Some(id),
                None if path::has_several_segments(segment) => return Err(self.nothing_here()),
                None => {
                    let detail = format!("The path has no valid id: an id is {}.", E::id_form());
                    return Err(Reply::problem(StatusCode::BAD_REQUEST, detail));
                }
            },
            _ => return Err(self.nothing_here()),
        };
        let route = match (head.method, id) {
            (&Method::GET | &Method::HEAD, Some(id)) => Route::Get(id),
            (&Method::PUT, id) => {
                check_is_whole(head)?;
                check_coding(head)?;
                if self.strict_media_type {
                    check_media_type(head)?;
                }
                Route::Put(id)
            }
            (&Method::DELETE, Some(id)) => Route::Remove(id),
            (&Method::PATCH, Some(id)) => {
                check_is_whole(head)?;
                check_coding(head)?;
                patch::check_media_type(head, self.strict_media_type)?;
                Route::Patch(id)
            }
            (&Method::OPTIONS, Some(_)) => return Err(patch::accept_patch(options(head.method, ALLOW_ENTITY))),
            (method, Some(_)) => return Err(options(method, ALLOW_ENTITY)),
            (&Method::GET | &Method::HEAD, None) if self.repo.can_scan() => {
                Route::Page(PageQuery::read::<E>(head.query())?)
            }
            (&Method::GET | &Method::HEAD, None) => return Err(page::cannot_scan()),
            (method, None) if self.repo.can_scan() => return Err(options(method, ALLOW_LIST)),
            (method, None) => return Err(options(method, ALLOW_ROOT)),
        };
        Ok(route)
    }

    fn nothing_here(&self) -> Reply {
        let detail = format!("There is nothing at this path: entities are at {}/{{id}}.", self.prefix);
        Reply::problem(StatusCode::NOT_FOUND, detail)
    }
}

impl<R: EntityRepo<E>, E: Identifiable> Service for EntityService<R, E> {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        // The repo may copy and drop entities.
        if !stack::is_enough_for_values() {
            return self.call_on_new_stack(&request, body);
        }
        // Most requests are plain: none of what the other ones need is built or compared.
        if let Some(id) = self.id_of_plain_get(&request.head) {
            return self.get_json(&id, body);
        }
        if self.is_plain_put(&request.head) {
            return self.put(None, &ALWAYS, request.body, body);
        }
        self.call_any(&request, body)
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        self.route(head).and_then(|_| preconditions::condition(head, self.etags)).err()
    }

    fn sees_peers(&self) -> bool {
        false
    }
}

impl<R: fmt::Debug, E: Identifiable> fmt::Debug for EntityService<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntityService").field("repo", &self.repo).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// The condition of a request without one. A constant would be built on the stack each time.
static ALWAYS: Condition = Condition::ALWAYS;

enum Route<I> {
    Get(I),
    Put(Option<I>),
    Remove(I),
    Patch(I),
    Page(PageQuery<I>),
}

const ALLOW_ROOT: &str = "PUT, OPTIONS";
const ALLOW_LIST: &str = "GET, HEAD, PUT, OPTIONS";
const ALLOW_ENTITY: &str = "GET, HEAD, PUT, PATCH, DELETE, OPTIONS";
const ALLOW_SERVER: &str = "GET, HEAD, PUT, PATCH, DELETE, OPTIONS";

/// Returns the answer to OPTIONS, or to a method that is not allowed.
pub(super) fn options(method: &Method, allow: &'static str) -> Reply {
    let reply = if method == Method::OPTIONS {
        Reply::empty(StatusCode::NO_CONTENT)
    } else {
        let detail = format!("{method} is not allowed here, but {allow}.");
        Reply::problem(StatusCode::METHOD_NOT_ALLOWED, detail)
    };
    reply.with_field(ALLOW, HeaderValue::from_static(allow))
}

/// Refuses a body that is a part of an entity, or of a patch (RFC 9110, 14.5).
fn check_is_whole(head: &Head<'_>) -> Result<(), Reply> {
    if head.headers.get("content-range").is_none() {
        return Ok(());
    }
    let method = head.method.as_str();
    Err(Reply::problem(
        StatusCode::BAD_REQUEST,
        format_args!("A {method} with a Content-Range is not supported: send the whole body."),
    ))
}

/// Refuses a body with a content coding, because the service does not decode any (RFC 9110, 8.4).
fn check_coding(head: &Head<'_>) -> Result<(), Reply> {
    let codings = head.headers.all("content-encoding").flat_map(|value| value.split(|&b| b == b','));
    let is_identity = |coding: &[u8]| coding.is_empty() || coding.eq_ignore_ascii_case(b"identity");
    if codings.map(<[u8]>::trim_ascii).all(is_identity) {
        return Ok(());
    }
    let detail = "The Content-Encoding is not supported: send the body without one.";
    let reply = Reply::problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail);
    Err(reply.with_field(ACCEPT_ENCODING, HeaderValue::from_static("identity")))
}

fn check_media_type(head: &Head<'_>) -> Result<(), Reply> {
    if head.headers.all(&CONTENT_TYPE).all(is_json) {
        return Ok(());
    }
    let detail = "The Content-Type is not JSON: send application/json or none.";
    Err(Reply::problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
}

/// Whether a Content-Type is JSON. An empty one counts as absent.
fn is_json(value: &[u8]) -> bool {
    let is_json =
        |found: MediaType<'_>| found.is("application/json") || found.is("text/json") || found.has_suffix("+json");
    value.trim_ascii().is_empty() || MediaType::read(value).is_some_and(is_json)
}

/// Notes the form of an entity in a repo that answers gets later.
fn note_form<E: Identifiable>(
    repo: Arc<impl EntityRepo<E>>,
    known: KnownForms<E::Id>,
    id: E::Id,
    etags: bool,
) -> Answer<()> {
    let version = repo.version(&id);
    if version.is_none() || known.get(&id, version).is_some() {
        return Answer::Now(());
    }
    let Answer::Later(future) = repo.get(&id, Visit::new(&mut |_| ())) else { return Answer::Now(()) };
    Answer::later(async move {
        let Ok(Lookup::Fetched(entity)) = future.await else { return };
        let mut json = Vec::new();
        if stack::for_values(|| entity.write_json(&mut json)).is_ok() {
            known.of(&id, version, &json, etags, |version| repo.version(&id) == Some(version));
        }
    })
}

/// Returns the tag of `entity` if a GET shows exactly the body of its PUT. A client that sent anything else does not have
/// what the tag names (RFC 9110, 9.3.4). `scratch` is empty before and after.
fn tag_of_request<E: Identifiable>(entity: &E, request: &[u8], scratch: &mut Vec<u8>) -> Option<ETag> {
    let written = entity.write_json(scratch);
    let etag = (written.is_ok() && scratch.as_slice() == request).then(|| ETag::of(request));
    scratch.clear();
    etag
}
