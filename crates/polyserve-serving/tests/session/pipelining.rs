//! Requests are answered in order, one at a time, also if their answers are deferred.

use polyserve_serving::http1::{Phase, SessionStep};

use super::support::*;

#[test]
fn in_order() {
    let server = server();
    let requests: String = (0..100).map(|n| get(&format!("/{n}"))).collect();
    let answers: String = (0..100).map(|n| ok(&echo_text("GET", &format!("/{n}"), ""))).collect();
    let mut wire = Wire::new(&server);
    assert_eq!(wire.send(requests.as_bytes()), SessionStep::Read(Phase::Idle));
    assert_eq!((wire.take_output(), wire.answered), (answers, 100));
}

#[test]
fn a_later_answer_in_the_middle_holds_the_rest_back() {
    let (server, promised) = server_later(|_| ());
    let mut wire = Wire::new(&server);
    let requests = [get("/1"), get("/later"), get("/2"), get("/later"), get("/3")].concat();
    assert_eq!(wire.send(requests.as_bytes()), SessionStep::Answer);
    assert_eq!((wire.take_output(), wire.answered), (ok(&echo_text("GET", "/1", "")), 1));
    assert_eq!((wire.session.stage(), wire.session.is_busy(), promised.open()), ((1, Phase::Answer), true, 1));

    assert!(promised.complete("first"));
    assert_eq!(wire.settle(), SessionStep::Answer);
    assert_eq!((wire.take_output(), wire.answered), (ok("first") + &ok(&echo_text("GET", "/2", "")), 3));
    assert_eq!((wire.session.stage(), promised.open()), ((3, Phase::Answer), 1));

    assert!(promised.complete("second"));
    assert_eq!(wire.settle(), SessionStep::Read(Phase::Idle));
    assert_eq!((wire.take_output(), wire.answered), (ok("second") + &ok(&echo_text("GET", "/3", "")), 5));
    assert_eq!((wire.session.stage(), wire.session.is_busy()), ((5, Phase::Idle), false));
}

/// Every split, and deferred answers that complete after a varying number of polls.
#[test]
fn later_answers_and_every_split() {
    let put = "PUT /later HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
    let stream = [get("/later"), get("/1"), put.to_owned(), get("/2"), get("/later")].concat();
    let expected =
        [ok("0"), ok(&echo_text("GET", "/1", "")), ok("1"), ok(&echo_text("GET", "/2", "")), ok("2")].concat();
    for at in 0..=stream.len() {
        let (server, promised) = server_later(|_| ());
        let mut wire = Wire::new(&server);
        let mut count = 0;
        for part in [&stream.as_bytes()[..at], &stream.as_bytes()[at..]] {
            if !part.is_empty() {
                let mut step = wire.send(part);
                while step == SessionStep::Answer {
                    assert!(promised.complete(&count.to_string()));
                    count += 1;
                    step = wire.settle();
                }
            }
        }
        assert_eq!((wire.take_output(), count), (expected.clone(), 3), "split at {at}");
    }
}

/// Bytes in the buffer do not belong to a deferred answer, which owns its body.
#[test]
fn the_body_buffer_of_a_later_answer_is_dropped() {
    let promised = Promised::default();
    let promises = promised.clone();
    let call = move |_: &polyserve_core::Request<'_>, body: &mut Vec<u8>| {
        body.extend_from_slice(b"not used");
        promises.answer()
    };
    let server = server_by(|_| (), call, |_| None);
    let mut wire = Wire::new(&server);
    assert_eq!(wire.send(get("/").as_bytes()), SessionStep::Answer);
    assert!(promised.complete("mine"));
    assert_eq!((wire.settle(), wire.take_output()), (SessionStep::Read(Phase::Idle), ok("mine")));
}

/// An answer without a body does not get bytes that an earlier request left in the buffer.
#[test]
fn a_body_in_place_is_that_of_its_own_request() {
    use polyserve_core::http::StatusCode;
    use polyserve_core::{Body, Reply};
    let in_place = || Reply::new(StatusCode::OK, "text/plain", Body::InPlace);
    let call = move |request: &polyserve_core::Request<'_>, body: &mut Vec<u8>| match request.head.target {
        "/later" => {
            body.extend_from_slice(b"not used");
            polyserve_core::Answer::later(async move { in_place() })
        }
        _ => echo(request, body),
    };
    let server = server_by(|_| (), call, move |_| Some(in_place()));
    let put = "PUT /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n";
    let (out, _) = ask(&server, [&get("/1"), &get("/later"), &get("/1"), put].concat().as_bytes());
    let echoed = ok(&echo_text("GET", "/1", ""));
    assert_eq!(out, [echoed.as_str(), &ok(""), &echoed, &ok("")].concat());
}

/// A stage stays the same while a deadline runs, and differs for the next request.
#[test]
fn stages() {
    let (server, promised) = server_later(|_| ());
    let mut wire = Wire::new(&server);
    let stages = |wire: &Wire<'_>| (wire.session.stage(), wire.session.is_busy());
    assert_eq!(stages(&wire), ((0, Phase::FirstByte), false));
    for (sent, stage) in [
        ("P", (0, Phase::Head)),
        ("UT /later HTTP/1.1\r\nHost: a\r\n", (0, Phase::Head)),
        ("Content-Length: 2\r\n\r\n", (0, Phase::Body)),
        ("a", (0, Phase::Body)),
        ("b", (0, Phase::Answer)),
    ] {
        let _ = wire.send(sent.as_bytes());
        assert_eq!(stages(&wire), (stage, true), "after {sent:?}");
    }
    assert!(promised.complete("x"));
    let _ = wire.settle();
    assert_eq!(stages(&wire), ((1, Phase::Idle), false));
    let _ = wire.send([get("/1").as_str(), "G"].concat().as_bytes());
    assert_eq!(stages(&wire), ((2, Phase::Head), true));
}
