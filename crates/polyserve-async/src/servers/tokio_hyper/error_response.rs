//! Answers to requests that hyper refuses.
//!
//! hyper answers them with an empty response. If hyper still has the head, this project's codec decodes it, and its answer
//! replaces that of hyper. Otherwise the answer has hyper's status.

use std::time::SystemTime;

use http::{StatusCode, Version};
use polyserve_core::Reply;
use polyserve_serving::http1::date::Date;
use polyserve_serving::http1::decode::{self, Decoded, Refusal};
use polyserve_serving::http1::encode::{self, AnswerHead};
use polyserve_serving::memory::out_of_memory_reply;

use super::connection_state::{ConnectionState, RequestState, Stage};

/// The refusal of a body that is longer than the limit.
pub(super) const TOO_LARGE: Refusal =
    Refusal { status: StatusCode::PAYLOAD_TOO_LARGE, detail: "The body is larger than this server takes." };

/// The refusal of a body that is not complete in time.
pub(super) const LATE_BODY: Refusal =
    Refusal { status: StatusCode::REQUEST_TIMEOUT, detail: "The body did not come in time." };

/// The refusal of a body that hyper cannot read.
pub(super) const INVALID_BODY: Refusal =
    Refusal { status: StatusCode::BAD_REQUEST, detail: "The body is not valid, or not whole." };

/// The refusal of a body for which there is no memory.
pub(super) const OUT_OF_MEMORY: Refusal =
    Refusal { status: StatusCode::SERVICE_UNAVAILABLE, detail: "The memory of this server is used up for now." };

/// The answer to a refused request.
pub(super) fn reply_to(refusal: Refusal) -> Reply {
    match refusal.status {
        StatusCode::SERVICE_UNAVAILABLE => out_of_memory_reply(),
        status => Reply::problem(status, refusal.detail),
    }
}

const INVALID_HEAD: &str = "The request's head, or what it says of its body, is not valid.";

/// Replaces the last answer, which is hyper's. `unused` has the bytes that hyper did not use.
pub(super) fn replace(state: &mut RequestState, connection: &ConnectionState, unused: &[u8]) {
    let code = state.output.discard_incomplete();
    let status = code.and_then(|code| StatusCode::from_u16(code).ok());
    // What hyper has written may be a `100 Continue`.
    let status = status.filter(|status| !status.is_informational()).unwrap_or(StatusCode::BAD_REQUEST);
    let limits = &connection.server().env.limits;
    let has_head = state.input.rest() == unused.len() as u64; // hyper drops a head that it has parsed
    let unused = without_blank(unused);
    let mut fields = decode::Fields::new();
    let is_small_head = state.input.has_text && state.input.rest() <= limits.max_head as u64;
    let refusal = match decode::head(unused, limits, &mut fields) {
        Decoded::Refused(refusal) if has_head => refusal,
        // The head is not too large, so it is the length of the body.
        _ if status == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE && is_small_head => TOO_LARGE,
        _ => Refusal { status, detail: INVALID_HEAD },
    };
    refuse(state, connection, refusal, unused.starts_with(b"HEAD "));
}

/// Answers a head that was not complete in time, of which `unused` was read.
pub(super) fn late_head(state: &mut RequestState, connection: &ConnectionState, unused: &[u8]) {
    let refusal = Refusal { status: StatusCode::REQUEST_TIMEOUT, detail: "The head did not come in time." };
    refuse(state, connection, refusal, without_blank(unused).starts_with(b"HEAD "));
}

/// Replaces an answer that has begun, because the request's body was refused after that. No byte of the answer was sent.
pub(super) fn replace_begun(state: &mut RequestState, connection: &ConnectionState) {
    if let Some(refusal) = state.body_refusal.take() {
        state.output.discard_incomplete();
        refuse(state, connection, refusal, false);
    }
}

/// Writes an error to the output. `head_only`: whether the method is HEAD.
fn refuse(state: &mut RequestState, connection: &ConnectionState, refusal: Refusal, head_only: bool) {
    let reply = reply_to(refusal);
    let begun = state.report.take().begun;
    let server_header = connection.server().config.server_header.as_deref();
    let date = Date::new(SystemTime::now());
    let head =
        AnswerHead { version: Version::HTTP_11, close: true, head_only, date: date.end_of_head(), server_header };
    let start = state.output.bytes.len();
    encode::answer(&mut state.output.bytes, &reply, reply.body_bytes(&[]), &head);
    state.output.mark_ends(1);
    let length = state.output.bytes.len() - start;
    connection.report_answer(refusal.status, length, begun);
    state.stage = Stage::Done;
}

/// `bytes` without the empty lines before a request.
fn without_blank(bytes: &[u8]) -> &[u8] {
    let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    bytes.get(blank..).unwrap_or_default()
}
