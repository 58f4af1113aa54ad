//! The wire corpus over sockets.

use super::prelude::*;
use crate::wire::{Case, CaseEnd, CaseScope, cases_of};

/// Sends each case of the property, on a connection of its own.
#[track_caller]
pub(super) fn check(subject: &ServerSubject, property: &str) {
    for group in cases_of(property).chunk_by(Case::has_limits_of) {
        let live = subject.live(group[0].service(false), |config| group[0].configure(config));
        if group[0].needs_entity() {
            live.ask(&put("/", ONE), 201);
        }
        for case in group {
            check_case(&live, case);
        }
    }
}

fn check_case(live: &Live, case: &Case) {
    let expected = &case.expected;
    let mut client = live.client();
    // A server that reads on would answer the next request.
    let next: &[u8] = if matches!(expected.end, CaseEnd::Last | CaseEnd::Ends) { &get("/next") } else { b"" };
    // A server that refuses a request may leave a part unread. What counts is the answer.
    let sent = client.send(&[&case.bytes, next].concat());
    let response = if case.is_head() { client.receive_head() } else { client.receive() };
    let response = response.unwrap_or_else(|failure| panic!("{case}\n{failure}"));
    if let Some(fault) = expected.fault(case, &response) {
        panic!("{fault}\n{}", client.show());
    }
    if response.status >= 400 && !case.is_head() {
        check_problem(&response);
    }
    // An answer has the version of the server, whatever that of the request (RFC 9110, 2.5).
    assert_eq!(response.minor, 1, "the version of the answer\n{case}\n{}", client.show());
    assert!(!response.contradicts_itself(), "the answer says close and keep-alive\n{case}\n{}", client.show());
    let closes = response.closes();
    let end = match expected.end {
        CaseEnd::Free if !closes => return,
        end => end,
    };
    match end {
        CaseEnd::Keep => {
            assert!(!closes, "the answer says Connection: close\n{case}\n{}", client.show());
            let is_announced = !case.is_1_0() || response.lists("Connection", "keep-alive");
            assert!(is_announced, "the answer does not say keep-alive\n{case}\n{}", client.show());
            // It is no path of an entity.
            client.ask(&get("/next"), if case.scope == CaseScope::Entities { 400 } else { 200 });
        }
        CaseEnd::Last | CaseEnd::Unfinished => {
            assert!(closes, "the connection does not end\n{case}\n{}", client.show());
            client.expect_end();
        }
        CaseEnd::Ends | CaseEnd::Free => client.expect_end(),
    }
    drop(sent);
}
