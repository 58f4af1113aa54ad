//! The TLS of a run: a certificate that is made for it, which all contestants show and the load generator verifies.
//!
//! Cost: an authority and a certificate (ECDSA with P-256), once a run.

use polyserve_conformance::tls::{Issued, TestAuthority};
use polyserve_load::{ClientTls, LoadError};

use super::contestant::Contestant;

/// A certificate of a run, and the client that trusts it.
#[derive(Debug)]
pub struct RunTls {
    issued: Issued,
    client: ClientTls,
}

/// The names of the files with the certificate and its key in the directory of a start.
const CERTIFICATE: &str = "cert.pem";
const KEY: &str = "key.pem";

impl RunTls {
    /// Makes a certificate for 127.0.0.1.
    ///
    /// # Errors
    ///
    /// Returns an error if the client refuses it, which never happens.
    pub fn new() -> Result<Self, LoadError> {
        let authority = TestAuthority::new();
        let client = ClientTls::for_measurements("127.0.0.1", authority.pem().as_bytes())?;
        Ok(Self { issued: authority.issue(), client })
    }

    /// The flags with which `polyserve serve` speaks TLS, with the files of [`apply`](Self::apply).
    pub fn flags() -> [String; 2] {
        [format!("--tls-cert={{dir}}/{CERTIFICATE}"), format!("--tls-key={{dir}}/{KEY}")]
    }

    /// Gives a contestant the files of the certificate and of its key, in the `{dir}` of its launch, and the client that trusts it.
    pub fn apply(&self, contestant: &mut Contestant) {
        let files = [(CERTIFICATE, &self.issued.certificate), (KEY, &self.issued.key)];
        contestant.launch.files.extend(files.map(|(name, text)| (name.to_owned(), text.clone())));
        contestant.tls = Some(self.client.clone());
    }
}
