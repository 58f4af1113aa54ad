//! Entities that contain themselves: no body overflows a stack, and one limit of nesting holds for all types.

use std::sync::Arc;

use polyserve_core::service::EntityService;
use polyserve_core::{EntityRepo, Identifiable, identifiable};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::live::Live;
use super::repos::{LaterRepo, MapRepo};
use super::subject::ServerSubject;
use super::wire::{check_problem, get, put, request};
use crate::property::{Outcome, in_child};

/// The maximum number of levels in a body.
const MAX_DEPTH: usize = 128;

/// An entity with many fields, as users have it. Code that serde derives for it takes several KiB of stack for a level.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Nested {
    /// The id.
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    child: Option<Box<Nested>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    children: Vec<Nested>,
    #[serde(skip_serializing_if = "Option::is_none")]
    a: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    c: Option<Vec<u8>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    d: Option<[u64; 32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    e: Option<[u64; 32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    f: Option<[u64; 32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    g: Option<[u64; 32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    h: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    i: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    j: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    k: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    l: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    m: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    o: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    q: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    r: Option<u64>,
}

identifiable!(Nested, name: String);

/// An entity with any JSON in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Free {
    name: String,
    value: Value,
}

identifiable!(Free, name: String);

/// Returns the JSON of an entity of `depth` levels, each in the field `child` of the one around it.
fn in_boxes(depth: usize) -> String {
    let inner = depth - 1;
    format!("{}{}{}", r#"{"name":"a","child":"#.repeat(inner), r#"{"name":"a"}"#, "}".repeat(inner))
}

/// Returns the same, each entity in the list `children` of the one around it, which is a level too.
fn in_lists(depth: usize) -> String {
    let inner = (depth - 1) / 2;
    format!("{}{}{}", r#"{"name":"a","children":["#.repeat(inner), r#"{"name":"a"}"#, "]}".repeat(inner))
}

/// Bodies of up to 128 levels are stored, shown, replaced and removed, whatever the stacks of the server's threads are. A body
/// with one more level is a 400, for every type.
pub fn a_nested_body_overflows_no_stack(subject: &ServerSubject) -> Outcome {
    in_child(|| {
        keep_nested(&live(subject, MapRepo::<Nested>::default()));
        keep_nested(&live(subject, LaterRepo::<Nested>::new()));
        let free = live(subject, MapRepo::<Free>::default());
        for (depth, status) in [(127, 201), (128, 200), (129, 400), (100_000, 400)] {
            let (open, close) = ("[".repeat(depth - 1), "]".repeat(depth - 1));
            let body = format!(r#"{{"name":"a","value":{open}{close}}}"#);
            let response = free.ask(&put("/", &body), status);
            if status == 400 {
                check_problem(&response);
            } else {
                assert_eq!(free.ask(&get("/a"), 200).text(), body, "{depth} levels");
            }
        }
    })
}

/// Does the same for the [`Nested`] entities of a repo, which is empty: for repos with threads or forms of their own. `E` may be a
/// type around `Nested`.
///
/// # Panics
///
/// Panics if an answer is wrong. An overflow of a stack ends the process.
pub fn nested_entities_are_kept_over<E: Identifiable>(subject: &ServerSubject, repo: impl EntityRepo<E>) -> Outcome {
    keep_nested(&live(subject, repo));
    Outcome::Held
}

fn live<E: Identifiable>(subject: &ServerSubject, repo: impl EntityRepo<E>) -> Live {
    subject.live(Arc::new(EntityService::<_, E>::new(repo).etags(true)), |_| ())
}

#[track_caller]
fn keep_nested(live: &Live) {
    for body in [in_boxes(2), in_boxes(40), in_boxes(MAX_DEPTH), in_lists(MAX_DEPTH - 1), in_boxes(MAX_DEPTH)] {
        live.ask(&put("/", &body), if body == in_boxes(2) { 201 } else { 200 });
        let response = live.ask(&get("/a"), 200);
        assert_eq!(response.text(), body);
        let tag = response.header("ETag").expect("an entity has a tag").to_owned();
        live.ask(&request("GET", "/a", &format!("If-None-Match: {tag}\r\n")), 304);
    }
    for body in [in_boxes(MAX_DEPTH + 1), in_lists(MAX_DEPTH + 1), in_boxes(40_000)] {
        check_problem(&live.ask(&put("/", &body), 400));
    }
    // What is wrong at the deepest level is named: the text begins with the end of the path.
    let wrong = in_boxes(MAX_DEPTH - 1).replace(r#"{"name":"a"}"#, r#"{"name":7}"#);
    let response = live.ask(&put("/", &wrong), 422);
    check_problem(&response);
    let text = response.text();
    assert!(text.contains("child.name: ") && text.contains("expected a string"), "{text}");
    live.ask(&request("DELETE", "/a", ""), 204);
    live.ask(&get("/a"), 404);
}
