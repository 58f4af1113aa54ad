//! The answers do not depend on how the client's bytes were split.

use polyserve_core::http::StatusCode;
use polyserve_serving::http1::{Phase, SessionStep};

use super::support::*;

/// Requests of every kind, pipelined.
const REQUESTS: &[u8] = b"\r\n\r\nGET /1 HTTP/1.1\r\nHost: a\r\n\r\n\
PUT /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\
\r\nPOST /3 HTTP/1.1\r\nhost:a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n02\r\nde\r\n0\r\nT: v\r\n\r\n\
HEAD /4 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n\
DELETE http://a/5 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";

/// A request that is refused, and one that must not be answered after it.
const REFUSED: &[u8] = b"GET /6 HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\nGET /7 HTTP/1.1\r\nHost: a\r\n\r\n";

fn answers() -> String {
    let head = ok_with("Connection: keep-alive\r\n", &echo_text("HEAD", "/4", ""));
    [
        ok(&echo_text("GET", "/1", "")),
        ok(&echo_text("PUT", "/2", "hello")),
        ok(&echo_text("POST", "/3", "abcde")),
        head.strip_suffix(&echo_text("HEAD", "/4", "")).unwrap().to_owned(),
        ok(&echo_text("DELETE", "http://a/5", "")),
    ]
    .concat()
}

fn served_in(parts: &[&[u8]]) -> (String, SessionStep) {
    let server = server();
    let mut wire = Wire::new(&server);
    let mut step = wire.session.next_step();
    for part in parts.iter().filter(|part| !part.is_empty()) {
        step = wire.send(part);
        if wire.is_closed() {
            break;
        }
    }
    (wire.take_output(), step)
}

#[test]
fn in_two_pieces() {
    for at in 0..=REQUESTS.len() {
        let (first, second) = REQUESTS.split_at(at);
        assert_eq!(served_in(&[first, second]), (answers(), SessionStep::Read(Phase::Idle)), "split at {at}");
    }
}

#[test]
fn in_three_pieces() {
    let request =
        b"POST /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\nT: v\r\n\r\n";
    for first in 0..=request.len() {
        for second in first..=request.len() {
            let parts = [&request[..first], &request[first..second], &request[second..]];
            let answer = (ok(&echo_text("POST", "/3", "abc")), SessionStep::Read(Phase::Idle));
            assert_eq!(served_in(&parts), answer, "split at {first} and {second}");
        }
    }
}

#[test]
fn in_pieces_of_one_size() {
    for size in 1..=REQUESTS.len() {
        let parts: Vec<&[u8]> = REQUESTS.chunks(size).collect();
        assert_eq!(served_in(&parts), (answers(), SessionStep::Read(Phase::Idle)), "pieces of {size}");
    }
}

#[test]
fn up_to_a_refusal() {
    let stream = [REQUESTS, REFUSED].concat();
    let expected = answers() + &refusal(StatusCode::BAD_REQUEST, "A header field's name is not valid.");
    for at in 0..=stream.len() {
        let (first, second) = stream.split_at(at);
        assert_eq!(served_in(&[first, second]), (expected.clone(), LINGER), "split at {at}");
    }
    for size in 1..60 {
        let parts: Vec<&[u8]> = stream.chunks(size).collect();
        assert_eq!(served_in(&parts), (expected.clone(), LINGER), "pieces of {size}");
    }
}

/// Regression test: a head that arrived slowly was decoded only when its length had doubled. So the split decided
/// whether a fault was reported.
#[test]
fn a_fault_in_a_head_that_never_ends() {
    for (bytes, is_refused) in [
        (&b"GET / HTTP/1.1\r\nHost: a\0b"[..], false),
        (b"GET / HTTP/1.1\r\nHost: a\0b\r\n", true),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX y", false),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX y\r\n", true),
        (b"GET / HTTP/1.1\r\nHost: a\n", true),
        (b"GET /\0 HTTP/1.1", false),
        (b"GET /\0 HTTP/1.1\r\n", true),
        (b"ABCDEFGHIJKLMNO\0", true),
        (b"ABCDEFGHIJKLMNOP\0", false),
        (b"GET / HTTP/3.0", false),
        (b"GET / HTTP/3.0\r\n", true),
    ] {
        let server = server();
        let case = bytes.escape_ascii();
        let (output, step) = ask(&server, bytes);
        assert_eq!(step == LINGER, is_refused, "b\"{case}\": {output:?}, {step:?}");
        for size in 1..bytes.len() {
            let mut wire = Wire::new(&server);
            for part in bytes.chunks(size) {
                if matches!(wire.send(part), SessionStep::Close { .. }) {
                    break;
                }
            }
            let _ = wire.end();
            assert_eq!(wire.take_output(), output, "b\"{case}\" in pieces of {size}");
        }
    }
}
