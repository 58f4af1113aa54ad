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
