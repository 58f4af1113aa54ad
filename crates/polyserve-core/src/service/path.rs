//! Ids in paths: one segment, percent-encoded (RFC 3986, section 2.1).

use std::fmt::{self, Write};

use crate::entity::{Identifiable, number_form};

/// The maximum length of an id's text, in bytes.
pub(super) const MAX_ID: usize = 512;

/// Whether an id is a number of at most 64 bits. Then a path can name it, and its text needs no check.
fn is_number<I: 'static>() -> bool {
    number_form::<I>().is_some()
}

/// Reads an id that is a number from the rest of a path. Then the rest is one segment: a number has no slash.
#[inline]
pub(super) fn parse_number<E: Identifiable>(rest: &str) -> Option<E::Id> {
    if is_number::<E::Id>() { E::parse_id(rest) } else { None }
}

/// Reads an id from the rest of a path, which is a segment. A percent-encoded byte counts as the byte (RFC 3986, 6.2.2.2).
pub(super) fn parse_id<E: Identifiable>(segment: &str) -> Option<E::Id> {
    if let Some(id) = parse_number::<E>(segment) {
        return Some(id);
    }
    if has_several_segments(segment) {
        return None;
    }
    if memchr::memchr(b'%', segment.as_bytes()).is_none() {
        return is_valid_id(segment).then(|| E::parse_id(segment))?;
    }
    let decoded = decode(segment)?;
    is_valid_id(&decoded).then(|| E::parse_id(&decoded))?
}

/// Whether the rest of a path goes on after its first segment.
pub(super) fn has_several_segments(rest: &str) -> bool {
    memchr::memchr(b'/', rest.as_bytes()).is_some()
}

/// Whether a path can name this id. Clients remove the segments `.` and `..` from a path, in any encoding.
fn is_valid_id(id: &str) -> bool {
    (1..=MAX_ID).contains(&id.len()) && id != "." && id != ".."
}

/// Checks the id of an entity that comes without a path.
///
/// # Errors
///
/// Returns a sentence if no path can name the id.
pub(super) fn check_id<I: fmt::Display + 'static>(id: &I) -> Result<(), String> {
    if is_number::<I>() {
        return Ok(());
    }
    let mut text = MeasuredText::default();
    // The writer ends a text that is too long with an error.
    let _ = write!(text, "{id}");
    match text {
        MeasuredText { len: 0, .. } => Err(String::from("The entity's id is empty.")),
        MeasuredText { len, .. } if len > MAX_ID => Err(format!("The entity's id is longer than {MAX_ID} bytes.")),
        MeasuredText { only_dots: true, len: ..=2 } => {
            Err(String::from("The entity's id is a dot segment, which paths cannot hold."))
        }
        MeasuredText { .. } => Ok(()),
    }
}

/// The length of a text, and whether it consists of dots. It needs no allocation.
struct MeasuredText {
    len: usize,
    only_dots: bool,
}

impl Default for MeasuredText {
    fn default() -> Self {
        Self { len: 0, only_dots: true }
    }
}

impl Write for MeasuredText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.len += text.len();
        self.only_dots &= text.bytes().all(|byte| byte == b'.');
        if self.len > MAX_ID { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Returns the decoded text, or `None` if it is not UTF-8 or a `%` is not followed by two hexadecimal digits.
pub(super) fn decode(segment: &str) -> Option<String> {
    let mut bytes = segment.bytes();
    let mut decoded = Vec::with_capacity(segment.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok()
}

/// Returns the path of an id. Every byte that is not unreserved (RFC 3986, section 2.3) is encoded, so an id adds neither a
/// segment nor a header field.
pub(super) fn location(prefix: &str, id: &impl fmt::Display) -> String {
    let mut path = Encoded(format!("{prefix}/"));
    let _ = write!(path, "{id}");
    path.0
}

struct Encoded(String);

impl Write for Encoded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                self.0.push(char::from(byte));
            } else {
                write!(self.0, "%{byte:02X}")?;
            }
        }
        Ok(())
    }
}

/// Whether a text is empty or a prefix of paths: segments that each begin with a slash, of bytes that need no encoding.
pub(super) fn is_prefix(prefix: &str) -> bool {
    let segment = |segment: &str| {
        !segment.is_empty()
            && segment != "."
            && segment != ".."
            && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte))
    };
    prefix.is_empty() || prefix.strip_prefix('/').is_some_and(|rest| rest.split('/').all(segment))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entity::Entity;

    #[test]
    fn an_id_has_many_spellings() {
        for (segment, id) in [
            ("1", 1),
            ("01", 1),
            ("000000000000000000000000000001", 1),
            ("%31", 1),
            ("%30%31", 1),
            ("-0", 0),
            ("-007", -7),
            ("999999999999999999", 999_999_999_999_999_999),
            ("000000000000000001", 1),
            ("1000000000000000000", 1_000_000_000_000_000_000),
            ("-999999999999999999", -999_999_999_999_999_999),
            ("%2D7", -7),
            ("-9223372036854775808", i64::MIN),
            ("9223372036854775807", i64::MAX),
        ] {
            assert_eq!(parse_id::<Entity>(segment), Some(id), "{segment}");
        }
        let short = [
            "", "x", "1x", "x1", "+1", "-", "--1", "1-", "1.0", "1e0", "0x1", "1_0", "1,0", "%", "%3", "%3x", "%41",
            "%2B1", "%201", "1%00", "%D9%A1",
        ];
        let long =
            ["9223372036854775808", "-9223372036854775809", "99999999999999999999999999", "%39223372036854775808"];
        for segment in short.into_iter().chain(long) {
            assert_eq!(parse_id::<Entity>(segment), None, "{segment}");
        }
    }

    #[test]
    fn every_text_round_trips_through_a_path() {
        for id in ["a", "a b", "a/b", "%", "%41", "\r\nX: y", "snow \u{2603}", "+1", "a?b#c", "-._~", "..."] {
            let path = location("/p", &id);
            assert!(path.bytes().all(|byte| byte.is_ascii_graphic()), "{path}");
            let segment = path.strip_prefix("/p/").unwrap();
            assert!(!segment.contains('/'), "{path}");
            assert_eq!(decode(segment).unwrap(), id);
        }
    }

    #[test]
    fn what_no_path_can_name_is_refused() {
        for id in ["", ".", "..", &"x".repeat(MAX_ID + 1)] {
            assert!(!is_valid_id(id) && check_id(&id.to_owned()).is_err(), "{id}");
        }
        for id in ["...", "x", &"x".repeat(MAX_ID)] {
            assert!(is_valid_id(id) && check_id(&id.to_owned()).is_ok(), "{id}");
        }
        assert!(check_id(&i64::MIN).is_ok());
        assert_eq!([decode("%"), decode("%4"), decode("%g0"), decode("%ff")], [const { None }; 4]);
    }
}
