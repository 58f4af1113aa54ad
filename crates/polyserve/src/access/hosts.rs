//! The hosts that requests may name: a page of another site must not reach a server by a name that it points at it (DNS rebinding).
//!
//! A request names a host by its target if that has one (`http://HOST/`; over HTTP/2, `:authority`), or else by `Host` (RFC 9112, 3.3).
//! A name is compared without regard to case. The port counts only if the list has one: a proxy or a published container port changes it.
//! A client leaves out port 80 of http and 443 of https, so a request without a port is one for these. The dot that may end a name does
//! not count. A request that names another host gets a 421 (RFC 9110, 15.5.20).
//!
//! Cost of a request: a comparison with each name.

use std::error::Error;
use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;

use polyserve_core::http::StatusCode;
use polyserve_core::http::header::HOST;
use polyserve_core::http::uri::Authority;
use polyserve_core::{Answer, Head, Reply, Request, Service};

use super::{RefusalReason, Refusals};

/// A service for requests that name a host of a list.
///
/// ```
/// use polyserve::Echo;
/// use polyserve::access::AllowedHosts;
/// let service = AllowedHosts::new(Echo, ["example.org", "[::1]", "localhost:8001"])?;
/// # let _ = service;
/// # Ok::<(), polyserve::access::InvalidHost>(())
/// ```
#[must_use]
pub struct AllowedHosts {
    service: Arc<dyn Service>,
    hosts: Vec<Authority>,
    open_path: Option<String>,
    refusals: Refusals,
}

impl AllowedHosts {
    /// Creates the service. A host is a name or an address, and may have a port: `example.org`, `10.0.0.1`, `[::1]:8001`.
    ///
    /// # Errors
    ///
    /// Returns [`InvalidHost`] for a host that is none, or has a user.
    pub fn new(service: impl Service, hosts: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, InvalidHost> {
        let parse = |host: &str| match host.parse::<Authority>() {
            Ok(authority) if is_host(&authority) && has_valid_port(&authority) => Ok(authority),
            _ => Err(InvalidHost { host: host.to_owned() }),
        };
        let hosts = hosts.into_iter().map(|host| parse(host.as_ref())).collect::<Result<_, _>>()?;
        Ok(Self { service: service.into_shared(), hosts, open_path: None, refusals: Refusals::default() })
    }

    /// Sets a path that requests may ask for by any name, such as that of a health check: probes name the address of a machine.
    pub fn with_open_path(mut self, path: impl Into<Option<String>>) -> Self {
        self.open_path = path.into();
        self
    }

    /// Sets the counts of refused requests.
    pub fn with_refusals(mut self, refusals: Refusals) -> Self {
        self.refusals = refusals;
        self
    }

    fn refusal(&self, head: &Head<'_>) -> Option<Reply> {
        if self.open_path.as_deref() == Some(head.path()) || self.allows(named_host(head)) {
            return None;
        }
        self.refusals.count(RefusalReason::WrongHost);
        Some(Reply::problem(
            StatusCode::MISDIRECTED_REQUEST,
            "This server does not answer for the host of the request.",
        ))
    }

    fn allows(&self, named: &[u8]) -> bool {
        let Ok(named) = Authority::try_from(named) else { return false };
        let is_port = |port: u16| named.port_u16().map_or(DEFAULT_PORTS.contains(&port), |named| named == port);
        let is_named =
            |host: &Authority| name(host).eq_ignore_ascii_case(name(&named)) && host.port_u16().is_none_or(is_port);
        !named.as_str().contains('@') && self.hosts.iter().any(is_named)
    }
}

/// The ports that clients leave out: those of http and https.
const DEFAULT_PORTS: [u16; 2] = [80, 443];

/// The host without the dot that may end a name.
fn name(authority: &Authority) -> &str {
    authority.host().strip_suffix('.').unwrap_or(authority.host())
}

/// Whether a host of the list is a name, or an address, and has no user. A pattern such as `*.example.org` is none: no request names it.
fn is_host(authority: &Authority) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !authority.as_str().contains('@')
        && match authority.host().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => !name(authority).is_empty() && name(authority).bytes().all(is_of_name),
        }
}

