//! TLS between the bytes of a driver and the session.
//!
//! A driver reads and writes bytes as ever, and no server has code of its own for TLS. A [`Connection`](crate::Connection) of a server
//! with [TLS](polyserve_core::ServerConfig) passes what was read through a [`TlsSession`], which returns the bytes of the
//! session, and passes the output of the session through it before the driver writes.
//!
//! A server with a connection of its own may use a [`TlsSession`] itself, as `tokio_hyper` does. It [keeps](TlsSession::keep) the output,
//! and writes it later.
//!
//! # Rules
//!
//! * A handshake counts as the begun head of a request. It has the head timeout, it is not evicted, and a drain waits for it, and then
//!   for the request of that connection.
//! * A client that speaks HTTP without TLS gets a 400 without TLS. Anything else that is no TLS gets an alert.
//! * A connection that is rejected before its handshake gets an alert, which costs nothing, in place of the 503.
//! * A handshake that fails is [counted](ServerState::count_failed_handshake) once, by reason. What the server refuses without an answer is
//!   reported to the hook of answers.
//! * `close_notify` is the last of the output, unless the connection is lost or a shutdown cuts it. It is not waited for.
//! * A client that closes without `close_notify` has closed: a request that it has sent in part is not served. HTTP states the length
//!   of each message, so nothing is taken for whole that was cut off.
//! * An answer counts when the kernel has accepted the last byte of the output that it is in.
//!
//! # Cost
//!
//! Without the feature `tls`: nothing. With it, and no certificate: a branch for each read and for each step. An idle connection keeps
//! the keys, and no buffer. What an incomplete record takes, and the output that its client has not taken, count towards the memory
//! budget.

#[cfg(feature = "tls")]
mod session;
#[cfg(feature = "tls")]
pub use session::{TlsBuffers, TlsSession};

#[cfg(not(feature = "tls"))]
mod off;
#[cfg(not(feature = "tls"))]
pub use off::{TlsBuffers, TlsSession};

use polyserve_core::HandshakeFailure;

use crate::ServerState;

/// A fatal alert before any handshake: `internal_error`. Clients show that the server has refused the connection.
pub(crate) const REJECTION: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];

/// What a [`TlsSession`] has found in the bytes that it received.
#[derive(Debug, Default)]
pub struct Received {
    /// The handshake ended with these bytes.
    pub handshake_ended: bool,
    /// The client sends no more.
    pub input_ended: bool,
    /// The bytes are no TLS, or not of this session. The alert is in the output.
    pub failed: bool,
    /// Why the handshake has failed with these bytes.
    pub handshake_failure: Option<HandshakeFailure>,
}

/// Whether a connection that begins with this byte speaks HTTP without TLS. TLS begins with a byte below 32.
pub fn is_plain_http(first: u8) -> bool {
    first.is_ascii_alphabetic()
}

impl ServerState {
    /// Whether the server speaks TLS.
    #[inline]
    pub fn has_tls(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.config.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }
}
