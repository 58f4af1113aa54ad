//! What hyper refuses by itself, told as the contract has it: the same parser and the same judge as for our own codec look
//! at what hyper has left, and their words stand in place of hyper's empty answer.

use polyserve_core::http1::decode::{self, Decoded, Framing, Parsed, Refusal};
use polyserve_core::http1::encode::{self, AnswerHead};
use polyserve_core::{Reply, Status, Version};

use super::line::{Shared, Stage, State, without_blank};

/// Puts an answer in place of the one that hyper gave last; `left` is what it did not use.
pub(super) fn replace(state: &mut State, shared: &Shared, left: &[u8]) {
    let status = state.buffers().output.take_back().and_then(Status::new).unwrap_or(Status::BAD_REQUEST);
    let limits = &shared.roll.server.env.limits;
    let refused = state.refused(left).map(|bytes| {
        let bytes = without_blank(bytes);
        let mut fields = decode::fields();
        let refusal = match decode::head(bytes, limits, &mut fields) {
            Decoded::Refused(refusal) => refusal,
            Decoded::Head(Parsed { framing: Framing::Length(length), .. }) if length > limits.max_body as u64 => {
                Refusal { status: Status::CONTENT_TOO_LARGE, detail: TOO_LARGE }
            }
            Decoded::Head(_) | Decoded::Partial => Refusal { status, detail: UNKNOWN },
        };
        (refusal, bytes.starts_with(b"HEAD "))
    });
    match refused {
        Some((refusal, head_only)) => refuse(state, shared, refusal, Some(head_only)),
        None => refuse(state, shared, Refusal { status, detail: UNKNOWN }, state.tally.is_head()),
    }
}

const TOO_LARGE: &str = "The body is larger than this server takes.";

const UNKNOWN: &str = "The request's head, or what it says of its body, is not valid.";

/// Answers a head that has not come in time; `left` is what there is of it.
pub(super) fn late_head(state: &mut State, shared: &Shared, left: &[u8]) {
    let refusal = Refusal { status: Status::REQUEST_TIMEOUT, detail: "The head did not come in time." };
    refuse(state, shared, refusal, Some(left.starts_with(b"HEAD ")));
}

/// Answers a body that is too large in place of an answer that had begun, of which nothing has left.
#[cfg(feature = "tower")]
pub(super) fn too_large(state: &mut State, shared: &Shared) {
    state.buffers().output.take_back();
    let refusal = Refusal { status: Status::CONTENT_TOO_LARGE, detail: TOO_LARGE };
    refuse(state, shared, refusal, Some(false));
}

/// `head_only`: whether the request was HEAD; where that is not known, the answer has no body.
fn refuse(state: &mut State, shared: &Shared, refusal: Refusal, head_only: Option<bool>) {
    let reply = match head_only {
        Some(_) => Reply::problem(refusal.status, refusal.detail),
        None => Reply::empty(refusal.status),
    };
    let (output, date) = state.buffers().dated();
    let server_header = shared.roll.server.config.server_header.as_deref();
    let head =
        AnswerHead { version: Version::Http11, close: true, head_only: head_only == Some(true), date, server_header };
    encode::answer(&mut output.bytes, &reply, reply.body_bytes(&[]), &head);
    output.end(1);
    state.stage = Stage::Done;
}
