//! A panic of the service is answered with 500 and affects no other request.

use std::future::poll_fn;
use std::panic::resume_unwind;
use std::task::Poll;

use polyserve_core::http::StatusCode;
use polyserve_core::{Answer, Reply, Request};
use polyserve_serving::http1::{HttpState, Phase, SessionStep};

use super::support::*;

/// Panics without a message of the panic hook.
fn panic() -> ! {
    resume_unwind(Box::new("a text"))
}

/// Panics with a payload that panics when it is dropped.
fn panic_with_bomb() -> ! {
    resume_unwind(Box::new(Bomb(panic)))
}

/// Regression test: the payload of a panic may be any value, and its drop may panic too. Such a panic ended the serving thread.
const PANICS: [fn() -> !; 2] = [panic, panic_with_bomb];

/// Panics when it is dropped.
struct Bomb(fn() -> !);

impl Drop for Bomb {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Serves a service that panics at the point that the path names.
fn panicky(panic: fn() -> !) -> HttpState {
    let call = move |request: &Request<'_>, body: &mut Vec<u8>| match request.head.target {
        "/call" => {
            body.extend_from_slice(b"HTTP/1.1 200 OK\r\n\r\nhalf an answer");
            panic()
        }
        "/poll" => Answer::later(async move { panic() }),
        "/drop" => {
            let (bomb, mut text) = (Bomb(panic), Some("dropped"));
            Answer::later(poll_fn(move |_| {
                let _ = &bomb;
                let reply = text.take().map(|text| Reply::new(StatusCode::OK, "text/plain", text));
                reply.map_or(Poll::Pending, Poll::Ready)
            }))
        }
        "/never" => {
            let bomb = Bomb(panic);
            Answer::later(poll_fn(move |_| {
                let _ = &bomb;
                Poll::Pending
            }))
        }
        _ => echo(request, body),
    };
    server_by(|_| (), call, move |head| if head.target == "/head" { panic() } else { None })
}

fn internal_error(connection: &str) -> String {
    problem_with(connection, StatusCode::INTERNAL_SERVER_ERROR, "The service panicked.")
}

fn echoed(path: &str) -> String {
    ok(&echo_text("GET", path, ""))
}

#[test]
fn wherever_it_panics_the_others_are_answered() {
    for panic in PANICS {
        let server = panicky(panic);
        for (path, answer) in [("/call", internal_error("")), ("/poll", internal_error("")), ("/drop", ok("dropped"))] {
            let stream = [get("/1"), get(path), get("/2")].concat();
            assert_eq!(ask_twice(&server, stream.as_bytes()).0, echoed("/1") + &answer + &echoed("/2"), "{path}");
        }
    }
}

#[test]
fn before_the_body() {
    for panic in PANICS {
        let server = panicky(panic);
        for (fields, body) in [("Content-Length: 5\r\n", "hello"), ("Transfer-Encoding: chunked\r\n", "0\r\n\r\n")] {
            let head = format!("PUT /head HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            let mut wire = Wire::new(&server);
            assert_eq!(wire.send(head.as_bytes()), SessionStep::Read(Phase::Skip));
            assert_eq!(wire.take_output(), internal_error(""));
            assert_eq!(wire.send([body, &get("/1")].concat().as_bytes()), SessionStep::Read(Phase::Idle));
            assert_eq!(wire.take_output(), echoed("/1"), "the body is skipped, the connection lives on");
        }
        let head = "PUT /head HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(ask(&server, head.as_bytes()), (internal_error(CLOSES), LINGER));
    }
}

#[test]
fn a_close_stays_a_close() {
    let request = "GET /call HTTP/1.0\r\n\r\n";
    assert_eq!(ask(&panicky(panic), request.as_bytes()), (internal_error(CLOSES), CLOSE));
}

/// The future panics when it is dropped: after a timeout, after a cut, or with its connection.
#[test]
fn in_the_drop_of_an_answer_that_is_given_up() {
    let server = panicky(panic);
    let waiting = || {
        let mut wire = Wire::new(&server);
        assert_eq!(wire.send(get("/never").as_bytes()), SessionStep::Answer);
        wire
    };
    let mut wire = waiting();
    assert_eq!(wire.time_out(), LINGER);
    assert!(wire.take_output().starts_with("HTTP/1.1 503 "));
    waiting().session.abandon();
    drop(waiting());
}

#[test]
fn in_the_poll_and_then_in_the_drop() {
    // The second panic comes after the first was caught; two panics in one unwinding would abort.
    struct Twice(bool);
    impl std::future::Future for Twice {
        type Output = Reply;
        fn poll(mut self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> Poll<Reply> {
            self.0 = true;
            panic()
        }
    }
    impl Drop for Twice {
        fn drop(&mut self) {
            if self.0 {
                panic();
            }
        }
    }
    let server = server_by(|_| (), |_, _| Answer::later(Twice(false)), |_| None);
    assert_eq!(ask(&server, get("/").repeat(2).as_bytes()).0, internal_error("").repeat(2));
}
