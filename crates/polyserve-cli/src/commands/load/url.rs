//! `http://HOST:PORT/PATH`, or the same with `https`, and nothing else.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::str::FromStr;
use std::time::Duration;

use anyhow::anyhow;
use polyserve::resolve_addresses;
use polyserve_bench::Misuse;

/// A server and a path on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// Whether the scheme is https.
    is_https: bool,
    /// Host and port as given, for the `Host` field.
    host: String,
    /// Host and port.
    address: String,
    path: String,
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let no = |why: &str| format!("{why}: the URL must be http://HOST:PORT/PATH");
        if let Some(letter) = text.chars().find(|letter| !letter.is_ascii()) {
            return Err(no(&format!("{letter:?} is not ASCII, and must be percent-encoded, or a host in Punycode")));
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(|| no("this is no URL"))?;
        let is_https = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(no("this is not http")),
        };
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, path) = rest.split_at(end);
        if host.contains('@') {
            return Err(no("a user name is not supported"));
        }
        let (name, port) = match host.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
            Some((name, port)) => (name, Some(port)),
            None => (host, None),
        };
        if port.is_some_and(|port| !is_port(port)) {
            return Err(no("the port is not a number from 1 to 65535"));
        }
        let is_name =
            |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        let is_v6 = |name: &str| {
            let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
            inner.is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok())
        };
        if !is_name(name) && !is_v6(name) {
            return Err(no("the host is not a name or an IP address"));
        }
        if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(no("the path has blanks or control characters, which must be percent-encoded"));
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let default_port = if is_https { 443 } else { 80 };
        let address = if port.is_some() { host.to_owned() } else { format!("{host}:{default_port}") };
        Ok(Self { is_https, host: host.to_owned(), address, path })
    }
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port > 0)
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.path)
    }
}

impl Url {
    /// Whether the scheme is https.
    pub(crate) fn is_https(&self) -> bool {
        self.is_https
    }

    /// Returns the scheme, and host and port as given.
    pub(crate) fn origin(&self) -> String {
        format!("{}://{}", if self.is_https { "https" } else { "http" }, self.host)
    }

    /// Returns the host without its port.
    pub(crate) fn name(&self) -> &str {
        self.address.rsplit_once(':').map_or(&self.address, |(name, _)| name)
    }

    /// Returns host and port as given.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Returns the server's address. If its name has several, tries one after the other, and returns the first that takes a
    /// connection: a server on `localhost` may listen on `[::1]` only.
    ///
    /// # Errors
    ///
    /// Returns [`Misuse`] if the name has no address. Returns an error that names the addresses if there are several, and none
    /// takes a connection.
    pub(crate) fn reach(&self, timeout: Duration) -> anyhow::Result<SocketAddr> {
        let addrs = self.addrs().map_err(|error| Misuse(format!("{self} cannot be reached: {error}")))?;
        if let [addr] = addrs[..] {
            return Ok(addr);
        }
        let mut refusals = Vec::new();
        for addr in addrs {
            match TcpStream::connect_timeout(&addr, timeout) {
                Ok(_) => return Ok(addr),
                Err(error) => refusals.push(format!("{addr}: {error}")),
            }
        }
        Err(anyhow!("{self} cannot be reached: {}", refusals.join("; ")))
    }

    /// The addresses of the server, at least one. `localhost` has both loopback addresses, whatever the resolver answers.
    ///
    /// Source: RFC 6761, 6.3.
    fn addrs(&self) -> io::Result<Vec<SocketAddr>> {
        let resolved = resolve_addresses(&self.address);
        let (name, port) = self.address.rsplit_once(':').unwrap_or_default();
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let Ok(port) = port.parse() else { return resolved };
        if name != "localhost" && !name.ends_with(".localhost") {
            return resolved;
        }
        let mut addrs = resolved.unwrap_or_default();
        for loopback in [SocketAddr::from((Ipv4Addr::LOCALHOST, port)), SocketAddr::from((Ipv6Addr::LOCALHOST, port))] {
            if !addrs.contains(&loopback) {
                addrs.push(loopback);
            }
        }
        Ok(addrs)
    }

    /// The path and the query.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_into_its_parts() {
        let parts = |text: &str| {
            let url: Url = text.parse().unwrap();
            [url.host(), &url.address, url.path()].map(str::to_owned)
        };
        assert_eq!(parts("http://localhost:8001/1?a=b#c"), ["localhost:8001", "localhost:8001", "/1?a=b"]);
        assert_eq!(parts("HTTP://example.org"), ["example.org", "example.org:80", "/"]);
        assert_eq!(parts("http://[::1]:80?q"), ["[::1]:80", "[::1]:80", "/?q"]);
        assert_eq!(parts("http://[::1]/"), ["[::1]", "[::1]:80", "/"]);
        assert_eq!(parts("https://h/a"), ["h", "h:443", "/a"]);
        let secure: Url = "https://[::1]:81/a".parse().unwrap();
        assert_eq!((secure.name(), secure.to_string().as_str()), ("[::1]", "https://[::1]:81/a"));
    }

    #[test]
    fn localhost_has_both_loopback_addresses() {
        for name in ["localhost", "LocalHost.", "any.localhost"] {
            let url: Url = format!("http://{name}:81/").parse().unwrap();
            let addrs = url.addrs().unwrap();
            for addr in ["127.0.0.1:81", "[::1]:81"] {
                assert_eq!(addrs.iter().filter(|found| found.to_string() == addr).count(), 1, "{name}: {addrs:?}");
            }
        }
        let url: Url = "http://127.0.0.1:81/".parse().unwrap();
        assert_eq!(url.addrs().unwrap().len(), 1);
    }

    #[test]
    fn what_is_no_url_is_refused_with_its_reason() {
        for (text, why) in [
            ("localhost:8001", "no URL"),
            ("ftp://localhost/", "not http"),
            ("http://", "host"),
            ("http://:80/", "host"),
            ("http://a b/", "host"),
            ("http://[::zz]/", "host"),
            ("http://u@h/", "user"),
            ("http://h:/", "port"),
            ("http://h:+1/", "port"),
            ("http://h:0/", "port"),
            ("http://h:65536/", "port"),
            ("http://h/a b", "blanks"),
            ("http://h/\u{e9}", "'\u{e9}' is not ASCII"),
            ("http://b\u{fc}cher/", "'\u{fc}' is not ASCII"),
        ] {
            let error = text.parse::<Url>().unwrap_err();
            assert!(error.contains(why) && error.contains("http://HOST:PORT/PATH"), "{text}: {error}");
        }
    }
}
