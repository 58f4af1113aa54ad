//! Stack for nested values: what a body nests in vain costs nothing later, and a request takes at most one new stack.
//!
//! A value notes the address of a local variable when it is written. Two addresses that are far apart are on two stacks, because a
//! thread of a test has a stack of 2 MiB, and little of that is in use. This is the only test of its program: what is noted holds
//! for the process.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Mutex, PoisonError};

use polyserve_core::http::{Method, StatusCode, Version};
use polyserve_core::{
    Answer, Condition, Conditional, EntityRepo, EntityService, Head, Headers, Identifiable, InvalidEntity, Lookup, Put,
    Removed, RepoAnswer, Request, Service, Visit, identifiable,
};
use serde::{Deserialize, Serialize, Serializer};

thread_local! {
    /// Where the repo ran last, and where the field of an entity was written last.
    static REPO: Cell<usize> = const { Cell::new(0) };
    static WRITER: Cell<usize> = const { Cell::new(0) };
}

#[inline(never)]
fn here() -> usize {
    let local = 0_u8;
    std::hint::black_box(&raw const local) as usize
}

fn is_same_stack(a: usize, b: usize) -> bool {
    a.abs_diff(b) < 512 * 1024
}

fn noted<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    WRITER.set(here());
    number.serialize(serializer)
}

/// A type without nested values.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Flat {
    name: String,
    #[serde(serialize_with = "noted")]
    number: u64,
}
identifiable!(Flat, name: String);

/// A type that contains itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Deep {
    name: String,
    #[serde(serialize_with = "noted")]
    number: u64,
    // A reader takes what a writer omits, so the JSON of a value does not show its depth.
    #[serde(default, skip_serializing)]
    #[allow(dead_code)]
    hidden: Option<Box<Deep>>,
}
identifiable!(Deep, name: String);

/// A type that takes lists of numbers and any text, also text that is no UTF-8, for its bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Bytes {
    name: String,
    parts: Vec<CString>,
}
identifiable!(Bytes, name: String);

#[derive(Debug)]
struct Map<E: Identifiable>(Mutex<HashMap<E::Id, E>>);

impl<E: Identifiable> EntityRepo<E> for Map<E> {
    fn get(&self, id: &E::Id, visit: Visit<'_, E>) -> RepoAnswer<Lookup<E>> {
        REPO.set(here());
        let map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Answer::Now(Ok(map.get(id).map_or(Lookup::Absent, |entity| visit.show(entity))))
    }

    fn put_if(&self, entity: E, _: &Condition) -> RepoAnswer<Conditional<Put>> {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let old = map.insert(entity.id().clone(), entity);
        Answer::Now(Ok(Conditional::Done(if old.is_some() { Put::Replaced } else { Put::Created })))
    }

    fn remove_if(&self, _: &E::Id, _: &Condition) -> RepoAnswer<Conditional<Removed>> {
        Answer::Now(Ok(Conditional::Refused))
    }

    fn len(&self) -> RepoAnswer<u64> {
        Answer::Now(Ok(0))
    }
}

fn service<E: Identifiable>() -> EntityService<Map<E>, E> {
    EntityService::new(Map(Mutex::default()))
}

fn ask<E: Identifiable>(service: &EntityService<Map<E>, E>, method: &Method, target: &str, body: &str) -> StatusCode {
    let head = Head { method, target, version: Version::HTTP_11, headers: Headers::new(&[]), certificate: None };
    service.call(Request::new(head, body.as_bytes()), &mut Vec::new()).wait().status()
}

/// Regression test: one body that nested deeply in a field of no type slowed every later request of the process.
#[test]
fn only_a_nested_value_takes_stack_later() {
    the_first_nested_value_is_read_as_it_is();
    let flat = service::<Flat>();
    let ignored = |levels: usize| {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"x":{open}"[",-0.5{close},"name":"a","y":{{"z":{open}{close}}},"number":-0}}"#)
    };
    assert_eq!(ask(&flat, &Method::PUT, "/", &ignored(126)), StatusCode::CREATED);
    let stays = |flat: &EntityService<Map<Flat>, Flat>| {
        for _ in 0..10 {
            assert_eq!(ask(flat, &Method::GET, "/a", ""), StatusCode::OK);
            assert!(is_same_stack(here(), WRITER.get()), "a GET of a flat type grows the stack");
        }
    };
    stays(&flat);
    // What is ignored is JSON all the same, and is bounded.
    for wrong in [ignored(126).replace("-0.5", "-0.5,"), ignored(126).replace("]]", "]}"), ignored(127)] {
        assert!(matches!(Flat::read_json(wrong.as_bytes()), Err(InvalidEntity::NotJson(_))), "{wrong}");
    }
    // A value that contains itself: what is ignored does not count, nor does a value that is refused.
    let nested = |levels: usize, x: usize| {
        let inner = r#"{"name":"a","number":1,"hidden":"#.repeat(levels - 1);
        let (open, close) = ("[".repeat(x), "]".repeat(x));
        format!(r#"{inner}{{"name":"a","number":1,"x":{open}{close}}}{}"#, "}".repeat(levels - 1))
    };
    let deep = service::<Deep>();
    assert_eq!(ask(&deep, &Method::PUT, "/", &nested(5, 120)), StatusCode::CREATED);
    stays(&flat);
    let refused = nested(100, 1).replace(r#""x":[]"#, r#""number":2"#);
    assert_eq!(ask(&deep, &Method::PUT, "/", &refused), StatusCode::UNPROCESSABLE_ENTITY);
    stays(&flat);

    // A value that is nested takes one new stack for each request, also if its JSON does not show it.
    assert_eq!(ask(&deep, &Method::PUT, "/", &nested(100, 1)), StatusCode::OK);
    assert_eq!(ask(&deep, &Method::GET, "/a", ""), StatusCode::OK);
    assert!(!is_same_stack(here(), WRITER.get()), "a GET of a nested value has stack for it");
    assert!(is_same_stack(REPO.get(), WRITER.get()), "a GET takes two new stacks");
}

/// Regression test: to find out whether the type ignores what a body nests, the body was read with other values there, and a type that
/// takes any value got them.
fn the_first_nested_value_is_read_as_it_is() {
    let read = Bytes::read_json(br#"{"name":"a","parts":[[72,105],[66]]}"#).expect("it is an entity");
    assert_eq!(read.parts, [c"Hi".to_owned(), c"B".to_owned()]);
}
