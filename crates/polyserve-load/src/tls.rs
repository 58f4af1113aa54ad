//! TLS of the client: which server it trusts, and a session over a socket that does not block.
//!
//! [`ClientTls`] is what a [`Load`](crate::Load) has. Each of its connections has a [`ClientSession`] between its socket and the bytes of
//! HTTP. The session keeps what the socket does not take, so a request is always taken whole.
//!
//! Cost: that of rustls with its own buffers, one copy of each request and each answer. Sessions are resumed if a server sends tickets.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use polyserve_core::files::unreadable_key;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::crypto::ring::kx_group::X25519;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::error::LoadError;

/// How a load speaks TLS: the name of the server, and the authorities that may have issued its certificate.
///
/// TLS 1.2 and 1.3 are spoken, and HTTP/1.1 is negotiated by ALPN.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl ClientTls {
    /// Trusts a server with the name or the address `host`, without a port, if an authority of `ca` has issued its certificate. `ca` is in
    /// PEM form.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError::Setting`] if `host` is no name, or if `ca` has no certificate that can be used.
    pub fn new(host: &str, ca: &[u8]) -> Result<Self, LoadError> {
        Self::with_provider(host, ca, ring::default_provider())
    }

    /// [`new`](Self::new) for measurements: only TLS 1.3 with TLS_AES_128_GCM_SHA256 and X25519, so that servers with different
    /// libraries do the same work, and no resumption, so that each connection is a whole handshake.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn for_measurements(host: &str, ca: &[u8]) -> Result<Self, LoadError> {
        let (cipher_suites, kx_groups) = (vec![TLS13_AES_128_GCM_SHA256], vec![X25519]);
        let tls =
            Self::with_provider(host, ca, CryptoProvider { cipher_suites, kx_groups, ..ring::default_provider() })?;
        let mut config = (*tls.config).clone();
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config), ..tls })
    }

    fn with_provider(host: &str, ca: &[u8], provider: CryptoProvider) -> Result<Self, LoadError> {
        let wrong = |why: &dyn fmt::Display| LoadError::Setting(format!("the authorities cannot be used: {why}"));
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(ca) {
            roots.add(authority.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
        }
        let provider = Arc::new(provider);
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
        Self::with_verifier(host, provider, verifier.map_err(|error| wrong(&error))?)
    }

    /// Trusts any server: for tests.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError::Setting`] if `host` is no name.
    pub fn insecure(host: &str) -> Result<Self, LoadError> {
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(AnyServer(Arc::clone(&provider)));
        Self::with_verifier(host, provider, verifier)
    }

    /// The same, with a certificate for servers that ask for one: `chain` and the `key` of its first certificate, in PEM form.
    ///
    /// # Errors
    ///
    /// Returns [`LoadError::Setting`] if there is no such content, or if the key does not belong to the certificate.
    pub fn with_certificate(self, chain: &[u8], key: &[u8]) -> Result<Self, LoadError> {
        let wrong =
            |why: &dyn fmt::Display| LoadError::Setting(format!("the client certificate cannot be used: {why}"));
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().map_err(|error| wrong(&error))?;
        if chain.is_empty() {
            return Err(wrong(&"it is not in PEM form"));
        }
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| wrong(&format_args!("its key {}", unreadable_key(key, &error))))?;
        let mut config = (*self.config).clone();
        let certified = CertifiedKey::from_der(chain, key, config.crypto_provider()).map_err(|error| wrong(&error))?;
        config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(certified));
        Ok(Self { config: Arc::new(config), ..self })
    }

    fn with_verifier(
        host: &str,
        provider: Arc<CryptoProvider>,
        verifier: Arc<dyn ServerCertVerifier>,
    ) -> Result<Self, LoadError> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(bare.to_owned());
        let name = name.map_err(|_| LoadError::Setting(format!("{host} is no name of a server")))?;
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| LoadError::Setting(error.to_string()))?;
        let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), name })
    }

    /// The configuration of a client, for one that is not a [`Load`](crate::Load).
    pub fn config(&self) -> &Arc<ClientConfig> {
        &self.config
    }

    /// The name or the address that the server's certificate must have.
    pub fn server_name(&self) -> &ServerName<'static> {
        &self.name
    }

    /// A new session, which has a handshake to send.
    ///
    /// # Errors
    ///
    /// Returns an error if rustls refuses the configuration.
    pub(crate) fn connect(&self) -> Result<ClientConnection, rustls::Error> {
        ClientConnection::new(Arc::clone(&self.config), self.name.clone())
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The TLS of one connection.
#[derive(Debug)]
pub(crate) struct ClientSession(Box<ClientConnection>);

impl ClientSession {
    pub(crate) fn new(tls: &ClientTls) -> Result<Self, Errno> {
        let mut connection = tls.connect().map_err(|_| Errno::PROTO)?;
        connection.set_buffer_limit(None); // a batch of requests is taken whole
        Ok(Self(Box::new(connection)))
    }

    /// Whether requests can be sent.
    pub(crate) fn is_established(&self) -> bool {
        !self.0.is_handshaking()
    }

    /// Whether bytes wait until the socket takes them.
    pub(crate) fn has_unsent(&self) -> bool {
        self.0.wants_write()
    }

    /// Takes all of `bytes`, and sends what the socket takes.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<(), Errno> {
        self.0.writer().write_all(bytes).map_err(|_| Errno::PROTO)?; // it writes to memory
        self.flush(socket)
    }

    /// Sends what the socket takes.
    pub(crate) fn flush(&mut self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        while self.0.wants_write() {
            match self.0.write_tls(&mut Socket(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            }
        }
        Ok(())
    }

    /// Receives until `buffer` is full, or the socket is empty. Returns the number of bytes, 0 at the end, or `None` if there are none.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
        let mut filled = 0;
        loop {
            match self.0.reader().read(buffer.get_mut(filled..).unwrap_or_default()) {
                Ok(0) => return Ok(Some(filled)), // the buffer is full, or this is the end
                Ok(count) => {
                    filled += count;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Ok(Some(filled)), // the end, without an announcement
            }
            let result = match self.0.read_tls(&mut Socket(socket)) {
                Ok(_) => self.0.process_new_packets().map(drop).map_err(|_| Errno::PROTO),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok((filled > 0).then_some(filled));
                }
                Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            };
            let flushed = self.flush(socket); // the next part of a handshake, or an alert
            match result.and(flushed) {
                Ok(()) => {}
                Err(_) if filled > 0 => return Ok(Some(filled)), // the error comes again
                Err(error) => return Err(error),
            }
        }
    }
}

/// A socket that does not block.
struct Socket<'a>(BorrowedFd<'a>);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| recv(self.0.as_fd(), &mut *buffer, RecvFlags::empty()))?.0)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| send(self.0.as_fd(), bytes, SendFlags::NOSIGNAL))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Accepts every certificate. A server still proves that it has the key.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
