//! The time in which a certificate is valid.
//!
//! rustls does not show it. Its verification names the end of a certificate that it finds expired, and looks at the time before it looks
//! for an issuer. So it is asked here without any authority.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, RootCertStore};

/// The last second that the form of a certificate's times can say: the end of the year 9999. A certificate that is valid then has no end.
const END_OF_TIME: u64 = 253_402_300_799;

/// Returns the end of the certificate; `None` if it has no end.
pub(super) fn not_after(certificate: &CertificateDer<'_>, provider: &CryptoProvider) -> Option<SystemTime> {
    match fault_at(certificate, provider, UnixTime::since_unix_epoch(Duration::from_secs(END_OF_TIME))) {
        Some(ExpiredContext { not_after, .. }) => UNIX_EPOCH.checked_add(Duration::from_secs(not_after.as_secs())),
        _ => None,
    }
}

/// Why a certificate is not valid now. The text has no time but that of the certificate, so it is the same at each look.
pub(super) struct TimeFault {
    pub(super) text: String,
    /// The certificate begins later.
    pub(super) is_early: bool,
}

/// Checks that the certificate is valid now.
///
/// # Errors
///
/// Returns what is wrong with its time.
pub(super) fn check_now(certificate: &CertificateDer<'_>, provider: &CryptoProvider) -> Result<(), TimeFault> {
    let (text, is_early) = match fault_at(certificate, provider, UnixTime::now()) {
        Some(ExpiredContext { not_after, .. }) => {
            (format!("certificate expired: it ended at second {} of UNIX time", not_after.as_secs()), false)
        }
        Some(NotValidYetContext { not_before, .. }) => {
            (format!("certificate not valid yet: it begins at second {} of UNIX time", not_before.as_secs()), true)
        }
        Some(error @ (Expired | NotValidYet)) => (error.to_string(), error == NotValidYet),
        _ => return Ok(()),
    };
    Err(TimeFault { text, is_early })
}

/// Returns what the verification finds first at that time.
fn fault_at(certificate: &CertificateDer<'_>, provider: &CryptoProvider, at: UnixTime) -> Option<CertificateError> {
    let certificate = ParsedCertificate::try_from(certificate).ok()?;
    let algorithms = provider.signature_verification_algorithms.all;
    match verify_server_cert_signed_by_trust_anchor(&certificate, &RootCertStore::empty(), &[], at, algorithms) {
        Err(rustls::Error::InvalidCertificate(fault)) => Some(fault),
        _ => None,
    }
}
