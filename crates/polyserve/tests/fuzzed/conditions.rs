//! `If-Match` and `If-None-Match` as a second reading of RFC 9110, section 13, judges them.
//!
//! The first byte of an input selects the method, whether the entity is stored, and whether entities have tags. The rest are values of
//! fields, with line breaks between them: one that begins with `!` is of `If-None-Match`, another one of `If-Match`. An `@` in a value
//! is the tag of the stored entity.

use polyserve::http::{Method, Version};
use polyserve::memory::StdMutex;
use polyserve::{ETag, Entity, EntityRepo as _, EntityService, Head, Header, Headers, Request, Service as _};

/// What a field says.
enum Field {
    Absent,
    Malformed,
    Any,
    /// The tags, each with whether it is weak.
    Tags(Vec<(bool, Vec<u8>)>),
}

pub(crate) fn check(input: &[u8]) {
    let [kind, values @ ..] = input else { return };
    let methods = [Method::GET, Method::HEAD, Method::PUT, Method::DELETE];
    let (method, is_stored, has_tags) = (&methods[usize::from(kind % 4)], kind & 4 != 0, kind & 8 != 0);
    let stored = Entity::new(1, "stored", 0.5);
    let tag = ETag::of_entity(&stored).expect("it has JSON").to_string();
    let (mut if_match, mut if_none_match) = (Vec::new(), Vec::new());
    for value in values.split(|byte| *byte == b'\n').filter(|_| !values.is_empty()) {
        let (field, value) = match value {
            [b'!', value @ ..] => (&mut if_none_match, value),
            value => (&mut if_match, value),
        };
        let value = value.split(|byte| *byte == b'@').collect::<Vec<_>>().join(tag.as_bytes());
        if value.iter().any(|byte| *byte != b'\t' && byte.is_ascii_control()) {
            return; // no such field reaches a service
        }
        field.push(value);
    }
    let headers = [fields("if-match", &if_match), fields("If-None-Match", &if_none_match)].concat();
    let repo = StdMutex::new();
    if is_stored {
        repo.put(stored).wait().expect("a store in memory takes it");
    }
    let service = EntityService::new(repo).etags(has_tags);
    let head =
        Head { method, target: "/1", version: Version::HTTP_11, headers: Headers::new(&headers), certificate: None };
    let body: &[u8] = if *method == Method::PUT { br#"{"id":1,"description":"new","value":1.5}"# } else { b"" };
    let reply = service.call(Request::new(head, body), &mut Vec::new()).wait();
    let tag = has_tags.then_some(tag.as_bytes());
    let expected = expected(method, is_stored.then_some(tag), &read(&if_match), &read(&if_none_match));
    let values = values.escape_ascii();
    assert_eq!(reply.status().as_u16(), expected, "{method}, stored {is_stored}, tags {has_tags}, \"{values}\"");
}

fn fields<'a>(name: &'a str, values: &'a [Vec<u8>]) -> Vec<Header<'a>> {
    values.iter().map(|value| Header { name, value: value.trim_ascii() }).collect()
}

/// Returns the status. `stored`: the tag of the stored entity, if there is one, and if it has one.
fn expected(method: &Method, stored: Option<Option<&[u8]>>, if_match: &Field, if_none_match: &Field) -> u16 {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let is_malformed = [if_match, if_none_match].into_iter().any(|field| matches!(field, Field::Malformed));
    if is_malformed && !is_read {
        return 400;
    }
    // Without the condition, the answer would be another error.
    if stored.is_none() && *method != Method::PUT {
        return 404;
    }
    let is_named = |field: &Field, takes_weak: bool| match (field, stored) {
        (Field::Any, stored) => stored.is_some(),
        (Field::Tags(tags), Some(Some(stored))) => {
            tags.iter().any(|(is_weak, tag)| (takes_weak || !is_weak) && tag == stored)
        }
        _ => false,
    };
    if matches!(if_match, Field::Any | Field::Tags(_)) && !is_named(if_match, false) {
        return 412;
    }
    if is_named(if_none_match, true) {
        return if is_read { 304 } else { 412 };
    }
    match (method, stored) {
        (&Method::DELETE, _) => 204,
        (_, Some(_)) => 200,
        (_, None) => 201,
    }
}

/// Reads the values of a field, which are one list. Each of them is a list itself.
fn read(values: &[Vec<u8>]) -> Field {
    match values {
        [] => Field::Absent,
        [value] if value.trim_ascii() == b"*" => Field::Any,
        values => {
            let tags: Option<Vec<_>> = values.iter().map(|value| tags(value)).collect();
            tags.map_or(Field::Malformed, |tags| Field::Tags(tags.concat()))
        }
    }
}

/// Reads a list of tags. `None` if it is malformed.
fn tags(mut rest: &[u8]) -> Option<Vec<(bool, Vec<u8>)>> {
    let mut tags = Vec::new();
    loop {
        rest = rest.trim_ascii_start();
        match rest {
            [] => return Some(tags),
            [b',', after @ ..] => {
                rest = after;
                continue;
            }
            _ => {}
        }
        let (is_weak, quoted) = rest.strip_prefix(b"W/").map_or((false, rest), |quoted| (true, quoted));
        let end = quoted.iter().skip(1).position(|byte| *byte == b'"')?;
        let (tag, after) = quoted.split_at(end + 2);
        let is_text = tag[1..=end].iter().all(|byte| *byte > b' ' && !matches!(byte, b'"' | 0x7f));
        rest = after.trim_ascii_start();
        if tag[0] != b'"' || !is_text || !(rest.is_empty() || rest[0] == b',') {
            return None;
        }
        tags.push((is_weak, tag.to_vec()));
    }
}
