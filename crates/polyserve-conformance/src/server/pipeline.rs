//! Pipelined requests: sent before the answers to earlier requests have come.

use super::prelude::*;

/// Requests that arrive together are answered in order, each with its own answer.
pub(super) fn pipelined_requests_are_answered_in_order(subject: &ServerSubject) {
    let live = echo(subject);
    let mut client = live.client();
    let mut bytes = Vec::new();
    for n in 0..20 {
        let body = format!("body {n}");
        let message = if n % 3 == 2 {
            chunked("PUT", "/", body.as_bytes(), 3)
        } else {
            with_body("POST", "/", "", body.as_bytes())
        };
        bytes.extend(message);
    }
    client.send(&bytes).expect("the server takes the requests");
    for n in 0..20 {
        assert_eq!(client.expect(200).text(), format!("body {n}"), "{}", client.show());
    }
}

/// Hundreds of pipelined requests are all answered, also if the client sends all of them before it reads.
pub(super) fn hundreds_of_pipelined_requests_are_answered(subject: &ServerSubject) {
    let live = echo(subject);
    let mut client = live.client();
    let mut sender = client.write_half().expect("a second handle");
    std::thread::scope(|scope| {
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
    let live = subject.live(delayed, |_| ());
    let mut client = live.client();
    let pauses = [60, 45, 30, 15, 0, 1];
    let bytes: Vec<u8> = pauses.iter().flat_map(|pause| get(&format!("/{pause}"))).collect();
    client.send(&bytes).expect("the server takes the requests");
    for pause in pauses {
        assert_eq!(client.expect(200).text(), format!("/{pause}"), "{}", client.show());
    }
}

/// A deferred answer may need many polls, and may wake its waker within each poll. Tested on several connections at once if
/// the server serves several at once. A server of one connection may close a connection after an answer, because others
/// wait.
pub(super) fn a_later_answer_may_need_many_polls(subject: &ServerSubject) {
    let live = subject.live(self_waking, |_| ());
    let count = if subject.shape() == Shape::One { 1 } else { 3 };
    let mut clients = live.clients(count);
    for client in &mut clients {
        let bytes = [get("/0"), get("/1"), get("/3000"), request("GET", "/2", "Connection: close\r\n")].concat();
        client.send(&bytes).expect("the server takes the requests");
    }
    for mut client in clients {
        for path in ["/0", "/1", "/3000", "/2"] {
            assert_eq!(client.expect(200).text(), path, "{}", client.show());
        }
        client.expect_end();
    }
}

/// Answers that end differently (HEAD, a 204, a refusal that keeps the connection) stay in order.
pub(super) fn mixed_answers_keep_their_places(subject: &ServerSubject) {
    let live = super::status_table::entities(subject);
    let mut client = live.client();
    let entity = super::status_table::ONE;
    let put = |body: &str| super::wire::put("/", body);
    let requests = [
        put(entity),
        request("HEAD", "/1", ""),
        get("/1"),
        request("OPTIONS", "*", ""),
        request("DELETE", "/1", ""),
        get("/1"),
    ];
    client.send(&requests.concat()).expect("the server takes the requests");
    client.expect(201);
    assert_eq!(client.receive_head().expect("HEAD is answered").header("Content-Length"), Some("47"));
    assert_eq!(client.expect(200).text(), entity);
    client.expect(204);
    client.expect(204);
    client.expect(404);
}

/// Pipelined answers that are larger than any buffer all arrive in order.
pub(super) fn large_pipelined_answers_arrive_whole(subject: &ServerSubject) {
    let live = subject.live(large, |_| ());
    let mut client = live.client();
    let lengths = [3_000_000, 1, 0, 2_000_001, 70_000];
    let bytes: Vec<u8> = lengths.iter().flat_map(|length| get(&format!("/{length}"))).collect();
    client.send(&bytes).expect("the server takes the requests");
    for length in lengths {
        check_pattern(&client.expect(200).body, length);
    }
}
