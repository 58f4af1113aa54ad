//! The grammars of HTTP (RFC 9110, 5.6) and of URIs (RFC 3986): classes of bytes, targets and authorities.
//!
//! Cost: a text is checked in one pass, with a load from a table for each byte, and no allocation. A `Host` that a thread has just
//! seen is only compared: clients repeat theirs.

use std::cell::RefCell;
use std::net::Ipv6Addr;

use polyserve_sys::{ascii_text, split_ascii};

/// A set of ASCII bytes: `true` at the index of each of its bytes.
type ByteSet = [bool; 128];

/// Defines the set of the bytes for which `$is_in` holds.
macro_rules! byte_set {
    ($(#[$doc:meta])* $name:ident: $is_in:expr) => {
        $(#[$doc])*
        #[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // an index out of bounds does not compile
        static $name: ByteSet = {
            let mut set = [false; 128];
            let mut byte = 0;
            while byte < set.len() {
                set[byte] = $is_in(byte as u8);
                byte += 1;
            }
            set
        };
    };
}

byte_set! {
    /// The bytes of a URI without a fragment, and brackets, without `%`.
    IN_URI: is_in_uri
}

byte_set! {
    /// The bytes of a host's name without `%`: `unreserved / sub-delims`.
    IN_NAME: is_in_name
}

/// Whether a byte may stand in a field value: not a control character, except for the tab.
pub(super) fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// Whether a request target has only bytes that a URI without a fragment may have, and each `%` two hexadecimal
/// digits. Brackets are allowed everywhere. The query may also have the other bytes that browsers send unencoded. A byte above 127
/// comes here only as a part of UTF-8: the parser refuses what is no text.
pub(super) fn is_target(target: &[u8]) -> bool {
    is_uri(target) || has_lenient_query(target)
}

fn is_uri(target: &[u8]) -> bool {
    split_uri(target).is_some_and(|(_, rest)| rest.is_empty())
}

/// Splits `text` after the bytes that a URI without a fragment may have. `None` if there is a `%` without two hexadecimal digits.
#[allow(clippy::inline_always)] // for each head
#[inline(always)]
pub(super) fn split_uri(text: &[u8]) -> Option<(&str, &[u8])> {
    split_encoded(text, &IN_URI)
}

/// Returns the length of the name of a host at the start of `text`: `*( unreserved / pct-encoded / sub-delims )`. `None` if it
/// has a `%` without two hexadecimal digits.
pub(super) fn host_name_len(text: &[u8]) -> Option<usize> {
    split_encoded(text, &IN_NAME).map(|(name, _)| name.len())
}

/// Splits `text` before the first byte that is neither one of `bytes` nor a `%`. `None` if two hexadecimal digits do not follow a `%`.
#[allow(clippy::inline_always)] // for each head
#[inline(always)]
fn split_encoded<'a>(text: &'a [u8], bytes: &ByteSet) -> Option<(&'a str, &'a [u8])> {
    let (encoded, rest) = split_ascii(text, bytes);
    if rest.first() != Some(&b'%') {
        return Some((encoded, rest));
    }
    let (encoded, rest) = text.split_at_checked(percent_encoded_len(text, bytes)?)?;
    Some((ascii_text(encoded)?, rest))
}

#[inline(never)]
fn percent_encoded_len(text: &[u8], bytes: &ByteSet) -> Option<usize> {
    let length = text.iter().position(|&byte| byte != b'%' && !is_in(bytes, byte)).unwrap_or(text.len());
    is_percent_encoded(text.get(..length)?).then_some(length)
}

#[inline]
fn is_in(bytes: &ByteSet, byte: u8) -> bool {
    bytes.get(usize::from(byte)) == Some(&true)
}

const fn is_in_uri(byte: u8) -> bool {
    matches!(byte, b'!' | b'$' | b'&'..=b';' | b'=' | b'?'..=b'[' | b']' | b'_' | b'a'..=b'z' | b'~')
}

const fn is_in_name(byte: u8) -> bool {
    is_unreserved(byte) || is_sub_delim(byte)
}

/// Whether the path is that of a URI, and the query has no byte that browsers encode: control bytes, space, `"`, `#`, `<` and
/// `>` (the query percent-encode set of the URL standard).
#[cold]
fn has_lenient_query(target: &[u8]) -> bool {
    let Some((path, query)) = memchr::memchr(b'?', target).and_then(|at| target.split_at_checked(at)) else {
        return false;
    };
    is_uri(path) && query.iter().all(|&b| b > b' ' && !matches!(b, b'"' | b'#' | b'<' | b'>' | 0x7f))
}

/// Whether two hexadecimal digits follow each `%`.
fn is_percent_encoded(text: &[u8]) -> bool {
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'%', rest) {
        let Some([_, high, low, after @ ..]) = rest.get(at..) else { return false };
        if !high.is_ascii_hexdigit() || !low.is_ascii_hexdigit() {
            return false;
        }
        rest = after;
    }
    true
}

/// Whether a byte is unreserved in a URI (RFC 3986, 2.3).
pub(super) const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Whether a byte is a sub-delimiter in a URI (RFC 3986, 2.2).
pub(super) const fn is_sub_delim(byte: u8) -> bool {
    matches!(byte, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=')
}

/// A valid authority, of a `Host` field or of an absolute-form target: `uri-host [ ":" port ]` (RFC 9110, 4.2; RFC 3986, 3.2). A host is a
/// name, an IPv4 address, or an IPv6 address in brackets. User information is not valid (RFC 9110, 4.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Authority {
    /// It names a host.
    Host,
    /// It names no host. This is valid in the `Host` field of a request for `*`, but not in a URL.
    Empty,
}

/// The length of the longest `Host` that is remembered, in bytes.
const MAX_KNOWN: usize = 64;

thread_local! {
    /// The `Host` that was found valid last.
    static KNOWN: RefCell<(usize, [u8; MAX_KNOWN])> = const { RefCell::new((0, [0; MAX_KNOWN])) };
}

/// Whether the value of a `Host` field names a host.
pub(super) fn is_host(value: &[u8]) -> bool {
    KNOWN.with_borrow_mut(|(length, known)| {
        if *length > 0 && known.get(..*length) == Some(value) {
            return true;
        }
        let is_valid = read_authority(value) == Some(Authority::Host);
        if let Some(kept) = known.get_mut(..value.len()).filter(|_| is_valid) {
            kept.copy_from_slice(value);
            *length = value.len();
        }
        is_valid
    })
}

/// Parses an authority. Returns `None` if it is not valid.
pub(super) fn read_authority(text: &[u8]) -> Option<Authority> {
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

    /// Regression test: before the first host of a thread, the empty one counted as known.
    #[test]
    fn an_empty_host_names_none() {
        assert!(!is_host(b"") && is_host(b"a") && !is_host(b"") && !is_host(b":80"));
    }
}
