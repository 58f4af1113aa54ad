//! `Expect: 100-continue`, and answers that are sent before the body has arrived.

use polyserve_core::http::StatusCode;
use polyserve_core::{Head, Reply};
use polyserve_serving::http1::{HttpState, Phase, SessionStep};

use super::support::*;

const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";
const NEXT: &str = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n";

fn put(path: &str, fields: &str) -> String {
    format!("PUT {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")
}

const EXPECT: &str = "Expect: 100-continue\r\n";
const LENGTH: &str = "Content-Length: 5\r\n";
const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

/// Refuses `/no` before the body is read.
fn refusing_server() -> HttpState {
    fn early(head: &Head<'_>) -> Option<Reply> {
        head.target.starts_with("/no").then(|| Reply::problem(StatusCode::FORBIDDEN, "Not here."))
    }
    let call = |request: &polyserve_core::Request<'_>, body: &mut Vec<u8>| match early(&request.head) {
        Some(refusal) => polyserve_core::Answer::Now(refusal),
        None => echo(request, body),
    };
    server_by(|_| (), call, early)
}

fn forbidden(connection: &str) -> String {
    problem_with(connection, StatusCode::FORBIDDEN, "Not here.")
}

#[test]
fn a_client_that_expects_to_continue_gets_100() {
    let server = server();
    for (expect, body, sent) in [
        (EXPECT, LENGTH, "hello"),
        ("expect:100-CONTINUE\r\n", LENGTH, "hello"),
        ("Expect: 100-continue, 100-continue\r\n", CHUNKED, "5\r\nhello\r\n0\r\n\r\n"),
        (EXPECT, CHUNKED, "5\r\nhello\r\n0\r\n\r\n"),
    ] {
        let mut wire = Wire::new(&server);
        assert_eq!(wire.send(put("/", &[expect, body].concat()).as_bytes()), SessionStep::Read(Phase::Body));
        assert_eq!(wire.take_output(), CONTINUE, "{expect:?}");
        assert_eq!(wire.send([sent, NEXT].concat().as_bytes()), SessionStep::Read(Phase::Idle));
        assert_eq!(wire.take_output(), ok(&echo_text("PUT", "/", "hello")) + &ok(&echo_text("GET", "/next", "")));
        assert_eq!(wire.answered, 2, "a 100 is no answer");
    }
}

#[test]
fn a_client_that_does_not_wait_gets_no_100() {
    let server = server();
    for request in [
        put("/", &[EXPECT, LENGTH].concat()) + "hello",
        put("/", EXPECT),
        put("/", &[EXPECT, "Content-Length: 0\r\n"].concat()),
        put("/", LENGTH) + "hello",
        put("/", "Expect:\r\n"),
        put("/", &["Expect: ,\r\n", LENGTH].concat()) + "hello",
    ] {
        let body = if request.ends_with("hello") { "hello" } else { "" };
        assert_eq!(ask(&server, request.as_bytes()).0, ok(&echo_text("PUT", "/", body)), "{request}");
    }
    // HTTP/1.0 has no expectations, so the field is ignored.
    for expect in [EXPECT, "Expect: tea\r\n"] {
        let old = format!("PUT / HTTP/1.0\r\n{expect}{LENGTH}\r\n");
        let mut wire = Wire::new(&server);
        assert_eq!(wire.send(old.as_bytes()), SessionStep::Read(Phase::Body));
        assert_eq!(wire.take_output(), "");
        assert_eq!(wire.send(b"hello"), CLOSE);
        assert_eq!(wire.take_output(), ok_with(CLOSES, &echo_text("PUT", "/", "hello")));
    }
}

#[test]
fn another_expectation_fails() {
    let server = server();
    for expect in ["tea", "100-continued", "100-continue, tea", "tea, 100-continue", "100-continue;x", "100"] {
        for body in [LENGTH, CHUNKED, ""] {
            let request = put("/", &[&format!("Expect: {expect}\r\n"), body].concat());
            let (output, step) = ask(&server, request.as_bytes());
            assert_eq!((statuses(output.as_bytes()), step), ((vec![417], 1), LINGER), "{request}");
        }
    }
    // Regression test: only the last of several fields was read.
    let request = put("/", &["Expect: tea\r\n", EXPECT, LENGTH].concat());
    assert_eq!(statuses(ask(&server, request.as_bytes()).0.as_bytes()).0, [417]);
}

