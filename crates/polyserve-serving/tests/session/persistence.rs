//! Persistence: the maximum number of requests, and draining. What a client can ask for is in the wire corpus.

use polyserve_serving::http1::turn::MAX_TURN_REQUESTS;
use polyserve_serving::http1::{OUTPUT_BOUND, Phase, SessionStep};

use super::support::*;

/// If the client asked for the close and sent nothing after it, the close need not linger.
#[test]
fn a_close_that_was_asked_for_does_not_linger() {
    for request in ["GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"] {
        assert_eq!(ask(&server(), request.as_bytes()), (ok_with(CLOSES, &echo_text("GET", "/", "")), CLOSE));
    }
}

#[test]
fn requests_per_connection() {
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    for limit in [1, 2, 5] {
        let server = server_with(|c| c.requests_per_connection = Some(limit));
        let (out, step) = ask(&server, get.repeat(8).as_bytes());
        let body = echo_text("GET", "/", "");
        assert_eq!((out, step), (ok(&body).repeat(limit as usize - 1) + &ok_with(CLOSES, &body), LINGER), "{limit}");
    }
    let server = server_with(|c| c.requests_per_connection = None);
    assert_eq!(ask(&server, get.repeat(500).as_bytes()).0, ok(&echo_text("GET", "/", "")).repeat(500));
}

/// All requests that have arrived are served, and the last answer has `Connection: close`.
#[test]
fn draining_closes_after_the_last_request_that_has_arrived() {
    let server = server();
    let mut wire = Wire::new(&server);
    wire.drain(true);
    let step = wire.send([get("/1"), get("/2"), get("/3")].concat().as_bytes());
    let expected = ok(&echo_text("GET", "/1", ""))
        + &ok(&echo_text("GET", "/2", ""))
        + &ok_with(CLOSES, &echo_text("GET", "/3", ""));
    assert_eq!((wire.take_output(), step), (expected, LINGER));
}

#[test]
fn draining_still_serves_a_request_that_has_begun() {
    let server = server();
    let put = "PUT /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    for at in 1..put.len() {
        let mut wire = Wire::new(&server);
        let _ = wire.send([&get("/1"), &put[..at]].concat().as_bytes());
        wire.drain(true);
        let step = wire.send(&put.as_bytes()[at..]);
        let expected = ok(&echo_text("GET", "/1", "")) + &ok_with(CLOSES, &echo_text("PUT", "/2", "hi"));
        assert_eq!((wire.take_output(), step), (expected, LINGER), "split at {at}");
    }
    // The first part of a request arrives with another request, and both are answered while draining.
    let mut wire = Wire::new(&server);
    wire.drain(true);
    assert_eq!(wire.send([&get("/1"), "GET"].concat().as_bytes()), SessionStep::Read(Phase::Head));
    assert_eq!(wire.take_output(), ok(&echo_text("GET", "/1", "")));
    assert_eq!(wire.send(&get("/2").as_bytes()[3..]), LINGER);
    assert_eq!(wire.take_output(), ok_with(CLOSES, &echo_text("GET", "/2", "")));
}

/// Old clients send an empty line after a body (RFC 9112, 2.2). The answer before it had no `Connection: close`, and
/// the client's next request met a closed connection.
#[test]
fn an_empty_line_after_the_last_request_is_no_request() {
    let server = server();
    let put = "PUT /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    for after in ["\r", "\r\n", "\r\n\r\n"] {
        for first in ["", "PU", &put[..put.len() - 1]] {
            let mut wire = Wire::new(&server);
            wire.drain(true);
            if !first.is_empty() {
                let _ = wire.send(first.as_bytes());
            }
            let step = wire.send([&put[first.len()..], after].concat().as_bytes());
            assert_eq!(
                (wire.take_output(), step),
                (ok_with(CLOSES, &echo_text("PUT", "/2", "hi")), LINGER),
                "{first:?} {after:?}"
            );
        }
    }
}

