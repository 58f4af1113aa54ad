//! `GET /?limit=&after=`: the entities of a repo that can scan, in pages.
//!
//! An entity that cannot be shown ends the page before it. If it is the first, the answer is a 500 that names its id, and its `next` is
//! the `after` of the page that follows, as that of a page is. So a client that exports a store sees each fault, and is stopped by none.

use std::borrow::Cow;
use std::error::Error;
use std::fmt::Display;
use std::ops::ControlFlow;
use std::sync::Arc;

use http::StatusCode;

use super::entity_reply::{error_reply, unwritable};
use super::path::decode;
use super::reply::APPLICATION_JSON;
use super::{Body, Reply};
use crate::answer::Answer;
use crate::entity::Identifiable;
use crate::log::LogThrottles;
use crate::repo::{EntityRepo, MAX_PAGE_BYTES, RepoError, ScanPage};
use crate::shown::Shown;
use crate::stack;

/// The number of entities in a page, unless a request sets it.
const DEFAULT_LIMIT: usize = 100;
/// The max number of entities in a page.
const MAX_LIMIT: usize = 1000;
/// The room for what follows the entities of a page: an id of the max length has at most six bytes for each of its own.
const MAX_END: usize = 4096;

/// Which page a request asks for.
pub(super) struct PageQuery<I> {
    limit: usize,
    after: Option<I>,
}

impl<I> PageQuery<I> {
    /// Reads a query. Names other than `limit` and `after` are ignored, as in all queries of this service.
    ///
    /// # Errors
    ///
    /// Returns a 400 if a parameter is malformed or stands twice.
    pub(super) fn read<E: Identifiable<Id = I>>(query: Option<&str>) -> Result<Self, Reply> {
        let (mut limit, mut after) = (None, None);
        for parameter in query.unwrap_or_default().split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let name = decode(name).map_or(Cow::Borrowed(name), Cow::Owned); // %6cimit is limit (RFC 3986, 6.2.2.2)
            let is_repeated = match &*name {
                "limit" => limit.replace(read_limit(value)?).is_some(),
                "after" => after.replace(read_id::<E>(value)?).is_some(),
                _ => false,
            };
            if is_repeated {
                return Err(bad_request(format_args!("The parameter {name} stands twice.")));
            }
        }
        Ok(Self { limit: limit.unwrap_or(DEFAULT_LIMIT), after })
    }
}

fn read_limit(value: &str) -> Result<usize, Reply> {
    let value = decode(value).filter(|value| value.bytes().all(|byte| byte.is_ascii_digit()));
    let limit = value.and_then(|value| value.parse().ok()).filter(|limit| (1..=MAX_LIMIT).contains(limit));
    limit.ok_or_else(|| bad_request(format_args!("The parameter limit is not a whole number from 1 to {MAX_LIMIT}.")))
}

/// Reads the id that a page follows. A `+` is a space, as in the queries of forms; the text of an id has none if it is encoded.
fn read_id<E: Identifiable>(value: &str) -> Result<E::Id, Reply> {
    let id = decode(&value.replace('+', " ")).and_then(|text| E::parse_id(&text));
    id.ok_or_else(|| bad_request("The parameter after is not the next of an earlier page."))
}

fn bad_request(detail: impl Display) -> Reply {
    Reply::problem(StatusCode::BAD_REQUEST, detail)
}

/// Returns the answer to a request for a page of a repo that cannot scan.
pub(super) fn cannot_scan() -> Reply {
    Reply::problem(StatusCode::NOT_IMPLEMENTED, "The store cannot list its entities: ask for each by its id.")
}

