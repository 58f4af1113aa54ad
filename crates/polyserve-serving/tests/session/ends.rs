//! Timeouts, the end of the client's bytes, and rejection, in each phase.

use polyserve_core::http::StatusCode;
use polyserve_serving::http1::{Phase, Session, SessionStep};

use super::support::*;

const GET: &str = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n";
const HALF_HEAD: &str = "GET /2 HTTP/1.1\r\nHo";
const HALF_BODY: &str = "PUT /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel";
const LATER: &str = "GET /later HTTP/1.1\r\nHost: a\r\n\r\n";

fn first() -> String {
    ok(&echo_text("GET", "/1", ""))
}

fn late(status: StatusCode, what: &str) -> String {
    refusal(status, &format!("The {what} did not come in time."))
}

#[test]
fn an_idle_connection_times_out_silently() {
    let server = server();
    for sent in ["", GET, "\r\n", &[GET, "\r\n"].concat()] {
        let mut wire = Wire::new(&server);
        if !sent.is_empty() {
            assert_eq!(wire.send(sent.as_bytes()), SessionStep::Read(Phase::Idle));
        }
        let expected = if sent.starts_with('G') { first() } else { String::new() };
        assert_eq!((wire.time_out(), wire.take_output()), (CLOSE, expected), "after {sent:?}");
    }
}

#[test]
fn a_head_or_a_body_that_does_not_come() {
    let server = server();
    for (sent, phase, what) in [(HALF_HEAD, Phase::Head, "head"), (HALF_BODY, Phase::Body, "body")] {
        for before in ["", GET] {
            let mut wire = Wire::new(&server);
            assert_eq!(wire.send([before, sent].concat().as_bytes()), SessionStep::Read(phase));
            let answered = if before.is_empty() { String::new() } else { first() };
            assert_eq!(wire.take_output(), answered);
            assert_eq!(
                (wire.time_out(), wire.take_output()),
                (LINGER, late(StatusCode::REQUEST_TIMEOUT, what)),
                "{sent:?}"
            );
        }
    }
    // An answer to HEAD has no body, and neither has this one.
    for sent in ["HEAD / HTTP/1.1\r\n", "HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"] {
        let mut wire = Wire::new(&server);
        let _ = wire.send(sent.as_bytes());
        assert_eq!(wire.time_out(), LINGER);
        let output = wire.take_output();
        assert!(output.starts_with("HTTP/1.1 408 ") && output.ends_with("\r\n\r\n"), "{output}");
    }
}

/// The answer is abandoned, so the promise can no longer be completed.
#[test]
fn an_answer_that_does_not_come() {
    let (server, promised) = server_later(|_| ());
    let mut wire = Wire::new(&server);
    assert_eq!(wire.send([GET, LATER, GET].concat().as_bytes()), SessionStep::Answer);
    assert_eq!(wire.take_output(), first());
    let expected = late(StatusCode::SERVICE_UNAVAILABLE, "answer");
    assert_eq!((wire.time_out(), wire.take_output(), wire.answered), (LINGER, expected, 2));
    assert!(!promised.complete("too late"), "the connection waits for no value");
}

#[test]
fn the_rest_of_a_refused_body_that_does_not_come() {
    let server = server_by(|_| (), echo, |_| Some(polyserve_core::Reply::problem(StatusCode::FORBIDDEN, "Not here.")));
    let mut wire = Wire::new(&server);
    assert_eq!(wire.send(HALF_BODY.as_bytes()), SessionStep::Read(Phase::Skip));
    assert_eq!(wire.take_output(), problem_with("", StatusCode::FORBIDDEN, "Not here."));
    assert_eq!((wire.time_out(), wire.take_output()), (LINGER, String::new()), "it has its answer");
}

#[test]
fn the_end_between_requests_or_within_one() {
    let server = server();
    for sent in
        ["", GET, HALF_HEAD, HALF_BODY, "\r", "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"]
    {
        let mut wire = Wire::new(&server);
        if !sent.is_empty() {
            let _ = wire.send(sent.as_bytes());
        }
        let expected = if sent == GET { first() } else { String::new() };
        assert_eq!((wire.end(), wire.take_output()), (CLOSE, expected), "after {sent:?}");
        assert!(!wire.session.is_busy());
    }
}

/// A client that closes its writing side after a request still gets its answer and the answers before it.
#[test]
fn the_end_while_an_answer_is_awaited() {
    let (server, promised) = server_later(|_| ());
    for (after, expected) in [("", ok("x")), (GET, ok("x") + &first()), (HALF_HEAD, ok("x")), (HALF_BODY, ok("x"))] {
        let mut wire = Wire::new(&server);
        assert_eq!(wire.send([LATER, after].concat().as_bytes()), SessionStep::Answer);
        assert_eq!(wire.end(), SessionStep::Answer, "it is still owed");
        assert!(promised.complete("x"));
        assert_eq!((wire.settle(), wire.take_output()), (CLOSE, expected), "with {after:?} after it");
    }
}

/// After the end of the client's bytes there is nothing to read, so a close does not linger.
#[test]
fn the_end_takes_the_linger_away() {
    let (server, promised) = server_later(|_| ());
    let mut wire = Wire::new(&server);
    let _ = wire.send([LATER, "X : y\r\n"].concat().as_bytes());
    let _ = wire.end();
    assert!(promised.complete("x"));
    assert_eq!(wire.settle(), CLOSE);
    assert!(wire.take_output().contains("HTTP/1.1 400 Bad Request\r\n"));
}

#[test]
fn what_comes_after_the_end_is_not_looked_at() {
    let server = server();
    let mut buffers = polyserve_serving::http1::SessionBuffers::new();
    let mut session = Session::new();
    let _ = session.receive(b"X : y\r\n", &mut server.turn(&mut buffers));
    session.written(buffers.out().len(), &mut buffers);
    assert_eq!(session.take_answered(), 1);
    for _ in 0..3 {
        assert_eq!(session.receive(GET.as_bytes(), &mut server.turn(&mut buffers)), LINGER);
        assert_eq!(session.resume(&mut server.turn(&mut buffers)), LINGER);
        assert!(buffers.out().is_empty());
    }
    assert!(matches!(session.end_of_input(), SessionStep::Close { .. }));
}

#[test]
fn a_full_server_rejects() {
    let server = server();
    let mut buffers = polyserve_serving::http1::SessionBuffers::new();
    buffers.refresh(std::time::UNIX_EPOCH + std::time::Duration::from_secs(784_111_777), false);
    let mut session = Session::new();
    assert_eq!(session.reject(&mut server.turn(&mut buffers)), LINGER);
    let expected = refusal(StatusCode::SERVICE_UNAVAILABLE, "This server is full for now.");
    let expected = expected.replacen("Connection:", "Retry-After: 1\r\nConnection:", 1);
    assert_eq!(String::from_utf8_lossy(buffers.out()), expected);
}

/// A connection that ends drops the answer that it waits for.
#[test]
fn a_dropped_or_abandoned_session_abandons_its_answer() {
    for abandon in [false, true] {
        let (server, promised) = server_later(|_| ());
        let mut wire = Wire::new(&server);
        assert_eq!(wire.send(LATER.as_bytes()), SessionStep::Answer);
        if abandon {
            wire.session.abandon();
            assert!(!promised.complete("x"));
        } else {
            drop(wire);
            assert!(!promised.complete("x"));
        }
    }
}
