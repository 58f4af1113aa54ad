//! The proxies that a server trusts to name its clients: [`TrustedProxies`].
//!
//! A proxy adds the address of its client to `Forwarded` (RFC 7239) or to `X-Forwarded-For`, after the addresses that it got. So what a
//! trusted proxy has added is read from the right, and everything to the left of the first address that is not trusted may be invented.
//!
//! Cost of a request from a trusted proxy: the fields are searched, and read from the right. No allocation.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

/// The addresses of trusted proxies. A clone shares them. The default is none.
///
/// ```
/// use polyserve_core::TrustedProxies;
/// let proxies: TrustedProxies = "10.0.0.0/8, fd00::/8, 192.0.2.7".parse()?;
/// assert!(proxies.contains([10, 1, 2, 3].into()) && !proxies.contains([192, 0, 2, 8].into()));
/// assert!("10.0.0.0/33".parse::<TrustedProxies>().is_err());
/// # Ok::<(), polyserve_core::InvalidProxies>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Arc<[Network]>);

/// An address, and the number of its first bits that all addresses of the network share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    addr: IpAddr,
    prefix: u32,
}

impl TrustedProxies {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `addr` is that of a trusted proxy.
    pub fn contains(&self, addr: IpAddr) -> bool {
        let addr = addr.to_canonical();
        self.0.iter().any(|network| network.contains(addr))
    }

    /// Returns the address of the client of a request: `peer`, or, if that is a trusted proxy, the last address in `Forwarded` or
    /// `X-Forwarded-For` that is not trusted. If all are trusted, it is the first one. Its port is 0 if the proxy does not tell it.
    ///
    /// A field that is malformed as far as it is read, or that hides the client, says nothing. Neither do both fields if they name
    /// different clients: a proxy that writes one of them may pass on the other as it got it.
    ///
    /// `fields` returns the values of the header fields with a name, in their order.
    pub fn client<'a, I>(&self, peer: Option<SocketAddr>, fields: impl Fn(&'static str) -> I) -> Option<SocketAddr>
    where
        I: Iterator<Item = &'a [u8]>,
    {
        let Some(peer) = peer.filter(|peer| self.contains(peer.ip())) else { return peer };
        let is_present = |name| fields(name).next().is_some();
        let forwarded = || self.last_client(peer, fields(FORWARDED), forwarded_for);
        let x_forwarded_for = || self.last_client(peer, fields(X_FORWARDED_FOR), node);
        Some(match (is_present(FORWARDED), is_present(X_FORWARDED_FOR)) {
            (false, false) => peer,
            (true, false) => forwarded().unwrap_or(peer),
            (false, true) => x_forwarded_for().unwrap_or(peer),
            (true, true) => match (forwarded(), x_forwarded_for()) {
                (Some(one), Some(other)) if one.ip() == other.ip() => one,
                _ => peer,
            },
        })
    }

    /// The last address in `fields` that is not trusted, or else the first one. `None` if an element that is read is malformed.
    fn last_client<'a>(
        &self,
        peer: SocketAddr,
        fields: impl Iterator<Item = &'a [u8]>,
        address: fn(&str) -> Option<SocketAddr>,
    ) -> Option<SocketAddr> {
        // The fields are few, and are read from the last one on.
        let count = MAX_FIELDS;
        let mut last = [&b""[..]; MAX_FIELDS];
        let mut total: usize = 0;
        for field in fields {
            if let Some(place) = last.get_mut(total % count) {
                *place = field;
            }
            total = total.saturating_add(1);
        }
        let mut client = peer;
        for back in 1..=total.min(count) {
            let field = last.get(total.wrapping_sub(back) % count)?;
            for element in elements_from_the_right(std::str::from_utf8(field).ok()?)? {
                client = address(element)?;
                if !self.contains(client.ip()) {
                    return Some(client);
                }
            }
        }
        (total <= count).then_some(client)
    }
}

/// Max fields of one name that are read.
const MAX_FIELDS: usize = 16;

const FORWARDED: &str = "Forwarded";
const X_FORWARDED_FOR: &str = "X-Forwarded-For";

