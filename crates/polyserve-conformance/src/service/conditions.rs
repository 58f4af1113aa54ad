//! Conditional requests (RFC 9110, section 13) to the entity service with tags.

use polyserve_core::{EntityRepo, EntityService};

use super::Unconnected;
use crate::NamedEntity;
use crate::client::Response;
use crate::repo::{LaterReference, Reference};
use crate::server::ids::{name_in, named_service, of_name};
use crate::server::status_table::ONE;
use crate::server::wire::{check_problem, get, put, request, with_body};

/// Another entity 1.
const OTHER: &str = r#"{"id":1,"description":"another","value":2.0}"#;

#[track_caller]
pub(super) fn tag_of(response: &Response) -> String {
    response.header("ETag").unwrap_or_else(|| panic!("there is no ETag: {:?}", response.headers)).to_owned()
}

fn tagged(repo: impl EntityRepo) -> Unconnected {
    Unconnected::new(EntityService::new(repo).etags(true))
}

fn named_over(repo: impl EntityRepo<NamedEntity>) -> Unconnected {
    Unconnected::of(named_service(repo))
}

/// GET, HEAD and PUT answer with the tag of the bytes that a GET shows. A PUT of other bytes for the same entity answers
/// without a tag, because its client does not have these bytes (RFC 9110, 9.3.4). Without the option there is no tag.
pub(super) fn a_tag_names_the_bytes_of_a_get() {
    let live = tagged(Reference::default());
    let put_tag = tag_of(&live.ask(&put("/", ONE), 201));
    let is_text = put_tag.len() == 34 && put_tag.starts_with('"') && put_tag.ends_with('"');
    assert!(is_text, "the tag is 128 bits between quotes: {put_tag}");
    assert_eq!(tag_of(&live.ask(&get("/1"), 200)), put_tag);
    assert_eq!(tag_of(&live.ask(&request("HEAD", "/1", ""), 200)), put_tag);
    assert_eq!(tag_of(&live.ask(&put("/1", ONE), 200)), put_tag, "the same bytes again");
    assert_ne!(tag_of(&live.ask(&put("/1", OTHER), 200)), put_tag, "other bytes");
    let spaced = ONE.replace(':', ": ");
    assert_eq!(live.ask(&put("/1", &spaced), 200).header("ETag"), None, "the body of this PUT is not what a GET shows");
    assert_eq!(tag_of(&live.ask(&get("/1"), 200)), put_tag, "the entity is the same");
    let patched = live.ask(&with_body("PATCH", "/1", "", ONE.as_bytes()), 200);
    assert_eq!((tag_of(&patched), patched.text().as_str()), (tag_of(&live.ask(&get("/1"), 200)), ONE));
    assert_eq!(live.ask(&get("/2"), 404).header("ETag"), None);

    let plain = Unconnected::new(EntityService::<_>::new(Reference::default()));
    assert_eq!(plain.ask(&put("/", ONE), 201).header("ETag"), None);
    assert_eq!(plain.ask(&get("/1"), 200).header("ETag"), None);
}

/// The conditions of each method, by state of the entity, in the order of RFC 9110, 13.2.2. A refused write changes nothing.
pub(super) fn conditions_are_evaluated() {
    evaluate_conditions(&tagged(Reference::default()), &PUBLISHED);
}

/// A repo that answers later evaluates the same conditions.
pub(super) fn a_later_repo_evaluates_conditions() {
    evaluate_conditions(&tagged(LaterReference::default()), &PUBLISHED);
}

/// An entity in two states, and its paths.
struct TwoStates<'a> {
    collection: &'a str,
    path: &'a str,
    /// The first state, byte for byte as a GET shows it.
    first: &'a str,
    /// The second state.
    second: &'a str,
}

const PUBLISHED: TwoStates<'_> = TwoStates { collection: "/", path: "/1", first: ONE, second: OTHER };

