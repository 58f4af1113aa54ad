//! Why a request is refused before it reaches the service, and the answers in place of what does not come in time.

use polyserve_core::Reply;
use polyserve_core::http::StatusCode;

/// The reason for refusing a request. The connection is closed after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The answer's status.
    pub status: StatusCode,
    /// What was wrong, in one sentence.
    pub detail: &'static str,
}

/// The refusal of a body that is longer than the limit.
pub const TOO_LARGE: Refusal = refusal(StatusCode::PAYLOAD_TOO_LARGE, "The body is larger than this server takes.");

/// The refusal of a head that is not complete in time.
pub const LATE_HEAD: Refusal = refusal(StatusCode::REQUEST_TIMEOUT, "The head did not come in time.");

/// The refusal of a body that is not complete in time.
pub const LATE_BODY: Refusal = refusal(StatusCode::REQUEST_TIMEOUT, "The body did not come in time.");

/// The refusal of HTTP without TLS, by a server that speaks TLS.
pub const PLAIN_HTTP: Refusal = bad_request("This address speaks HTTPS, and the request came without TLS.");

/// Returns the answer in place of one that is not made in time.
pub fn late_answer() -> Reply {
    Reply::problem(StatusCode::SERVICE_UNAVAILABLE, "The answer did not come in time.")
}

/// Returns a refusal with any status.
pub(super) const fn refusal(status: StatusCode, detail: &'static str) -> Refusal {
    Refusal { status, detail }
}

/// Returns a refusal with status 400.
pub(super) const fn bad_request(detail: &'static str) -> Refusal {
    refusal(StatusCode::BAD_REQUEST, detail)
}