/// The elements of a list, the last one first. `None` if a quoted string does not end.
fn elements_from_the_right(list: &str) -> Option<impl Iterator<Item = &str>> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for byte in list.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            _ => {}
        }
    }
    // No address has a comma or an escape, so a comma within quotes leaves parts that are malformed.
    (!is_quoted).then(|| list.rsplit(',').map(str::trim).filter(|element| !element.is_empty()))
}

/// The address in an element of `Forwarded`: that of its one parameter `for`.
fn forwarded_for(element: &str) -> Option<SocketAddr> {
    let mut found = None;
    // A pair may be empty (RFC 7239, section 4).
    for pair in element.split(';').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=')?;
        let value = match value.strip_prefix('"') {
            Some(quoted) => quoted.strip_suffix('"')?,
            None => value,
        };
        if value.contains('"') {
            return None;
        }
        if name.eq_ignore_ascii_case("for") && found.replace(value).is_some() {
            return None;
        }
    }
    node(found?)
}

/// An address with or without a port. An IPv6 address may have brackets, and has some before a port. A port may be hidden.
fn node(text: &str) -> Option<SocketAddr> {
    let text = without_hidden_port(text);
    let portless = |ip: IpAddr| SocketAddr::new(ip.to_canonical(), 0);
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(portless(ip));
    }
    if let Some(ip) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return ip.parse::<Ipv6Addr>().ok().map(|ip| portless(ip.into()));
    }
    let addr = text.parse::<SocketAddr>().ok()?;
    Some(SocketAddr::new(addr.ip().to_canonical(), addr.port()))
}

/// Removes a port that the proxy replaced by a name such as `_gazonk` (RFC 7239, section 6.3).
fn without_hidden_port(text: &str) -> &str {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match text.split_once(":_") {
        Some((ip, name)) if !name.is_empty() && name.bytes().all(is_allowed) => {
            let may_have_port = ip.starts_with('[') || ip.parse::<Ipv4Addr>().is_ok();
            if may_have_port { ip } else { text }
        }
        _ => text,
    }
}

impl Network {
    fn contains(&self, addr: IpAddr) -> bool {
        match (self.addr, addr) {
            (IpAddr::V4(own), IpAddr::V4(addr)) => {
                let shift = Ipv4Addr::BITS.saturating_sub(self.prefix);
                own.to_bits().checked_shr(shift) == addr.to_bits().checked_shr(shift)
            }
            (IpAddr::V6(own), IpAddr::V6(addr)) => {
                let shift = Ipv6Addr::BITS.saturating_sub(self.prefix);
                own.to_bits().checked_shr(shift) == addr.to_bits().checked_shr(shift)
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = InvalidProxies;

    fn from_str(text: &str) -> Result<Self, InvalidProxies> {
        let invalid = || InvalidProxies { network: text.chars().take(100).collect() };
        let (addr, prefix) = text.split_once('/').map_or((text, None), |(addr, prefix)| (addr, Some(prefix)));
        let addr: IpAddr = addr.parse().map_err(|_| invalid())?;
        let max = if addr.is_ipv4() { Ipv4Addr::BITS } else { Ipv6Addr::BITS };
        let prefix = match prefix {
            None => max,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().map_err(|_| invalid())?
            }
            Some(_) => return Err(invalid()),
        };
        if prefix > max {
            return Err(invalid());
        }
        // An IPv4 address in the form of an IPv6 one: the addresses that are compared with it have the form of IPv4.
        Ok(match (addr.to_canonical(), prefix.checked_sub(Ipv6Addr::BITS - Ipv4Addr::BITS)) {
            (IpAddr::V4(mapped), Some(prefix)) if addr.is_ipv6() => Self { addr: mapped.into(), prefix },
            _ => Self { addr, prefix },
        })
    }
}

impl FromStr for TrustedProxies {
    type Err = InvalidProxies;

    /// Parses networks and addresses with commas between them: `10.0.0.0/8,::1`.
    fn from_str(text: &str) -> Result<Self, InvalidProxies> {
        text.split(',').map(|network| network.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for TrustedProxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Network { addr, prefix }) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{addr}/{prefix}")?;
        }
        Ok(())
    }
}

/// The error for a network that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidProxies {
    network: String,
}

impl fmt::Display for InvalidProxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not an address or a network, such as 10.0.0.0/8 or ::1", self.network)
    }
}

