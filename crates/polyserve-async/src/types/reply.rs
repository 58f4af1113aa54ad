//! Conversion of a reply to a response of the `http` crate.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};
use polyserve_core::Reply;

/// The status of `reply`.
pub(crate) fn status(reply: &Reply) -> StatusCode {
    StatusCode::from_u16(reply.status().code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Adds the header fields of `reply` to `headers`.
///
/// Cost: an allocation for each field that is not always the same.
pub(crate) fn fill(headers: &mut HeaderMap, reply: &Reply) {
    const JSON: &str = "application/json";
    if let Some(content_type) = reply.content_type()
        && !reply.status().is_bodiless()
        && let Ok(value) = match content_type {
            JSON => Ok(HeaderValue::from_static(JSON)),
            other => HeaderValue::from_str(other),
        }
    {
        headers.insert(CONTENT_TYPE, value);
    }
    if let Some(length) = reply.omitted_length() {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    if let Some(etag) = reply.etag()
        && let Ok(value) = HeaderValue::from_str(&etag.to_string())
    {
        headers.insert(ETAG, value);
    }
    for (name, value) in reply.headers() {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
            headers.append(name, value);
        }
    }
}