/// Tries every kind of condition with every method. Nothing is stored yet.
#[track_caller]
fn evaluate_conditions(live: &Unconnected, sample: &TwoStates<'_>) {
    let &TwoStates { collection, path, first, second } = sample;
    let tag = tag_of(&live.ask(&put(collection, first), 201));
    let other_tag = tag_of(&live.ask(&put(collection, second), 200));
    let weak = format!("W/{tag}");
    let tag_list = format!("\"x\", {tag}");
    // The fields; the status of GET, PUT (and PATCH) and DELETE if the first state is stored; the status of PUT if nothing is stored.
    for (if_match, if_none_match, [got, put_over, deleted, created]) in [
        (None, None, [200, 200, 204, 201]),
        (Some("*"), None, [200, 200, 204, 412]),
        (Some(tag.as_str()), None, [200, 200, 204, 412]),
        (Some(other_tag.as_str()), None, [412, 412, 412, 412]),
        (Some(weak.as_str()), None, [412, 412, 412, 412]),
        (Some(tag_list.as_str()), None, [200, 200, 204, 412]),
        (Some("\"x\""), None, [412, 412, 412, 412]),
        (Some(""), None, [412, 412, 412, 412]),
        (None, Some("*"), [304, 412, 412, 201]),
        (None, Some(tag.as_str()), [304, 412, 412, 201]),
        (None, Some(weak.as_str()), [304, 412, 412, 201]),
        (None, Some(tag_list.as_str()), [304, 412, 412, 201]),
        (None, Some(other_tag.as_str()), [200, 200, 204, 201]),
        (None, Some("\"x\""), [200, 200, 204, 201]),
        (Some(tag.as_str()), Some(tag.as_str()), [304, 412, 412, 412]),
        (Some(other_tag.as_str()), Some(tag.as_str()), [412, 412, 412, 412]),
        (Some("*"), Some(other_tag.as_str()), [200, 200, 204, 412]),
    ] {
        let field =
            |name: &str, value: Option<&str>| value.map_or(String::new(), |value| format!("{name}: {value}\r\n"));
        let fields = field("If-Match", if_match) + &field("if-none-match", if_none_match);
        let asked = |method: &str, status: u16| {
            let bytes = match method {
                "PUT" | "PATCH" => with_body(method, path, &fields, second.as_bytes()),
                _ => request(method, path, &fields),
            };
            live.ask(&bytes, status)
        };
        let shows = |body: &str| assert_eq!(live.ask(&get(path), 200).text(), body, "after a write with {fields:?}");
        live.ask(&put(path, first), 200);
        let response = asked("GET", got);
        match got {
            200 => assert_eq!((tag_of(&response), response.text().as_str()), (tag.clone(), first)),
            304 => assert_eq!((tag_of(&response), response.text().as_str()), (tag.clone(), "")),
            _ => check_problem(&response),
        }
        asked("HEAD", got);
        for method in ["PUT", "PATCH"] {
            asked(method, put_over);
            shows(if put_over == 200 { second } else { first });
            live.ask(&put(path, first), 200);
        }
        asked("DELETE", deleted);
        if deleted == 204 {
            live.ask(&get(path), 404);
        } else {
            shows(first);
            live.ask(&request("DELETE", path, ""), 204);
        }
        // An id that is not stored is 404 for every condition: the condition is not evaluated (RFC 9110, 13.2.1).
        asked("GET", 404);
        asked("DELETE", 404);
        asked("PATCH", 404);
        asked("PUT", created);
        if created == 201 {
            shows(second);
        } else {
            live.ask(&get(path), 404);
            live.ask(&put(path, first), 201);
        }
    }
}

/// A malformed condition of a write is a 400, and the write is not done. That of a read is ignored. Both hold without tags too.
pub(super) fn a_malformed_condition_is_a_bad_request() {
    refuse_malformed_conditions(&tagged(Reference::default()), &PUBLISHED);
    refuse_malformed_conditions(&Unconnected::new(EntityService::<_>::new(Reference::default())), &PUBLISHED);
}

