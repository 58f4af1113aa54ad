//! Classes of bytes in the grammars of HTTP (RFC 9110, 5.6) and of URIs (RFC 3986).

/// Whether a byte may stand in a token: a method, a field name, the name of a chunk extension.
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
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
    target.iter().all(|&b| matches!(b, b'!' | b'$'..=b';' | b'=' | b'?'..=b'[' | b']' | b'_' | b'a'..=b'z' | b'~'))
        && is_percent_encoded(target)
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
pub(super) fn is_percent_encoded(text: &[u8]) -> bool {
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
pub(super) fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Whether a byte is a sub-delimiter in a URI (RFC 3986, 2.2).
pub(super) fn is_sub_delim(byte: u8) -> bool {
    matches!(byte, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_bytes() {
        let allowed = b"!$%&'()*+,-./0123456789:;=?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]_abcdefghijklmnopqrstuvwxyz~";
        for byte in 0..=u8::MAX {
            let expected = allowed.contains(&byte) && byte != b'%';
            assert_eq!(is_target(&[b'/', byte]), expected, "{}", byte.escape_ascii());
            let encoded = byte.is_ascii_hexdigit();
            assert_eq!(is_target(&[b'%', byte, b'0']), encoded, "%{}0", byte.escape_ascii());
            assert_eq!(is_target(&[b'%', b'0', byte]), encoded, "%0{}", byte.escape_ascii());
        }
        assert!(is_target(b"/%00%fF%25"));
        assert!(!is_target(b"/%0%00"));
    }

    #[test]
    fn query_bytes() {
        for byte in 0..=u8::MAX {
            let refused = byte <= b' ' || byte == 0x7f || b"\"#<>".contains(&byte);
            assert_eq!(is_target(&[b'/', b'?', byte]), !refused, "{}", byte.escape_ascii());
        }
        assert!(is_target(b"/1?a=%&b=%4&c=%zz?{|}^`\\"));
        assert!(!is_target(b"/{?a") && !is_target(b"/%?a") && !is_target("/\u{e9}?a".as_bytes()));
    }
}
