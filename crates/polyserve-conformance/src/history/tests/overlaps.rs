//! A history without overlaps has an order and is not evidence.

use super::history;
use crate::history::outcome_of;
use crate::property::Outcome;

#[test]
fn clients_that_never_overlap_show_nothing() {
    let history = history(&["0 put 5 created 10..20", "1 get 5 30..40", "0 remove removed 50..60"]);
    assert!(history.shows_nothing().is_some_and(|why| why.contains("overlap")));
    assert!(matches!(outcome_of(&history), Outcome::NotRun(_)));
}

#[test]
fn an_overlap_shows_something() {
    let history = history(&["0 put 5 created 10..20", "1 get 5 15..40"]);
    assert_eq!(history.shows_nothing(), None);
    assert_eq!(outcome_of(&history), Outcome::Held);
}

#[test]
fn one_client_cannot_overlap() {
    let history = history(&["0 put 5 created 10..20", "0 get 5 30..40"]);
    assert_eq!(history.shows_nothing(), None);
}

#[test]
fn nothing_and_lost_answers_show_nothing() {
    assert!(history(&[]).shows_nothing().is_some());
    let lost = history(&["0 put 5 created 10..20", "1 get unknown 15..", "1 remove unknown 16.."]);
    assert!(lost.shows_nothing().is_some_and(|why| why.contains("2 of 3")));
}
