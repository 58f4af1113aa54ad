//! An answer's head, as hyper takes it.

use http::header::{CONNECTION, CONTENT_TYPE, HeaderName, SERVER};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use polyserve_core::Reply;
use polyserve_core::service::Body;

use super::line::Shared;

/// The head of `reply`, in the empty map `headers`, and its body.
pub(super) fn head(shared: &Shared, reply: Reply, close: bool, mut headers: HeaderMap) -> (Parts, Body) {
    fill(&mut headers, &reply);
    finish(shared, &mut headers, close);
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.status = status(&reply);
    parts.headers = headers;
    (parts, reply.into_body())
}

/// The status of `reply`.
pub(crate) fn status(reply: &Reply) -> StatusCode {
    StatusCode::from_u16(reply.status().code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// The fields that `reply` itself has.
pub(crate) fn fill(headers: &mut HeaderMap, reply: &Reply) {
    if let Some(content_type) = reply.content_type()
        && !reply.status().is_bodiless()
        && let Ok(value) = HeaderValue::from_str(content_type)
    {
        headers.insert(CONTENT_TYPE, value);
    }
    for (name, value) in reply.headers() {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
            headers.append(name, value);
        }
    }
}

/// The fields that are the server's.
pub(super) fn finish(shared: &Shared, headers: &mut HeaderMap, close: bool) {
    if let Some(banner) = &shared.banner {
        headers.insert(SERVER, banner.clone());
    }
    if close {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
}
