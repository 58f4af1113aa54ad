//! The arguments of `polyserve serve` about TLS and the network, and new certificates while it serves.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use polyserve::env::{TLS_CERT, TLS_CLIENT_CA, TLS_KEY, TRUST_NETWORK, switch};
use polyserve::signals::on_hangup;
use polyserve::{TlsConfig, TlsError};
use polyserve_bench::Misuse;

use super::admin::given;

/// The arguments about TLS and the network.
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
    /// Serve beyond loopback without client certificates: every client that reaches the address may read and change all entities.
    /// [env: POLYSERVE_TRUST_NETWORK] [default: false]
    #[arg(long)]
    trust_network: bool,
}

/// The time between two looks at the files. A change is used when it is seen twice.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

impl TlsArgs {
    /// The TLS that the flags ask for, or else the environment. To be called before the signals are taken over: SIGHUP then reads
    /// the files again.
    pub(crate) fn config(&self) -> anyhow::Result<Option<TlsConfig>> {
        let certificate = given("--tls-cert", self.tls_cert.as_deref(), TLS_CERT)?;
        let key = given("--tls-key", self.tls_key.as_deref(), TLS_KEY)?;
        let client_ca = given("--tls-client-ca", self.tls_client_ca.as_deref(), TLS_CLIENT_CA)?;
        let ((_, certificate), (_, key)) = match (certificate, key, &client_ca) {
            (Some(certificate), Some(key), _) => (certificate, key),
            (None, None, None) => return Ok(None),
            (Some((source, _)), None, _) => return Err(Misuse(format!("{source} also needs --tls-key")).into()),
            (None, Some((source, _)), _) => return Err(Misuse(format!("{source} also needs --tls-cert")).into()),
            (None, None, Some((source, _))) => {
                return Err(Misuse(format!("{source} also needs --tls-cert and --tls-key")).into());
            }
        };
        let wrong = |error: TlsError| Misuse(error.to_string());
        let mut tls = TlsConfig::new(PathBuf::from(certificate), PathBuf::from(key)).map_err(wrong)?;
        if let Some((_, client_ca)) = client_ca {
            tls = tls.with_client_ca(PathBuf::from(client_ca)).map_err(wrong)?;
        }
        let mut reload = Reload { tls: tls.clone(), refused: None };
        on_hangup(LOOK_PAUSE, move |is_asked| reload.run(is_asked)).context("SIGHUP cannot be taken over")?;
        Ok(Some(tls))
    }

    /// Checks that other machines cannot reach a server at `addr` without a certificate, unless the network is trusted.
    pub(crate) fn check_address(&self, addr: SocketAddr) -> anyhow::Result<()> {
        let has_client_ca = given("--tls-client-ca", self.tls_client_ca.as_deref(), TLS_CLIENT_CA)?.is_some();
        let is_trusted = self.trust_network || switch(TRUST_NETWORK, std::env::var_os(TRUST_NETWORK))?;
        if addr.ip().to_canonical().is_loopback() || has_client_ca || is_trusted {
            return Ok(());
        }
        let why = format!(
            "{addr} can be reached from other machines, and every client may read and change all entities: ask for client \
             certificates by --tls-cert, --tls-key and --tls-client-ca; or add --trust-network, for example behind a proxy"
        );
        Err(Misuse(why).into())
    }
}

/// Reads the files of a server again.
struct Reload {
    tls: TlsConfig,
    /// The last error. A file that stays unreadable is logged once.
    refused: Option<TlsError>,
}

impl Reload {
    /// `is_asked`: by a signal. Otherwise, only changed files are read.
    fn run(&mut self, is_asked: bool) {
        let result = if is_asked { self.tls.reload().map(|()| true) } else { self.tls.reload_if_changed() };
        match result {
            Ok(false) => {}
            Ok(true) => {
                self.refused = None;
                tracing::info!("the TLS certificate was read again");
            }
            Err(error) if !is_asked && self.refused.as_ref() == Some(&error) => {}
            Err(error) => {
                tracing::error!(%error, "the new TLS certificate is refused, and the old one stays in use");
                self.refused = Some(error);
            }
        }
    }
}
