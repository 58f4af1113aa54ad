//! Bearer tokens (RFC 6750), and client certificates, in front of a service.
//!
//! | request | answer |
//! |---|---|
//! | without a certificate, and without `Authorization` or with another scheme than `Bearer` | 401, `WWW-Authenticate: Bearer realm="polyserve"` |
//! | with a token of no user | 401, `error="invalid_token"` |
//! | with several `Authorization` fields, or one that is malformed | 400, `error="invalid_request"` |
//! | without a token, over a connection with the certificate of no user | 403 |
//! | of a user without the scope of its method | 403, `error="insufficient_scope"` |
//!
//! A token, if there is one, counts before the certificate.
//!
//! GET, HEAD and OPTIONS need the scope `read`; all other methods need `write`. `write` does not include `read`. A request is refused by
//! its head: a client that waits for `100 Continue` sends no body, and a body that comes anyway is skipped or ends the
//! connection, as with each early refusal.
//!
//! Cost of a request: that of [`Users`].

use std::fmt;
use std::sync::Arc;

use polyserve_core::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use polyserve_core::http::{HeaderValue, Method, StatusCode};
use polyserve_core::{Answer, Head, Reply, Request, Service};

use super::{RefusalReason, Refusals, Users};

/// A service for users only: those of [`Users`], with a token or a client certificate.
///
#[cfg_attr(all(feature = "threadpool", feature = "memory"), doc = "```")]
#[cfg_attr(not(all(feature = "threadpool", feature = "memory")), doc = "```ignore")]
/// use polyserve::access::{Authenticated, Scopes, Users, token_line};
/// use polyserve::prelude::*;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let line = token_line("alice", Scopes { read: true, write: true }, "a random token")?;
/// let service = Authenticated::new(EntityService::new(Sharded::new()), Users::parse(&line)?);
/// let service = service.with_open_path(String::from("/readyz"));
/// let running = PoolServer::mpsc(ServerConfig::default())?.serve("127.0.0.1:0", service)?;
/// # running.shutdown()?;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct Authenticated {
    service: Arc<dyn Service>,
    users: Users,
    open_path: Option<String>,
    refusals: Refusals,
}

impl Authenticated {
    /// Creates the service: requests of `users` reach `service`.
    pub fn new(service: impl Service, users: Users) -> Self {
        Self { service: service.into_shared(), users, open_path: None, refusals: Refusals::default() }
    }

    /// Sets a path that needs no user, such as that of a health check. It is compared byte by byte, without the query.
    pub fn with_open_path(mut self, path: impl Into<Option<String>>) -> Self {
        self.open_path = path.into();
        self
    }

    /// Sets the counts of refused requests.
    pub fn with_refusals(mut self, refusals: Refusals) -> Self {
        self.refusals = refusals;
        self
    }

    /// Returns the user of a request, if there is one, and why the request is refused, if it is.
    fn judge(&self, head: &Head<'_>) -> (Option<Arc<str>>, Option<RefusalReason>) {
        if self.open_path.as_deref() == Some(head.path()) {
            return (None, None);
        }
        let found = match (bearer_token(head), head.certificate) {
            (Ok(token), _) => self.users.with_token(token).ok_or(RefusalReason::InvalidToken),
            (Err(RefusalReason::NoCredentials), Some(certificate)) => {
                self.users.with_certificate(certificate).ok_or(RefusalReason::UnknownCertificate)
            }
            (Err(reason), _) => Err(reason),
        };
        let (name, scopes) = match found {
            Ok(user) => user,
            Err(reason) => return (None, Some(reason)),
        };
        let is_allowed = if is_read(head.method) { scopes.read } else { scopes.write };
        (Some(name), (!is_allowed).then_some(RefusalReason::InsufficientScope))
    }

    /// Counts a refused request, and returns the answer.
    fn refuse(&self, reason: RefusalReason, method: &Method) -> Reply {
        self.refusals.count(reason);
        refusal(reason, method)
    }
}

impl Service for Authenticated {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        let (user, refused) = self.judge(&request.head);
        if let Some(user) = user {
            request.note_user(&user);
        }
        match refused {
            None => self.service.call(request, body),
            Some(reason) => Answer::Now(self.refuse(reason, request.head.method)),
        }
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        match self.judge(head) {
            (_, None) => self.service.head(head),
            (_, Some(reason)) => Some(self.refuse(reason, head.method)),
        }
    }
}

impl fmt::Debug for Authenticated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticated").field("users", &self.users).finish_non_exhaustive()
    }
}

/// Whether a method needs the scope `read`.
fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// The token of a request (RFC 6750, 2.1).
fn bearer_token<'a>(head: &Head<'a>) -> Result<&'a [u8], RefusalReason> {
    let mut fields = head.headers.all(&AUTHORIZATION);
    let value = fields.next().ok_or(RefusalReason::NoCredentials)?;
    if fields.next().is_some() {
        return Err(RefusalReason::InvalidRequest);
    }
    let (scheme, rest) = value.split_at(value.iter().position(|byte| *byte == b' ').unwrap_or(value.len()));
    if !scheme.eq_ignore_ascii_case(b"Bearer") {
        return Err(RefusalReason::NoCredentials); // of another scheme, which this server does not have
    }
    let token = rest.trim_ascii();
    let end = token.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    let is_valid = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(byte);
    if end == 0 || !token.iter().take(end).all(is_valid) {
        return Err(RefusalReason::InvalidRequest);
    }
    Ok(token)
}

/// The answer to a refused request.
fn refusal(reason: RefusalReason, method: &Method) -> Reply {
    let challenge = |text| HeaderValue::from_static(text);
    let (status, detail, challenge) = match reason {
        RefusalReason::InvalidToken => (
            StatusCode::UNAUTHORIZED,
            "No user has this token.",
            challenge(r#"Bearer realm="polyserve", error="invalid_token""#),
        ),
        RefusalReason::InvalidRequest => (
            StatusCode::BAD_REQUEST,
            "There must be one Authorization field, with the form: Bearer TOKEN.",
            challenge(r#"Bearer realm="polyserve", error="invalid_request""#),
        ),
        RefusalReason::UnknownCertificate => {
            return Reply::problem(StatusCode::FORBIDDEN, "No user has a name of the certificate of this client.");
        }
        RefusalReason::InsufficientScope if is_read(method) => (
            StatusCode::FORBIDDEN,
            "This user may not read.",
            challenge(r#"Bearer realm="polyserve", error="insufficient_scope", scope="read""#),
        ),
        RefusalReason::InsufficientScope => (
            StatusCode::FORBIDDEN,
            "This user may not write.",
            challenge(r#"Bearer realm="polyserve", error="insufficient_scope", scope="write""#),
        ),
        RefusalReason::NoCredentials | RefusalReason::WrongHost => (
            StatusCode::UNAUTHORIZED,
            "The request needs a token: Authorization: Bearer TOKEN.",
            challenge(r#"Bearer realm="polyserve""#),
        ),
    };
    Reply::problem(status, detail).with_field(WWW_AUTHENTICATE, challenge)
}
