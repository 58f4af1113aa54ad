//! The TLS of a server: its certificate, its key, and the certificates of its clients.
//!
//! A [`TlsConfig`] is shared by the servers that have it, and by the caller that [reloads](TlsConfig::reload) it. A connection takes
//! the configuration of the moment at which its handshake begins, so a reload drops no connection.
//!
//! Cost: a lock for each handshake. A look whether the files have changed reads them, because no file system promises that a changed file
//! has another time or another inode.

mod validity;

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};

use self::validity::TimeFault;
use crate::files::{read_settings, unreadable_key};
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

/// What connections use, and the content that it was made from.
struct Current {
    configs: Configs,
    /// The content that is in use, or that was refused last.
    judged: Contents,
    /// What was seen when a change was seen last. A change is used once it is seen twice, because a certificate and its key are not
    /// written at the same moment.
    changed: Option<Seen>,
}

/// The configurations of new connections.
struct Configs {
    http1: Arc<ServerConfig>,
    http2: Arc<ServerConfig>,
    /// Verifies the certificates of clients, if the server asks for them.
    clients: Option<Arc<dyn ClientCertVerifier>>,
    /// The certificate of the server itself.
    certificate: CertificateDer<'static>,
}

/// The content of the files at one moment.
#[derive(Clone, PartialEq, Eq)]
struct Contents {
    certificates: Arc<[u8]>,
    key: Arc<[u8]>,
    client_ca: Option<Arc<[u8]>>,
}

#[derive(PartialEq, Eq)]
enum Seen {
    Contents(Contents),
    /// A file could not be read. It may be absent for a moment, while it is replaced.
    Unreadable,
}

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
            Self::File(path) => read_settings(path)
                .map(Arc::from)
                .map_err(|error| TlsError::new(format!("cannot read the {what} {}: {error}", path.display()))),
        }
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
    /// The certificate begins later, so the same content can be used then.
    is_early: bool,
}

impl TlsError {
    fn new(text: String) -> Self {
        Self { text, is_early: false }
    }

    fn of_time(certificate: impl fmt::Display, fault: &TimeFault) -> Self {
        Self { text: format!("the {certificate}: {}", fault.text), is_early: fault.is_early }
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
        let judged = sources.read()?;
        let current = Mutex::new(Current { configs: Configs::new(&sources, &judged)?, judged, changed: None });
        Ok(Self(Arc::new(SharedTls { sources, current })))
    }

    /// Returns the end of the validity of the certificate in use; `None` if it has no end. Cost: the certificate is parsed.
    pub fn not_after(&self) -> Option<SystemTime> {
        let (certificate, http1) = {
            let current = lock(&self.0.current);
            (current.configs.certificate.clone(), Arc::clone(&current.configs.http1))
        };
        validity::not_after(&certificate, http1.crypto_provider())
    }

    /// Checks that the certificate in use is valid now. [`new`](Self::new) also takes one that is not: the clock may be wrong.
    ///
    /// # Errors
    ///
    /// Returns an error if the certificate has expired, or is not valid yet.
    pub fn check_time(&self) -> Result<(), TlsError> {
        lock(&self.0.current).configs.check_time(&self.0.sources)
    }

    /// Verifies the certificates of a client as in a handshake: its own, followed by those of its issuers. For authors of servers: rustls
    /// does so when a client shows them, and not when a session is resumed. Cost: the signatures of the chain.
    ///
    /// # Errors
    ///
    /// Returns an error if one has expired, or if no authority of the clients has issued the first. None if the server asks for none.
    pub fn verify_client(&self, certificates: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        let verifier = lock(&self.0.current).configs.clients.clone();
        let (Some(verifier), Some((own, issuers))) = (verifier, certificates.split_first()) else { return Ok(()) };
        verifier.verify_client_cert(own, issuers, UnixTime::now()).map(drop)
    }

