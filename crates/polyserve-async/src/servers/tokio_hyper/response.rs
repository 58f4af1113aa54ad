//! An answer's head, as hyper takes it.

use http::header::{CONNECTION, SERVER};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Response};
use hyper::ext::ReasonPhrase;
use polyserve_core::Reply;
use polyserve_core::service::Body;

use super::line::Shared;
use crate::types::reply::{fill, status};

/// The head of `reply`, in the empty map `headers`, and its body.
pub(super) fn head(shared: &Shared, reply: Reply, close: bool, mut headers: HeaderMap) -> (Parts, Body) {
    fill(&mut headers, &reply);
    finish(shared, &mut headers, close);
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.status = status(&reply);
    parts.headers = headers;
    let reason = reply.status().reason();
    if parts.status.canonical_reason() != Some(reason) {
        parts.extensions.insert(ReasonPhrase::from_static(reason.as_bytes())); // http has those of older RFCs
    }
    (parts, reply.into_body())
}

/// The fields that are the server's.
pub(super) fn finish(shared: &Shared, headers: &mut HeaderMap, close: bool) {
    if let Some(server_header) = &shared.server_header {
        headers.insert(SERVER, server_header.clone());
    }
    if close {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
}
