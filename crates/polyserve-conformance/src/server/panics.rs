//! Panics in the service: a 500 for that client, and no effect on others.

use super::prelude::*;
use super::status_table::over;
use crate::repo::PANICS;

fn panicky(subject: &ServerSubject) -> Live {
    let workers = subject.workers_or_pool(2);
    subject.live(PanickingService::shared(), |config| config.workers = workers)
}

/// Sends a request that makes the service panic, on a used connection. The answer is 500, and other clients are still
/// served.
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

/// A panic in `call` is answered with 500. The part of an answer that the service had written is dropped.
pub(super) fn a_panic_in_call_is_a_500(subject: &ServerSubject) {
    let live = panicky(subject);
    check(&live, &get("/call"));
    check(&live, &get("/partly"));
    check(&live, &with_body("POST", "/call", "", b"with a body"));
}

/// An answer without the body that its request asks for is replaced by a 500: its length would be that of what follows. The answer to
/// HEAD needs no body.
pub(super) fn an_omitted_body_is_a_500(subject: &ServerSubject) {
    let live = panicky(subject);
    for path in ["/omitted", "/omitted-later"] {
        check(&live, &get(path));
        check(&live, &with_body("POST", path, "", b"with a body"));
        let mut client = live.sending(&request("HEAD", path, ""));
        let response = client.receive_head().expect("HEAD is answered");
        let length = response.header("Content-Length");
        assert_eq!((response.status, length), (200, (path == "/omitted").then_some("5")), "{}", client.show());
        client.ask(&get("/"), 200);
    }
}

/// A panic in `head` is answered with 500.
pub(super) fn a_panic_in_head_is_a_500(subject: &ServerSubject) {
    check(&panicky(subject), &request("POST", "/head", "Expect: 100-continue\r\nContent-Length: 5\r\n"));
}

/// A deferred answer that panics is replaced by a 500, on its first poll and after a wake.
pub(super) fn a_panic_in_a_later_answer_is_a_500(subject: &ServerSubject) {
    let live = panicky(subject);
    check(&live, &get("/later"));
    check(&live, &get("/woken"));
}

/// A deferred answer that times out and panics when it is dropped is still replaced by a 503.
pub(super) fn a_panic_in_a_given_up_answer_is_a_503(subject: &ServerSubject) {
    let live = subject.live(PanickingService::shared(), |config| config.answer_timeout = Duration::from_millis(100));
    for _ in 0..3 {
        let mut client = live.sending(&get("/given-up"));
        check_problem(&client.expect_last(503));
    }
    live.ask(&get("/"), 200);
}

/// A visit that panics under the repo's lock is answered with 500. The repo goes on.
pub(super) fn a_panic_in_a_visit_is_a_500(subject: &ServerSubject) {
    let live = panicky(subject);
    check(&live, &get("/visit"));
    check(&live, &get("/visit"));
}

/// A panic on the repo's own thread is answered with 503 and `Retry-After`.
pub(super) fn a_panic_in_the_repos_thread_is_a_503(subject: &ServerSubject) {
    let live = over(subject, LaterReference::default());
    live.ask(&put("/", ONE), 201);
    let response = live.ask(&get(&format!("/{PANICS}")), 503);
    check_problem(&response);
    assert!(response.header("Retry-After").is_some(), "{:?}", response.headers);
    assert_eq!(live.ask(&get("/1"), 200).text(), ONE);
}

/// If a completer is dropped, the answer is the default of its promise.
pub(super) fn a_dropped_completer_answers(subject: &ServerSubject) {
    let held_answers = HeldAnswers::new();
    let live = subject.live(held_answers.clone(), |_| ());
    let mut client = live.sending(&get("/hold"));
    held_answers.wait_for(1, subject.patience);
    held_answers.drop_all();
    check_problem(&client.expect(503));
}

/// A server still serves after more panics than it has workers, one by one and pipelined.
pub(super) fn more_panics_than_workers_leave_a_serving_server(subject: &ServerSubject) {
    let live = panicky(subject);
    for n in 0..20 {
        let path = ["/call", "/later", "/woken", "/visit", "/partly"][n % 5];
        live.ask(&get(path), 500);
    }
    let mut client = live.sending(&[get("/"), get("/call"), get("/call")].concat());
    client.expect(200);
    let first = client.expect(500);
    if !first.closes() {
        client.expect(500);
    }
    drop(client);
    for _ in 0..10 {
        live.ask(&get("/"), 200);
    }
}

/// If the payload of a panic panics when it is dropped, the answer is 500, and other clients are still served.
pub(super) fn a_panic_payload_that_panics_is_a_500(subject: &ServerSubject) {
    let live = panicky(subject);
    for path in ["/payload", "/payload-later", "/payload", "/payload-later"] {
        check(&live, &get(path));
    }
}
