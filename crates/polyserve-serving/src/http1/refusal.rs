//! Why a request is refused before it reaches the service.

use polyserve_core::Status;

/// The reason for refusing a request. The connection is closed after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The answer's status.
    pub status: Status,
    /// What was wrong, in one sentence.
    pub detail: &'static str,
}

/// Returns a refusal with any status.
pub(super) const fn refusal(status: Status, detail: &'static str) -> Refusal {
    Refusal { status, detail }
}

/// Returns a refusal with status 400.
pub(super) const fn bad_request(detail: &'static str) -> Refusal {
    refusal(Status::BAD_REQUEST, detail)
}
