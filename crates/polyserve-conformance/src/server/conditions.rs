//! Conditional requests (RFC 9110, section 13) to the entity service with tags.

use std::sync::Arc;
use std::thread;

use polyserve_core::{ETag, EntityRepo, EntityService};
use serde_json::Value;

use super::live::Live;
use super::repos::{LaterRepo, MapRepo};
use super::status_table::{ONE, entities};
use super::subject::ServerSubject;
use super::wire::{check_problem, get, put, request, with_body};
use crate::client::Response;
use crate::property::Outcome;

/// Another entity 1.
const OTHER: &str = r#"{"id":1,"description":"another","value":2.0}"#;

/// A server of an empty store, with tags.
#[track_caller]
pub(super) fn tagged(subject: &ServerSubject, repo: impl EntityRepo) -> Live {
    subject.live(Arc::new(EntityService::new(repo).etags(true)), |_| ())
}

#[track_caller]
pub(super) fn tag_of(response: &Response) -> String {
    response.header("ETag").unwrap_or_else(|| panic!("there is no ETag: {:?}", response.headers)).to_owned()
}

/// GET, HEAD and PUT answer with the tag of the bytes that a GET shows. A PUT of other bytes for the same entity answers
/// without a tag, because its client does not have these bytes (RFC 9110, 9.3.4). Without the option there is no tag.
pub(super) fn a_tag_names_the_bytes_of_a_get(subject: &ServerSubject) -> Outcome {
    let live = tagged(subject, MapRepo::default());
    let put_tag = tag_of(&live.ask(&put("/", ONE), 201));
    let is_text = put_tag.len() == 34 && put_tag.starts_with('"') && put_tag.ends_with('"');
    assert!(is_text, "the tag is 128 bits between quotes: {put_tag}");
    assert_eq!(tag_of(&live.ask(&get("/1"), 200)), put_tag);
    let mut client = live.client();
    client.send(&request("HEAD", "/1", "")).expect("the server takes the request");
    assert_eq!(tag_of(&client.receive_head().expect("HEAD is answered")), put_tag);
    assert_eq!(tag_of(&live.ask(&put("/1", ONE), 200)), put_tag, "the same bytes again");
    assert_ne!(tag_of(&live.ask(&put("/1", OTHER), 200)), put_tag, "other bytes");
    let spaced = ONE.replace(':', ": ");
    assert_eq!(live.ask(&put("/1", &spaced), 200).header("ETag"), None, "the body of this PUT is not what a GET shows");
    assert_eq!(tag_of(&live.ask(&get("/1"), 200)), put_tag, "the entity is the same");
    assert_eq!(live.ask(&get("/2"), 404).header("ETag"), None);

    let plain = entities(subject);
    assert_eq!(plain.ask(&put("/", ONE), 201).header("ETag"), None);
    assert_eq!(plain.ask(&get("/1"), 200).header("ETag"), None);
    Outcome::Held
}

/// Conditions are evaluated without tags too: `*` by whether the entity exists, and a list names no entity. A refused write
/// changes nothing.
pub(super) fn conditions_without_tags_are_evaluated(subject: &ServerSubject) -> Outcome {
    let later = EntityService::<_>::new(LaterRepo::new());
    for live in [entities(subject), subject.live(Arc::new(later), |_| ())] {
        live.ask(&put("/", ONE), 201);
        let tag = ETag::of(ONE.as_bytes()).to_string();
        // The field; the status of GET, PUT (and PATCH) and DELETE if the entity is stored; the status of PUT if nothing is stored.
        for (field, [got, put_over, deleted, created]) in [
            (String::from("If-Match: *"), [200, 200, 204, 412]),
            (String::from("If-Match: \"x\""), [412, 412, 412, 412]),
            (format!("If-Match: {tag}"), [412, 412, 412, 412]),
            (String::from("If-Match:"), [412, 412, 412, 412]),
            (String::from("If-None-Match: *"), [304, 412, 412, 201]),
            (String::from("If-None-Match: \"x\""), [200, 200, 204, 201]),
            (format!("If-None-Match: {tag}"), [200, 200, 204, 201]),
        ] {
            let asked = |method: &str, body: &str, status: u16| {
                let mut client = live.client();
                client.send(&with_body(method, "/1", &format!("{field}\r\n"), body.as_bytes())).expect("it is sent");
                let response = if method == "HEAD" { client.receive_head() } else { client.receive() };
                let response = response.unwrap_or_else(|failure| panic!("{method} with {field:?}: {failure}"));
                assert_eq!((response.status, response.header("ETag")), (status, None), "{method} with {field:?}");
            };
            asked("GET", "", got);
            asked("HEAD", "", got);
            for method in ["PUT", "PATCH"] {
                asked(method, OTHER, put_over);
                assert_eq!(live.ask(&get("/1"), 200).text(), if put_over == 200 { OTHER } else { ONE }, "{field:?}");
                live.ask(&put("/1", ONE), 200);
            }
            asked("DELETE", "", deleted);
            if deleted != 204 {
                assert_eq!(live.ask(&get("/1"), 200).text(), ONE, "{field:?}");
                live.ask(&request("DELETE", "/1", ""), 204);
            }
            asked("GET", "", 404);
            asked("PATCH", ONE, 404);
            asked("PUT", ONE, created);
            if created == 412 {
                live.ask(&put("/1", ONE), 201);
            }
        }
    }
    Outcome::Held
}