impl std::error::Error for InvalidProxies {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Header, Headers};

    fn values<'a>(fields: &'a [Header<'a>]) -> impl Fn(&'static str) -> Box<dyn Iterator<Item = &'a [u8]> + 'a> {
        |name| Box::new(Headers::new(fields).all(name))
    }

    fn client(fields: &[(&str, &str)]) -> String {
        let fields: Vec<_> = fields.iter().map(|(name, value)| Header { name, value: value.as_bytes() }).collect();
        let proxies: TrustedProxies = "10.0.0.0/8,fd00::/8".parse().expect("they are networks");
        let peer = SocketAddr::from(([10, 0, 0, 1], 4000));
        proxies.client(Some(peer), values(&fields)).expect("there is a peer").to_string()
    }

    const PROXY: &str = "10.0.0.1:4000";

    #[test]
    fn a_trusted_proxy_names_the_client() {
        for (field, value, expected) in [
            ("X-Forwarded-For", "192.0.2.1", "192.0.2.1:0"),
            ("x-forwarded-for", "192.0.2.1:55", "192.0.2.1:55"),
            ("X-Forwarded-For", "203.0.113.9, 192.0.2.1", "192.0.2.1:0"), // the first one may be invented
            ("X-Forwarded-For", "garbage;\",, 192.0.2.1 ,10.9.9.9", PROXY), // a quote that does not end
            ("X-Forwarded-For", "garbage; , 192.0.2.1 ,10.9.9.9,", "192.0.2.1:0"),
            ("X-Forwarded-For", "2001:db8::1, fd00::1", "[2001:db8::1]:0"),
            ("X-Forwarded-For", "[2001:db8::1]:80", "[2001:db8::1]:80"),
            ("X-Forwarded-For", "::ffff:192.0.2.1", "192.0.2.1:0"),
            ("X-Forwarded-For", "10.3.3.3, 10.2.2.2", "10.3.3.3:0"), // all are proxies
            ("Forwarded", "for=192.0.2.1", "192.0.2.1:0"),
            ("Forwarded", "For=\"192.0.2.1:99\";proto=https;by=10.0.0.1", "192.0.2.1:99"),
            ("Forwarded", "for=\"[2001:db8::1]\"", "[2001:db8::1]:0"),
            ("Forwarded", "for=\"192.0.2.1:_gazonk\"", "192.0.2.1:0"), // regression test: the field was ignored
            ("Forwarded", "for=\"[2001:db8::1]:_a.B-9_\"", "[2001:db8::1]:0"),
            ("Forwarded", "for=\"192.0.2.1:_x\", for=\"10.9.9.9:_y\"", "192.0.2.1:0"),
            ("Forwarded", "for=192.0.2.1;", "192.0.2.1:0"), // regression test: the field was ignored
            ("Forwarded", ";;for=203.0.113.9, ; for=192.0.2.1 ; proto=http", "192.0.2.1:0"),
            ("Forwarded", "by=x;for=\"[2001:db8::1]:4711\" , for=\"[fd00::2]\"", "[2001:db8::1]:4711"),
            ("Forwarded", "for=203.0.113.9, for=192.0.2.1;host=\"a;b\"", PROXY), // no address is looked for in doubt
            ("Forwarded", "for=203.0.113.9, for=192.0.2.1", "192.0.2.1:0"),
        ] {
            assert_eq!(client(&[(field, value)]), expected, "{field}: {value}");
        }
    }

    #[test]
    fn what_is_malformed_or_hidden_says_nothing() {
        for value in [
            "",
            ",",
            "for",
            "for=",
            "for=;",
            ";",
            "for=unknown",
            "for=_hidden",
            "for=\"192.0.2.1",
            "for=192.0.2.1\"",
            "for=\"192.0.2.1\"x",
            "for=192.0.2.1;for=192.0.2.2",
            "proto=https",
            "for=192.0.2.256",
            "for=\"[2001:db8::1\"",
            "for=\"[192.0.2.1]\"",
            "for=192.0.2.1, for=unknown",
            "for=\"192.0.2.1, for=192.0.2.2\"",
            "\u{e9}",
            "for=192.0.2.1:99999",
            "for=\"192.0.2.1:_\"",
            "for=\"192.0.2.1:_a b\"",
            "for=\"192.0.2.1:80:_a\"",
            "for=\"2001:db8::1:_a\"",
            "for=\"_hidden:_a\"",
            // An opening quote of the client before what the proxy has added.
            "for=203.0.113.9;x=\", for=192.0.2.1",
            "for=203.0.113.9;x=\"\\, for=\"[2001:db8::1]\"",
        ] {
            assert_eq!(client(&[("Forwarded", value)]), PROXY, "{value}");
        }
        for value in
            ["", "unknown", "192.0.2.1 192.0.2.2", "192.0.2.1, x", "for=192.0.2.1", "0x7f.1", "[2001:db8::1]x", "1"]
        {
            assert_eq!(client(&[("X-Forwarded-For", value)]), PROXY, "{value}");
        }
    }

    #[test]
    fn several_fields_are_one_list() {
        let x = "X-Forwarded-For";
        assert_eq!(client(&[(x, "203.0.113.9"), (x, "192.0.2.1"), (x, "10.2.2.2")]), "192.0.2.1:0");
        assert_eq!(client(&[(x, "\"garbage"), ("Via", "a"), (x, "192.0.2.1")]), "192.0.2.1:0");
        assert_eq!(client(&[(x, "203.0.113.9"), (x, "garbage")]), PROXY);
        let many: Vec<_> = (0..100).map(|_| (x, "10.2.2.2")).collect();
        assert_eq!(client(&many), PROXY);
        let mut many = many;
        many.push((x, "192.0.2.1"));
        assert_eq!(client(&many), "192.0.2.1:0");
    }

    /// A proxy that writes one of the fields may pass on the other one, which its client has invented.
    #[test]
    fn two_fields_must_agree() {
        let forwarded = ("Forwarded", "for=203.0.113.9");
        assert_eq!(client(&[forwarded, ("X-Forwarded-For", "192.0.2.1")]), PROXY);
        assert_eq!(client(&[forwarded, ("X-Forwarded-For", "")]), PROXY);
        assert_eq!(client(&[forwarded, ("X-Forwarded-For", "192.0.2.1, 203.0.113.9")]), "203.0.113.9:0");
    }

    #[test]
    fn a_peer_that_is_no_proxy_names_no_client() {
        let proxies: TrustedProxies = "::1/128,127.0.0.0/8".parse().expect("they are networks");
        let fields = [Header { name: "X-Forwarded-For", value: b"192.0.2.1" }];
        let client = |peer: &str| {
            let client = proxies.client(Some(peer.parse().expect("an address")), values(&fields));
            client.expect("there is a peer").to_string()
        };
        assert_eq!(client("192.0.2.99:1"), "192.0.2.99:1");
        assert_eq!((client("[::1]:1"), client("[::ffff:127.0.0.1]:1")), ("192.0.2.1:0".into(), "192.0.2.1:0".into()));
        assert_eq!(proxies.client(None, values(&fields)), None);
        assert!(!TrustedProxies::default().contains([127, 0, 0, 1].into()));
    }

    #[test]
    fn networks() {
        let all: TrustedProxies = "0.0.0.0/0, ::/0".parse().expect("they are networks");
        assert!(all.contains([1, 2, 3, 4].into()) && all.contains(Ipv6Addr::LOCALHOST.into()));
        let odd: TrustedProxies = "10.1.2.3/9".parse().expect("it is a network");
        assert!(odd.contains([10, 127, 0, 0].into()) && !odd.contains([10, 128, 0, 0].into()));
        assert_eq!(odd.to_string().parse(), Ok(odd));
        // Regression test: a network of mapped addresses contained none.
        let mapped: TrustedProxies = "::ffff:10.0.0.0/104,::ffff:192.0.2.7".parse().expect("they are networks");
        for (addr, expected) in [
            ("10.9.9.9", true),
            ("::ffff:10.9.9.9", true),
            ("11.0.0.1", false),
            ("192.0.2.7", true),
            ("::ffff:192.0.2.7", true),
            ("192.0.2.8", false),
        ] {
            assert_eq!(mapped.contains(addr.parse().expect("an address")), expected, "{addr}");
        }
        for wrong in
            ["", "10.0.0.0/", "10.0.0.0/33", "::/129", "10.0.0.0/+8", "example.org", "10.0.0.0/8,", "10.0.0.0/8/8"]
        {
            assert!(wrong.parse::<TrustedProxies>().is_err(), "{wrong}");
        }
    }
}
