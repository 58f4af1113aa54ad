//! The JSON form of an entity: writing and reading.
//!
//! Reading distinguishes three cases: an entity, JSON that is no entity (422), and a body that is not JSON (400). A valid
//! entity is read in one pass. Any other body is read a second time as plain JSON, to choose between the two errors, and
//! JSON of something else a third time, to name the field. Nesting is bounded before parsing, and `stack` has room for as many
//! levels.
//!
//! A body that nests deeper than all values before it may do so only in fields that the type ignores. So while it is read, the
//! levels of what the type reads are counted.

mod invalid_entity;
mod level_counter;
mod number;
mod short;
pub(crate) mod usual;

use std::borrow::Cow;
use std::cell::Cell;

use serde_core::de::{DeserializeOwned, IgnoredAny};
use serde_path_to_error::Segment;

pub use self::invalid_entity::{BodyFault, InvalidEntity};
use self::level_counter::LevelCounter;
use crate::entity::EntityRef;
use crate::stack::{self, MAX_DEPTH};
use crate::text::shortened;

/// Appends `{"id":1,"description":"...","value":60.750847}`.
#[inline]
pub(crate) fn write_published(entity: EntityRef<'_>, out: &mut Vec<u8>) {
    write_fields(entity.id, entity.description, entity.value, out);
}

/// Does the same. The fields come in registers: a structure would be copied in memory first.
#[inline(never)]
fn write_fields(id: i64, description: &str, value: f64, out: &mut Vec<u8>) {
    if !short::write(id, description.as_bytes(), value, out) {
        write_any(id, description, value, out);
    }
}

/// Appends an entity of any size.
#[inline(never)]
fn write_any(id: i64, description: &str, value: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"id\":");
    number::write_integer(id, out);
    out.extend_from_slice(b",\"description\":\"");
    if needs_escape(description.as_bytes()) {
        write_escaped(description, out);
    } else {
        out.extend_from_slice(description.as_bytes());
    }
    out.extend_from_slice(b"\",\"value\":");
    number::write_float(value, out);
    out.push(b'}');
}

/// Appends a text without its quotation marks.
#[cold]
fn write_escaped(text: &str, out: &mut Vec<u8>) {
    out.pop(); // `serde_json` writes both quotation marks
    let _ = serde_json::to_writer(&mut *out, text); // writing to a `Vec` does not fail
    out.pop();
}

/// Whether a text in JSON has an escape: for a control character, a quotation mark or a backslash.
fn needs_escape(text: &[u8]) -> bool {
    // The last block overlaps the one before it. A copy of the rest into a block would be read before it is stored, which stalls.
    match text.last_chunk::<16>() {
        Some(last) => text.as_chunks::<16>().0.iter().fold(has_escape(last), |found, block| found | has_escape(block)),
        None => text.iter().any(|&byte| has_escape(&[byte])),
    }
}

/// Does the same for a block. A loop of a fixed length without an early exit is vectorised by the compiler.
#[inline]
fn has_escape<const N: usize>(block: &[u8; N]) -> bool {
    block.iter().fold(false, |found, &b| found | (b < b' ') | (b == b'"') | (b == b'\\'))
}

/// Reads an entity of any type.
///
/// # Errors
///
/// Returns [`InvalidEntity`] if the body is not an entity.
pub(crate) fn read<E: DeserializeOwned>(body: &[u8]) -> Result<E, InvalidEntity> {
    let openings = openings(body);
    if openings <= MAX_DEPTH && stack::is_enough_and_noted(openings) {
        return parse(body, None);
    }
    let depth = depth(body);
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    if depth <= stack::noted() {
        return stack::for_depth(depth, || parse(body, None));
    }
    let deepest = Cell::new(0);
    let entity = stack::for_depth(depth, || parse(body, Some(&deepest)))?;
    stack::note(deepest.get().min(depth));
    Ok(entity)
}

