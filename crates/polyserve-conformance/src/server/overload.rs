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

/// While the overload policy refuses writes, it admits reads: those of the same connection are answered between refused writes, each in its
/// turn, and the writes in work are not waited for. At the limit of reads too, the open path alone is answered.
pub(super) fn reads_are_answered_while_writes_are_refused(subject: &ServerSubject) -> Result<(), String> {
    /// The writes that a limit of ten admits.
    const WRITES: usize = 9;
    subject.needs_several("a server of one connection has one request in work")?;
    let held_answers = HeldAnswers::new();
    let config = subject.with_workers(WRITES + 2).overload(Overload::static_limit(WRITES + 1).open_path("/ready"));
    let live = subject.live(held_answers.clone(), config);
    let write = |path: &str| with_body("POST", path, "", b"hello");
    let mut writers: Vec<Client> = (0..WRITES).map(|_| live.sending(&write("/hold"))).collect();
    held_answers.wait_for(WRITES, subject.max_wait);
    let mut mixed = live.client();
    let mut check = |statuses: [u16; 5]| {
        mixed.send(&[write("/"), get("/"), write("/"), get("/"), get("/ready")].concat()).expect("it is open");
        for status in statuses {
            mixed.expect(status);
        }
    };
    check([503, 200, 503, 200, 200]);
    let mut reader = live.sending(&get("/hold"));
    held_answers.wait_for(WRITES + 1, subject.max_wait);
    check([503, 503, 503, 503, 200]);
    let refused = live.counters_when(|counters| counters.overload_refused == [6, 0]).overload_refused;
    assert_eq!(refused, [6, 0], "the counters of refused requests");
    assert_eq!(held_answers.release_all(), WRITES + 1, "no answer was given up");
    writers.iter_mut().for_each(|writer| drop(writer.expect(200)));
    reader.expect(200);
    check([200; 5]);
    Ok(())
}