/// Whether the port is absent or a number.
fn has_valid_port(authority: &Authority) -> bool {
    let after_host = authority.as_str().get(authority.host().len()..).unwrap_or_default();
    after_host.is_empty() || authority.port_u16().is_some()
}

/// The host that a request names, with its port. Empty if there is none, as in HTTP/1.0.
fn named_host<'a>(head: &Head<'a>) -> &'a [u8] {
    match head.target.split_once("://") {
        Some((_, rest)) if !head.target.starts_with('/') => {
            rest.split(['/', '?']).next().unwrap_or_default().as_bytes()
        }
        _ => head.headers.get(&HOST).unwrap_or_default(),
    }
}

impl Service for AllowedHosts {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        match self.refusal(&request.head) {
            None => self.service.call(request, body),
            Some(reply) => Answer::Now(reply),
        }
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        self.refusal(head).or_else(|| self.service.head(head))
    }
}

impl fmt::Debug for AllowedHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllowedHosts").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

/// The error for a host that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidHost {
    host: String,
}

impl fmt::Display for InvalidHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a host, such as example.org, 10.0.0.1 or [::1]:8001", self.host)
    }
}

impl Error for InvalidHost {}

#[cfg(test)]
mod tests {
    use polyserve_core::http::{Method, Version};
    use polyserve_core::{Echo, Header, Headers};

    use super::*;

    #[test]
    fn the_host_of_a_request_is_compared() {
        let service = AllowedHosts::new(Echo, ["example.org", "[::1]", "localhost:8001"]).expect("they are hosts");
        let status = |target: &str, host: Option<&str>| {
            let fields: Vec<_> = host.iter().map(|host| Header { name: "host", value: host.as_bytes() }).collect();
            let headers = Headers::new(&fields);
            let head = Head { method: &Method::GET, target, version: Version::HTTP_11, headers, certificate: None };
            let called = service.call(Request::new(head, b""), &mut Vec::new()).wait().status().as_u16();
            assert_eq!(service.head(&head).map_or(200, |reply| reply.status().as_u16()), called, "{target} {host:?}");
            called
        };
        for host in
            ["example.org", "EXAMPLE.org", "example.org:80", "[::1]", "[::1]:9", "localhost:8001", "example.org:"]
        {
            assert_eq!(status("/1", Some(host)), 200, "{host}");
        }
        for host in
            ["example.com", "example.org.evil", "localhost", "localhost:80", "::1", "", "a@example.org", "example.org/"]
        {
            assert_eq!(status("/1", Some(host)), 421, "{host}");
        }
        assert_eq!(status("/1", None), 421);
        for host in ["example.org.", "example.org.:80"] {
            assert_eq!(status("/1", Some(host)), 200, "{host}");
        }
        for host in [".", "example.org..", "localhost.:80"] {
            assert_eq!(status("/1", Some(host)), 421, "{host}");
        }
        // The target counts, and not `Host`.
        assert_eq!(status("http://example.org/1", Some("evil.org")), 200);
        assert_eq!(status("https://evil.org?http://example.org/", Some("example.org")), 421);
        assert_eq!(status("/x://example.org/", Some("evil.org")), 421);
        for host in
            ["", "a b", "a@b", "a:x", "http://a", "a/b", "a:", ".", "*", "*.example.org", "a;b", "[x]", "[1.2.3.4]"]
        {
            let error = AllowedHosts::new(Echo, [host]).expect_err(host);
            assert!(error.to_string().contains("is not a host"), "{host}");
        }
    }

    /// Regression test: a browser leaves out the port of https, and was refused although the list had it.
    #[test]
    fn a_default_port_may_be_left_out() {
        let service = AllowedHosts::new(Echo, ["a.org:443", "b.org:80", "c.org:8001"]).expect("they are hosts");
        for (host, is_allowed) in [
            ("a.org", true),
            ("a.org:", true),
            ("a.org:443", true),
            ("a.org:80", false),
            ("b.org", true),
            ("b.org:443", false),
            ("c.org", false),
            ("c.org:8001", true),
        ] {
            assert_eq!(service.allows(host.as_bytes()), is_allowed, "{host}");
        }
    }
}
