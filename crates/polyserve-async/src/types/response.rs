//! Conversion of the response of a `tower::Service` to a reply.

use http::header::CONTENT_LENGTH;
use http::response::Parts;
use polyserve_core::{Body, Reply};

use super::BoxError;

/// Converts a response with the complete body `body` to a reply. `is_head`: the request was HEAD.
///
/// The fields that a server sets itself are left out, because they frame the message or name the server. An empty answer to
/// HEAD keeps its `Content-Length`, or has none.
///
/// # Errors
///
/// Returns an error if a reply cannot have the status.
pub(crate) fn convert(parts: Parts, body: Vec<u8>, is_head: bool) -> Result<Reply, BoxError> {
    let status = parts.status;
    if !(200..600).contains(&status.as_u16()) {
        return Err(format!("the status {} is not that of a final answer", status.as_u16()).into());
    }
    let length = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let body = if is_head && body.is_empty() { Body::Omitted(length) } else { Body::Owned(body) };
    let mut reply = Reply::empty(status).with_body(body);
    let mut name = None;
    for (next_name, value) in parts.headers {
        name = next_name.or(name); // a further value of a field comes without a name
        if let Some(name) = &name {
            reply = reply.with_field(name.clone(), value);
        }
    }
    Ok(reply)
}
