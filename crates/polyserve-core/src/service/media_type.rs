//! The media type of a body, by the grammar of RFC 9110, 8.3.1.

use super::is_token;

/// A media type: `type "/" subtype`.
#[derive(Clone, Copy)]
pub(super) struct MediaType<'a> {
    essence: &'a [u8],
}

impl<'a> MediaType<'a> {
    /// Reads the value of a `Content-Type`. Returns `None` if it is not a media type with well-formed parameters.
    pub(super) fn read(value: &'a [u8]) -> Option<Self> {
        let value = value.trim_ascii();
        let kind = token_len(value);
        let subtype = token_len(value.get(kind..)?.strip_prefix(b"/")?);
        let (essence, parameters) = value.split_at_checked(kind + 1 + subtype)?;
        (kind > 0 && subtype > 0 && are_parameters(parameters)).then_some(Self { essence })
    }

    /// Whether it is `name`, in upper or lower case.
    pub(super) fn is(self, name: &str) -> bool {
        self.essence.eq_ignore_ascii_case(name.as_bytes())
    }

    /// Whether its subtype ends with `suffix`, such as `+json`, in upper or lower case.
    pub(super) fn has_suffix(self, suffix: &str) -> bool {
        let start = self.essence.len().checked_sub(suffix.len());
        start.and_then(|at| self.essence.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(suffix.as_bytes()))
    }
}

/// Whether `text` is `*( OWS ";" OWS [ token "=" ( token / quoted-string ) ] )`. A name without a value is allowed too.
fn are_parameters(text: &[u8]) -> bool {
    let mut rest = text.trim_ascii_start();
    while let Some(parameter) = rest.strip_prefix(b";") {
        rest = parameter.trim_ascii_start();
        let name = token_len(rest);
        rest = rest.get(name..).unwrap_or_default();
        if let Some(value) = rest.strip_prefix(b"=") {
            let length = token_len(value).max(quoted_len(value));
            if name == 0 || length == 0 {
                return false;
            }
            rest = value.get(length..).unwrap_or_default();
        }
        rest = rest.trim_ascii_start();
    }
    rest.is_empty()
}

fn token_len(text: &[u8]) -> usize {
    text.iter().take_while(|&&byte| is_token(byte)).count()
}

/// Returns the length of the quoted string at the start of `text`. Zero if there is none.
fn quoted_len(text: &[u8]) -> usize {
    let mut is_escaped = true; // the first quote does not end it
    let end = text.iter().position(|&byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    });
    end.filter(|_| text.starts_with(b"\"")).map_or(0, |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_follows_the_grammar() {
        for value in [
            "application/json",
            " Application/JSON ",
            "application/json; charset=utf-8",
            "application/json ;a=b;;c=\"d; \\\" e\" ;",
            "application/json;a=\"\"",
            "application/json; charset",
        ] {
            assert!(MediaType::read(value.as_bytes()).is_some_and(|found| found.is("application/json")), "{value}");
        }
        for value in [
            "",
            "json",
            "/json",
            "application/",
            "application/json, text/json",
            "a/b c+json",
            "a/b/c+json",
            "text/xml, application/x+json",
            "application/json charset=utf-8",
            "application/json; charset=",
            "application/json; charset utf-8",
            "application/json; =utf-8",
            "application/json; a=\"b",
            "application/json; a=\"b\\\"",
            "application/json; a=b c",
            "application/json; a=\"b\"c",
        ] {
            assert!(MediaType::read(value.as_bytes()).is_none(), "{value}");
        }
        let has_suffix = |value: &str| MediaType::read(value.as_bytes()).is_some_and(|found| found.has_suffix("+json"));
        assert!(has_suffix("a/b+json") && has_suffix("a/+JSON;x=y"));
        assert!(!has_suffix("a/json") && !has_suffix("a/b+jsonx") && !has_suffix("a/b;c=d+json"));
    }
}
