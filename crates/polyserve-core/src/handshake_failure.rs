//! Why TLS handshakes fail: [`HandshakeFailure`].

use http::StatusCode;

/// Why a TLS handshake that a client had begun did not succeed.
///
/// A connection that is rejected at a limit before its handshake counts as rejected, and not as one of these.
///
/// ```
/// use polyserve_core::HandshakeFailure;
/// let names = HandshakeFailure::ALL.map(HandshakeFailure::name);
/// assert_eq!(names, ["plain_http", "certificate", "client_alert", "protocol", "timeout", "memory", "closed"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeFailure {
    /// The client speaks HTTP without TLS. It gets an answer with the status 400.
    PlainHttp,
    /// The client has shown no certificate although one is required, or one that is not accepted.
    Certificate,
    /// The client has refused the server by an alert, for example because it does not accept the certificate of the server.
    ClientAlert,
    /// The bytes are no TLS, or client and server have no version, cipher or protocol in common.
    Protocol,
    /// The handshake was not complete within `head_timeout`.
    TimedOut,
    /// The memory budget had no room for it.
    Memory,
    /// The connection ended before the handshake: the client has left or did not read, or a shutdown ended it.
    Closed,
}

impl HandshakeFailure {
    /// All reasons.
    pub const ALL: [Self; 7] = [
        Self::PlainHttp,
        Self::Certificate,
        Self::ClientAlert,
        Self::Protocol,
        Self::TimedOut,
        Self::Memory,
        Self::Closed,
    ];

    /// The name, as metrics show it.
    pub fn name(self) -> &'static str {
        match self {
            Self::PlainHttp => "plain_http",
            Self::Certificate => "certificate",
            Self::ClientAlert => "client_alert",
            Self::Protocol => "protocol",
            Self::TimedOut => "timeout",
            Self::Memory => "memory",
            Self::Closed => "closed",
        }
    }

    /// The status in the report of a handshake that the server has refused without an answer: that of a request that is refused for the
    /// same reason. `None` if the server has answered, or if it was the client that ended the handshake.
    pub fn reported_status(self) -> Option<StatusCode> {
        match self {
            Self::Certificate | Self::Protocol => Some(StatusCode::BAD_REQUEST),
            Self::TimedOut => Some(StatusCode::REQUEST_TIMEOUT),
            Self::Memory => Some(StatusCode::SERVICE_UNAVAILABLE),
            Self::PlainHttp | Self::ClientAlert | Self::Closed => None,
        }
    }
}
