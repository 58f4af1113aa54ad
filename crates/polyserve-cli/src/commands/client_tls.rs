//! The flags of a client that speaks TLS: of `load` and `check`.

use std::path::{Path, PathBuf};

use polyserve::files::read_settings;
use polyserve_bench::Misuse;
use polyserve_load::ClientTls;

use super::load::url::Url;
use super::workload::misuse;

/// The arguments of a command with an https server.
#[derive(Debug, clap::Args)]
pub(crate) struct ClientTlsArgs {
    /// The file of authorities, in PEM form, that may have issued the certificate of an https server.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca: Option<PathBuf>,
    /// Accept any certificate of an https server: for tests.
    #[arg(long)]
    insecure: bool,
    /// The file of a certificate, in PEM form, for an https server that asks clients for one.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The file of the certificate's key, in PEM form.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

impl ClientTlsArgs {
    /// The name of a flag that is given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let flags =
            [(self.ca.is_some(), "--ca"), (self.insecure, "--insecure"), (self.cert.is_some(), "--cert and --key")];
        flags.into_iter().find_map(|(is_given, flag)| is_given.then_some(flag))
    }

    /// The TLS of a client of `server`, if that is one of https.
    ///
    /// # Errors
    ///
    /// Returns [`Misuse`] if an https server is trusted in no way, if a flag is for https and the server is not, or if a file cannot be
    /// used.
    pub(crate) fn client(&self, server: &Url) -> anyhow::Result<Option<ClientTls>> {
        let made = match (&self.ca, self.insecure) {
            (None, false) if server.is_https() => {
                return Err(Misuse(format!("{server} is https: add --ca FILE, or --insecure for a test")).into());
            }
            (None, false) if self.cert.is_some() => {
                return Err(Misuse(format!("--cert and --key are for https, and {server} is not")).into());
            }
            (None, false) => return Ok(None),
            _ if !server.is_https() => {
                return Err(Misuse(format!("--ca and --insecure are for https, and {server} is not")).into());
            }
            (None, true) => ClientTls::insecure(server.name()),
            (Some(file), _) => ClientTls::new(server.name(), &read("--ca", file)?),
        };
        let tls = made.map_err(misuse)?;
        let (Some(certificate), Some(key)) = (&self.cert, &self.key) else { return Ok(Some(tls)) };
        Ok(Some(tls.with_certificate(&read("--cert", certificate)?, &read("--key", key)?).map_err(misuse)?))
    }
}

fn read(flag: &str, file: &Path) -> Result<Vec<u8>, Misuse> {
    read_settings(file).map_err(|error| Misuse(format!("{flag} {} cannot be read: {error}", file.display())))
}
