//! The checks of a request that hyper omits, for both kinds of service.

use http::request::Parts;
use polyserve_core::{Headers, Method, Status};
use polyserve_serving::http1::decode::{self, Framing, Refusal, RequestLine};

use super::connection_state::{ConnectionState, Stage};
use crate::types::head;

/// The properties of a valid request that an adapter uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValidRequest {
    pub(super) method: Method,
    pub(super) framing: Framing,
    pub(super) expects_continue: bool,
    /// The connection is closed after the answer.
    pub(super) is_last: bool,
}

/// Begins a request: counts it, and validates its head.
///
/// # Errors
///
/// Returns the refusal if the head is not valid.
pub(super) fn validate(
    connection: &ConnectionState,
    parts: &Parts,
    is_bodiless: bool,
) -> Result<ValidRequest, Refusal> {
    head::convert(parts, |request, headers| validate_head(connection, parts, &request, headers, is_bodiless))
}

/// As [`validate`], for a head that is converted already.
pub(super) fn validate_head(
    connection: &ConnectionState,
    parts: &Parts,
    request: &RequestLine<'_>,
    headers: Headers<'_>,
    is_bodiless: bool,
) -> Result<ValidRequest, Refusal> {
    let parsed = decode::validate_head(0, request, headers);
    let mut state = connection.state();
    state.requests += 1;
    state.report.begin();
    state.timed_out = false;
    state.missing_bytes = 0;
    state.stage = if is_bodiless { Stage::Answer } else { Stage::Body };
    state.body_received = 0;
    let parsed = parsed?;
    let (body, is_chunked) = match parsed.framing {
        Framing::Length(length) => (length, false),
        Framing::Chunked => (0, true),
    };
    state.input.passed_on(request, headers, body);
    state.must_linger = parsed.keep_alive;
    if parts.headers.len() > connection.server().env.limits.max_headers {
        let detail = "There are more header fields than this server takes.";
        return Err(Refusal { status: Status::HEADER_FIELDS_TOO_LARGE, detail });
    }
    // hyper alone has judged the end of a chunked body. Another peer may disagree, so nothing after it is a request.
    let is_last = is_chunked || state.requests >= connection.shared.max_requests;
    let (method, framing, expects_continue) = (parsed.head.method, parsed.framing, parsed.expects_continue);
    Ok(ValidRequest { method, framing, expects_continue, is_last })
}