/// Reads an entity of a type without nested values, so what the body nests is ignored.
///
/// # Errors
///
/// Returns [`InvalidEntity`] if the body is not an entity.
pub(crate) fn read_flat<E: DeserializeOwned>(body: &[u8]) -> Result<E, InvalidEntity> {
    if openings(body) > MAX_DEPTH && depth(body) > MAX_DEPTH { Err(too_deep()) } else { parse(body, None) }
}

fn too_deep() -> InvalidEntity {
    InvalidEntity::NotJson(BodyFault::new(format!("nests deeper than {MAX_DEPTH} levels")))
}

/// Checks that a body is JSON, and returns its text.
///
/// # Errors
///
/// Returns [`InvalidEntity::NotJson`] if the body is not JSON, or is nested too deeply.
pub(crate) fn check(body: &[u8]) -> Result<&str, InvalidEntity> {
    if openings(body) > MAX_DEPTH && depth(body) > MAX_DEPTH {
        return Err(too_deep());
    }
    let text = utf8(body)?;
    match deserialize::<IgnoredAny>(text, None) {
        Ok(_) => Ok(text),
        Err(error) => Err(not_json(&error)),
    }
}

fn utf8(body: &[u8]) -> Result<&str, InvalidEntity> {
    str::from_utf8(body).map_err(|error| {
        let what = format!("is not UTF-8: the byte at {} is wrong", error.valid_up_to());
        InvalidEntity::NotJson(BodyFault::new(what))
    })
}

fn not_json(error: &serde_json::Error) -> InvalidEntity {
    InvalidEntity::NotJson(fault("is not JSON", &error_text(".", error), error))
}

/// Reads an entity from a body of bounded depth, and counts its levels into `deepest` as in [`LevelCounter`].
fn parse<E: DeserializeOwned>(body: &[u8], deepest: Option<&Cell<usize>>) -> Result<E, InvalidEntity> {
    let text = utf8(body)?;
    let read = if is_object(body) { read_object(text, deepest) } else { Err(text.into()) };
    let tried = match read {
        Ok(entity) => return Ok(entity),
        Err(tried) => tried,
    };
    Err(match deserialize::<IgnoredAny>(text, None) {
        Err(error) => not_json(&error),
        Ok(_) if !is_object(body) => {
            InvalidEntity::NotAnEntity(BodyFault::new(format!("{NOT_AN_ENTITY}: it is no object")))
        }
        Ok(_) => InvalidEntity::NotAnEntity(wrong_field::<E>(&tried)),
    })
}

/// Whether a body is an object, if it is JSON. Without this check an array of the fields' values would be an entity.
fn is_object(body: &[u8]) -> bool {
    body.trim_ascii_start().starts_with(b"{")
}

/// Returns a reader without a limit of its own on nesting: the depth of the body is checked, and the stack has room for it.
fn reader(text: &str) -> serde_json::Deserializer<serde_json::de::StrRead<'_>> {
    let mut reader = serde_json::Deserializer::from_str(text);
    reader.disable_recursion_limit();
    reader
}

fn deserialize<T: DeserializeOwned>(text: &str, deepest: Option<&Cell<usize>>) -> Result<T, serde_json::Error> {
    let mut reader = reader(text);
    let value = match deepest {
        None => T::deserialize(&mut reader)?,
        Some(deepest) => T::deserialize(LevelCounter::new(&mut reader, deepest))?,
    };
    reader.end()?;
    Ok(value)
}

/// Reads an entity from an object. On an error, returns the text in which the fault is.
///
/// `serde_json` takes `-0` for a float only. So an error right after a `-0` that is no part of a longer number is about an integer:
/// the sign is then removed, and the text read again. After [`ONE_BY_ONE`] such errors, all signs are removed at once. So a `-0` for
/// a float keeps its sign, if no more integers are written in this way. Offsets do not change.
fn read_object<'t, E: DeserializeOwned>(text: &'t str, deepest: Option<&Cell<usize>>) -> Result<E, Cow<'t, str>> {
    let error = match deserialize(text, deepest) {
        Ok(entity) => return Ok(entity),
        Err(error) => error,
    };
    read_unsigned(text, error, deepest)
}

