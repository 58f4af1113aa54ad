//! The body of an error reply, and the names of statuses.

use std::fmt;
use std::sync::OnceLock;

use http::StatusCode;

/// Returns the reason phrase of a status (RFC 9110, section 15), or an empty text if the code has no common one.
///
/// It is [`canonical_reason`](StatusCode::canonical_reason), except that three of its names are those of older RFCs.
///
/// ```
/// use polyserve_core::http::StatusCode;
/// use polyserve_core::reason_phrase;
/// assert_eq!((reason_phrase(StatusCode::OK), reason_phrase(StatusCode::UNPROCESSABLE_ENTITY)), ("OK", "Unprocessable Content"));
/// ```
pub fn reason_phrase(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NON_AUTHORITATIVE_INFORMATION => "Non-Authoritative Information",
        StatusCode::PAYLOAD_TOO_LARGE => "Content Too Large",
        StatusCode::UNPROCESSABLE_ENTITY => "Unprocessable Content",
        status => status.canonical_reason().unwrap_or_default(),
    }
}

/// The body of an error reply (RFC 9457).
///
/// ```
/// use polyserve_core::Problem;
/// use polyserve_core::http::StatusCode;
/// let problem = Problem { status: StatusCode::NOT_FOUND, detail: "There is no account 7." };
/// assert!(problem.to_json().contains(r#""title":"Not Found","status":404"#));
/// ```
#[derive(Debug)]
pub struct Problem<D> {
    /// The status.
    pub status: StatusCode,
    /// One sentence that states what was wrong.
    pub detail: D,
}

impl<D: fmt::Display> Problem<D> {
    /// The media type.
    pub const MEDIA_TYPE: &'static str = "application/problem+json";

    /// Returns the JSON.
    pub fn to_json(&self) -> String {
        let detail = serde_json::Value::String(self.detail.to_string());
        let (title, status) = (reason_phrase(self.status), self.status.as_u16());
        format!(r#"{{"type":"about:blank","title":"{title}","status":{status},"detail":{detail}}}"#)
    }
}

/// The [`Problem`] of a 503 that a server gives often: its JSON is made once.
///
/// ```
/// use polyserve_core::http::{HeaderValue, StatusCode};
/// use polyserve_core::{Reply, Unavailable};
/// static FULL: Unavailable = Unavailable::new("No table is free.");
/// let reply = Reply::unavailable(&FULL, HeaderValue::from_static("60"));
/// let same = Reply::problem(StatusCode::SERVICE_UNAVAILABLE, "No table is free.");
/// assert_eq!((reply.status(), reply.body_bytes(&[])), (same.status(), same.body_bytes(&[])));
/// ```
#[derive(Debug)]
pub struct Unavailable {
    detail: &'static str,
    json: OnceLock<String>,
}

impl Unavailable {
    /// Creates the problem. `detail` is one sentence that states what was wrong.
    pub const fn new(detail: &'static str) -> Self {
        Self { detail, json: OnceLock::new() }
    }

    /// Returns the JSON.
    pub(super) fn json(&'static self) -> &'static str {
        let make = || Problem { status: StatusCode::SERVICE_UNAVAILABLE, detail: self.detail }.to_json();
        self.json.get_or_init(make)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Reply;
    use super::*;

    #[test]
    fn a_problem_is_json() {
        let reply = Reply::problem(StatusCode::BAD_REQUEST, "a \"quoted\"\nline");
        let body: serde_json::Value = serde_json::from_slice(reply.body_bytes(&[])).unwrap();
        assert_eq!((body["status"].as_u64(), body["detail"].as_str()), (Some(400), Some("a \"quoted\"\nline")));
    }
}
