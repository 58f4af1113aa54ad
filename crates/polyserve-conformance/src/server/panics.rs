//! A panic is a 500 for that client and nothing else.

use std::time::Duration;

use super::live::Live;
use super::services::{Gate, LaterRepo, PANICS, Panicky};
use super::status_table::{ONE, over};
use super::subject::ServerSubject;
use super::wire::{check_problem, get, put, request, with_body};
use crate::property::Outcome;

fn panicky(subject: &ServerSubject) -> Live {
    let workers = subject.workers_or_pool(2);
    subject.live(Panicky::shared(), |config| config.workers = workers)
}

/// Asks for `path`, which panics, on a connection that was used before; a 500 comes, and others are still served.
#[track_caller]
fn check(live: &Live, bytes: &[u8]) {
    let mut client = live.client();
    client.ask(&get("/"), 200);
    let response = client.ask(bytes, 500);
    check_problem(&response);
    if response.closes() {
        client.expect_end();
    } else {
        assert_eq!(client.ask(&with_body("POST", "/", "", b"after"), 200).text(), "after");
    }
    drop(client);
    assert_eq!(live.ask(&with_body("POST", "/", "", b"other"), 200).text(), "other");
}

/// A service that panics in `call` costs its client a 500; what it had written of an answer is gone.
pub fn a_panic_in_call_is_a_500(subject: &ServerSubject) -> Outcome {
    let live = panicky(subject);
    check(&live, &get("/call"));
    check(&live, &get("/partly"));
    check(&live, &with_body("POST", "/call", "", b"with a body"));
    Outcome::Held
}

/// A service that panics in `head` costs its client a 500.
pub fn a_panic_in_head_is_a_500(subject: &ServerSubject) -> Outcome {
    check(&panicky(subject), &request("POST", "/head", "Expect: 100-continue\r\nContent-Length: 5\r\n"));
    Outcome::Held
}

/// A `Later` that panics when it is first polled, or when it was woken, costs its client a 500.
pub fn a_panic_in_a_later_answer_is_a_500(subject: &ServerSubject) -> Outcome {
    let live = panicky(subject);
    check(&live, &get("/later"));
    check(&live, &get("/woken"));
    Outcome::Held
}

/// A `Later` that panics when it is dropped, because it took too long, costs its client no more than the 503.
pub fn a_panic_in_a_given_up_answer_is_a_503(subject: &ServerSubject) -> Outcome {
    let live = subject.live(Panicky::shared(), |config| config.answer_timeout = Duration::from_millis(100));
    for _ in 0..3 {
        let mut client = live.client();
        client.send(&get("/given-up")).expect("the server takes the request");
        check_problem(&client.expect_last(503));
    }
    live.ask(&get("/"), 200);
    Outcome::Held
}

/// A visit that panics under the repo's lock costs its client a 500; the repo goes on.
pub fn a_panic_in_a_visit_is_a_500(subject: &ServerSubject) -> Outcome {
    let live = panicky(subject);
    check(&live, &get("/visit"));
    check(&live, &get("/visit"));
    Outcome::Held
}

/// A repo whose own thread panics over a request costs its client a 503 with `Retry-After`.
pub fn a_panic_in_the_repos_thread_is_a_503(subject: &ServerSubject) -> Outcome {
    let live = over(subject, LaterRepo::new());
    live.ask(&put("/", ONE), 201);
    let response = live.ask(&get(&format!("/{PANICS}")), 503);
    check_problem(&response);
    assert!(response.header("Retry-After").is_some(), "{:?}", response.headers);
    assert_eq!(live.ask(&get("/1"), 200).text(), ONE);
    Outcome::Held
}

/// A promise whose completer is dropped is answered: nobody waits for ever.
pub fn a_dropped_completer_answers(subject: &ServerSubject) -> Outcome {
    let gate = Gate::new();
    let live = subject.live(gate.clone(), |_| ());
    let mut client = live.client();
    client.send(&get("/hold")).expect("the server takes the request");
    gate.wait_for(1, subject.patience);
    gate.drop_all();
    check_problem(&client.expect(503));
    Outcome::Held
}

/// More panics than workers, one by one and pipelined, leave a server that still serves.
pub fn more_panics_than_workers_harm_nobody(subject: &ServerSubject) -> Outcome {
    let live = panicky(subject);
    for n in 0..20 {
        let path = ["/call", "/later", "/woken", "/visit", "/partly"][n % 5];
        live.ask(&get(path), 500);
    }
    let mut client = live.client();
    client.send(&[get("/"), get("/call"), get("/call")].concat()).expect("the server takes the requests");
    client.expect(200);
    let first = client.expect(500);
    if !first.closes() {
        client.expect(500);
    }
    drop(client);
    for _ in 0..10 {
        live.ask(&get("/"), 200);
    }
    Outcome::Held
}

/// A panic whose payload panics when it is dropped costs its client a 500, and no other client anything.
pub fn a_panic_payload_that_panics_is_a_500(subject: &ServerSubject) -> Outcome {
    let live = panicky(subject);
    for path in ["/payload", "/payload-later", "/payload", "/payload-later"] {
        check(&live, &get(path));
    }
    Outcome::Held
}