#[test]
fn an_early_refusal_then_the_next_request() {
    let server = refusing_server();
    for (fields, sent) in [(LENGTH, "hello"), (CHUNKED, "5\r\nhello\r\n0\r\nT: v\r\n\r\n")] {
        let mut wire = Wire::new(&server);
        assert_eq!(wire.send(put("/no", fields).as_bytes()), SessionStep::Read(Phase::Skip));
        assert_eq!((wire.take_output(), wire.answered), (forbidden(""), 1), "before the body");
        assert!(!wire.session.is_busy(), "it is answered");
        for byte in sent.as_bytes().chunks(1) {
            let _ = wire.send(byte);
        }
        assert_eq!(
            (wire.take_output().as_str(), wire.session.next_step()),
            ("", SessionStep::Read(Phase::Idle)),
            "the body is skipped"
        );
        assert_eq!(wire.send(NEXT.as_bytes()), SessionStep::Read(Phase::Idle));
        assert_eq!(wire.take_output(), ok(&echo_text("GET", "/next", "")));
    }
}

/// Regression test: the rest of a refused body and the next request's body had the same stage: if they met in one read,
/// the second inherited what was left of the first one's deadline.
#[test]
fn the_body_after_a_refused_body_has_a_deadline_of_its_own() {
    let server = refusing_server();
    let mut wire = Wire::new(&server);
    assert_eq!(wire.send(put("/no", LENGTH).as_bytes()), SessionStep::Read(Phase::Skip));
    let refused = wire.session.stage();
    assert_eq!(wire.send(b"hell"), SessionStep::Read(Phase::Skip));
    assert_eq!(wire.session.stage(), refused, "one body has one deadline");
    assert_eq!(wire.send(["o", &put("/yes", LENGTH), "hell"].concat().as_bytes()), SessionStep::Read(Phase::Body));
    let next = wire.session.stage();
    assert_ne!(next, refused, "another body, another deadline");
    // Each later request has its own deadline, too.
    assert_eq!(wire.send(["o", &put("/no", CHUNKED)].concat().as_bytes()), SessionStep::Read(Phase::Skip));
    assert_ne!(wire.session.stage(), next);
}

/// The service decides the same by the head and by the call, so the split makes no difference.
#[test]
fn an_early_refusal_at_every_split() {
    let server = refusing_server();
    for (fields, sent) in [(LENGTH, "hello"), (CHUNKED, "5\r\nhello\r\n0\r\n\r\n")] {
        let stream = [&put("/no", fields), sent, NEXT].concat();
        for at in 1..stream.len() {
            let mut wire = Wire::new(&server);
            let _ = wire.send(&stream.as_bytes()[..at]);
            assert_eq!(wire.send(&stream.as_bytes()[at..]), SessionStep::Read(Phase::Idle));
            assert_eq!(wire.take_output(), forbidden("") + &ok(&echo_text("GET", "/next", "")), "split at {at}");
        }
    }
}

/// After a refusal in place of `100 Continue`, a client may send the body or not. So the next bytes are ambiguous.
#[test]
fn an_early_refusal_in_place_of_continue_closes() {
    let server = refusing_server();
    for body in [LENGTH, CHUNKED] {
        let request = put("/no", &[EXPECT, body].concat());
        assert_eq!(ask(&server, request.as_bytes()), (forbidden(CLOSES), LINGER));
    }
    // If the body has arrived, nothing is ambiguous.
    let request = put("/no", &[EXPECT, LENGTH].concat()) + "hello" + NEXT;
    assert_eq!(ask(&server, request.as_bytes()).0, forbidden("") + &ok(&echo_text("GET", "/next", "")));
}

#[test]
fn an_early_refusal_closes_if_the_client_or_the_size_requires_it() {
    let server = refusing_server();
    let closing = put("/no", &["Connection: close\r\n", LENGTH].concat());
    assert_eq!(ask(&server, closing.as_bytes()), (forbidden(CLOSES), LINGER));
    let too_large = put("/no", "Content-Length: 999999999\r\n");
    assert_eq!(ask(&server, too_large.as_bytes()), (forbidden(CLOSES), LINGER), "the service's refusal goes first");
}

/// A malformed body that was already refused closes the connection without another answer.
#[test]
fn a_malformed_body_after_an_early_refusal() {
    for sent in ["x", "5\r\nhello!", "0\r\n\0", "ffffffff\r\n"] {
        let request = put("/no", CHUNKED) + sent + NEXT;
        assert_eq!(ask_twice(&refusing_server(), request.as_bytes()), (forbidden(""), LINGER), "{sent:?}");
    }
}

#[test]
fn head_is_called_only_if_the_body_is_incomplete() {
    let head = |_: &Head<'_>| -> Option<Reply> { Some(Reply::problem(StatusCode::FORBIDDEN, "Not here.")) };
    let server = server_by(|_| (), echo, head);
    for request in [put("/", ""), put("/", LENGTH) + "hello", NEXT.to_owned()] {
        assert!(ask(&server, request.as_bytes()).0.starts_with("HTTP/1.1 200 OK\r\n"), "{request}");
    }
    for request in [put("/", LENGTH), put("/", LENGTH) + "hell", put("/", CHUNKED) + "0\r\n\r\n"] {
        assert_eq!(ask(&server, request.as_bytes()).0, forbidden(""), "{request}");
    }
}
