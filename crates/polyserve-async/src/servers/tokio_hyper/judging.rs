//! What the contract asks of a request beyond what hyper does, for both kinds of service.

use http::request::Parts;
use polyserve_core::http1::decode::{self, Framing, Refusal};
use polyserve_core::{Method, Status};

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
    let house = &line.shared.roll.house;
    let judged = head::show(parts, |request, headers| {
        let parsed = decode::judge(0, &request, headers)?;
        Ok((parsed.head.method, parsed.framing, parsed.expects_continue, parsed.keep_alive))
    });
    let mut state = line.state();
    state.requests += 1;
    state.late = false;
    state.stage = Stage::Answer;
    let length = match &judged {
        Ok((_, Framing::Length(length), ..)) => *length,
        _ => 0,
    };
    state.tally.request((head::length(parts) as u64).saturating_add(length), is_bodiless || length == 0);
    let (method, framing, expects_continue, keep_alive) = judged?;
    state.client_stays = keep_alive;
    if parts.headers.len() > house.env.limits.max_headers {
        let detail = "There are more header fields than this server takes.";
        return Err(Refusal { status: Status::HEADER_FIELDS_TOO_LARGE, detail });
    }
    let is_last = state.requests >= line.shared.most_requests;
    Ok(Judged { method, framing, expects_continue, is_last })
}
