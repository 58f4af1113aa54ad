//! What the contract asks of a request beyond what hyper does, for both kinds of service.

use http::request::Parts;
use polyserve_core::http1::decode::{self, Framing, Refusal, RequestLine};
use polyserve_core::{Headers, Method, Status};

use super::line::{Line, Stage};
use crate::types::head;

/// What is to be known of a request that is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    pub(super) method: Method,
    pub(super) framing: Framing,
    pub(super) expects_continue: bool,
    /// The connection is closed after its answer.
    pub(super) is_last: bool,
}

/// Begins a request: counts it, and says what is wrong with its head.
pub(super) fn judge(line: &Line, parts: &Parts, is_bodiless: bool) -> Result<Judged, Refusal> {
    head::show(parts, |request, headers| judge_shown(line, parts, &request, headers, is_bodiless))
}

/// [`judge`], of a head that is shown already.
pub(super) fn judge_shown(
    line: &Line,
    parts: &Parts,
    request: &RequestLine<'_>,
    headers: Headers<'_>,
    is_bodiless: bool,
) -> Result<Judged, Refusal> {
    let judged = decode::judge(0, request, headers);
    let length = match &judged {
        Ok(parsed) => match parsed.framing {
            Framing::Length(length) => length,
            Framing::Chunked => 0,
        },
        Err(_) => 0,
    };
    let mut state = line.state();
    state.requests += 1;
    state.late = false;
    state.missing = 0;
    state.stage = if is_bodiless { Stage::Answer } else { Stage::Body };
    let head = head::length(request, headers) as u64;
    state.tally.request(head.saturating_add(length), is_bodiless || length == 0);
    let parsed = judged?;
    state.client_stays = parsed.keep_alive;
    if parts.headers.len() > line.shared.roll.server.env.limits.max_headers {
        let detail = "There are more header fields than this server takes.";
        return Err(Refusal { status: Status::HEADER_FIELDS_TOO_LARGE, detail });
    }
    let is_last = state.requests >= line.shared.most_requests;
    let (method, framing, expects_continue) = (parsed.head.method, parsed.framing, parsed.expects_continue);
    Ok(Judged { method, framing, expects_continue, is_last })
}
