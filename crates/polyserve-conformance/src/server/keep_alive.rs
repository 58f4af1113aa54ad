//! The life and the end of a kept connection, and the fields of every answer.

use std::time::{SystemTime, UNIX_EPOCH};

use super::prelude::*;

#[track_caller]
pub(super) fn echo(subject: &ServerSubject) -> Live {
    subject.live(Echo, defaults())
}

/// A connection of HTTP/1.1 is kept, and no answer has `Connection: close`.
pub(super) fn a_connection_is_kept_by_default(subject: &ServerSubject) {
    let live = echo(subject);
    let mut client = live.client();
    for n in 0..50 {
        let body = format!("request {n}");
        let response = client.ask(&with_body("POST", "/", "", body.as_bytes()), 200);
        assert_eq!(response.text(), body);
        assert!(!response.closes(), "the answer says Connection: close\n{}", client.show());
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The `Date` of an answer is at most a second old. Two more seconds are allowed for a busy machine.
pub(super) fn the_date_is_the_time(subject: &ServerSubject) {
    let live = echo(subject);
    let mut client = live.client();
    let mut ask = || {
        let before = now();
        let date = client.ask(&get("/"), 200).date().expect("an answer has a date");
        let expected = before.saturating_sub(2)..=now() + 1;
        assert!(expected.contains(&date), "{date} is not in {expected:?}, seconds since 1970\n{}", client.show());
    };
    ask();
    // The pause is longer than the allowed age, so that a clock that stands still fails.
    let_pass(Duration::from_millis(3_100));
    ask();
}

/// Answers have no `Server` field, unless one is configured.
pub(super) fn a_server_field_is_sent_if_configured(subject: &ServerSubject) {
    assert_eq!(echo(subject).ask(&get("/"), 200).header("Server"), None);
    let live = subject.live(Echo, defaults().server_header("kit/1"));
    assert_eq!(live.ask(&get("/"), 200).header("Server"), Some("kit/1"));
}
