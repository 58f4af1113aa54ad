//! The conditions of a request (RFC 9110, section 13).

use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{Method, StatusCode};

use super::request::name_length_bit;
use super::{Head, Reply};
use crate::condition::{Condition, ETag, Tags};

/// Whether a request has no condition, by the lengths of its fields' names. They decide for almost every request.
#[inline]
pub(super) fn are_absent(head: &Head<'_>) -> bool {
    const LENGTHS: u64 = name_length_bit("if-match") | name_length_bit("if-none-match");
    head.headers.name_lengths() & LENGTHS == 0
}

/// Whether a PUT has neither a condition, a `Content-Range` nor a `Content-Encoding`, in the same way.
#[inline]
pub(super) fn are_absent_from_put(head: &Head<'_>) -> bool {
    const LENGTHS: u64 = name_length_bit("content-range") | name_length_bit("content-encoding");
    are_absent(head) && head.headers.name_lengths() & LENGTHS == 0
}

/// Reads the condition of a request from `If-Match` and `If-None-Match`. Dates are not compared, because a service without
/// `Last-Modified` has none. If the service has no `etags`, no listed tag is that of an entity.
///
/// A malformed field of a GET or HEAD is ignored: the client then gets the whole entity.
///
/// # Errors
///
/// Returns a 400 if a field of a write is malformed. A condition that is not understood must not be taken for one that holds.
pub(super) fn condition(head: &Head<'_>, etags: bool) -> Result<Condition, Reply> {
    let (mut if_match, mut if_none_match) = (Ok(None), Ok(None));
    for (name, value) in head.headers.iter() {
        if name.eq_ignore_ascii_case(IF_MATCH.as_str()) {
            add(&mut if_match, value, TagComparison::Strong);
        } else if name.eq_ignore_ascii_case(IF_NONE_MATCH.as_str()) {
            add(&mut if_none_match, value, TagComparison::Weak);
        }
    }
    if let (Ok(None), Ok(None)) = (&if_match, &if_none_match) {
        return Ok(Condition::ALWAYS);
    }
    let is_read = matches!(*head.method, Method::GET | Method::HEAD);
    let read = |part: Result<Option<Tags>, Malformed>, name| match part {
        Ok(Some(Tags::List(_))) if !etags => Ok(Some(Tags::List(Vec::new()))),
        Err(Malformed) if is_read => Ok(None),
        part => part.map_err(|Malformed| malformed(name)),
    };
    Ok(Condition::new(read(if_match, "If-Match")?, read(if_none_match, "If-None-Match")?))
}

fn malformed(name: &str) -> Reply {
    let detail = format!("{name} is malformed: it must be * or a list of entity tags in double quotes.");
    Reply::problem(StatusCode::BAD_REQUEST, detail)
}

/// How a weak tag (`W/"..."`) of the client compares with the strong tags of this service (RFC 9110, 8.8.3.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum TagComparison {
    /// Never equal.
    Strong,
    /// By its text.
    Weak,
}

/// A field is neither `*` nor a list of entity tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Malformed;

/// Adds the tags of one field value, which continues the list of an earlier value.
fn add(tags: &mut Result<Option<Tags>, Malformed>, value: &[u8], comparison: TagComparison) {
    if let Ok(read) = tags
        && extend(read, value, comparison).is_none()
    {
        *tags = Err(Malformed);
    }
}

/// Does the work of [`add`]. Returns `None` if `value` is malformed.
fn extend(tags: &mut Option<Tags>, value: &[u8], comparison: TagComparison) -> Option<()> {
    let value = value.trim_ascii();
    if value == b"*" {
        // `*` stands alone.
        return tags.replace(Tags::Any).is_none().then_some(());
    }
    let Tags::List(list) = tags.get_or_insert_with(|| Tags::List(Vec::new())) else { return None };
    let mut rest = value;
    loop {
        // A recipient accepts empty elements of a list (RFC 9110, 5.6.1.2).
        rest = rest.trim_ascii_start();
        while let Some(after) = rest.strip_prefix(b",") {
            rest = after.trim_ascii_start();
        }
        if rest.is_empty() {
            return Some(());
        }
        let weak = rest.strip_prefix(b"W/");
        let quoted = weak.unwrap_or(rest).strip_prefix(b"\"")?;
        let end = memchr::memchr(b'"', quoted)?;
        let (opaque, after) = (quoted.get(..end)?, quoted.get(end + 1..)?);
        // Each byte is an `etagc` (RFC 9110, 8.8.3).
        if !opaque.iter().all(|&byte| byte == 0x21 || (0x23..0x7f).contains(&byte) || byte >= 0x80) {
            return None;
        }
        if weak.is_none() || comparison == TagComparison::Weak {
            list.extend(ETag::parse(opaque));
        }
        rest = after.trim_ascii_start();
        if !rest.is_empty() && !rest.starts_with(b",") {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "\"00000000000000000000000000000001\"";
    const TWO: &str = "\"00000000000000000000000000000002\"";

    fn read(values: &[&str], comparison: TagComparison) -> Option<Tags> {
        let mut tags = Ok(None);
        for value in values {
            add(&mut tags, value.as_bytes(), comparison);
        }
        tags.ok()?
    }

    #[test]
    fn lists_of_tags_are_read() {
        let list = |bits: &[u128]| Some(Tags::List(bits.iter().map(|&bits| ETag::from_bits(bits)).collect()));
        for (values, strong, weak) in [
            (vec!["*"], Some(Tags::Any), Some(Tags::Any)),
            (vec![" * "], Some(Tags::Any), Some(Tags::Any)),
            (vec![ONE], list(&[1]), list(&[1])),
            (vec![&format!("{ONE},{TWO}")], list(&[1, 2]), list(&[1, 2])),
            (vec![&format!(" , {ONE} ,, W/{TWO},")], list(&[1]), list(&[1, 2])),
            (vec![ONE, TWO], list(&[1, 2]), list(&[1, 2])),
            (vec!["\"a,b\", \"\", W/\"\u{e4}\""], list(&[]), list(&[])),
            (vec![""], list(&[]), list(&[])),
        ] {
            assert_eq!(read(&values, TagComparison::Strong), strong, "{values:?}");
            assert_eq!(read(&values, TagComparison::Weak), weak, "{values:?}");
        }
    }

    #[test]
    fn malformed_lists_are_refused() {
        let mixed = format!("*, {ONE}");
        for values in [
            vec!["a"],
            vec!["\"a"],
            vec!["a\""],
            vec!["w/\"a\""],
            vec!["W/ \"a\""],
            vec!["W/a"],
            vec!["\"a\" \"b\""],
            vec!["\"a\"b"],
            vec!["\"a b\""],
            vec!["'a'"],
            vec![&mixed],
            vec!["*", ONE],
            vec![ONE, "*"],
            vec!["*", "*"],
            vec!["**"],
        ] {
            assert_eq!(read(&values, TagComparison::Weak), None, "{values:?}");
        }
    }
}