/// Without this, a client that always has a request on its way would keep the thread that others wait for.
#[test]
fn a_session_closes_soon_if_others_wait() {
    let (server, promised) = server_later(|_| ());
    let put = "PUT /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    let chunked = "PUT /2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
    let (get_echo, put_echo) = (echo_text("GET", "/1", ""), echo_text("PUT", "/2", "hi"));
    // All complete requests are answered, and the start of another is dropped.
    for second in [put, chunked] {
        for rest in ["", "\r\n", "G", "GET /3 HTTP/1.1\r\nHost: a\r\n", &put[..put.len() - 1], "X : y\r\n\r\n"] {
            let mut wire = Wire::new(&server);
            wire.others_wait(true);
            let step = wire.send([&get("/1"), "\r\n", second, rest].concat().as_bytes());
            assert_eq!((wire.take_output(), step), (ok(&get_echo) + &ok_with(CLOSES, &put_echo), LINGER), "{rest:?}");
        }
    }
    // The request had begun before.
    let mut wire = Wire::new(&server);
    let _ = wire.send(&put.as_bytes()[..put.len() - 1]);
    wire.others_wait(true);
    assert_eq!(wire.send(["i", "GET"].concat().as_bytes()), LINGER);
    assert_eq!(wire.take_output(), ok_with(CLOSES, &put_echo));
    // A deferred answer is the last one.
    let mut wire = Wire::new(&server);
    assert_eq!(wire.send(get("/later").repeat(3).as_bytes()), SessionStep::Answer);
    wire.others_wait(true);
    assert!(promised.complete("x"));
    assert_eq!((wire.settle(), wire.take_output(), promised.open()), (LINGER, ok_with(CLOSES, "x"), 0));
    // A client that asked for the close, and sent more, is still sending.
    let mut wire = Wire::new(&server);
    wire.others_wait(true);
    let closing = "GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET";
    assert_eq!((wire.send(closing.as_bytes()), wire.take_output()), (LINGER, ok_with(CLOSES, &get_echo)));
    // An idle session stays, until the server closes it.
    let mut wire = Wire::new(&server);
    let _ = wire.send(get("/1").as_bytes());
    wire.others_wait(true);
    assert_eq!(wire.session.next_step(), SessionStep::Read(Phase::Idle));
}

/// Regression test: every request that had arrived was answered, up to a thousand. A client that read its answers slowly kept its
/// thread for hours.
#[test]
fn a_session_gives_way_after_a_turn_of_answers() {
    let server = server();
    let closing = |wire: &mut Wire<'_>| wire.take_output().matches(CLOSES).count();
    let mut wire = Wire::new(&server);
    wire.others_wait(true);
    assert_eq!(wire.send(get("/1").repeat(100).as_bytes()), LINGER);
    assert_eq!((wire.answered, closing(&mut wire)), (u64::from(MAX_TURN_REQUESTS), 1));
    // Answers that came before the others do not count.
    let mut wire = Wire::new(&server);
    assert_eq!(wire.send(get("/1").repeat(20).as_bytes()), SessionStep::Read(Phase::Idle));
    wire.others_wait(true);
    assert_eq!(wire.send(get("/1").repeat(100).as_bytes()), LINGER);
    assert_eq!((wire.answered, closing(&mut wire)), (20 + u64::from(MAX_TURN_REQUESTS), 1));
    // The answer that fills the output is the last one, so that a slow client has one output to take.
    let length = OUTPUT_BOUND / 3;
    let put = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{}", "x".repeat(length));
    let mut wire = Wire::new(&server);
    wire.others_wait(true);
    assert_eq!(wire.send(put.repeat(10).as_bytes()), LINGER);
    assert_eq!((wire.answered, closing(&mut wire)), (3, 1));
}

#[test]
fn draining_closes_after_a_later_answer() {
    let (server, promised) = server_later(|_| ());
    for after in ["", "\r\n", "/1"] {
        let mut wire = Wire::new(&server);
        let next = if after.starts_with('/') { get(after) } else { after.to_owned() };
        assert_eq!(wire.send([get("/later"), next].concat().as_bytes()), SessionStep::Answer);
        wire.drain(true);
        assert!(promised.complete("x"));
        let last = ok_with(CLOSES, &echo_text("GET", after, ""));
        let expected = if after.starts_with('/') { ok("x") + &last } else { ok_with(CLOSES, "x") };
        assert_eq!((wire.settle(), wire.take_output()), (LINGER, expected));
    }
}
