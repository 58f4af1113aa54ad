//! Timeouts: how long each step may take, and how the connection ends.

use polyserve_serving::http1::BODY_GRACE;

use super::prelude::*;

/// The timeout under test. All others keep their defaults, so that a busy machine does not reach them.
const SHORT: Duration = Duration::from_millis(200);

/// Sends the beginning of a request, and then a byte every 20 ms until the server sends something or closes. Checks that it times out.
#[track_caller]
fn drip(subject: &ServerSubject, live: &Live, beginning: &[u8]) {
    let mut client = live.sending(beginning);
    let deadline = Instant::now() + subject.max_wait + BODY_GRACE;
    while !client.has_input_within(Duration::from_millis(20)) {
        assert!(Instant::now() < deadline, "drips keep the request alive\n{}", client.show());
        let _ = client.send(b"x");
    }
    check_problem(&client.expect_last(408));
}

/// A head that arrives one byte at a time is answered with 408 at the head timeout.
pub(super) fn a_dripping_head_times_out(subject: &ServerSubject) {
    let live = subject.live(Echo, defaults().head_timeout(SHORT));
    drip(subject, &live, b"GET / HTTP/1.1\r\nHost: a\r\nX: ");
}

/// A body that arrives one byte at a time is answered with 408 at the body timeout.
pub(super) fn a_dripping_body_times_out(subject: &ServerSubject) {
    let live = subject.live(Echo, defaults().body_timeout(SHORT));
    drip(subject, &live, &request("POST", "/", "Content-Length: 100000\r\n"));
}

/// A body that arrives more slowly than the minimum rate is answered with 408, long before the body timeout. A body that has
/// brought enough bytes may pause.
pub(super) fn a_body_below_the_minimum_rate_times_out(subject: &ServerSubject) {
    const LENGTH: usize = 100_000;
    let live = subject.live(Echo, defaults().body_timeout(NEVER));
    let body = pattern(LENGTH);
    let head = request("POST", "/", &format!("Content-Length: {LENGTH}\r\n"));
    let (begun, rest) = body.split_at(LENGTH / 2);
    let mut quick = (subject.shape() != Shape::One).then(|| live.client());
    if let Some(quick) = &mut quick {
        quick.send(&[&head[..], begun].concat()).expect("the server takes the request");
    }
    drip(subject, &live, &head);
    if let Some(mut quick) = quick {
        quick.send(rest).expect("the server takes the body");
        check_pattern(&quick.expect(200).body, LENGTH);
    }
}

/// After its timeout, a connection that has not sent a byte is closed, and no byte is sent.
pub(super) fn a_silent_connection_is_closed_silently(subject: &ServerSubject) {
    let live = subject.live(Echo, defaults().first_byte_timeout(SHORT));
    live.client().expect_end();
}

/// After the idle timeout, a connection that has had an answer is closed, and no byte is sent.
pub(super) fn an_idle_connection_is_closed_silently(subject: &ServerSubject) {
    let live = subject.live(Echo, defaults().idle_timeout(SHORT));
    let (mut client, response) = ask_in_time(&live, &get("/"));
    assert!(response.status == 200 && !response.closes(), "{}", client.show());
    client.expect_end();
}

/// Sends `request` on new connections until one is answered. On a busy machine a connection may be idle for too long before its first
/// request.
#[track_caller]
fn ask_in_time(live: &Live, request: &[u8]) -> (Client, Response) {
    attempts(20, || {
        let mut client = live.client();
        let response = client.exchange(request).map_err(|failure| {
            assert!(failure.is_clean(), "{failure}");
            format!("a connection was idle for {SHORT:?} before its first request")
        })?;
        Ok((client, response))
    })
}

/// An answer that does not come in time is replaced by a 503, the connection ends, and the server drops the service's answer.
pub(super) fn a_slow_answer_times_out(subject: &ServerSubject) {
    let (live, held_answers, mut client) = hold_one(subject, defaults().answer_timeout(SHORT));
    check_problem(&client.expect_last(503));
    assert!(eventually(subject.max_wait, || held_answers.all_abandoned()), "the server still holds the answer");
    assert_eq!(held_answers.release_all(), 0, "the server still waits for an answer that timed out");
    live.ask(&get("/"), 200);
}

/// The time that the service takes does not count towards the timeouts of idle connections, heads, bodies and writes.
pub(super) fn a_slow_answer_is_no_slow_client(subject: &ServerSubject) {
    let live = subject.live(delayed, with_client_timeouts(SHORT).write_timeout(SHORT));
    let (mut client, response) = ask_in_time(&live, &[get("/700"), get("/0")].concat());
    assert_eq!((response.status, response.text().as_str()), (200, "/700"), "{}", client.show());
    assert_eq!(client.expect(200).text(), "/0");
}

/// The length of each answer that a client does not read, or reads slowly. Such an answer has at most three seconds more than
/// the write timeout.
const UNREAD: usize = 96 * 1024;

/// The number of these answers: more than the buffers of the sockets hold.
const UNREAD_ANSWERS: usize = 200;

/// Starts a server of one connection at a time, and a client that does not read. Waits until the server sends it no more answers: a
/// server that still sends closes the connection for others that wait, whatever its limits are.
fn blocked(subject: &ServerSubject) -> (Live, Client) {
    let live = subject.live(large, defaults().write_timeout(SHORT).max_connections(1));
    let mut client = live.sending(&get(&format!("/{UNREAD}")).repeat(UNREAD_ANSWERS));
    client.peek().expect("the answer begins");
    let answered = || live.counters_when(|_| true).answered;
    let is_blocked = eventually(subject.max_wait, || {
        let before = answered();
        let_pass(Duration::from_millis(200));
        before > 0 && answered() == before
    });
    assert!(is_blocked, "the buffers of the sockets are never full");
    (live, client)
}

/// A client that does not read its answers is cut after the time of a write, and another client takes its place.
pub(super) fn a_client_that_never_reads_is_cut(subject: &ServerSubject) {
    let (live, mut deaf) = blocked(subject);
    live.ask_until_served(&get("/5"));
    let (bytes, _) = deaf.end();
    assert!(bytes.len() < UNREAD * UNREAD_ANSWERS, "all answers came");
}

/// A client that reads its answers at half the rate of a write's limit is cut, although it makes progress.
pub(super) fn a_client_that_reads_slowly_is_cut(subject: &ServerSubject) {
    let (live, mut slow) = blocked(subject);
    let read = |done: &AtomicBool| {
        while !done.load(Ordering::SeqCst) && slow.skip(3 * 1024).is_ok() {
            let_pass(Duration::from_millis(100));
        }
    };
    besides([read], || live.ask_until_served(&get("/5")));
}