/// The conditions of each method, by state of the entity, in the order of RFC 9110, 13.2.2. A refused write changes nothing.
pub(super) fn conditions_are_evaluated(subject: &ServerSubject) -> Outcome {
    evaluate_conditions(&tagged(subject, MapRepo::default()), &PUBLISHED);
    Outcome::Held
}

/// A repo that answers later evaluates the same conditions.
pub(super) fn a_later_repo_evaluates_conditions(subject: &ServerSubject) -> Outcome {
    evaluate_conditions(&tagged(subject, LaterRepo::new()), &PUBLISHED);
    Outcome::Held
}

/// An entity in two states, and its paths.
pub(super) struct TwoStates<'a> {
    pub(super) collection: &'a str,
    pub(super) path: &'a str,
    /// The first state, byte for byte as a GET shows it.
    pub(super) first: &'a str,
    /// The second state.
    pub(super) second: &'a str,
}

const PUBLISHED: TwoStates<'_> = TwoStates { collection: "/", path: "/1", first: ONE, second: OTHER };

/// Tries every kind of condition with every method. Nothing is stored yet.
#[track_caller]
pub(super) fn evaluate_conditions(live: &Live, sample: &TwoStates<'_>) {
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
            let mut client = live.client();
            client.send(&bytes).expect("the server takes the request");
            let response = match method {
                "HEAD" => client.receive_head(),
                _ => client.receive(),
            };
            let response = response.unwrap_or_else(|failure| panic!("{method} with {fields:?}: {failure}"));
            assert_eq!(response.status, status, "{method} with {fields:?}");
            response
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
pub(super) fn a_malformed_condition_is_a_bad_request(subject: &ServerSubject) -> Outcome {
    refuse_malformed_conditions(&tagged(subject, MapRepo::default()), &PUBLISHED);
    refuse_malformed_conditions(&entities(subject), &PUBLISHED);
    Outcome::Held
}

#[track_caller]
pub(super) fn refuse_malformed_conditions(live: &Live, sample: &TwoStates<'_>) {
    let &TwoStates { collection, path, first, second } = sample;
    live.ask(&put(collection, first), 201);
    for value in ["x", "\"x", "x\"", "'x'", "\"x\" \"y\"", "*, \"x\"", "w/\"x\""] {
        for name in ["If-Match", "If-None-Match"] {
            let fields = format!("{name}: {value}\r\n");
            check_problem(&live.ask(&with_body("PUT", path, &fields, second.as_bytes()), 400));
            check_problem(&live.ask(&with_body("PATCH", path, &fields, second.as_bytes()), 400));
            check_problem(&live.ask(&request("DELETE", path, &fields), 400));
            assert_eq!(live.ask(&request("GET", path, &fields), 200).text(), first, "{fields}");
            let mut client = live.client();
            client.send(&request("HEAD", path, &fields)).expect("the server takes the request");
            assert_eq!(client.receive_head().expect("HEAD is answered").status, 200, "{fields}");
        }
    }
    assert_eq!(live.ask(&get(path), 200).text(), first);
    // Conditions mean nothing to OPTIONS.
    live.ask(&request("OPTIONS", path, "If-Match: x\r\n"), 204);
}

/// Eight clients add to one counter: each reads it, and puts the next number with the tag that it has read. No increment is
/// lost.
pub(super) fn no_increment_is_lost_over_http(subject: &ServerSubject) -> Outcome {
    count_entity(&tagged(subject, MapRepo::default()), 12);
    Outcome::Held
}

/// Does the same over this repo, which is empty: for pairs of a server and a repo. Each client adds a few times only, because
/// there are many pairs.
///
/// # Panics
///
/// Panics if an increment is lost, or a request fails.
pub fn no_increment_is_lost_over(subject: &ServerSubject, repo: impl EntityRepo) -> Outcome {
    count_entity(&tagged(subject, repo), ROUNDS);
    Outcome::Held
}

/// The increments of each client if there are many pairs.
pub(super) const ROUNDS: u64 = 4;

#[track_caller]
fn count_entity(live: &Live, rounds: u64) {
    let counter = |value: u64| format!(r#"{{"id":1,"description":"counter","value":{value}.0}}"#);
    count_together(live, rounds, "/1", counter, |shown| &shown["value"]);
}

/// Eight clients add to the number in the entity at `path`, which does not exist, `rounds` times each. `json`
/// makes the entity of a number, and `number` finds the number in an entity.
pub(super) fn count_together(
    live: &Live,
    rounds: u64,
    path: &str,
    json: impl Fn(u64) -> String + Sync,
    number: impl Fn(&Value) -> &Value + Sync,
) {
    const CLIENTS: usize = 8;
    let count = |response: &Response| -> u64 {
        let body: Value = serde_json::from_str(&response.text()).expect("the entity is JSON");
        number(&body).as_f64().expect("the value is a number") as u64
    };
    live.ask(&put(path, &json(0)), 201);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut done = 0;
                while done < rounds {
                    let read = live.ask_until_served(&get(path));
                    assert_eq!(read.status, 200, "{}", read.text());
                    let (next, fields) = (json(count(&read) + 1), format!("If-Match: {}\r\n", tag_of(&read)));
                    let response = live.ask_until_answered(&with_body("PUT", path, &fields, next.as_bytes()));
                    match response.status {
                        200 => done += 1,
                        412 => {}
                        other => panic!("the PUT is answered with {other}: {}", response.text()),
                    }
                }
            });
        }
    });
    assert_eq!(count(&live.ask_until_served(&get(path))), CLIENTS as u64 * rounds, "the counter after all increments");
}
