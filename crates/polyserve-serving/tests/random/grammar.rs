//! The reader's grammar: hosts and URLs by RFC 3986, and classes of bytes by RFC 9110.

/// `("http" / "https") "://" authority path-abempty [ "?" query ]`, the host not empty.
pub(super) fn is_absolute(target: &str) -> bool {
    let lower = target.to_ascii_lowercase();
    let Some(rest) = lower.strip_prefix("http://").or(lower.strip_prefix("https://")) else { return false };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    authority(&rest.as_bytes()[..end]).is_some_and(|host| !host.is_empty())
}

/// Returns the host of `host [ ":" port ]` (RFC 3986), if it is valid.
pub(super) fn authority(text: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(text).ok()?;
    let (host, port) = match text.rfind(':') {
        Some(colon) if !text[colon..].contains(']') => (&text[..colon], &text[colon + 1..]),
        _ => (text, ""),
    };
    let is_host = match host.strip_prefix('[') {
        Some(rest) => is_literal(rest.strip_suffix(']')?),
        None => is_reg_name(host),
    };
    (is_host && port.bytes().all(|b| b.is_ascii_digit())).then_some(host)
}

fn is_reg_name(host: &str) -> bool {
    let bytes = host.as_bytes();
    (0..bytes.len()).all(|at| match bytes[at] {
        b'%' => at + 2 < bytes.len() && bytes[at + 1].is_ascii_hexdigit() && bytes[at + 2].is_ascii_hexdigit(),
        other => other.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&other),
    })
}

/// `IPv6address / IPvFuture`.
fn is_literal(text: &str) -> bool {
    if let Some(later) = text.strip_prefix(['v', 'V']) {
        let Some((version, address)) = later.split_once('.') else { return false };
        let is_version = !version.is_empty() && version.bytes().all(|b| b.is_ascii_hexdigit());
        return is_version && !address.is_empty() && !address.contains('%') && is_reg_name(&address.replace(':', ""));
    }
    // A dotted quad at the end replaces two groups.
    let text = match text.rsplit_once(':') {
        Some((groups, quad)) if quad.contains('.') => {
            let is_octet =
                |o: &str| o == "0" || (!o.starts_with('0') && o.parse::<u8>().is_ok() && !o.starts_with('+'));
            if quad.split('.').count() != 4 || !quad.split('.').all(is_octet) {
                return false;
            }
            format!("{groups}:0:0")
        }
        _ => text.to_owned(),
    };
    let groups = |part: &str| -> Option<usize> {
        let is_group = |g: &str| (1..=4).contains(&g.len()) && g.bytes().all(|b| b.is_ascii_hexdigit());
        if part.is_empty() { Some(0) } else { part.split(':').all(is_group).then(|| part.split(':').count()) }
    };
    match text.split("::").collect::<Vec<_>>()[..] {
        [whole] => groups(whole) == Some(8),
        [left, right] => groups(left).zip(groups(right)).is_some_and(|(left, right)| left + right <= 7),
        _ => false,
    }
}

/// Whether a target is a URI without a fragment up to its query, and in its query has text of which browsers encode no byte.
pub(super) fn is_target(target: &[u8]) -> bool {
    let path = target.split(|&b| b == b'?').next().unwrap_or_default();
    let query = &target[path.len()..];
    is_uri(path)
        && std::str::from_utf8(query).is_ok_and(|query| query.bytes().all(|b| b > b' ' && !b"\"#<>\x7f".contains(&b)))
}

/// Whether all bytes may stand in a URI without a fragment (RFC 3986, 2). A `%` is part of `"%" HEXDIG HEXDIG`.
pub(super) fn is_uri(target: &[u8]) -> bool {
    let is_hex = |at: usize| target.get(at).is_some_and(u8::is_ascii_hexdigit);
    (0..target.len()).all(|at| match target[at] {
        b'%' => is_hex(at + 1) && is_hex(at + 2),
        other => other.is_ascii_alphanumeric() || b"-._~:/?[]@!$&'()*+,;=".contains(&other),
    })
}

pub(super) fn is_tchar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

pub(super) fn is_space(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// HTAB, SP, VCHAR and obs-text.
pub(super) fn is_text(byte: u8) -> bool {
    is_space(byte) || (byte > b' ' && byte != 0x7f)
}

pub(super) fn trim(mut value: &[u8]) -> &[u8] {
    while let [first, rest @ ..] = value
        && is_space(*first)
    {
        value = rest;
    }
    while let [rest @ .., last] = value
        && is_space(*last)
    {
        value = rest;
    }
    value
}
