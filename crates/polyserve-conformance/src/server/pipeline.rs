//! Pipelined requests: sent before the answers to earlier requests have come.

use polyserve_core::Body;
use polyserve_core::http::Method;

use super::prelude::*;

/// Requests that arrive together are answered in order, each with its own answer.
pub(super) fn pipelined_requests_are_answered_in_order(subject: &ServerSubject) {
    let live = echo(subject);
    let message = |n: usize| match format!("body {n}") {
        body if n % 3 == 2 => chunked("PUT", "/", body.as_bytes(), 3),
        body => with_body("POST", "/", "", body.as_bytes()),
    };
    let mut client = live.sending(&(0..20).flat_map(message).collect::<Vec<u8>>());
    for n in 0..20 {
        assert_eq!(client.expect(200).text(), format!("body {n}"), "{}", client.show());
    }
}

/// Hundreds of pipelined requests are all answered, also if the client sends all of them before it reads.
pub(super) fn hundreds_of_pipelined_requests_are_answered(subject: &ServerSubject) {
    let live = echo(subject);
    let mut client = live.client();
    let mut sender = client.write_half().expect("a second handle");
    thread::scope(|scope| {
        scope.spawn(move || {
            let bytes: Vec<u8> = (0..700).flat_map(|n| with_body("POST", "/", "", format!("{n}").as_bytes())).collect();
            sender.send(&bytes).expect("the server takes the requests");
        });
        for n in 0..700 {
            assert_eq!(client.expect(200).text(), format!("{n}"), "{}", client.show());
        }
    });
    client.ask(&get("/"), 200);
}

/// Answers to requests that arrived together are sent together: the first read returns all of them.
pub(super) fn what_arrives_together_leaves_together(subject: &ServerSubject) {
    let live = echo(subject);
    let mut client = live.client();
    let mut batches_in_one_write = |requests: usize| {
        let mut in_one_write = 0;
        for _ in 0..10 {
            client.send(&get("/").repeat(requests)).expect("the server takes the requests");
            client.expect(200);
            let more = client.unread().windows(9).filter(|bytes| bytes == b"HTTP/1.1 ").count();
            in_one_write += usize::from(more == requests - 1);
            for _ in 1..requests {
                client.expect(200);
            }
        }
        in_one_write
    };
    // The kernel may split a batch now and then. A turn may end after a millisecond, but never before its fourth request.
    for (requests, least) in [(4, 8), (12, 3)] {
        let batches = batches_in_one_write(requests);
        assert!(batches >= least, "the answers to {requests} requests came together {batches} times of 10");
    }
}

/// Deferred answers are sent in the order of the requests, also if the first one completes last.
pub(super) fn later_answers_leave_in_order(subject: &ServerSubject) {
    let live = subject.live(delayed, defaults());
    let pauses = [60, 45, 30, 15, 0, 1];
    let mut client = live.sending(&pauses.map(|pause| get(&format!("/{pause}"))).concat());
    for pause in pauses {
        assert_eq!(client.expect(200).text(), format!("/{pause}"), "{}", client.show());
    }
}

/// A deferred answer may need many polls, and may wake its waker within each poll. Tested on several connections at once if
/// the server serves several at once. A server of one connection may close a connection after an answer, because others
/// wait.
pub(super) fn a_later_answer_may_need_many_polls(subject: &ServerSubject) {
    let live = subject.live(self_waking, defaults());
    let requests = [get("/0"), get("/1"), get("/3000"), request("GET", "/2", "Connection: close\r\n")].concat();
    for mut client in live.senders(subject.at_a_time(3), &requests) {
        for path in ["/0", "/1", "/3000", "/2"] {
            assert_eq!(client.expect(200).text(), path, "{}", client.show());
        }
        client.expect_end();
    }
}

/// Answers that end differently (HEAD, a 204, a refusal that keeps the connection) stay in order.
pub(super) fn mixed_answers_keep_their_places(subject: &ServerSubject) {
    let [head, options, delete] =
        [("HEAD", "/1"), ("OPTIONS", "*"), ("DELETE", "/1")].map(|(method, path)| request(method, path, ""));
    let requests = [put("/", ONE), head, get("/1"), options, delete, get("/1")].concat();
    let live = entities(subject);
    let mut client = live.sending(&requests);
    client.expect(201);
    assert_eq!(client.receive_head().expect("HEAD is answered").header("Content-Length"), Some("47"));
    assert_eq!(client.expect(200).text(), ONE);
    client.expect(204);
    client.expect(204);
    client.expect(404);
}

/// Pipelined answers that are larger than any buffer all arrive in order.
pub(super) fn large_pipelined_answers_arrive_whole(subject: &ServerSubject) {
    let live = subject.live(large, defaults());
    let lengths = [3_000_000, 1, 0, 2_000_001, 70_000];
    let mut client = live.sending(&lengths.map(|length| get(&format!("/{length}"))).concat());
    for length in lengths {
        check_pattern(&client.expect(200).body, length);
    }
}

/// An answer has no body if its status allows none, also if the service has made one, or has the length of one for HEAD. 204 and 304 have
/// no `Content-Length` either (RFC 9110, 8.6), and 205 has that of an empty body (15.3.6). The next answer follows at once.
pub(super) fn statuses_without_a_body_have_none(subject: &ServerSubject) {
    let service = |request: Request<'_>| {
        let status = request.head.target.trim_start_matches('/').parse().expect("the target is a status");
        let body = if request.head.method == Method::HEAD { Body::Omitted(Some(6)) } else { Body::from("a body") };
        Reply::new(status, "text/plain", body)
    };
    let live = subject.live(service, defaults());
    let mut client = live.client();
    for (status, length) in [(204, None), (205, Some("0")), (304, None), (200, Some("6"))] {
        for method in ["HEAD", "GET"] {
            client.send(&request(method, &format!("/{status}"), "")).expect("the request is taken");
            let head = client.receive_head().expect("an answer");
            assert_eq!((head.status, head.header("Content-Length")), (status, length), "{method}");
        }
    }
}