#[track_caller]
fn refuse_malformed_conditions(live: &Unconnected, sample: &TwoStates<'_>) {
    let &TwoStates { collection, path, first, second } = sample;
    live.ask(&put(collection, first), 201);
    for value in ["x", "\"x", "x\"", "'x'", "\"x\" \"y\"", "*, \"x\"", "w/\"x\""] {
        for name in ["If-Match", "If-None-Match"] {
            let fields = format!("{name}: {value}\r\n");
            check_problem(&live.ask(&with_body("PUT", path, &fields, second.as_bytes()), 400));
            check_problem(&live.ask(&with_body("PATCH", path, &fields, second.as_bytes()), 400));
            check_problem(&live.ask(&request("DELETE", path, &fields), 400));
            assert_eq!(live.ask(&request("GET", path, &fields), 200).text(), first, "{fields}");
            live.ask(&request("HEAD", path, &fields), 200);
        }
    }
    assert_eq!(live.ask(&get(path), 200).text(), first);
    // Conditions mean nothing to OPTIONS.
    live.ask(&request("OPTIONS", path, "If-Match: x\r\n"), 204);
}

/// Conditions on these entities are evaluated as on the published ones, whether the repo answers now or later. A malformed
/// condition is a 400.
pub(super) fn conditions_on_named_entities_are_evaluated() {
    let (first, second) = (of_name("a b"), of_name("a b").replace("1.5", "2.5"));
    let sample = TwoStates { collection: "/named", path: "/named/a%20b", first: &first, second: &second };
    evaluate_conditions(&named_over(Reference::default()), &sample);
    evaluate_conditions(&named_over(LaterReference::default()), &sample);
    refuse_malformed_conditions(&named_over(Reference::default()), &sample);
}

/// A tag belongs to an entity and not to a path: a condition holds, or does not, under every spelling of an id. A change of a
/// nested field changes the tag.
pub(super) fn a_condition_holds_for_every_spelling_of_an_id() {
    let live = named_over(Reference::default());
    let spellings = ["/named/a%20b", "/named/%61%20%62", "http://a/named/a%20b", "/named/a%20b?query"];
    let changed = of_name("a b").replace("1.5", "2.5");
    // Without an id in the path, the id is that of the body.
    let create = with_body("PUT", "/named", "If-None-Match: *\r\n", of_name("a b").as_bytes());
    let first = tag_of(&live.ask(&create, 201));
    check_problem(&live.ask(&create, 412));
    let with = |method: &str, path: &str, field: &str, tag: &str, body: &str| {
        with_body(method, path, &format!("{field}: {tag}\r\n"), body.as_bytes())
    };
    for path in spellings {
        assert_eq!(tag_of(&live.ask(&get(path), 200)), first, "{path}");
        let unchanged = live.ask(&request("GET", path, &format!("If-None-Match: {first}\r\n")), 304);
        assert_eq!(tag_of(&unchanged), first, "{path}");
    }
    let second = tag_of(&live.ask(&with("PUT", "/named", "If-Match", &first, &changed), 200));
    assert_ne!(first, second, "only a nested number differs");
    for path in spellings {
        // The first tag is that of an older state.
        let shown = live.ask(&request("GET", path, &format!("If-None-Match: {first}\r\n")), 200);
        assert_eq!((tag_of(&shown), name_in(&shown.text())), (second.clone(), String::from("a b")), "{path}");
        check_problem(&live.ask(&with("PUT", path, "If-Match", &first, &of_name("a b")), 412));
        check_problem(&live.ask(&with("DELETE", path, "If-Match", &first, ""), 412));
        assert_eq!(tag_of(&live.ask(&with("PUT", path, "If-Match", &second, &changed), 200)), second, "{path}");
    }
    // A condition on another id is none on this one.
    check_problem(&live.ask(&with("PUT", "/named/a", "If-Match", &second, &of_name("a")), 412));
    live.ask(&with("DELETE", "/named/%61%20b", "If-Match", &second, ""), 204);
    check_problem(&live.ask(&get("/named/a%20b"), 404));
}
