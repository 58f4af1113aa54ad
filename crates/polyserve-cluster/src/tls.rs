//! [`EngineTls`]: the authorities that a store trusts, and its own certificate.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use polyserve_core::files::{read_settings, unreadable_key};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::error::ConnectError;

/// How a store speaks TLS to its engine: the authorities that may have issued the engine's certificate, and a certificate of the store.
///
/// The authorities of the system are not trusted: an engine's authority is one's own.
#[derive(Clone, Default)]
pub struct EngineTls {
    pub(crate) ca: Option<Vec<u8>>,
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl EngineTls {
    /// Trusts a certificate for the host of the URL if an authority of `ca` has issued it. `ca` is in PEM form.
    pub fn new(ca: impl Into<Vec<u8>>) -> Self {
        Self { ca: Some(ca.into()), identity: None }
    }

    /// The same, with a certificate for an engine that asks for one: the chain and the key of its first certificate, in PEM form.
    #[must_use]
    pub fn with_certificate(self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        Self { identity: Some((chain.into(), key.into())), ..self }
    }

    /// Reads the files of the authorities, of the certificate and of its key. Returns `None` if none of them is given.
    ///
    /// # Errors
    ///
    /// Returns an error that names the file that cannot be read, or if there is a certificate without a key, or a key without a
    /// certificate.
    pub fn from_files(ca: Option<&Path>, chain: Option<&Path>, key: Option<&Path>) -> io::Result<Option<Self>> {
        let read = |path: &Path| {
            let content = read_settings(path);
            content.map_err(|error| io::Error::new(error.kind(), format!("{} cannot be read: {error}", path.display())))
        };
        let identity = match (chain, key) {
            (Some(chain), Some(key)) => Some((read(chain)?, read(key)?)),
            (None, None) => None,
            _ => return Err(io::Error::other("the certificate of a store and its key belong together")),
        };
        let ca = ca.map(read).transpose()?;
        Ok((ca.is_some() || identity.is_some()).then_some(Self { ca, identity }))
    }

    /// Checks that everything can be used. `engine` is in the error.
    #[cfg(any(feature = "etcd", feature = "redis"))]
    pub(crate) fn check(&self, engine: &str) -> Result<(), ConnectError> {
        self.config(engine, NameCheck::Full).map(drop)
    }

    /// The configuration of a client.
    pub(crate) fn config(&self, engine: &str, names: NameCheck) -> Result<ClientConfig, ConnectError> {
        let provider = Arc::new(ring::default_provider());
        let invalid = |what: &str, error: &dyn fmt::Display| ConnectError::new(format!("{engine}: {what}: {error}"));
        let verifier: Option<Arc<WebPkiServerVerifier>> = match &self.ca {
            None => None,
            Some(ca) => {
                let wrong = |error: &dyn fmt::Display| invalid("the authorities cannot be used", error);
                let mut roots = RootCertStore::empty();
                for authority in CertificateDer::pem_slice_iter(ca) {
                    roots.add(authority.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
                }
                let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
                Some(verifier.build().map_err(|error| wrong(&error))?)
            }
        };
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| invalid("TLS", &error))?.dangerous();
        let builder = builder.with_custom_certificate_verifier(match (verifier, names) {
            (Some(verifier), NameCheck::Full) => verifier,
            (verifier, _) => Arc::new(AnyName { verifier, provider }),
        });
        let Some((chain, key)) = &self.identity else { return Ok(builder.with_no_client_auth()) };
        let wrong = |error: &dyn fmt::Display| invalid("the certificate of the store cannot be used", error);
        let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>();
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| wrong(&format_args!("its key {}", unreadable_key(key, &error))))?;
        builder.with_client_auth_cert(chain.map_err(|error| wrong(&error))?, key).map_err(|error| wrong(&error))
    }
}

impl fmt::Debug for EngineTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (has_ca, has_certificate) = (self.ca.is_some(), self.identity.is_some());
        f.debug_struct("EngineTls").field("has_ca", &has_ca).field("has_certificate", &has_certificate).finish()
    }
}

/// Whether the certificate must have the name of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameCheck {
    Full,
    /// Any name will do, and without authorities any certificate.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "only PostgreSQL has URLs that ask for it"))]
    Any,
}

/// Accepts a certificate with any name, if an authority has issued it; without authorities, any certificate. A server still proves that
/// it has the key.
#[derive(Debug)]
struct AnyName {
    verifier: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        let Some(verifier) = &self.verifier else { return Ok(ServerCertVerified::assertion()) };
        // The name is looked at last.
        match verifier.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
