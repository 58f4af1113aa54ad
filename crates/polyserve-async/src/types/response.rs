//! Conversion of the response of a `tower::Service` to a reply, and the replies in place of one.

use std::error::Error;

use http::HeaderName;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::response::Parts;
use polyserve_core::log::{LogThrottles, in_one_line};
use polyserve_core::{Body, InvalidHeader, Reply, Status};

use super::BoxError;

/// The answer in place of the error of a `tower::Service`, which is logged.
pub(crate) fn service_failed(failures: &LogThrottles, error: &(dyn Error + 'static)) -> Reply {
    polyserve_core::throttled!(of failures, warn, error = in_one_line(error), "a service failed");
    Reply::problem(Status::INTERNAL_SERVER_ERROR, "The service failed.")
}

/// Converts a response with the complete body `body` to a reply. `is_head`: the request was HEAD.
///
/// The fields that a server sets itself are left out, because they frame the message or name the server. An empty answer to
/// HEAD keeps its `Content-Length`.
///
/// # Errors
///
/// Returns an error if a reply cannot have the status or a header field.
pub(crate) fn convert(parts: &Parts, body: Vec<u8>, is_head: bool) -> Result<Reply, BoxError> {
    let code = parts.status.as_u16();
    let status = Status::new(code).ok_or_else(|| format!("the status {code} is not that of a final answer"))?;
    let length = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let body = match length {
        Some(length) if is_head && body.is_empty() => Body::Omitted(length),
        _ => Body::Owned(body),
    };
    let mut reply = Reply::empty(status).with_body(body);
    for (name, value) in &parts.headers {
        if is_set_by_the_server(name) {
            continue;
        }
        let value = value.to_str().map_err(|_| InvalidHeader { name: name.as_str().to_owned().into() })?.trim();
        reply = match name == CONTENT_TYPE {
            true => reply.with_content_type(value.to_owned())?,
            false => reply.with_header(name.as_str().to_owned(), value)?,
        };
    }
    Ok(reply)
}

fn is_set_by_the_server(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "content-length"
            | "date"
            | "keep-alive"
            | "server"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
    )
}
