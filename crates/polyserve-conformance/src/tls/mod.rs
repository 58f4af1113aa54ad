//! Certificates for tests of TLS, and the TLS of the kit's client.
//!
//! An [`TestAuthority`] issues certificates that are made for one run, so no key stands in a file.

mod stream;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Instant, SystemTime};

use polyserve_core::sync::{Mutex, lock};
use polyserve_core::{ServerConfig, TlsConfig};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType,
    date_time_ymd,
};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

pub use stream::TlsStream;
pub(crate) use stream::is_rejection;

/// An authority that issues certificates for a test.
#[derive(Debug)]
pub struct TestAuthority(CertifiedIssuer<'static, KeyPair>);

/// When a certificate of a [`TestAuthority`] is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// Now.
    Valid,
    /// Until a day in the past.
    Expired,
    /// From a day in the future on.
    NotYetValid,
    /// Until this second, which still counts.
    Until(SystemTime),
    /// From this second on.
    From(SystemTime),
}

/// A certificate, and its key, in the PEM form.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl TestAuthority {
    /// Creates an authority.
    ///
    /// # Panics
    ///
    /// Panics if the system has no random numbers.
    #[allow(clippy::new_without_default)] // each one is another
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no name is malformed");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // OpenSSL takes a certificate with the name of its issuer for one that is signed by itself.
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        let key = KeyPair::generate().expect("the system has random numbers");
        Self(CertifiedIssuer::self_signed(params, key).expect("the parameters are valid"))
    }

    /// The certificate of the authority in the PEM form.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate for a server at `localhost` or 127.0.0.1, which also names a client.
    ///
    /// # Panics
    ///
    /// Panics if the system has no random numbers.
    pub fn issue(&self) -> Issued {
        self.issue_to(&["localhost", "127.0.0.1"])
    }

    /// Issues a certificate for these DNS names, addresses and URIs, of a server or a client.
    ///
    /// # Panics
    ///
    /// Panics if a name is malformed, or if the system has no random numbers.
    pub fn issue_to(&self, names: &[&str]) -> Issued {
        self.issue_with(names, Validity::Valid)
    }

    /// [`issue`](Self::issue), with another time in which the certificate is valid.
    ///
    /// # Panics
    ///
    /// Panics if the system has no random numbers.
    pub fn issue_while(&self, validity: Validity) -> Issued {
        self.issue_with(&["localhost", "127.0.0.1"], validity)
    }

    fn issue_with(&self, names: &[&str], validity: Validity) -> Issued {
        let (uris, names): (Vec<_>, Vec<_>) =
            names.iter().map(|name| (*name).to_owned()).partition(|name| name.contains("://"));
        let mut params = CertificateParams::new(names).expect("the names are valid");
        let uris = uris.into_iter().map(|uri| SanType::URI(uri.try_into().expect("a URI is ASCII")));
        params.subject_alt_names.extend(uris);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        match validity {
            Validity::Valid => {}
            Validity::Expired => params.not_after = date_time_ymd(2001, 1, 1),
            Validity::NotYetValid => params.not_before = date_time_ymd(4000, 1, 1),
            Validity::Until(end) => params.not_after = end.into(),
            Validity::From(begin) => params.not_before = begin.into(),
        }
        let key = KeyPair::generate().expect("the system has random numbers");
        let certificate = params.signed_by(&key, &self.0).expect("the parameters are valid");
        Issued { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// The configuration of a client that trusts this authority and speaks `versions`, with a certificate of its own or without.
    ///
    /// # Panics
    ///
    /// Panics if `identity` is malformed.
    pub fn client(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        identity: Option<&Issued>,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("it is a certificate");
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .expect("ring has every version")
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).collect::<Result<_, _>>();
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("it is a key");
                builder.with_client_auth_cert(chain.expect("it is a chain"), key).expect("the key fits")
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

impl Issued {
    /// The configuration of a server with this certificate.
    ///
    /// # Panics
    ///
    /// Panics if the certificate is malformed.
    pub fn server(&self) -> TlsConfig {
        TlsConfig::new(self.certificate.as_str(), self.key.as_str()).expect("the certificate was issued for the key")
    }
}

/// The TLS of the servers and clients of this process that the kit starts over TLS.
struct ProcessTls {
    server: TlsConfig,
    client: Arc<ClientConfig>,
}

/// What a client needs to speak TLS to a server.
#[derive(Clone)]
pub(crate) struct ServerTrust {
    config: Arc<ClientConfig>,
    /// The name that the certificate must have.
    name: ServerName<'static>,
    /// The server has sent nothing at the end of a handshake: no tickets.
    is_quiet: Arc<AtomicBool>,
}

impl ServerTrust {
    /// The TLS of a socket on which nothing was sent.
    pub(crate) fn stream(&self, socket: TcpStream) -> TlsStream {
        TlsStream::to(socket, Arc::clone(&self.config), self.name.clone())
    }

    /// [`TlsStream::shake_hands`], which waits for a server without tickets only once.
    ///
    /// # Errors
    ///
    /// Returns an error if the handshake fails, or has not ended at `deadline`.
    pub(crate) fn shake_hands(&self, stream: &TlsStream, deadline: Instant) -> io::Result<()> {
        stream.end_handshake(deadline)?;
        if !self.is_quiet.load(Ordering::Relaxed) && !stream.await_server(deadline)? {
            self.is_quiet.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// The servers of this process' clients that speak TLS.
static ADDRESSES: LazyLock<Mutex<BTreeMap<SocketAddr, ServerTrust>>> = LazyLock::new(Mutex::default);

static SHARED: LazyLock<ProcessTls> = LazyLock::new(|| {
    let authority = TestAuthority::new();
    let client = authority.client(rustls::DEFAULT_VERSIONS, None);
    ProcessTls { server: authority.issue().server(), client }
});

/// Adds the TLS of this process to `config`.
pub(crate) fn configured(config: ServerConfig) -> ServerConfig {
    config.tls(SHARED.server.clone())
}

/// Notes whether the server that listens at `addr` speaks TLS, so that clients do.
pub(crate) fn note_server(addr: SocketAddr, has_tls: bool) {
    match has_tls {
        true => trust(addr, Arc::clone(&SHARED.client), loopback()),
        false => forget(addr),
    }
}

/// The name in the certificates of the kit's own servers.
fn loopback() -> ServerName<'static> {
    IpAddr::V4(Ipv4Addr::LOCALHOST).into()
}

/// From now on, every [`Client`](crate::client::Client) of this process that connects to `addr` speaks TLS. It trusts a server
/// with a certificate for `name`, by the rules of `config`.
pub fn trust(addr: SocketAddr, config: Arc<ClientConfig>, name: ServerName<'static>) {
    lock(&ADDRESSES).insert(addr, ServerTrust { config, name, is_quiet: Arc::default() });
}

/// From now on, clients that connect to `addr` do not speak TLS: another server may have the address.
pub fn forget(addr: SocketAddr) {
    lock(&ADDRESSES).remove(&addr);
}

/// What a client of the server at `addr` needs, if that speaks TLS.
pub(crate) fn trust_of(addr: SocketAddr) -> Option<ServerTrust> {
    lock(&ADDRESSES).get(&addr).cloned()
}

#[cfg(test)]
mod tests;