    /// Reads the files again. Handshakes that begin later use the new content, and no session of the old one is resumed. Open
    /// connections stay.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), and as [`check_time`](Self::check_time) of the new certificate. Then the content that is in use stays in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let judged = self.0.sources.read()?;
        let configs = Configs::valid(&self.0.sources, &judged)?;
        *lock(&self.0.current) = Current { configs, judged, changed: None };
        Ok(())
    }

    /// Like [`reload`](Self::reload), if the content of a file has changed since it was read, and has not changed since the last call.
    /// Returns whether a reload was tried. To be called now and then, for example each second. Content that cannot be used is tried
    /// once. A certificate that begins later is tried in each further call. A file that cannot be read in two calls one after the other is
    /// an error in each further call.
    ///
    /// # Errors
    ///
    /// As [`reload`](Self::reload).
    pub fn reload_if_changed(&self) -> Result<bool, TlsError> {
        let read = self.0.sources.read();
        let contents = {
            let mut current = lock(&self.0.current);
            match read {
                Err(error) => {
                    return match current.changed {
                        Some(_) => Err(error),
                        None => {
                            current.changed = Some(Seen::Unreadable);
                            Ok(false)
                        }
                    };
                }
                Ok(contents) if contents == current.judged => {
                    current.changed = None;
                    return Ok(false);
                }
                Ok(contents) => {
                    let seen = Seen::Contents(contents.clone());
                    if current.changed.as_ref() != Some(&seen) {
                        current.changed = Some(seen);
                        return Ok(false);
                    }
                    contents
                }
            }
        };
        let made = Configs::valid(&self.0.sources, &contents);
        let mut current = lock(&self.0.current);
        if let Err(error) = &made
            && error.is_early
        {
            return Err(error.clone());
        }
        (current.judged, current.changed) = (contents, None);
        current.configs = made?;
        Ok(true)
    }

    /// The configuration for a new connection of a server that speaks HTTP/1.1. For authors of servers.
    pub fn http1(&self) -> Arc<ServerConfig> {
        Arc::clone(&lock(&self.0.current).configs.http1)
    }

    /// The configuration for a new connection of a server that also speaks HTTP/2. For authors of servers.
    pub fn http2(&self) -> Arc<ServerConfig> {
        Arc::clone(&lock(&self.0.current).configs.http2)
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

/// The names of the sources in errors.
const CERTIFICATE: &str = "TLS certificate";
const KEY: &str = "TLS key";
const CLIENT_CA: &str = "certificate of the clients' authority";

impl Sources {
    fn read(&self) -> Result<Contents, TlsError> {
        Ok(Contents {
            certificates: self.certificates.read(CERTIFICATE)?,
            key: self.key.read(KEY)?,
            client_ca: self.client_ca.as_ref().map(|source| source.read(CLIENT_CA)).transpose()?,
        })
    }
}

impl Configs {
    /// Like [`new`](Self::new), with a certificate that is valid now.
    fn valid(sources: &Sources, contents: &Contents) -> Result<Self, TlsError> {
        let made = Self::new(sources, contents)?;
        made.check_time(sources)?;
        Ok(made)
    }

    fn check_time(&self, sources: &Sources) -> Result<(), TlsError> {
        let valid = validity::check_now(&self.certificate, self.http1.crypto_provider());
        valid.map_err(|fault| TlsError::of_time(format_args!("{CERTIFICATE} {}", sources.certificates), &fault))
    }

    /// `contents` is what was read from `sources`.
    fn new(sources: &Sources, contents: &Contents) -> Result<Self, TlsError> {
        let Sources { certificates, key, .. } = sources;
        let chain = certificates_of(certificates, CERTIFICATE, &contents.certificates)?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::new(error.to_string()))?;
        let clients = match (&sources.client_ca, &contents.client_ca) {
            (Some(source), Some(pem)) => Some(verifier(source, pem, Arc::clone(&provider))?),
            _ => None,
        };
        let builder = match &clients {
            Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
            None => builder.with_no_client_auth(),
        };
        let private = PrivateKeyDer::from_pem_slice(&contents.key)
            .map_err(|error| TlsError::new(format!("the {KEY} {key} {}", unreadable_key(&contents.key, &error))))?;
        let certified = certified(chain, private, &provider).map_err(|why| {
            TlsError::new(format!("the {CERTIFICATE} {certificates} cannot be used with the key {key}: {why}"))
        })?;
        let certificate =
            certified.end_entity_cert().map_err(|error| TlsError::new(error.to_string()))?.clone().into_owned();
        let mut http1 = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        http1.ticketer =
            ring::Ticketer::new().map_err(|error| TlsError::new(format!("cannot make tickets: {error}")))?;
        http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        let mut http2 = http1.clone();
        http2.alpn_protocols.insert(0, b"h2".to_vec());
        Ok(Self { http1: Arc::new(http1), http2: Arc::new(http2), clients, certificate })
    }
}

/// The chain and its key, if they belong together.
///
/// # Errors
///
/// Returns why they cannot be used.
fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, String> {
    let key = provider.key_provider.load_private_key(key).map_err(|_| {
        "the key is malformed, or of a kind that is not supported; it must be RSA of 2,048 to 4,096 bits, ECDSA with the curve P-256 or \
         P-384, or Ed25519"
    })?;
    let certified = CertifiedKey::new(chain, key);
    let error = match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => return Ok(certified),
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            String::from("the key belongs to another certificate")
        }
        Err(error) => error.to_string(),
    };
    let is_of_key = |certificate: &CertificateDer<'static>| {
        CertifiedKey::new(vec![certificate.clone()], Arc::clone(&certified.key)).keys_match().is_ok()
    };
    let Some(place) = certified.cert.iter().position(is_of_key) else { return Err(error) };
    Err(format!(
        "the key belongs to certificate {} of the file, which must be the first; those of its issuers follow it",
        place + 1
    ))
}

fn certificates_of(
    source: &PemSource,
    what: &'static str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(TlsError::new(format!("the {what} {source} has no certificate in PEM form"))),
        Err(error) => Err(TlsError::new(format!("the {what} {source} is not in PEM form: {error}"))),
    }
}

fn verifier(
    source: &PemSource,
    pem: &[u8],
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let wrong = |error: &dyn fmt::Display| TlsError::new(format!("the {CLIENT_CA} {source} cannot be used: {error}"));
    let mut roots = RootCertStore::empty();
    for authority in certificates_of(source, CLIENT_CA, pem)? {
        roots.add(authority).map_err(|error| wrong(&error))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().map_err(|error| wrong(&error))
}
