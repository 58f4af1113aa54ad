//! The service of these tests. It records every request, and the start of a path selects the answer.

use std::future::poll_fn;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use polyserve_core::http::{Method, StatusCode, Version};
use polyserve_core::{Answer, Body, Head, Reply, Request, Service};

use super::reader;

/// A request as the service received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) is_1_0: bool,
    pub(crate) fields: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

/// Returns the status with which a path is refused, both before its body is read and by the call.
pub(crate) fn early_status(target: &str) -> Option<u16> {
    if target.starts_with("/refuse") {
        Some(403)
    } else if target.starts_with("/panic") {
        Some(500)
    } else {
        None
    }
}

/// Returns the status and the body of any other answer. `None` is a problem.
pub(crate) fn answer_to(target: &str, method: &str, body: &[u8]) -> (u16, Option<Vec<u8>>) {
    let digest =
        body.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let mut text = format!("{method} {target} {} {digest:x}", body.len()).into_bytes();
    if target.starts_with("/none") {
        return (204, Some(Vec::new()));
    } else if target.starts_with("/later-panic") {
        return (500, None);
    } else if target.starts_with("/big") {
        text.resize(40_000, b'.');
    }
    (200, Some(text))
}

/// The requests that the service received and did not refuse.
pub(crate) type RecordedCalls = Arc<Mutex<Vec<Call>>>;

/// Records every request.
pub(crate) struct Recorder {
    pub(crate) calls: RecordedCalls,
}

impl Service for Recorder {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        let (target, method) = (request.head.target, request.head.method.as_str());
        if early_status(target).is_some() {
            body.extend_from_slice(b"not sent after a panic");
            return Answer::Now(early(target));
        }
        self.calls.lock().unwrap().push(Call {
            method: method.to_owned(),
            target: target.to_owned(),
            is_1_0: request.head.version == Version::HTTP_10,
            fields: request.head.headers.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect(),
            body: request.body.to_vec(),
        });
        let (status, text) = answer_to(target, method, request.body);
        let text = text.unwrap_or_default();
        if target.starts_with("/none") {
            Answer::Now(Reply::empty(StatusCode::NO_CONTENT))
        } else if target.starts_with("/later") {
            body.extend_from_slice(b"not used");
            later(target.starts_with("/later-panic"), target.starts_with("/later-drop"), text)
        } else if request.head.method == Method::PUT {
            Answer::Now(Reply::new(StatusCode::from_u16(status).unwrap(), "text/plain", Body::Owned(text)))
        } else {
            body.extend_from_slice(&text);
            Answer::Now(Reply::new(StatusCode::from_u16(status).unwrap(), "text/plain", Body::InPlace))
        }
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        early_status(head.target).map(|_| early(head.target))
    }
}

/// Returns the refusal of `target`, or panics without calling the panic hook, which would print a message.
fn early(target: &str) -> Reply {
    if target.starts_with("/panic") {
        resume_unwind(Box::new("an early panic"));
    }
    Reply::problem(StatusCode::FORBIDDEN, "This path is refused.")
}

/// An answer that is ready at the third poll.
fn later(panics: bool, panics_in_drop: bool, text: Vec<u8>) -> Answer<Reply> {
    let bomb = Bomb(panics_in_drop);
    let (mut polls, mut text) = (0, Some(text));
    Answer::later(poll_fn(move |_| {
        let _ = &bomb;
        polls += 1;
        if polls < 3 {
            return Poll::Pending;
        } else if panics {
            resume_unwind(Box::new("a late panic"));
        }
        Poll::Ready(Reply::new(StatusCode::OK, "text/plain", Body::Owned(text.take().unwrap_or_default())))
    }))
}

struct Bomb(bool);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 {
            resume_unwind(Box::new("a panic in a drop"));
        }
    }
}

impl Call {
    /// The call for a request with this head and body.
    pub(crate) fn of(head: &reader::Head, body: &[u8]) -> Self {
        Self {
            method: head.method.clone(),
            target: head.target.clone(),
            is_1_0: head.is_1_0,
            fields: head.fields.clone(),
            body: body.to_vec(),
        }
    }
}
