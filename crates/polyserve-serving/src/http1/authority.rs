//! The authority of a `Host` field and of an absolute-form target.
//!
//! The grammar is `uri-host [ ":" port ]` (RFC 9110, 4.2; RFC 3986, 3.2). A host is a name, an IPv4 address, or an IPv6
//! address in brackets. User information is not valid (RFC 9110, 4.2.4).
//!
//! Cost: one pass, no allocation. A `Host` that a thread has just seen is only compared: clients repeat theirs.

use std::cell::RefCell;
use std::net::Ipv6Addr;

use super::syntax::{host_name_len, is_sub_delim, is_unreserved};

/// A valid authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Authority {
    /// It names a host.
    Host,
    /// It names no host. This is valid in a `Host` field, but not in a URL.
    Empty,
}

/// The length of the longest `Host` that is remembered, in bytes.
const MAX_KNOWN: usize = 64;

thread_local! {
    /// The `Host` that was found valid last.
    static KNOWN: RefCell<(usize, [u8; MAX_KNOWN])> = const { RefCell::new((0, [0; MAX_KNOWN])) };
}

/// Whether the value of a `Host` field is an authority.
pub(super) fn is_valid(host: &[u8]) -> bool {
    KNOWN.with_borrow_mut(|(length, known)| {
        if known.get(..*length) == Some(host) {
            return true;
        }
        let is_valid = read(host).is_some();
        if let Some(kept) = known.get_mut(..host.len()).filter(|_| is_valid) {
            kept.copy_from_slice(host);
            *length = host.len();
        }
        is_valid
    })
}

/// Parses an authority. Returns `None` if it is not valid.
pub(super) fn read(text: &[u8]) -> Option<Authority> {
    let rest = if let Some(literal) = text.strip_prefix(b"[") {
        let end = memchr::memchr(b']', literal)?;
        let (inside, rest) = literal.split_at_checked(end)?;
        if !is_address(inside) {
            return None;
        }
        rest.get(1..)?
    } else {
        text.get(host_name_len(text)?..)?
    };
    let port_is_valid = match rest {
        [] => true,
        [b':', port @ ..] => port.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    let host = if rest.len() == text.len() { Authority::Empty } else { Authority::Host };
    port_is_valid.then_some(host)
}

/// Whether text in brackets is an IPv6 address or an address of a future version (`v1.x`).
fn is_address(inside: &[u8]) -> bool {
    if let [b'v' | b'V', later @ ..] = inside {
        let Some(dot) = memchr::memchr(b'.', later) else { return false };
        let (version, address) = later.split_at_checked(dot).unwrap_or_default();
        let address = address.get(1..).unwrap_or_default();
        return !version.is_empty()
            && version.iter().all(u8::is_ascii_hexdigit)
            && !address.is_empty()
            && address.iter().all(|&b| is_unreserved(b) || is_sub_delim(b) || b == b':');
    }
    std::str::from_utf8(inside).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        let valid = [
            "a",
            "A.b-c_d~e",
            "localhost:8001",
            "127.0.0.1",
            "127.0.0.1:",
            "[::1]",
            "[::1]:80",
            "[::ffff:1.2.3.4]",
            "[v1.a:b]",
            "a%20b",
            "%C3%A9",
            "!$&'()*+,;=",
            "a:000080",
            "xn--nxasmq6b",
        ];
        for text in valid {
            assert_eq!(read(text.as_bytes()), Some(Authority::Host), "{text}");
        }
        assert_eq!(
            (read(b""), read(b":"), read(b":80")),
            (Some(Authority::Empty), Some(Authority::Empty), Some(Authority::Empty))
        );
        let invalid = [
            "a b",
            "a/b",
            "a@b",
            "a:b",
            "a:80:80",
            "a:-1",
            "a:+1",
            "a%",
            "a%2",
            "a%2x",
            "[",
            "[]",
            "[::1",
            "::1",
            "[::1]x",
            "[::1]:x",
            "[:::1]",
            "[1.2.3.4]",
            "[fe80::1%25eth0]",
            "[v1.]",
            "[v.a]",
            "[vg.a]",
            "[v1a]",
            "a[::1]",
            "a\"b",
            "<a>",
            "a\\b",
            "a?b",
            "a#b",
            "\u{e9}",
            "a^b",
            "{a}",
            "a|b",
            "[\u{e9}]",
        ];
        for text in invalid {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
        for _ in 0..2 {
            assert!(valid.iter().all(|text| is_valid(text.as_bytes()) && is_valid(text.as_bytes())));
            assert!(invalid.iter().all(|text| !is_valid(text.as_bytes())));
        }
        let long = "a".repeat(MAX_KNOWN + 1);
        assert!(is_valid(long.as_bytes()) && !is_valid(format!("{long}/").as_bytes()) && is_valid(long.as_bytes()));
    }
}
