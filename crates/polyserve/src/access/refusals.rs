//! Counts of refused requests, by reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// 401: it has no token, and no certificate of a user.
    NoCredentials,
    /// 401: no user has the token.
    InvalidToken,
    /// 400: its `Authorization` is malformed, or there are several.
    InvalidRequest,
    /// 403: it has no token, and no user has its certificate.
    UnknownCertificate,
    /// 403: its user may not do it.
    InsufficientScope,
    /// 421: it names a host that is not in the list.
    WrongHost,
}

impl RefusalReason {
    const ALL: [Self; 6] = [
        Self::NoCredentials,
        Self::InvalidToken,
        Self::InvalidRequest,
        Self::UnknownCertificate,
        Self::InsufficientScope,
        Self::WrongHost,
    ];

    /// The name, as metrics show it.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoCredentials => "no_credentials",
            Self::InvalidToken => "invalid_token",
            Self::InvalidRequest => "invalid_request",
            Self::UnknownCertificate => "unknown_certificate",
            Self::InsufficientScope => "insufficient_scope",
            Self::WrongHost => "wrong_host",
        }
    }
}

/// The number of refused requests, by reason. A clone shares it.
///
/// ```
/// use polyserve::access::Refusals;
/// assert!(Refusals::default().all().any(|(reason, count)| (reason.name(), count) == ("invalid_token", 0)));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Refusals(Arc<[AtomicU64; RefusalReason::ALL.len()]>);

impl Refusals {
    pub(super) fn count(&self, reason: RefusalReason) {
        self.0[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns every reason with its count.
    pub fn all(&self) -> impl Iterator<Item = (RefusalReason, u64)> {
        RefusalReason::ALL.into_iter().map(|reason| (reason, self.0[reason as usize].load(Ordering::Relaxed)))
    }
}
