//! Answers to requests that hyper refuses.
//!
//! hyper answers them with an empty response. This project's codec decodes the bytes that hyper refused, and its answer
//! replaces that of hyper. If these bytes are not in memory any more, the answer has hyper's status.

use polyserve_core::{Reply, Status, Version};
use polyserve_serving::http1::decode::{self, Decoded, Framing, Parsed, Refusal};
use polyserve_serving::http1::encode::{self, AnswerHead};
use polyserve_serving::memory::out_of_memory_reply;

use super::connection_state::{ConnectionState, RequestState, Stage};

/// The refusal of a body that is longer than the limit.
pub(super) const TOO_LARGE: Refusal =
    Refusal { status: Status::CONTENT_TOO_LARGE, detail: "The body is larger than this server takes." };

/// The refusal of a body for which there is no memory.
#[cfg(feature = "tower")]
pub(super) const OUT_OF_MEMORY: Refusal =
    Refusal { status: Status::SERVICE_UNAVAILABLE, detail: "The memory of this server is used up for now." };

/// The answer to a refused request.
pub(super) fn reply_to(refusal: Refusal) -> Reply {
    match refusal.status {
        Status::SERVICE_UNAVAILABLE => out_of_memory_reply(),
        status => Reply::problem(status, refusal.detail),
    }
}

const INVALID_HEAD: &str = "The request's head, or what it says of its body, is not valid.";

/// Replaces the last answer, which is hyper's. `unused` has the bytes that hyper did not use.
pub(super) fn replace(state: &mut RequestState, connection: &ConnectionState, unused: &[u8]) {
    let status = state.buffers().output.discard_incomplete().and_then(Status::new).unwrap_or(Status::BAD_REQUEST);
    let limits = &connection.server().env.limits;
    let refused = state.refused_bytes(unused).map(|bytes| {
        let bytes = without_blank(bytes);
        let mut fields = decode::Fields::new();
        let refusal = match decode::head(bytes, limits, &mut fields) {
            Decoded::Refused(refusal) => refusal,
            Decoded::Head(Parsed { framing: Framing::Length(length), .. }) if length > limits.max_body as u64 => {
                TOO_LARGE
            }
            Decoded::Head(_) | Decoded::Partial => Refusal { status, detail: INVALID_HEAD },
        };
        (refusal, bytes.starts_with(b"HEAD "))
    });
    match refused {
        Some((refusal, head_only)) => refuse(state, connection, refusal, Some(head_only)),
        None if state.scanner.awaits_huge_body() => refuse(state, connection, TOO_LARGE, state.refused_is_head()),
        None => refuse(state, connection, Refusal { status, detail: INVALID_HEAD }, state.refused_is_head()),
    }
}

/// Answers a request after its start was withheld from hyper.
pub(super) fn withheld_head(state: &mut RequestState, connection: &ConnectionState) {
    if let Some(refusal) = state.withheld_head() {
        refuse(state, connection, refusal, Some(false));
    }
}

/// Answers a head that was not complete in time.
pub(super) fn late_head(state: &mut RequestState, connection: &ConnectionState) {
    let refusal = Refusal { status: Status::REQUEST_TIMEOUT, detail: "The head did not come in time." };
    let head_only = state.refused_is_head().unwrap_or(false);
    refuse(state, connection, refusal, Some(head_only));
}

/// Replaces an answer that has begun, because the request's body was refused after that. No byte of the answer was sent.
#[cfg(feature = "tower")]
pub(super) fn replace_begun(state: &mut RequestState, connection: &ConnectionState) {
    if let Some(refusal) = state.body_refusal.take() {
        state.buffers().output.discard_incomplete();
        refuse(state, connection, refusal, Some(false));
    }
}

/// Writes an error to the output. `head_only`: whether the method is HEAD. If it is unknown, the answer has no body.
fn refuse(state: &mut RequestState, connection: &ConnectionState, refusal: Refusal, head_only: Option<bool>) {
    let reply = match head_only {
        Some(_) => reply_to(refusal),
        None => Reply::empty(refusal.status),
    };
    let begun = state.report.take().begun;
    let (output, date) = state.buffers().dated();
    let server_header = connection.server().config.server_header.as_deref();
    let head_only = head_only == Some(true);
    let head = AnswerHead { version: Version::Http11, close: true, head_only, date, server_header };
    let start = output.bytes.len();
    encode::answer(&mut output.bytes, &reply, reply.body_bytes(&[]), &head);
    output.mark_ends(1);
    connection.report_answer(refusal.status, output.bytes.len() - start, begun);
    state.stage = Stage::Done;
}

/// `bytes` without the empty lines before a request.
fn without_blank(bytes: &[u8]) -> &[u8] {
    let blank = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    bytes.get(blank..).unwrap_or_default()
}
