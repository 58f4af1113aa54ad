//! Classes of bytes in the grammars of HTTP (RFC 9110, 5.6) and of URIs (RFC 3986).
//!
//! Cost: a text is checked in one pass, with a load from a table for each byte.

/// A set of bytes: `true` at the index of each of its bytes.
type ByteSet = [bool; 256];

/// Defines the set of the bytes for which `$is_in` holds.
macro_rules! byte_set {
    ($(#[$doc:meta])* $name:ident: $is_in:expr) => {
        $(#[$doc])*
        #[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // an index out of bounds does not compile
        static $name: ByteSet = {
            let mut set = [false; 256];
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
    uri_len(target) == Some(target.len())
}

/// Returns the number of bytes at the start of `text` that a URI without a fragment may have. `None` if it has a `%` without two
/// hexadecimal digits.
#[inline]
pub(super) fn uri_len(text: &[u8]) -> Option<usize> {
    encoded_len(text, &IN_URI)
}

/// Returns the length of the name of a host at the start of `text`: `*( unreserved / pct-encoded / sub-delims )`. `None` if it
/// has a `%` without two hexadecimal digits.
pub(super) fn host_name_len(text: &[u8]) -> Option<usize> {
    encoded_len(text, &IN_NAME)
}

/// Returns the number of bytes up to the first that is neither one of `bytes` nor a `%`. `None` if two hexadecimal digits do not
/// follow a `%`.
#[inline]
fn encoded_len(text: &[u8], bytes: &ByteSet) -> Option<usize> {
    let length = text.iter().position(|&byte| !is_in(bytes, byte)).unwrap_or(text.len());
    if text.get(length) == Some(&b'%') { percent_encoded_len(text, bytes) } else { Some(length) }
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
