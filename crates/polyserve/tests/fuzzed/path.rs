//! Paths of entities: of the published type, and of a type with texts as ids.

use polyserve::http::header::LOCATION;
use polyserve::http::{Method, Version};
use polyserve::memory::StdMutex;
use polyserve::{Entity, EntityRepo as _, EntityService, Head, Headers, Reply, Request, Service, identifiable};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Named {
    name: String,
}

identifiable!(Named, name: String);

/// The max length of an id, in bytes.
const MAX_ID: usize = 512;

pub(crate) fn check(input: &[u8]) {
    let Ok(target) = str::from_utf8(input) else { return };
    let target = format!("/{target}");
    if !is_target(&target) {
        return;
    }
    let path = target.split('?').next().unwrap_or_default();
    let segment = &path[1..];
    let numbers = StdMutex::new();
    numbers.put(Entity::new(1, "stored", 0.5)).wait().expect("a store in memory takes it");
    let status = ask(&EntityService::new(numbers), &Method::GET, &target, b"").status().as_u16();
    let id = decoded(segment).filter(|id| is_number(id)).and_then(|id| id.parse::<i64>().ok());
    let expected = match (segment, id) {
        ("", _) => 501, // a page of a store that cannot scan
        (segment, _) if segment.contains('/') => 404,
        (_, None) => 400,
        (_, Some(1)) => 200,
        (_, Some(_)) => 404,
    };
    assert_eq!(status, expected, "{target}");
    check_names(&target, segment);
}

/// An entity that is put at a path is got there, and at the path that the answer to the PUT names.
fn check_names(target: &str, segment: &str) {
    let service = EntityService::new(StdMutex::of::<Named>()).at("/named").expect("it is a path");
    let target = format!("/named{target}");
    let name = decoded(segment).filter(|name| (1..=MAX_ID).contains(&name.len()) && name != "." && name != "..");
    let body = serde_json::to_vec(&Named { name: name.clone().unwrap_or_default() }).expect("it has JSON");
    let put = ask(&service, &Method::PUT, &target, &body);
    match name {
        _ if segment.is_empty() => {}
        _ if segment.contains('/') => assert_eq!(put.status(), 404, "{target}"),
        None => assert_eq!(put.status(), 400, "{target}"),
        Some(_) => {
            assert_eq!(put.status(), 201, "{target}");
            let location = put.headers().find(|(name, _)| **name == LOCATION).expect("a new entity has a location");
            let location = location.1.to_str().expect("it is ASCII").to_owned();
            assert!(is_target(&location), "{location}");
            for target in [target, location] {
                let mut in_place = Vec::new();
                let head = head(&Method::GET, &target);
                let got = service.call(Request::new(head, b""), &mut in_place).wait();
                assert_eq!((got.status().as_u16(), got.body_bytes(&in_place)), (200, &body[..]), "{target}");
            }
        }
    }
}

fn head<'a>(method: &'a Method, target: &'a str) -> Head<'a> {
    Head { method, target, version: Version::HTTP_11, headers: Headers::new(&[]), certificate: None }
}

fn ask(service: &impl Service, method: &Method, target: &str, body: &[u8]) -> Reply {
    service.call(Request::new(head(method, target), body), &mut Vec::new()).wait()
}

/// Whether the codec passes a target to a service.
fn is_target(target: &str) -> bool {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let has_digits = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    path.split('%').skip(1).all(has_digits)
        && path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@%".contains(&byte))
        && query.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
}

/// Decodes a segment. `None` if it is no text.
fn decoded(segment: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut parts = segment.split('%');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// Whether a text is an id of the published type, but for its range.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}
