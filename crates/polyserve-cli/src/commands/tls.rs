//! The arguments of `polyserve serve` about TLS.

use std::path::PathBuf;

use polyserve::TlsConfig;
use polyserve::env::{TLS_CERT, TLS_CLIENT_CA, TLS_KEY};
use polyserve_bench::Misuse;

use super::admin::given;

/// The arguments about TLS.
#[derive(Debug, clap::Args)]
pub(crate) struct TlsArgs {
    /// The file of the certificate, followed by those of its issuers, in PEM form: the server speaks HTTPS. On SIGHUP, and if they
    /// change, the files are read again. A pair that cannot be used is logged, and the old one stays in use.
    /// [env: POLYSERVE_TLS_CERT] [default: none]
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<String>,
    /// The file of the certificate's key, in PEM form. [env: POLYSERVE_TLS_KEY] [default: none]
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,
    /// The file of authorities, in PEM form: only clients with a certificate of one of them are served.
    /// [env: POLYSERVE_TLS_CLIENT_CA] [default: none]
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<String>,
}

impl TlsArgs {
    /// The TLS that the flags ask for, or else the environment.
    pub(crate) fn config(&self) -> anyhow::Result<Option<TlsConfig>> {
        let certificate = given("--tls-cert", self.tls_cert.as_deref(), TLS_CERT)?;
        let key = given("--tls-key", self.tls_key.as_deref(), TLS_KEY)?;
        let client_ca = given("--tls-client-ca", self.tls_client_ca.as_deref(), TLS_CLIENT_CA)?;
        let ((cert_source, certificate), (key_source, key)) = match (certificate, key, &client_ca) {
            (Some(certificate), Some(key), _) => (certificate, key),
            (None, None, None) => return Ok(None),
            (Some((source, _)), None, _) => return Err(Misuse(format!("{source} also needs --tls-key")).into()),
            (None, Some((source, _)), _) => return Err(Misuse(format!("{source} also needs --tls-cert")).into()),
            (None, None, Some((source, _))) => {
                return Err(Misuse(format!("{source} also needs --tls-cert and --tls-key")).into());
            }
        };
        let mut tls = TlsConfig::new(PathBuf::from(certificate), PathBuf::from(key))
            .map_err(|error| Misuse(format!("{cert_source} and {key_source}: {error}")))?;
        if let Some((source, client_ca)) = client_ca {
            let wrong = |error| Misuse(format!("{source}: {error}"));
            tls = tls.with_client_ca(PathBuf::from(client_ca)).map_err(wrong)?;
        }
        if let Err(error) = tls.check_time() {
            tracing::warn!(%error, "clients refuse the certificate");
        }
        Ok(Some(tls))
    }

    /// Whether clients are asked for certificates.
    pub(crate) fn has_client_ca(&self) -> Result<bool, Misuse> {
        Ok(given("--tls-client-ca", self.tls_client_ca.as_deref(), TLS_CLIENT_CA)?.is_some())
    }
}