/// Returns a page as JSON.
pub(super) fn page<E: Identifiable>(
    repo: &Arc<impl EntityRepo<E>>,
    query: &PageQuery<E::Id>,
    failures: &Arc<LogThrottles>,
    body: &mut Vec<u8>,
) -> Answer<Reply> {
    let mut json = PageJson::begin(body);
    match repo.scan(query.after.as_ref(), query.limit, &mut |id, entity| json.add::<E>(id, &entity)) {
        Answer::Now(scanned) => {
            let written = json.end::<E>(scanned);
            let is_written = written.is_ok();
            let reply = answered(written.map(|()| Body::InPlace), failures);
            if !is_written {
                body.clear();
            }
            Answer::Now(reply)
        }
        Answer::Later(future) => {
            body.clear();
            let failures = Arc::clone(failures);
            Answer::later(async move {
                let scanned = future.await;
                let mut body = Vec::new();
                let written = stack::for_values(|| PageJson::begin(&mut body).end::<E>(scanned));
                answered(written.map(|()| Body::Owned(body)), &failures)
            })
        }
    }
}

/// The reason why a page has no JSON.
enum NoPage {
    Repo(RepoError),
    /// The first entity has no JSON form.
    Unwritable {
        id: String,
        why: Box<dyn Error + Send + Sync>,
    },
}

fn answered(written: Result<Body, NoPage>, failures: &LogThrottles) -> Reply {
    match written {
        Ok(json) => Reply::of_type(StatusCode::OK, APPLICATION_JSON.clone(), json),
        Err(NoPage::Repo(error)) => {
            let reply = error_reply(failures, &error);
            match error {
                RepoError::Malformed(what) => with_next(reply, what.id),
                _ => reply,
            }
        }
        Err(NoPage::Unwritable { id, why }) => with_next(unwritable(failures, &id, &*why), id),
    }
}

/// Adds the `next` of a page to a problem.
fn with_next(reply: Reply, id: String) -> Reply {
    let mut body = reply.body_bytes(&[]).to_vec();
    let _brace = body.pop();
    body.extend_from_slice(format!(r#","next":{}}}"#, serde_json::Value::String(id)).as_bytes());
    reply.with_body(body)
}

/// A page while it is written: `{"items":[...],"next":"..."}`.
struct PageJson<'a, I> {
    out: &'a mut Vec<u8>,
    /// The last id that was written.
    last: Option<I>,
    /// Whether an entity had no room.
    is_cut: bool,
    failed: Option<NoPage>,
}

impl<'a, I: Clone + Display> PageJson<'a, I> {
    /// Begins a page in an empty buffer.
    fn begin(out: &'a mut Vec<u8>) -> Self {
        out.extend_from_slice(br#"{"items":["#);
        Self { out, last: None, is_cut: false, failed: None }
    }

    /// Adds an entity. Breaks if it had no room, or has no JSON form.
    fn add<E: Identifiable<Id = I>>(&mut self, id: &I, entity: &Shown<'_, E>) -> ControlFlow<()> {
        let before = self.out.len();
        if self.last.is_some() {
            self.out.push(b',');
        }
        let written = entity.write_json(self.out);
        match written {
            Ok(()) if self.last.is_none() || self.out.len() <= MAX_PAGE_BYTES - MAX_END => {
                self.last = Some(id.clone());
                return ControlFlow::Continue(());
            }
            Err(why) if self.last.is_none() => self.failed = Some(NoPage::Unwritable { id: id.to_string(), why }),
            _ => {
                self.out.truncate(before);
                self.is_cut = true;
            }
        }
        ControlFlow::Break(())
    }

    /// Adds the entities that no visit has seen, and ends the page.
    fn end<E: Identifiable<Id = I>>(mut self, scanned: Result<ScanPage<E>, RepoError>) -> Result<(), NoPage> {
        let page = scanned.map_err(NoPage::Repo)?;
        let _ = page.entities.iter().try_for_each(|entity| self.add(entity.id(), &Shown::from(entity)));
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        self.out.extend_from_slice(br#"],"next":"#);
        match self.last.filter(|_| page.has_more || self.is_cut) {
            Some(id) => self.out.extend_from_slice(serde_json::Value::String(id.to_string()).to_string().as_bytes()),
            None => self.out.extend_from_slice(b"null"),
        }
        self.out.push(b'}');
        Ok(())
    }
}
