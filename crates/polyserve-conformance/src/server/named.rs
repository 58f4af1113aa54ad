//! Entities with a text as their id and a nested field: deferred answers, tags and conditions.

use crate::NamedEntity;
use polyserve_core::EntityRepo;

use super::conditions::{ROUNDS, count_together, tag_of};
use super::ids::{name_in, named_over, of_name};
use super::live::Live;
use super::subject::ServerSubject;
use super::wire::{check_problem, get, request, with_body};
use crate::property::Outcome;
use crate::repo::{LaterReference, Reference};

/// A tag belongs to an entity and not to a path: a condition holds, or does not, under every spelling of an id. A change of a
/// nested field changes the tag.
pub(super) fn a_condition_holds_for_every_spelling_of_an_id(subject: &ServerSubject) {
    let live = named_over(subject, Reference::default());
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

/// Eight clients add to a nested number of an entity with a percent-encoded path. No increment is lost.
pub(super) fn no_increment_is_lost_of_a_named_entity(subject: &ServerSubject) {
    count_named(&named_over(subject, LaterReference::default()), 12);
}

/// Does the same over this repo, which is empty, with a few increments of each client.
///
/// # Panics
///
/// Panics if an increment is lost, or a request fails.
pub fn no_increment_is_lost_of_named_entities_over(
    subject: &ServerSubject,
    repo: impl EntityRepo<NamedEntity>,
) -> Outcome {
    count_named(&named_over(subject, repo), ROUNDS);
    Outcome::Held
}

#[track_caller]
fn count_named(live: &Live, rounds: u64) {
    let counter = |value: u64| of_name("a b").replace("1.5", &format!("{value}.0"));
    count_together(live, rounds, "/named/a%20b", counter, |shown| &shown["content"]["value"]);
}
