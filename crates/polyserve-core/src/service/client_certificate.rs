//! The names of the certificate that a client has shown.

use std::sync::Arc;

/// The certificate that the client of a connection has shown in the handshake of TLS, and that the server has verified. A clone shares it.
///
/// Cost: made once for a connection. A request borrows it.
///
/// ```
/// use polyserve_core::ClientCertificate;
/// let certificate = ClientCertificate::new(["client.example.org", "spiffe://example.org/client"]);
/// assert_eq!(certificate.names().last(), Some("spiffe://example.org/client"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate(Arc<[Box<str>]>);

impl ClientCertificate {
    /// A certificate with these names. For the author of a server.
    pub fn new(names: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }

    /// Returns its subject alternative names that are DNS names or URIs, in the order of each kind.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| &**name)
    }
}
