//! Entities with a text as their id, at a prefix: how ids stand in paths, and what is said about a wrong body.

use std::sync::Arc;

use crate::NamedEntity;
use polyserve_core::{EntityRepo, EntityService};
use serde_json::Value;

use super::live::Live;
use super::repos::MapRepo;
use super::subject::ServerSubject;
use super::wire::{check_problem, get, put, request};
use crate::property::Outcome;

/// A server of an empty store; its entities are at `/named/{id}`.
#[track_caller]
fn named(subject: &ServerSubject) -> Live {
    named_over(subject, MapRepo::default())
}

/// A server of this store; its entities are at `/named/{id}`, and have tags.
#[track_caller]
pub(super) fn named_over(subject: &ServerSubject, repo: impl EntityRepo<NamedEntity>) -> Live {
    let service = EntityService::new(repo).at("/named").expect("it is a prefix");
    subject.live(Arc::new(service.etags(true)), |_| ())
}

/// The JSON of an entity with this name, byte for byte as a GET shows it.
pub(super) fn of_name(name: &str) -> String {
    serde_json::to_string(&NamedEntity::new(name, "d", 1.5)).expect("it has a JSON form")
}

/// The name in an answer.
#[track_caller]
pub(super) fn name_in(body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"));
    body["name"].as_str().unwrap_or_default().to_owned()
}

/// An id in a path is percent-decoded: every spelling of an id names the same entity.
pub(super) fn an_id_is_percent_decoded(subject: &ServerSubject) -> Outcome {
    let live = named(subject);
    live.ask(&put("/named/a%20b%2fc", &of_name("a b/c")), 201);
    for path in ["/named/a%20b%2Fc", "/named/%61%20%62%2f%63", "http://a/named/a%20b%2fc", "/named/a%20b%2fc?query"] {
        assert_eq!(name_in(&live.ask(&get(path), 200).text()), "a b/c", "{path}");
    }
    // A plus sign is no blank in a path, and what is encoded twice is decoded once.
    for path in ["/named/a+b%2Fc", "/named/a%2520b%252Fc", "/named/a"] {
        check_problem(&live.ask(&get(path), 404));
    }
    check_problem(&live.ask(&get("/named/a%20b/c"), 404));
    check_problem(&live.ask(&get("/named/%ff"), 400));
    live.ask(&request("DELETE", "/named/a%20b%2fc", ""), 204);
    Outcome::Held
}

/// No path can name an entity with an empty id, or with one that clients remove from paths.
pub(super) fn an_id_that_no_path_names_is_refused(subject: &ServerSubject) -> Outcome {
    let live = named(subject);
    for name in ["", ".", ".."] {
        check_problem(&live.ask(&put("/named", &of_name(name)), 422));
        check_problem(&live.ask(&put("/named/", &of_name(name)), 422));
    }
    for path in ["/named/.", "/named/..", "/named/%2e", "/named/%2E%2e"] {
        check_problem(&live.ask(&get(path), 400));
    }
    for path in ["/named", "/named/"] {
        let response = live.ask(&get(path), 405);
        assert_eq!(response.header("Allow"), Some("PUT, OPTIONS"), "{path}");
    }
    Outcome::Held
}

/// An id has at most 512 bytes.
pub(super) fn a_long_id_is_refused(subject: &ServerSubject) -> Outcome {
    let live = named(subject);
    let (longest, longer) = ("x".repeat(512), "x".repeat(513));
    live.ask(&put("/named", &of_name(&longest)), 201);
    live.ask(&get(&format!("/named/{longest}")), 200);
    check_problem(&live.ask(&put("/named", &of_name(&longer)), 422));
    check_problem(&live.ask(&get(&format!("/named/{longer}")), 400));
    check_problem(&live.ask(&put(&format!("/named/{longer}"), &of_name(&longer)), 400));
    Outcome::Held
}

/// A `Location` is percent-encoded: an id injects neither a field nor a segment, and the path leads to the entity.
pub(super) fn a_location_is_encoded(subject: &ServerSubject) -> Outcome {
    let live = named(subject);
    for (name, location) in [
        ("plain-1._~", "/named/plain-1._~"),
        ("a b", "/named/a%20b"),
        ("a/../b?c#d", "/named/a%2F..%2Fb%3Fc%23d"),
        ("\r\nX-Injected: yes\r\n\r\n", "/named/%0D%0AX-Injected%3A%20yes%0D%0A%0D%0A"),
        ("100%", "/named/100%25"),
        ("\u{e4}\u{2603}", "/named/%C3%A4%E2%98%83"),
    ] {
        let response = live.ask(&put("/named", &of_name(name)), 201);
        assert_eq!((response.header("Location"), response.header("X-Injected")), (Some(location), None), "{name:?}");
        assert_eq!(name_in(&live.ask(&get(location), 200).text()), name);
    }
    Outcome::Held
}

/// The collection is at the prefix, with and without a slash, and nothing else is there.
pub(super) fn a_prefix_is_a_whole_segment(subject: &ServerSubject) -> Outcome {
    let live = named(subject);
    live.ask(&put("/named", &of_name("a")), 201);
    live.ask(&put("/named/", &of_name("a")), 200);
    live.ask(&put("/named/a", &of_name("a")), 200);
    check_problem(&live.ask(&put("/named/b", &of_name("a")), 400));
    for path in ["/", "/a", "/name/a", "/nameda", "/named/a/b", "/named//a", "//named/a", "/Named/a"] {
        check_problem(&live.ask(&get(path), 404));
    }
    Outcome::Held
}

/// A 422 names the field that is wrong and what was expected. What follows a wrong field is still to be JSON.
pub(super) fn a_wrong_field_is_named(subject: &ServerSubject) -> Outcome {
    let live = named(subject);
    for (body, field, expected) in [
        (r#"{"name":"a","content":{"description":"d","value":"2"}}"#, "content.value", "expected f64"),
        (r#"{"name":"a","content":{"description":"d","value":1e999}}"#, "content.value", "out of range"),
        (r#"{"name":7,"content":{"description":"d","value":2}}"#, "name", "expected a string"),
        (r#"{"name":"a","content":{"value":2}}"#, "content", "missing field `description`"),
        (r#"{"name":"a"}"#, "content", "missing field"),
    ] {
        let response = live.ask(&put("/named", body), 422);
        check_problem(&response);
        let text = response.text();
        assert!(text.contains(field) && text.contains(expected), "{body}: {text}");
    }
    for body in [r#"{"name":7,"content":7} garbage"#, r#"{"name":7,"content":"#, r#"{"name":7,"content":01}"#] {
        check_problem(&live.ask(&put("/named", body), 400));
    }
    Outcome::Held
}
