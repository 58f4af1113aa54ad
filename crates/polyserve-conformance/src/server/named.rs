//! Entities with a text as their id and a nested field: conditional writes of concurrent clients.

use super::conditions::{ROUNDS, count_together};
use super::ids::{named_over, of_name};
use super::prelude::*;

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
