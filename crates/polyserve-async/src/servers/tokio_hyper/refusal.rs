//! What hyper refuses by itself, told as the contract has it: the same parser and the same judge as for our own codec look
//! at what hyper has left, and their words stand in place of hyper's empty answer.

use polyserve_core::http1::decode::{self, Decoded, Refusal};
use polyserve_core::http1::encode::{self, Line};
use polyserve_core::{Reply, Status, Version};

use super::line::{Shared, Stage, State};

/// Puts an answer in place of the one that hyper gave last; `left` is what it did not use.
pub(super) fn replace(state: &mut State, shared: &Shared, left: &[u8]) {
    state.buffers().output.take_back();
    let limits = &shared.roll.house.env.limits;
    let mut fields = decode::fields();
    let head_only = if left.is_empty() { state.tally.is_head() } else { Some(left.starts_with(b"HEAD ")) };
    match decode::head(left, limits, &mut fields) {
        Decoded::Refused(refusal) => refuse(state, shared, refusal, head_only),
        // hyper has found more than the head's form, and has used it.
        Decoded::Head(_) | Decoded::Partial => {
            let detail = "The request's target, or what it says of its body, is not valid.";
            refuse(state, shared, Refusal { status: Status::BAD_REQUEST, detail }, head_only);
        }
    }
}

/// Answers a head that has not come in time; `left` is what there is of it.
pub(super) fn late_head(state: &mut State, shared: &Shared, left: &[u8]) {
    let refusal = Refusal { status: Status::REQUEST_TIMEOUT, detail: "The head did not come in time." };
    refuse(state, shared, refusal, Some(left.starts_with(b"HEAD ")));
}

/// `head_only`: whether the request was HEAD; where that is not known, the answer has no body.
fn refuse(state: &mut State, shared: &Shared, refusal: Refusal, head_only: Option<bool>) {
    let reply = match head_only {
        Some(_) => Reply::problem(refusal.status, refusal.detail),
        None => Reply::empty(refusal.status),
    };
    let (output, date) = state.buffers().dated();
    let banner = shared.roll.house.config.banner.as_deref();
    let line = Line { version: Version::Http11, close: true, head_only: head_only == Some(true), date, banner };
    encode::answer(&mut output.bytes, &reply, reply.body_bytes(&[]), &line);
    output.end(1);
    state.stage = Stage::Done;
}
