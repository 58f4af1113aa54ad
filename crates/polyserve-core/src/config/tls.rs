//! The TLS of a server: its certificate, its key, and the certificates of its clients.
//!
//! A [`TlsConfig`] is shared by the servers that have it, and by the caller that [reloads](TlsConfig::reload) it. A connection takes
//! the configuration of the moment at which its handshake begins, so a reload drops no connection.
//!
//! Cost: a lock for each handshake.

use std::error::Error;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::files::{ENCRYPTED_KEY, MAX_SETTINGS, is_encrypted_key, read_bounded};
use crate::sync::{Mutex, lock};

/// The certificate and the key of a server, for [`ServerConfig::tls`](crate::ServerConfig::tls). Clones share them.
///
/// TLS 1.2 and 1.3 are spoken, and HTTP/1.1 is negotiated by ALPN; a server that has HTTP/2 negotiates that too. Sessions are resumed
/// by tickets, which take no memory here, and by a cache of 256 sessions for clients of TLS 1.2 without tickets.
///
/// ```no_run
/// use polyserve_core::{ServerConfig, TlsConfig};
/// use std::path::Path;
///
/// let tls = TlsConfig::new(Path::new("certificate.pem"), Path::new("key.pem"))?;
/// let config = ServerConfig::default().tls(tls.clone());
/// // Later, when there is a new certificate:
/// tls.reload()?;
/// # let _ = config;
/// # Ok::<(), polyserve_core::TlsError>(())
/// ```
#[derive(Clone)]
pub struct TlsConfig(Arc<SharedTls>);

struct SharedTls {
    sources: Sources,
    current: Mutex<Current>,
}

#[derive(Clone)]
struct Sources {
    certificates: PemSource,
    key: PemSource,
    client_ca: Option<PemSource>,
}

/// What connections use, and the files that it was read from.
#[derive(Clone)]
struct Current {
    http1: Arc<ServerConfig>,
    http2: Arc<ServerConfig>,
    stamps: Vec<Option<FileStamp>>,
    /// The files as they were when a change was seen last. A change is used once it is seen twice, because a certificate and its key
    /// are not written at the same moment.
    changed: Option<Vec<Option<FileStamp>>>,
}

/// A version of a file: its device, inode, length, and time of change in seconds and nanoseconds.
type FileStamp = (u64, u64, u64, i64, i64);

/// The place of certificates or of a key in the PEM form: a file, which a reload reads again, or the bytes themselves.
#[derive(Clone)]
pub enum PemSource {
    /// A file.
    File(PathBuf),
    /// The content of such a file.
    Bytes(Arc<[u8]>),
}

impl From<&Path> for PemSource {
    fn from(path: &Path) -> Self {
        Self::File(path.to_owned())
    }
}

impl From<PathBuf> for PemSource {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

impl From<&[u8]> for PemSource {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<&str> for PemSource {
    /// The text itself. A name of a file is a [`Path`].
    fn from(text: &str) -> Self {
        Self::Bytes(text.as_bytes().into())
    }
}

impl PemSource {
    fn read(&self, what: &'static str) -> Result<Arc<[u8]>, TlsError> {
        match self {
            Self::Bytes(bytes) => Ok(Arc::clone(bytes)),
            Self::File(path) => read_bounded(path, MAX_SETTINGS)
                .map(Arc::from)
                .map_err(|error| format!("cannot read the {what} {}: {error}", path.display()))
                .map_err(|text| TlsError { text, is_unread: true }),
        }
    }

    fn stamp(&self) -> Option<FileStamp> {
        let Self::File(path) = self else { return None };
        let file = fs::metadata(path).ok()?;
        Some((file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec()))
    }
}

impl fmt::Display for PemSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Bytes(bytes) => write!(f, "({} bytes)", bytes.len()),
        }
    }
}

impl fmt::Debug for PemSource {
    /// Without the bytes, which may be a private key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PemSource({self})")
    }
}

/// A certificate, a key or a file of them that cannot be used. The text names it, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError {
    text: String,
    /// The file was not read. It may be readable later, without a change of the file.
    is_unread: bool,
}

