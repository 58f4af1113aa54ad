//! Requests that a server refuses because it has more work than its policy admits.

use polyserve_core::overload::Overload;

use super::prelude::*;

/// At the limit of the overload policy, each further request reads a 503 with `Retry-After`, on a connection that stays open. The request
/// in work gets its answer, and afterwards all are served.
pub(super) fn a_request_past_the_overload_limit_is_refused(subject: &ServerSubject) -> Result<(), String> {
    subject.needs_several("a server of one connection has one request in work")?;
    let (live, held_answers, mut first) = hold_one(subject, defaults().overload(Overload::static_limit(1)));
    let mut second = live.client();
    for request in [get("/"), with_body("POST", "/", "", b"hello"), [get("/"), get("/")].concat()] {
        second.send(&request).expect("the connection is open");
        let count = request.windows(4).filter(|bytes| *bytes == b"HTTP").count();
        for _ in 0..count {
            let response = second.expect(503);
            let seconds = response.header("Retry-After").and_then(|value| value.parse::<u32>().ok());
            assert!(seconds.is_some_and(|seconds| (1..=3).contains(&seconds)), "{seconds:?}\n{}", second.show());
            assert!(!response.closes(), "a refused request does not close its connection\n{}", second.show());
        }
    }
    let refused = live.counters_when(|counters| counters.overload_refused == [4, 0]).overload_refused;
    assert_eq!(refused, [4, 0], "the counters of refused requests");
    assert_eq!(held_answers.release_all(), 1);
    assert_eq!(first.expect(200).text(), "/hold");
    for _ in 0..3 {
        assert_eq!(second.ask(&with_body("POST", "/", "", b"hello"), 200).text(), "hello");
    }
    Ok(())
}
