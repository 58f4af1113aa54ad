//! The arguments of `polyserve serve` about access: the file of users, the hosts, and the network.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use polyserve::access::{AllowedHosts, Authenticated, InvalidHost, Refusals, Users};
use polyserve::env::{HOSTS, TOKENS, TRUST_NETWORK, switch};
use polyserve::files::read_settings_text;
use polyserve::{Echo, Service};
use polyserve_bench::Misuse;

use super::admin::given;

/// The arguments about users, hosts and the network.
#[derive(Debug, clap::Args)]
pub(crate) struct AccessArgs {
    /// A file with a line for each token: NAME SCOPES sha256:HASH. `polyserve token` prints such a line. Requests need the token of a
    /// user: `Authorization: Bearer TOKEN`. With --tls-client-ca, a line NAME SCOPES san:NAME is the user of a client certificate that
    /// has this subject alternative name, a DNS name or a URI; it needs no token. GET, HEAD and OPTIONS need the scope `read`, all others `write`. The path of --ready
    /// needs none. On SIGHUP, and if it changes, the file is read again. A file with a mistake is logged, and the old users stay.
    /// [env: POLYSERVE_TOKENS] [default: none]
    #[arg(long, value_name = "FILE")]
    tokens: Option<String>,
    /// The hosts that requests may name, with a comma between them: names or addresses, with or without a port. A request for
    /// another host gets a 421. The path of --ready is for all. [env: POLYSERVE_HOSTS] [default: any]
    #[arg(long, value_name = "HOST,...")]
    hosts: Option<String>,
    /// Serve beyond loopback without TLS, or without knowing the users, or with an --admin address: every client that reaches the address
    /// is trusted.
    /// [env: POLYSERVE_TRUST_NETWORK] [default: false]
    #[arg(long)]
    trust_network: bool,
}

/// The users and hosts of a server, and whether its network is trusted.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) tokens: Option<TokensFile>,
    hosts: Option<String>,
    trusts_network: bool,
}

impl AccessArgs {
    /// What the flags ask for, or else the environment. `has_client_ca`: clients show certificates.
    pub(crate) fn access(&self, has_client_ca: bool) -> anyhow::Result<Access> {
        let tokens = given("--tokens", self.tokens.as_deref(), TOKENS)?;
        let tokens = tokens.map(|(source, path)| TokensFile::open(source, path.into(), has_client_ca)).transpose()?;
        let hosts = given("--hosts", self.hosts.as_deref(), HOSTS)?;
        if let Some((source, hosts)) = &hosts {
            // A mistake is found before the repo is opened.
            let _ = allowed(Echo, hosts).map_err(|error| Misuse(format!("{source}: {error}")))?;
        }
        let hosts = hosts.map(|(_, hosts)| hosts);
        let trusts_network = self.trust_network || switch(TRUST_NETWORK, std::env::var_os(TRUST_NETWORK))?;
        Ok(Access { tokens, hosts, trusts_network })
    }
}

impl Access {
    /// Checks that a server at `addr` serves other machines only over TLS, and only if their users are known; unless the network is
    /// trusted.
    pub(crate) fn check_address(&self, addr: SocketAddr, has_tls: bool, has_client_ca: bool) -> Result<(), Misuse> {
        let knows_users = has_tls && (has_client_ca || self.tokens.is_some());
        if addr.ip().to_canonical().is_loopback() || knows_users || self.trusts_network {
            return Ok(());
        }
        Err(Misuse(format!(
            "listen: {addr} can be reached from other machines: it needs --tls-cert and --tls-key, with --tokens or --tls-client-ca; or \
             --trust-network, for example behind a proxy"
        )))
    }

    /// Checks that other machines reach the admin address only if the network is trusted: it has no authentication.
    pub(crate) fn check_admin(&self, addr: SocketAddr) -> Result<(), Misuse> {
        if addr.ip().to_canonical().is_loopback() || self.trusts_network {
            return Ok(());
        }
        Err(Misuse(format!(
            "--admin {addr} can be reached from other machines, and the admin address knows no users: it must be an address of \
             loopback; or --trust-network, for example for the probes of Kubernetes behind a network policy"
        )))
    }

