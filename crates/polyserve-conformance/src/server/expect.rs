//! `Expect: 100-continue`: a client that waits before it sends its body.

use super::prelude::*;
use super::status_table::entities;

/// A body of five bytes that is announced and held back.
const EXPECT: &str = "Expect: 100-continue\r\nContent-Length: 5\r\n";

/// Returns the final answer. Skips an interim 100, which may come even if the body was sent already.
#[track_caller]
fn final_answer(client: &mut Client, status: u16) -> String {
    match client.expect_one_of(&[100, status]) {
        response if response.status == status => response.text(),
        _ => client.expect(status).text(),
    }
}

/// A client that waits gets one `100 Continue`, and then the answer. Tested several times on one connection.
pub(super) fn an_expected_continue_comes_before_the_body(subject: &ServerSubject) {
    let live = echo(subject);
    let mut client = live.client();
    let twice = "Expect: 100-continue, 100-continue\r\nContent-Length: 5\r\n";
    let in_two_fields = "Expect: 100-continue\r\nExpect: ,100-Continue,\r\nContent-Length: 5\r\n";
    for fields in [EXPECT, "expect:100-CONTINUE\r\nContent-Length: 5\r\n", twice, in_two_fields, EXPECT] {
        client.ask(&request("POST", "/", fields), 100);
        assert_eq!(client.ask(b"hello", 200).text(), "hello");
    }
    client.ask(&request("POST", "/", "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n"), 100);
    for part in [&b"5\r\nhel"[..], b"lo\r\n0\r\n"] {
        client.send(part).expect("the server takes the body");
    }
    assert_eq!(client.ask(b"\r\n", 200).text(), "hello");
    client.ask(&get("/"), 200);
}

/// A client that does not wait, or has no body to send, gets one final answer.
pub(super) fn a_client_need_not_wait_for_continue(subject: &ServerSubject) {
    let live = echo(subject);
    let mut client = live.sending(&[request("POST", "/", EXPECT).as_slice(), b"hello"].concat());
    assert_eq!(final_answer(&mut client, 200), "hello");
    for fields in ["Expect: 100-continue\r\n", "Expect: 100-continue\r\nContent-Length: 0\r\n"] {
        client.send(&request("POST", "/", fields)).expect("the server takes the request");
        assert_eq!(final_answer(&mut client, 200), "");
    }
    client.ask(&get("/"), 200);
}

/// Requests that the head alone decides: the method, the path, a field, and the status.
const REFUSED: [(&str, &str, &str, u16); 4] = [
    ("PUT", "/", "Content-Encoding: gzip\r\n", 415),
    ("POST", "/1", "", 405),
    ("PUT", "/1/2", "", 404),
    ("PUT", "/x", "", 400),
];

/// If the head alone decides the answer, the server sends it although the body does not come.
pub(super) fn a_refusal_by_the_head_needs_no_body(subject: &ServerSubject) {
    let service = EntityService::new(Reference::<Entity>::default());
    let live = subject.live(service, without_body_timeout);
    for (method, path, fields, status) in REFUSED {
        for (framing, start) in [
            ("Content-Length: 5\r\n", ""),
            ("Content-Length: 5\r\n", "he"),
            ("Transfer-Encoding: chunked\r\n", "5\r\nhe"),
        ] {
            let head = request(method, path, &format!("{fields}{framing}"));
            check_problem(&live.client().ask(&[&head, start.as_bytes()].concat(), status));
        }
    }
}

/// If the head alone decides the answer, the server sends the final status at once, without a 100. It does not wait for the
/// body.
pub(super) fn a_refusal_comes_instead_of_continue(subject: &ServerSubject) {
    let live = entities(subject);
    for (method, path, fields, status) in REFUSED {
        let mut client = live.client();
        let response = client.ask(&request(method, path, &format!("{fields}{EXPECT}")), status);
        check_problem(&response);
        if response.closes() {
            client.expect_end();
        } else {
            // The server kept the connection, so it still waits for the body.
            client.ask(&[b"hello".as_slice(), &get("/1")].concat(), 404);
        }
    }
}

/// A body with a length above the limit is refused at once, without a 100.
pub(super) fn too_large_a_body_is_not_asked_for(subject: &ServerSubject) {
    let live = subject.live(EntityService::new(Reference::<Entity>::default()), |config| config.max_body = 1000);
    let bytes = request("PUT", "/1", "Expect: 100-continue\r\nContent-Length: 1001\r\n");
    refused_unfinished(&live, &bytes, &[413]);
}