/// Does the same after this error.
#[cold]
fn read_unsigned<'t, E: DeserializeOwned>(
    text: &'t str,
    mut error: serde_json::Error,
    deepest: Option<&Cell<usize>>,
) -> Result<E, Cow<'t, str>> {
    let mut text = Cow::Borrowed(text);
    for hits in 1.. {
        let Some(at) = negative_zero_before(text.as_bytes(), error.line(), error.column()) else { break };
        match hits {
            1..=ONE_BY_ONE => text.to_mut().replace_range(at..=at, " "),
            ALL => text = Cow::Owned(without_negative_zeros(&text)),
            _ => break,
        }
        match deserialize(&text, deepest) {
            Ok(entity) => return Ok(entity),
            Err(next) => error = next,
        }
    }
    Err(text)
}

/// The number of integers `-0` that are found one by one. Each costs a pass over the body.
const ONE_BY_ONE: usize = 2;
const ALL: usize = ONE_BY_ONE + 1;

/// Returns the text with a space for the sign of each number `-0`.
fn without_negative_zeros(text: &str) -> String {
    let mut unsigned = text.to_owned();
    for (at, byte) in outside_strings(text.as_bytes()) {
        if byte == b'-' && is_negative_zero(text.as_bytes(), at) {
            unsigned.replace_range(at..=at, " ");
        }
    }
    unsigned
}

/// Whether a number at this offset is `-0`. Outside of strings, `-` may also be in an exponent.
fn is_negative_zero(text: &[u8], at: usize) -> bool {
    let is_in_number = at.checked_sub(1).is_some_and(|before| matches!(text.get(before), Some(b'e' | b'E')));
    let is_longer = matches!(text.get(at + 2), Some(b'0'..=b'9' | b'.' | b'e' | b'E'));
    text.get(at..at + 2) == Some(b"-0") && !is_in_number && !is_longer
}

/// Returns the offset of a number `-0` that ends in front of this position. Lines and columns count from 1.
fn negative_zero_before(text: &[u8], line: usize, column: usize) -> Option<usize> {
    let before =
        line.checked_sub(2).map_or(Some(0), |lines| memchr::memchr_iter(b'\n', text).nth(lines).map(|lf| lf + 1))?;
    let end = before.checked_add(column)?;
    let start = end.checked_sub(2)?;
    is_negative_zero(text, start).then_some(start)
}

/// How the sentence about a body begins that is JSON of something else.
const NOT_AN_ENTITY: &str = "is not an entity";

/// Returns the field that is wrong, and what was expected.
fn wrong_field<E: DeserializeOwned>(text: &str) -> BodyFault {
    let mut reader = reader(text);
    let Err(error) = serde_path_to_error::deserialize::<_, E>(&mut reader) else {
        return BodyFault::new(format!("{NOT_AN_ENTITY}: it has another form"));
    };
    let mut path = error.path().to_string();
    // The last part is unknown if it is a name that cannot be read.
    if matches!(error.path().iter().next_back(), Some(Segment::Unknown)) {
        path = path.trim_end_matches(['.', '?']).to_owned() + " (the name of a member)";
    }
    let text = error_text(path.trim_start(), error.inner());
    // The body is JSON, so the escape is well-formed. Half of a surrogate pair is no text (RFC 8259, section 8.2).
    let text = ["unexpected end of hex escape", "lone leading surrogate in hex escape"]
        .iter()
        .fold(text, |text, known| text.replacen(known, "half of a surrogate pair in an escape", 1));
    fault(NOT_AN_ENTITY, &text, error.inner())
}