    /// Checks that the server `name`, which asks no service, is not to judge its clients.
    pub(crate) fn check_reference(&self, name: &str) -> Result<(), Misuse> {
        if self.tokens.is_none() && self.hosts.is_none() {
            return Ok(());
        }
        Err(Misuse(format!("the reference {name} serves all clients: leave --tokens and --hosts out")))
    }

    /// The service behind the checks of users and hosts. `open_path` needs neither.
    pub(crate) fn over(
        &self,
        mut service: Arc<dyn Service>,
        open_path: Option<&str>,
        refusals: &Refusals,
    ) -> Result<Arc<dyn Service>, InvalidHost> {
        if let Some(tokens) = &self.tokens {
            let users = Authenticated::new(service, tokens.users.clone());
            service = Arc::new(users.with_open_path(open_path.map(str::to_owned)).with_refusals(refusals.clone()));
        }
        if let Some(hosts) = &self.hosts {
            let hosts = allowed(service, hosts)?;
            service = Arc::new(hosts.with_open_path(open_path.map(str::to_owned)).with_refusals(refusals.clone()));
        }
        Ok(service)
    }
}

/// The service for requests that name one of `hosts`.
fn allowed(service: impl Service, hosts: &str) -> Result<AllowedHosts, InvalidHost> {
    AllowedHosts::new(service, hosts.split(',').map(str::trim))
}

/// The users of a server, and the file that they were read from.
#[derive(Clone, Debug)]
pub(crate) struct TokensFile {
    path: PathBuf,
    /// Clients show certificates, so users may have some.
    has_client_ca: bool,
    users: Users,
    /// The text that is in use, or that was refused last.
    judged: String,
    /// A text that was seen once. It is used if it is seen twice: it may be written at this moment.
    changed: Option<String>,
}

impl TokensFile {
    fn open(source: &'static str, path: PathBuf, has_client_ca: bool) -> Result<Self, Misuse> {
        let read = || {
            let judged = read_settings_text(&path).map_err(|error| error.to_string())?;
            Ok((parsed(&judged, has_client_ca)?, judged))
        };
        let (users, judged) = read().map_err(|why: String| Misuse(format!("{source} {}: {why}", path.display())))?;
        warn_of_mode(&path);
        Ok(Self { path, has_client_ca, users, judged, changed: None })
    }

    /// Reads the file again. Returns whether it was used. `is_asked`: else only a changed file is judged.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the file. Then the old users stay.
    pub(crate) fn reload(&mut self, is_asked: bool) -> Result<bool, String> {
        let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", self.path.display());
        let text = read_settings_text(&self.path).map_err(|error| wrong(&error))?;
        if !is_asked {
            if text == self.judged {
                self.changed = None;
                return Ok(false);
            }
            if self.changed.as_ref() != Some(&text) {
                self.changed = Some(text);
                return Ok(false);
            }
        }
        let result = parsed(&text, self.has_client_ca)
            .and_then(|_| self.users.replace(&text).map_err(|error| error.to_string()));
        let result = result.map_err(|why| wrong(&why));
        (self.judged, self.changed) = (text, None);
        result.map(|()| {
            warn_of_mode(&self.path);
            true
        })
    }
}

/// The users of a text. Those with certificates need clients that show some.
fn parsed(text: &str, has_client_ca: bool) -> Result<Users, String> {
    let users = Users::parse(text).map_err(|error| error.to_string())?;
    if users.have_certificates() && !has_client_ca {
        return Err("it has users with certificates (san:NAME), and needs --tls-client-ca".to_owned());
    }
    Ok(users)
}

/// Warns of a file that other users of the machine may read or change.
fn warn_of_mode(path: &Path) {
    const OTHERS: u32 = 0o026; // read or write by others, or write by the group
    if let Ok(file) = fs::metadata(path)
        && file.permissions().mode() & OTHERS != 0
    {
        let mode = format!("{:o}", file.permissions().mode() & 0o777);
        tracing::warn!(path = %path.display(), mode, "other users of this machine may read or change the file of tokens");
    }
}
