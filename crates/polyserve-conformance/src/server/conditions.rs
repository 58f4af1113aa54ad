//! Conditional requests (RFC 9110, section 13) to the entity service with tags.

use serde_json::Value;

use super::ids::{named_over, of_name};
use super::prelude::*;

/// Another entity 1.
pub(crate) const OTHER: &str = r#"{"id":1,"description":"another","value":2.0}"#;

/// A server of an empty store, with tags.
#[track_caller]
pub(super) fn tagged(subject: &ServerSubject, repo: impl EntityRepo) -> Live {
    subject.live(EntityService::new(repo).etags(true), |_| ())
}

#[track_caller]
pub(crate) fn tag_of(response: &Response) -> String {
    response.header("ETag").unwrap_or_else(|| panic!("there is no ETag: {:?}", response.headers)).to_owned()
}

/// Eight clients add to one counter: each reads it, and puts the next number with the tag that it has read. No increment is
/// lost.
pub(super) fn no_increment_is_lost_over_http(subject: &ServerSubject) {
    count_entity(&tagged(subject, Reference::default()), 12);
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

/// Eight clients add to the number in the entity at `path`, which does not exist, `rounds` times each. `json`
/// makes the entity of a number, and `number` finds the number in an entity.
fn count_together(
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
