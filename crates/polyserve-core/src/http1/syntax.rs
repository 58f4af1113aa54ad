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
/// digits. Brackets are allowed everywhere: browsers send them unencoded in queries.
pub(super) fn is_target(target: &[u8]) -> bool {
    target.iter().all(|&b| matches!(b, b'!' | b'$'..=b';' | b'=' | b'?'..=b'[' | b']' | b'_' | b'a'..=b'z' | b'~'))
        && is_percent_encoded(target)
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
}
