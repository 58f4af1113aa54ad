//! Certificates for tests of TLS, and the TLS of the kit's client.
//!
//! An [`TestAuthority`] issues certificates that are made for one run, so no key stands in a file.

mod stream;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use polyserve_core::sync::{Mutex, lock};
use polyserve_core::{ServerConfig, TlsConfig};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

pub use stream::TlsStream;
pub(crate) use stream::is_rejection;

/// An authority that issues certificates for a test.
#[derive(Debug)]
pub struct TestAuthority(CertifiedIssuer<'static, KeyPair>);

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
        let (uris, names): (Vec<_>, Vec<_>) =
            names.iter().map(|name| (*name).to_owned()).partition(|name| name.contains("://"));
        let mut params = CertificateParams::new(names).expect("the names are valid");
        let uris = uris.into_iter().map(|uri| SanType::URI(uri.try_into().expect("a URI is ASCII")));
        params.subject_alt_names.extend(uris);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
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
    /// Whether the server at an address speaks TLS.
    addresses: Mutex<HashMap<SocketAddr, bool>>,
}

fn shared() -> &'static ProcessTls {
    static SHARED: OnceLock<ProcessTls> = OnceLock::new();
    SHARED.get_or_init(|| {
        let authority = TestAuthority::new();
        let client = authority.client(rustls::DEFAULT_VERSIONS, None);
        ProcessTls { server: authority.issue().server(), client, addresses: Mutex::default() }
    })
}

/// Adds the TLS of this process to `config`.
pub(crate) fn configured(config: ServerConfig) -> ServerConfig {
    config.tls(shared().server.clone())
}

/// Notes whether the server that listens at `addr` speaks TLS, so that clients do.
pub(crate) fn note_server(addr: SocketAddr, has_tls: bool) {
    lock(&shared().addresses).insert(addr, has_tls);
}

/// The configuration of a client of the server at `addr`, if that speaks TLS.
pub(crate) fn client_of(addr: SocketAddr) -> Option<Arc<ClientConfig>> {
    let shared = shared();
    lock(&shared.addresses).get(&addr).is_some_and(|has_tls| *has_tls).then(|| Arc::clone(&shared.client))
}
