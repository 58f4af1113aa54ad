//! The URL of a database: what the client library reads, and the parameters of TLS, which it does not know.
//!
//! `sslmode` means what it means to libpq, but for `prefer` (the default) and `allow`, which are `disable` here: a connection that may
//! be encrypted or not protects from nothing.

use std::path::PathBuf;

use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, SslNegotiation, TargetSessionAttrs};

use crate::error::ConnectError;
use crate::tls::{EngineTls, NameCheck};

/// What a URL and the options say.
#[derive(Debug)]
pub(super) struct DatabaseUrl {
    pub(super) config: Config,
    /// How connections speak TLS, if they do.
    pub(super) tls: Option<rustls::ClientConfig>,
}

/// The parameters of TLS in a URL.
#[derive(Debug, Default)]
struct TlsParameters {
    mode: Option<String>,
    root: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl TlsParameters {
    /// Takes the parameters of TLS out of a URL. Their values are paths, in which `%` begins a byte in hexadecimal digits.
    fn take(url: &str) -> (String, Self) {
        let mut parameters = Self::default();
        // A password before the `@` of the authority may have a `?`.
        let authority = url.find("://").map_or(0, |scheme| scheme + 3);
        let path = url[authority..].find('/').map_or(url.len(), |path| authority + path);
        let host = url[authority..path].find('@').map_or(authority, |at| authority + at);
        let Some((before, query)) = url[host..].split_once('?') else { return (url.to_owned(), parameters) };
        let before = &url[..host + before.len()];
        let mut rest: Vec<&str> = Vec::new();
        for parameter in query.split('&') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match &*decoded(name) {
                "sslmode" => parameters.mode = Some(decoded(value)),
                "sslrootcert" => parameters.root = Some(decoded(value).into()),
                "sslcert" => parameters.certificate = Some(decoded(value).into()),
                "sslkey" => parameters.key = Some(decoded(value).into()),
                _ => rest.push(parameter),
            }
        }
        let separator = if rest.is_empty() { "" } else { "?" };
        (format!("{before}{separator}{}", rest.join("&")), parameters)
    }
}

/// A value with its bytes in hexadecimal digits decoded.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The settings in a URL. Of several hosts, the primary is used: a standby may have an old value. What the URL says of TLS replaces
/// `tls`.
pub(super) fn parsed(url: &str, tls: Option<EngineTls>) -> Result<DatabaseUrl, ConnectError> {
    // The URL may have a password, so messages do not show it.
    let invalid = |error| {
        ConnectError::caused(
            "the PostgreSQL URL is invalid; an example: postgres://user@127.0.0.1:5432/database",
            error,
        )
    };
    let (url, parameters) = TlsParameters::take(url);
    let mut config: Config = url.parse().map_err(invalid)?;
    // The client also takes `name=value` pairs, in which it would be the one that reads `sslmode`.
    let is_url = ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme));
    if !is_url || config.get_ssl_mode() == SslMode::Require {
        let what = "the PostgreSQL URL is invalid: it has to be a URL, with each `?` of the password as %3F; an example: \
                    postgres://user@127.0.0.1:5432/database";
        return Err(ConnectError::new(what));
    }
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(ConnectError::new(
            "the PostgreSQL URL has no host; an example: postgres://user@127.0.0.1:5432/database",
        ));
    }
    let addresses = config.get_hosts().len().max(config.get_hostaddrs().len());
    if addresses > 1 && config.get_target_session_attrs() == TargetSessionAttrs::Any {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    let tls = configured(&mut config, parameters, tls.unwrap_or_default())?;
    Ok(DatabaseUrl { config, tls })
}