impl TlsError {
    fn new(text: String) -> Self {
        Self { text, is_unread: false }
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for TlsError {}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

impl TlsConfig {
    /// The certificate of a server, followed by those of its issuers, and the key of the first.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or has no such content, or if the key does not belong to the certificate.
    pub fn new(certificates: impl Into<PemSource>, key: impl Into<PemSource>) -> Result<Self, TlsError> {
        Self::load(Sources { certificates: certificates.into(), key: key.into(), client_ca: None })
    }

    /// The same, of a server that serves only clients with a certificate that one of `authorities` has issued.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_client_ca(&self, authorities: impl Into<PemSource>) -> Result<Self, TlsError> {
        Self::load(Sources { client_ca: Some(authorities.into()), ..self.0.sources.clone() })
    }

    fn load(sources: Sources) -> Result<Self, TlsError> {
        let current = Mutex::new(Current::load(&sources)?);
        Ok(Self(Arc::new(SharedTls { sources, current })))
    }

    /// Reads the files again. Handshakes that begin later use the new content, and no session of the old one is resumed. Open
    /// connections stay.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new). Then the content that is in use stays in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let new = Current::load(&self.0.sources)?;
        *lock(&self.0.current) = new;
        Ok(())
    }

    /// Like [`reload`](Self::reload), if a file has changed since it was read, and has not changed since the last call. Returns
    /// whether a reload was tried. To be called now and then, for example each second. A version that cannot be used is tried once, and
    /// one that cannot be read in each call.
    ///
    /// # Errors
    ///
    /// As [`reload`](Self::reload).
    pub fn reload_if_changed(&self) -> Result<bool, TlsError> {
        let stamps = self.0.sources.stamps();
        {
            let mut current = lock(&self.0.current);
            if current.stamps == stamps {
                current.changed = None;
                return Ok(false);
            }
            if current.changed.as_ref() != Some(&stamps) {
                current.changed = Some(stamps);
                return Ok(false);
            }
        }
        let result = self.reload();
        if result.as_ref().is_err_and(|error| !error.is_unread) {
            lock(&self.0.current).stamps = stamps;
        }
        result.map(|()| true)
    }

    /// The configuration for a new connection of a server that speaks HTTP/1.1. For authors of servers.
    pub fn http1(&self) -> Arc<ServerConfig> {
        Arc::clone(&lock(&self.0.current).http1)
    }

    /// The configuration for a new connection of a server that also speaks HTTP/2. For authors of servers.
    pub fn http2(&self) -> Arc<ServerConfig> {
        Arc::clone(&lock(&self.0.current).http2)
    }
}

impl PartialEq for TlsConfig {
    /// Whether they are clones of each other.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for TlsConfig {}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sources { certificates, key, client_ca } = &self.0.sources;
        let mut shown = f.debug_struct("TlsConfig");
        shown.field("certificates", certificates).field("key", key).field("client_ca", client_ca).finish()
    }
}

impl Sources {
    fn stamps(&self) -> Vec<Option<FileStamp>> {
        [Some(&self.certificates), Some(&self.key), self.client_ca.as_ref()]
            .map(|source| source.and_then(PemSource::stamp))
            .to_vec()
    }
}

impl Current {
    fn load(sources: &Sources) -> Result<Self, TlsError> {
        let Sources { certificates, key, client_ca } = sources;
        let stamps = sources.stamps(); // before the files are read: a change while they are read is seen later
        let chain = certificates_of(certificates, "TLS certificate")?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::new(error.to_string()))?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(source) => builder.with_client_cert_verifier(verifier(source, provider)?),
        };
        let pem = key.read("TLS key")?;
        let private = PrivateKeyDer::from_pem_slice(&pem).map_err(|error| {
            TlsError::new(match is_encrypted_key(&pem) {
                true => format!("the TLS key {key} {ENCRYPTED_KEY}"),
                false => format!("the TLS key {key} has no private key in PEM form: {error}"),
            })
        })?;
        let mut http1 = builder.with_single_cert(chain, private).map_err(|error| {
            TlsError::new(format!("the TLS certificate {certificates} cannot be used with the key {key}: {error}"))
        })?;
        http1.ticketer =
            ring::Ticketer::new().map_err(|error| TlsError::new(format!("cannot make tickets: {error}")))?;
        http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        let mut http2 = http1.clone();
        http2.alpn_protocols.insert(0, b"h2".to_vec());
        Ok(Self { http1: Arc::new(http1), http2: Arc::new(http2), stamps, changed: None })
    }
}

fn certificates_of(source: &PemSource, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = source.read(what)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(TlsError::new(format!("the {what} {source} has no certificate in PEM form"))),
        Err(error) => Err(TlsError::new(format!("the {what} {source} is not in PEM form: {error}"))),
    }
}

fn verifier(
    source: &PemSource,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let what = "certificate of the clients' authority";
    let wrong = |error: &dyn fmt::Display| TlsError::new(format!("the {what} {source} cannot be used: {error}"));
    let mut roots = RootCertStore::empty();
    for authority in certificates_of(source, what)? {
        roots.add(authority).map_err(|error| wrong(&error))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().map_err(|error| wrong(&error))
}