/// Returns a fault at the place of `error`, if that has one. `text`: what the error says.
fn fault(what: &str, text: &str, error: &serde_json::Error) -> BodyFault {
    let fault = BodyFault::new(format!("{what}: {text}"));
    if error.line() > 0 { fault.at(error.line(), error.column()) } else { fault }
}

/// Returns the text of an error at `path`, without the place in the body: the field, what is wrong, and what was expected. It contains
/// at most 100 bytes of the input: the end of a long path, and the start of a long value.
fn error_text(path: &str, error: &serde_json::Error) -> String {
    const MAX_PATH: usize = 40;
    const MAX_VALUE: usize = 60;
    const MAX_EXPECTED: usize = 200;
    let text = error.to_string();
    // serde_json has no text without the place.
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = text.strip_suffix(&place).unwrap_or(&text);
    // What was expected is text of the type, not of the input. If there is none, all may be of the input.
    let (value, expected) = match text.rsplit_once(", expected ") {
        Some((value, expected)) => {
            (shortened(value, MAX_VALUE), format!(", expected {}", shortened(expected, MAX_EXPECTED)))
        }
        None => (shortened(text, MAX_VALUE), String::new()),
    };
    let path = match path.len().checked_sub(MAX_PATH) {
        // An error about the object itself, such as a missing field, names the field.
        _ if path == "." => String::new(),
        None | Some(0) => format!("{path}: "),
        Some(cut) => {
            let end = (cut + 3..path.len()).find_map(|at| path.get(at..)).unwrap_or_default();
            format!("...{end}: ")
        }
    };
    path + &value + &expected
}

/// Returns the number of brackets and braces that open in a body, also in strings, or one more than [`MAX_DEPTH`] if there are
/// more. The body is at most as deep.
fn openings(body: &[u8]) -> usize {
    memchr::memchr2_iter(b'[', b'{', body).take(MAX_DEPTH + 1).count()
}

