//! Answers to requests that are refused before the service answers them.

use std::time::SystemTime;

use http::{StatusCode, Version};
use polyserve_core::Reply;
use polyserve_serving::ServerState;
use polyserve_serving::http1::date::Date;
use polyserve_serving::http1::decode::Refusal;
use polyserve_serving::http1::encode::{self, AnswerHead};
use polyserve_serving::http1::refusal::TOO_LARGE;

use super::connection_state::{ConnectionState, RequestState, Stage};

/// The refusal of a body that hyper cannot read.
pub(super) const INVALID_BODY: Refusal =
    Refusal { status: StatusCode::BAD_REQUEST, detail: "The body is not valid, or not whole." };

/// The refusal of a request over HTTP/2 that names no host.
#[cfg(feature = "http2")]
pub(super) const NO_HOST: Refusal =
    Refusal { status: StatusCode::BAD_REQUEST, detail: "There is neither :authority nor Host." };

/// The refusal of a request over HTTP/2 that names two hosts.
#[cfg(feature = "http2")]
pub(super) const OTHER_HOST: Refusal =
    Refusal { status: StatusCode::BAD_REQUEST, detail: "The Host header field is not the :authority." };

/// The refusal of a request over HTTP/2 with a path that is none.
#[cfg(feature = "http2")]
pub(super) const NO_PATH: Refusal =
    Refusal { status: StatusCode::BAD_REQUEST, detail: "The :path is neither a path nor *." };

/// The refusal of a request over HTTP/2 with white space at an end of a field's value.
#[cfg(feature = "http2")]
pub(super) const SPACE_AROUND_VALUE: Refusal =
    Refusal { status: StatusCode::BAD_REQUEST, detail: "A header field's value begins or ends with white space." };

/// The refusal of a body for which there is no memory.
pub(super) const OUT_OF_MEMORY: Refusal =
    Refusal { status: StatusCode::SERVICE_UNAVAILABLE, detail: "The memory of this server is used up for now." };

/// The answer to a refused request.
pub(super) fn reply_to(refusal: Refusal, server: &ServerState) -> Reply {
    match refusal.status {
        StatusCode::SERVICE_UNAVAILABLE => server.http.memory.refuse(),
        status => Reply::problem(status, refusal.detail),
    }
}

/// Replaces the last answer, which is hyper's, to a head that the codec has accepted and hyper has not. The length of the body is
/// larger than hyper counts, or the target is not valid for the `http` crate.
pub(super) fn replace(state: &mut RequestState, connection: &ConnectionState) {
    let status = state.output.discard_present().and_then(|code| StatusCode::from_u16(code).ok());
    let refusal = if state.present.body_length > connection.server().http.limits.max_body as u64 {
        TOO_LARGE
    } else {
        let status = status.unwrap_or(StatusCode::BAD_REQUEST);
        Refusal { status, detail: "The request's head is not valid." }
    };
    let is_head = state.present.is_head;
    refuse(state, connection, refusal, is_head);
}

/// Writes an error to the output, in place of an answer that has begun, of which no byte was sent. `head_only`: the method is HEAD.
pub(super) fn refuse(state: &mut RequestState, connection: &ConnectionState, refusal: Refusal, head_only: bool) {
    state.output.discard_present();
    let reply = reply_to(refusal, connection.server());
    let report = state.report.take();
    let server_header = connection.server().config.server_header.as_deref();
    let date = Date::new(SystemTime::now());
    let head =
        AnswerHead { version: Version::HTTP_11, close: true, head_only, date: date.end_of_head(), server_header };
    let start = state.output.bytes.len();
    encode::answer(&mut state.output.bytes, &reply, reply.body_bytes(&[]), &head);
    state.output.mark_ends(1);
    let length = state.output.bytes.len() - start;
    connection.report_answer(|| report.answer(refusal.status, length, connection.peer));
    state.stage = Stage::Done;
}
