//! The wire corpus over sockets.

use super::prelude::*;
use crate::wire::{Case, CaseEnd, cases_of};

/// Sends the cases of the property in their order. Each has a connection of its own, unless it goes on with that of the case before.
#[track_caller]
pub(super) fn check(subject: &ServerSubject, property: &str) {
    for group in cases_of(property).chunk_by(Case::has_limits_of) {
        let live = subject.live(group[0].service(false), group[0].configured(defaults()));
        if group[0].needs_entity() {
            live.ask(&put("/", ONE), 201);
        }
        let (mut cases, mut open) = (group.iter(), None);
        while let Some(case) = cases.next() {
            let mut client = open.take().unwrap_or_else(|| live.client());
            match check_case(&mut client, case) {
                Next::OnNewConnection => {}
                Next::OnThisConnection => open = Some(client),
                Next::LeftOut => _ = cases.next(),
            }
        }
    }
}

/// What happens with the case after a case.
enum Next {
    OnNewConnection,
    OnThisConnection,
    /// It was to be sent on this connection, which has ended.
    LeftOut,
}

/// Sends a case, and checks its answer.
fn check_case(client: &mut Client, case: &Case) -> Next {
    let expected = &case.expected;
    // A server that reads on would answer the next request.
    let next: &[u8] = if matches!(expected.end, CaseEnd::Last | CaseEnd::Ends) { &get("/next") } else { b"" };
    if expected.statuses.is_empty() {
        client.send(&case.bytes).expect("the server takes a part of a request");
        return Next::OnThisConnection;
    }
    let response = client.exchange(&[&case.bytes, next].concat());
    let mut response = response.unwrap_or_else(|failure| panic!("{case}\n{failure}"));
    if response.is_interim() && expected.statuses.len() > 1 {
        response = client.receive().unwrap_or_else(|failure| panic!("{case}\n{failure}"));
    }
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
    match expected.end {
        CaseEnd::Free | CaseEnd::Maybe if !closes => {}
        CaseEnd::Keep | CaseEnd::Then => {
            assert!(!closes, "the answer says Connection: close\n{case}\n{}", client.show());
            let is_announced = !case.is_1_0() || response.lists("Connection", "keep-alive");
            assert!(is_announced, "the answer does not say keep-alive\n{case}\n{}", client.show());
            if expected.end == CaseEnd::Keep {
                // It is no path of an entity.
                client.ask(&get("/next"), if case.is_of_entities() { 400 } else { 200 });
            }
        }
        CaseEnd::Last | CaseEnd::Unfinished => {
            assert!(closes, "the connection does not end\n{case}\n{}", client.show());
            client.expect_end();
        }
        CaseEnd::Ends | CaseEnd::Free | CaseEnd::Maybe => client.expect_end(),
    }
    match expected.end {
        CaseEnd::Then => Next::OnThisConnection,
        CaseEnd::Maybe if closes => Next::LeftOut,
        CaseEnd::Maybe => Next::OnThisConnection,
        _ => Next::OnNewConnection,
    }
}