/// Returns the depth of a body, or one more than [`MAX_DEPTH`] if it is deeper.
pub(crate) fn depth(body: &[u8]) -> usize {
    let (mut depth, mut max) = (0_usize, 0);
    for (_, byte) in outside_strings(body) {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                max = max.max(depth);
                if max > MAX_DEPTH {
                    break;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    max
}

/// Returns the bytes of JSON that are outside of strings, with their offsets.
pub(crate) fn outside_strings(json: &[u8]) -> impl Iterator<Item = (usize, u8)> {
    let mut rest = json;
    std::iter::from_fn(move || {
        loop {
            let (&byte, after) = rest.split_first()?;
            let at = json.len() - rest.len();
            if byte != b'"' {
                rest = after;
                return Some((at, byte));
            }
            rest = after_string(after);
        }
    })
}

/// Returns what follows the string that `rest` begins in.
pub(crate) fn after_string(mut rest: &[u8]) -> &[u8] {
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        let is_escape = rest.get(at) == Some(&b'\\');
        rest = rest.get(at + 1 + usize::from(is_escape)..).unwrap_or_default();
        if !is_escape {
            return rest;
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    use crate::entity::Entity;

    fn read(body: &[u8]) -> Result<Entity, InvalidEntity> {
        super::read(body)
    }

    fn json(entity: &Entity) -> String {
        let mut out = Vec::new();
        write_published(entity.as_ref(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_form_is_the_published_one() {
        let entity = Entity::new(1, "aZ09", 60.750847);
        assert_eq!(json(&entity), r#"{"id":1,"description":"aZ09","value":60.750847}"#);
    }

    #[test]
    fn every_value_round_trips_bit_for_bit() {
        let mut bits = 0x9E37_79B9_7F4A_7C15_u64;
        let random = std::iter::repeat_with(|| {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            f64::from_bits(bits)
        });
        let special = [0.0, -0.0, 5.0, -1.0, 1e15, 1e16, 1e300, f64::MAX, f64::MIN_POSITIVE, 5e-324, 0.1, 1.0 / 3.0];
        for value in special.into_iter().chain(random.filter(|v| v.is_finite()).take(20_000)) {
            let text = json(&Entity::new(i64::MIN, "", value));
            let parsed = read(text.as_bytes()).unwrap();
            assert_eq!(parsed.value.to_bits(), value.to_bits(), "{text}");
        }
    }

    #[test]
    fn every_text_round_trips() {
        let texts = ["", "plain", "\"quoted\" \\ and\ncontrol", "snow \u{2603} \u{1F980}", "\u{2028}\u{feff}", "[[{\""];
        // Each ASCII character by itself, so that no escape of another character hides a fault.
        let characters = (0..=0x7f_u8).map(|byte| format!("a{}b", char::from(byte)));
        for text in texts.map(String::from).into_iter().chain(characters) {
            let entity = Entity::new(i64::MAX, text, 1.5);
            assert_eq!(read(json(&entity).as_bytes()).unwrap(), entity);
        }
    }

    #[test]
    fn an_entity_has_many_spellings() {
        let entity = |(description, value)| format!(r#"{{"id":1,"description":"{description}","value":{value}}}"#);
        for (written, shown) in [
            ((r"\u0061Z\u003009", "6.0750847e1"), ("aZ009", "60.750847")),
            (("", "5"), ("", "5.0")),
            ((r#"\"\\\/\b\f\n\r\t\u0000\u001F"#, "-0.0"), (r#"\"\\/\b\f\n\r\t\u0000\u001f"#, "-0.0")),
            ((r"é\u2028\ud83e\udd80", "1e-400"), ("é\u{2028}\u{1F980}", "0.0")),
            (("d", "1E+2"), ("d", "100.0")),
            (("d", "18446744073709551616"), ("d", "1.8446744073709552e+19")),
        ] {
            assert_eq!(read(entity(written).as_bytes()).map(|read| json(&read)), Ok(entity(shown)));
        }
    }

    #[test]
    fn malformed_json_and_json_of_no_entity_are_different_errors() {
        let good = r#"{"id":1,"description":"d","value":2}"#;
        assert_eq!(read(good.as_bytes()).unwrap().value, 2.0);
        let not_json: [&[u8]; 13] = [
            b"",
            b"\0",
            b"\"\x01\"",
            b"{",
            b"{\"id\":\"wrong type first\", broken",
            b"{\"id\":1,\"description\":\"d\",\"value\":2}x",
            b"{\"id\":1,\"description\":\"\xff\",\"value\":2}",
            b"\xef\xbb\xbf{\"id\":1,\"description\":\"d\",\"value\":2}",
            b"{\"id\":1,\"description\":\"d\",\"value\":2,}",
            b"{\"id\":01,\"description\":\"d\",\"value\":2}",
            b"{\"id\":1,\"description\":\"a\nb\",\"value\":2}",
            b"NaN",
            b"'single'",
        ];
        for body in not_json {
            assert!(matches!(read(body), Err(InvalidEntity::NotJson(_))), "{}", String::from_utf8_lossy(body));
        }
        let no_entity = [
            "null",
            "[]",
            "{}",
            r#"{"id":1,"description":"d"}"#,
            r#"{"id":1,"id":1,"description":"d","value":2}"#,
            r#"{"id":1.5,"description":"d","value":2}"#,
            r#"{"id":1.0,"description":"d","value":2}"#,
            r#"{"id":1e0,"description":"d","value":2}"#,
            r#"{"id":9223372036854775808,"description":"d","value":2}"#,
            r#"{"id":1,"description":"d","value":1e400}"#,
            r#"{"id":1,"description":"d","value":1e99999999999999999999}"#,
            r#"{"id":1,"description":"d","value":"2"}"#,
            r#"{"id":1,"description":"d","value":true}"#,
            r#"{"id":1,"description":7,"value":2}"#,
            r#"{"id":1,"description":"\ud800","value":2}"#,
            r#"{"id":1,"description":"\udc00\ud800","value":2}"#,
            r#"[1,"d",2]"#,
            r#" [1,"d",2.5] "#,
        ];
        for body in no_entity {
            assert!(matches!(read(body.as_bytes()), Err(InvalidEntity::NotAnEntity(_))), "{body}");
        }
    }

    /// Regression test: a client that writes `-0` for the integer 0 (RFC 8259, 6) was refused.
    #[test]
    fn negative_zero_is_an_integer() {
        for body in [
            r#"{"id":-0,"description":"d","value":2}"#,
            r#"{"description":"d","value":2,"id":-0}"#,
            "\n{\n\"description\":\"\u{2603}\\n-0\",\n \"id\" : -0 ,\"value\":2}",
        ] {
            assert_eq!(read(body.as_bytes()).map(|entity| entity.id), Ok(0), "{body}");
        }
        let both = read(br#"{"id":-0,"description":"d","value":-0}"#).unwrap();
        assert_eq!((both.id, both.value.to_bits()), (0, (-0.0_f64).to_bits()));
        for id in ["-0.0", "-0e0", "-0.5", "0.0", "\"-0\"", "[-0]", "-00"] {
            let body = format!(r#"{{"id":{id},"description":"d","value":2}}"#);
            assert!(read(body.as_bytes()).is_err(), "{body}");
        }

        #[derive(Debug, Deserialize)]
        struct Counts {
            counts: Vec<u8>,
            inner: Option<Box<Counts>>,
        }
        // The wrong field is named, not the zero.
        for (body, expected) in [
            (r#"{"id":-0,"description":5,"value":1}"#, "description: invalid type: integer `5`"),
            (r#"{"id":1e-0,"description":"d","value":-0}"#, "id: invalid type: floating point `1.0`"),
            (r#"{"id":-0,"description":"-0","value":"-0"}"#, "value: invalid type: string \"-0\""),
        ] {
            let Err(InvalidEntity::NotAnEntity(fault)) = read(body.as_bytes()) else { panic!("{body}") };
            assert!(fault.what().contains(expected), "{body}: {fault}");
        }
        let counts = super::read::<Counts>(br#"{"counts":[-0,1,-0],"inner":{"counts":[-0],"inner":null}}"#).unwrap();
        assert_eq!((counts.counts, counts.inner.unwrap().counts), (vec![0, 1, 0], vec![0]));
        let many = format!(r#"{{"counts":[{}-0],"text":"\"-0,-0","inner":null}}"#, "-0,".repeat(1000));
        assert_eq!(super::read::<Counts>(many.as_bytes()).map(|counts| counts.counts), Ok(vec![0; 1001]));
        assert_eq!(without_negative_zeros(r#"[-0,-0.0,1e-0,"-0\"-0",-01,-0]"#), r#"[ 0,-0.0,1e-0,"-0\"-0",-01, 0]"#);
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    enum Shape {
        Point,
        Circle(f64),
        Group(Vec<Shape>),
        Named { name: Option<Box<Shape>> },
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code)]
    struct Drawing {
        #[serde(default)]
        shapes: Vec<Shape>,
        #[serde(default)]
        any: serde_json::Value,
        #[serde(default)]
        pair: (u8, Option<[u8; 2]>),
        #[serde(default, deserialize_with = "or_default")]
        best: Option<Box<Drawing>>,
        #[serde(default)]
        map: std::collections::HashMap<String, Drawing>,
    }

    /// Takes the default value if there is an error.
    fn or_default<'de, T: Default + Deserialize<'de>, D: serde::Deserializer<'de>>(value: D) -> Result<T, D::Error> {
        Ok(T::deserialize(value).unwrap_or_default())
    }

    #[test]
    fn the_levels_of_values_are_counted_and_not_those_of_ignored_ones() {
        for (body, levels) in [
            ("{}", 1),
            (r#"{"ignored":[[{"x":[]}]],"shapes":[]}"#, 2),
            (r#"{"shapes":["Point"]}"#, 2),
            (r#"{"shapes":[{"Circle":1.5}]}"#, 3),
            (r#"{"shapes":[{"Group":[{"Group":["Point"]}]}]}"#, 6),
            (r#"{"shapes":[{"Named":{"name":{"Circle":1},"ignored":[[[[]]]]}}]}"#, 5),
            (r#"{"any":[{"x":[1]},[[]]]}"#, 4),
            (r#"{"pair":[1,[2,3]]}"#, 3),
            (r#"{"map":{"a":{"map":{"b":{}}}}}"#, 5),
            (r#"{"best":{"any":[],"best":null}}"#, 3),
        ] {
            let deepest = Cell::new(0);
            deserialize::<Drawing>(body, Some(&deepest)).unwrap_or_else(|error| panic!("{body}: {error}"));
            assert_eq!(deepest.get(), levels, "{body}");
        }
    }

    #[test]
    fn depth_is_bounded_wherever_it_is() {
        let open = "[".repeat(1_000_000);
        assert!(matches!(read(open.as_bytes()), Err(InvalidEntity::NotJson(_))));
        let closed = format!(r#"{{"id":1,"description":"d","value":2,"x":{}{}}}"#, "[".repeat(200), "]".repeat(200));
        assert!(matches!(read(closed.as_bytes()), Err(InvalidEntity::NotJson(_))));
        let text = format!(r#"{{"id":1,"description":"{}\"","value":2}}"#, "[{".repeat(200));
        assert!(read(text.as_bytes()).is_ok());
    }

    #[test]
    fn errors_do_not_echo_much_input() {
        let long = format!(r#"{{"id":"{}","description":"d","value":2}}"#, "x".repeat(10_000));
        let Err(InvalidEntity::NotAnEntity(fault)) = read(long.as_bytes()) else { panic!("no entity") };
        assert!(fault.to_string().matches('x').count() <= 100, "{fault}");
    }

    #[derive(Debug, Deserialize)]
    struct Owner {
        #[allow(dead_code)]
        age: u8,
    }

    #[derive(Debug, Deserialize)]
    struct Account {
        #[allow(dead_code)]
        name: String,
        #[allow(dead_code)]
        owner: Owner,
    }

    #[test]
    fn the_wrong_field_is_named() {
        let read = |body: &str| super::read::<Account>(body.as_bytes()).map(|_| ());
        assert_eq!(read(r#"{"name":"a","owner":{"age":7}}"#), Ok(()));
        for (body, path, expected) in [
            (r#"{"name":"a","owner":{"age":"7"}}"#, "owner.age: ", "expected u8"),
            (r#"{"name":"a","owner":{"age":700}}"#, "owner.age: ", "expected u8"),
            (r#"{"name":7,"owner":{"age":7}}"#, "name: ", "expected a string"),
            (r#"{"name":"a","owner":{}}"#, "owner: ", "missing field `age`"),
            (r#"{"name":"a"}"#, "entity: ", "missing field `owner`"),
            (r#"{"name":"\ud800"}"#, "entity: name: ", "surrogate"),
            // Regression test: the path was `?`.
            (r#"{"\ud800":1,"name":"a"}"#, "entity: (the name of a member): ", "surrogate"),
            (r#"{"name":"a","owner":{"\udfff":1}}"#, "entity: owner (the name of a member): ", "surrogate"),
        ] {
            let Err(InvalidEntity::NotAnEntity(fault)) = read(body) else { panic!("{body}") };
            let what = fault.what();
            assert!(what.contains(path) && what.contains(expected), "{body}: {fault}");
        }
        let garbage = read(r#"{"name":7,"owner":{"age":7}} garbage"#);
        assert!(matches!(garbage, Err(InvalidEntity::NotJson(_))), "{garbage:?}");
    }
}
