//! Why a request is refused before it reaches the service.

use polyserve_core::http::StatusCode;

/// The reason for refusing a request. The connection is closed after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The answer's status.
    pub status: StatusCode,
    /// What was wrong, in one sentence.
    pub detail: &'static str,
}

/// Returns a refusal with any status.
pub(super) const fn refusal(status: StatusCode, detail: &'static str) -> Refusal {
    Refusal { status, detail }
}

/// Returns a refusal with status 400.
pub(super) const fn bad_request(detail: &'static str) -> Refusal {
    refusal(StatusCode::BAD_REQUEST, detail)
}