/// The TLS of connections, by the mode.
fn configured(
    config: &mut Config,
    parameters: TlsParameters,
    options: EngineTls,
) -> Result<Option<rustls::ClientConfig>, ConnectError> {
    let TlsParameters { mode, root, certificate, key } = parameters;
    let files = EngineTls::from_files(root.as_deref(), certificate.as_deref(), key.as_deref());
    let files = files.map_err(|error| ConnectError::new(format!("the PostgreSQL URL: {error}")))?.unwrap_or_default();
    let tls = EngineTls { ca: files.ca.or(options.ca), identity: files.identity.or(options.identity) };
    if config.get_ssl_negotiation() == SslNegotiation::Direct {
        return Err(ConnectError::new("the PostgreSQL URL: sslnegotiation=direct is not supported; leave it out"));
    }
    let names = match mode.as_deref() {
        None | Some("disable" | "allow" | "prefer") => {
            config.ssl_mode(SslMode::Disable);
            return Ok(None);
        }
        Some("require" | "verify-ca") => NameCheck::Any,
        Some("verify-full") => NameCheck::Full,
        Some(other) => {
            let modes = "disable, require, verify-ca or verify-full";
            return Err(ConnectError::new(format!("the PostgreSQL URL: sslmode={other} is unknown; it is {modes}")));
        }
    };
    if tls.ca.is_none() && mode.as_deref() != Some("require") {
        let mode = mode.unwrap_or_default();
        let what = format!("the PostgreSQL URL: sslmode={mode} needs the file of authorities: sslrootcert=FILE");
        return Err(ConnectError::new(what));
    }
    config.ssl_mode(SslMode::Require);
    tls.config("PostgreSQL", names).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_primary_of_several_hosts_is_used() {
        let session = |url: &str| parsed(url, None).expect("the URL is valid").config.get_target_session_attrs();
        assert_eq!(session("postgres://user@one,two/database"), TargetSessionAttrs::ReadWrite);
        assert_eq!(session("postgres://user@/database?hostaddr=127.0.0.1,127.0.0.2"), TargetSessionAttrs::ReadWrite);
        assert_eq!(session("postgres://user@one/database"), TargetSessionAttrs::Any);
        let chosen = "postgres://user@one,two/database?target_session_attrs=read-only";
        assert_eq!(session(chosen), TargetSessionAttrs::ReadOnly);
    }

    #[test]
    fn modes_of_tls() {
        let of = |query: &str| parsed(&format!("postgres://user:secret@one/database{query}"), None);
        for query in ["", "?sslmode=disable", "?sslmode=prefer&application_name=a"] {
            let parsed = of(query).expect(query);
            assert!(parsed.tls.is_none() && parsed.config.get_ssl_mode() == SslMode::Disable, "{query}");
        }
        let required = of("?application_name=a&sslmode=require").expect("it needs no authority");
        assert_eq!((required.tls.is_some(), required.config.get_ssl_mode()), (true, SslMode::Require));
        assert_eq!(required.config.get_application_name(), Some("a"));
        for (query, why) in [
            ("?sslmode=verify-full", "needs the file of authorities: sslrootcert=FILE"),
            ("?sslmode=verify-ca", "needs the file of authorities: sslrootcert=FILE"),
            ("?sslmode=verify-full&sslrootcert=%2Fno%2Fsuch%20file", "/no/such file cannot be read"),
            ("?sslmode=require&sslcert=a", "belong together"),
            ("?sslmode=most", "sslmode=most is unknown"),
            // Regression test: it was dropped.
            ("?sslmode=require&sslnegotiation=direct", "sslnegotiation=direct"),
            ("?sslnegotiation=direct", "sslnegotiation=direct"),
        ] {
            let error = of(query).expect_err(query).to_string();
            assert!(error.contains(why) && error.contains("PostgreSQL") && !error.contains("secret"), "{error}");
        }
        // Regression test: the `?` of a password hid `sslmode` from the store, which then did without TLS.
        for url in ["postgres://app:pa?ss@one/d?sslmode=require", "postgresql://app:p%3F@one/d?%73slmode=require"] {
            let required = parsed(url, None).expect(url);
            assert_eq!((required.tls.is_some(), required.config.get_ssl_mode()), (true, SslMode::Require), "{url}");
        }
        assert_eq!(parsed("postgres://app:pa?ss@one/d", None).unwrap().config.get_password(), Some(&b"pa?ss"[..]));
        for (text, why) in [
            ("host=one user=app password=secret sslmode=require", "is invalid"),
            ("host=one user=app password=secret", "is invalid"),
            ("postgres://app:secret/?@one/d?sslmode=require", "is invalid"),
        ] {
            let error = parsed(text, None).expect_err(text).to_string();
            assert!(error.contains(why) && error.contains("PostgreSQL") && !error.contains("secret"), "{error}");
        }
        let tls = EngineTls::new("no certificate");
        let error =
            parsed("postgres://user:secret@one/database?sslmode=verify-full", Some(tls)).unwrap_err().to_string();
        assert!(error.contains("PostgreSQL: the authorities cannot be used"), "{error}");
    }
}
