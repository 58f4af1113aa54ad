//! Bodies of PUT that are large, or nested deeply.

use std::sync::Arc;

use polyserve_core::{Entity, EntityService};

use super::status_table::{ONE, entities};
use super::subject::ServerSubject;
use super::wire::{check_problem, chunked, get, put};
use crate::property::Outcome;
use crate::repo::Reference;

/// A million nested brackets are answered with 400, and do not overflow the stack, however they arrive.
pub(super) fn a_million_brackets_are_a_bad_request(subject: &ServerSubject) -> Outcome {
    let live = entities(subject);
    let open = "[".repeat(1_000_000);
    let objects = "{\"a\":".repeat(200_000);
    let closed = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
    for body in [open, objects, closed] {
        check_problem(&live.ask(&put("/", &body), 400));
        check_problem(&live.ask(&chunked("PUT", "/", body.as_bytes(), 100_000), 400));
    }
    live.ask(&put("/", ONE), 201);
    Outcome::Held
}

/// A body of exactly the limit is accepted. One more byte is answered with 413, by length and chunked.
pub(super) fn a_body_past_the_limit_is_too_large(subject: &ServerSubject) -> Outcome {
    let service = Arc::new(EntityService::new(Reference::<Entity>::default()));
    let live = subject.live(service, |config| config.max_body = 1000);
    let entity = |length: usize| {
        let fixed = r#"{"id":1,"description":"","value":2}"#.len();
        format!(r#"{{"id":1,"description":"{}","value":2}}"#, "d".repeat(length - fixed))
    };
    live.ask(&put("/", &entity(1000)), 201);
    live.ask(&chunked("PUT", "/", entity(1000).as_bytes(), 300), 200);
    for length in [1001, 1100, 5000] {
        subject.check_early_problem(&live.ask(&put("/", &entity(length)), 413));
        for chunk in [1, 300, 10_000] {
            subject.check_early_problem(&live.ask(&chunked("PUT", "/", entity(length).as_bytes(), chunk), 413));
        }
    }
    assert_eq!(live.ask(&get("/1"), 200).text(), entity(1000).replace(":2}", ":2.0}"));
    Outcome::Held
}
