//! What a client may do to its connection without any effect on other clients.

use super::prelude::*;

/// A client that half-closes after its requests gets every answer, also large and late ones. Then the connection ends.
pub(super) fn a_half_closed_client_gets_its_answers(subject: &ServerSubject) {
    let check = |live: &Live, requests: &[u8], bodies: &[&[u8]]| {
        let mut client = live.sending(requests);
        client.half_close().expect("the connection stands");
        bodies.iter().for_each(|body| assert!(client.expect(200).body == *body, "{}", client.show()));
        client.expect_end();
    };
    check(&echo(subject), &[get("/"), with_body("POST", "/", "", b"hello")].concat(), &[b"", b"hello"]);
    check(&subject.live(large, defaults()), &get("/4000000"), &[&pattern(4_000_000)]);
    check(&subject.live(delayed, defaults()), &get("/50"), &[b"/50"]);
}

/// If a client half-closes within a request, its connection ends. The server may send an error first.
pub(super) fn half_a_request_ends_the_connection(subject: &ServerSubject) {
    let live = echo(subject);
    let body = request("POST", "/", "Content-Length: 10\r\n");
    let chunk = request("POST", "/", "Transfer-Encoding: chunked\r\n");
    for bytes in [
        b"".to_vec(),
        b"G".to_vec(),
        b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec(),
        [body.as_slice(), b"hello"].concat(),
        [chunk.as_slice(), b"5\r\nhello\r\n"].concat(),
    ] {
        let mut client = live.sending(&bytes);
        client.half_close().expect("the connection stands");
        let (answer, ending) = client.end();
        assert_ne!(ending, Ending::Silent, "the connection does not end\n{}", client.show());
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "half a request is served\n{}", client.show());
    }
    live.ask(&get("/"), 200);
}

/// Connections that are opened and closed without a byte do not affect other clients.
pub(super) fn connections_without_a_request_do_not_affect_others(subject: &ServerSubject) {
    let live = echo(subject);
    // A server may accept the next connection before it has noticed that the empty ones are closed. So it is asked
    // repeatedly.
    for _ in 0..10 {
        (0..100).for_each(|_| drop(live.client()));
        live.ask(&get("/"), 200);
    }
}

/// Resets a connection: closes its socket while an answer is unread.
fn reset(live: &Live, request: &[u8], rest: &[u8]) {
    let mut client = live.sending(request);
    client.peek().expect("an answer comes");
    let _ = client.send(rest);
}

/// Clients that reset their connections, between requests and within, do not affect other clients.
pub(super) fn resets_do_not_affect_others(subject: &ServerSubject) {
    let live = echo(subject);
    let expect = request("POST", "/", "Expect: 100-continue\r\nContent-Length: 1000\r\n");
    for _ in 0..10 {
        reset(&live, &get("/"), b"");
        reset(&live, &get("/"), b"GET / HTTP/1.1\r\nHo");
        reset(&live, &expect, &[b'x'; 500]);
        reset(&live, &with_body("POST", "/", "", &pattern(200_000)), b"");
    }
    live.ask(&get("/"), 200);
    let live = subject.live(large, defaults());
    for _ in 0..5 {
        reset(&live, &get("/3000000").repeat(3), b"");
    }
    check_pattern(&live.ask(&get("/1000"), 200).body, 1000);
}

/// A large answer reaches a slow reader whole: a short write loses and repeats no byte.
pub(super) fn a_slow_reader_gets_a_large_answer_whole(subject: &ServerSubject) {
    const LENGTH: usize = 12_000_000;
    let live = subject.live(large, defaults());
    let mut client = live.client();
    for _ in 0..2 {
        client.send(&get(&format!("/{LENGTH}"))).expect("the server takes the request");
        // Long enough for the server to fill every buffer. The property holds without this pause, too.
        let_pass(Duration::from_millis(50));
        check_pattern(&client.expect(200).body, LENGTH);
    }
    client.ask(&get("/5"), 200);
}

/// The last answer of a connection reaches a client that is still sending: the connection is not reset before the client
/// reads it. The answer may refuse an upload, or be the one after which the client has asked for the close.
pub(super) fn a_refusal_survives_unread_input(subject: &ServerSubject) {
    let max_wait = subject.max_wait;
    let live = subject.live(Echo, defaults().max_body(1000).linger_timeout(max_wait));
    let upload = with_body("POST", "/", "", &pattern(512 * 1024));
    for _ in 0..5 {
        // This client sends and reads at the same time.
        let mut client = live.client();
        let mut sender = client.write_half().expect("a second handle");
        thread::scope(|scope| {
            scope.spawn(|| drop(sender.send(&upload)));
            check_problem(&client.expect_last(413));
        });
    }
    for _ in 0..5 {
        // This client sends everything before it reads.
        live.sending(&upload).expect_last(413);
    }
    drop(live);
    // These clients go on sending after they have asked for the close: at once, byte by byte, or while they read. A send fails if the
    // server has closed already; the answer must be there all the same.
    let live = subject.live(large, defaults().linger_timeout(max_wait));
    for length in [5, 1_500_000] {
        let last = request("GET", &format!("/{length}"), "Connection: close\r\n");
        let more = get("/7");
        let mut client = live.sending(&[&last[..], &more, &vec![b'x'; 100_000]].concat());
        check_pattern(&client.expect_last(200).body, length);
        let mut client = live.sending(&last);
        for byte in more.chunks(1) {
            let _ = client.send(byte);
        }
        check_pattern(&client.expect_last(200).body, length);
        let mut client = live.sending(&last);
        client.peek().expect("an answer comes");
        let _ = client.send(b"\r\n");
        check_pattern(&client.expect_last(200).body, length);
    }
}

/// A client that sends all of a body before it reads gets the refusal of a body that is too large, also if the upload takes longer than
/// the linger timeout: its connection is read while the body comes. A client that drips does not keep its connection.
pub(super) fn a_slow_upload_is_read_after_its_refusal(subject: &ServerSubject) {
    const LINGER: Duration = Duration::from_millis(500);
    const PAUSE: Duration = Duration::from_millis(50);
    let config = || defaults().max_body(1000).linger_timeout(LINGER);
    let head = request("POST", "/", "Content-Length: 1000000\r\n");
    let live = subject.live(Echo, config());
    // A pause may be longer on a busy machine.
    attempts(5, || {
        let mut client = live.sending(&head);
        client.peek().map_err(|ending| format!("no refusal: {ending:?}"))?;
        let begun = Instant::now();
        while begun.elapsed() < LINGER * 4 {
            let_pass(PAUSE);
            client.send(&[b'a'; 1024]).map_err(|error| format!("{error} after {:?}", begun.elapsed()))?;
        }
        check_problem(&client.expect_last(413));
        Ok(())
    });
    drop(live);
    let live = subject.live(Echo, config().body_timeout(10 * subject.max_wait));
    let mut client = live.sending(&head);
    let begun = Instant::now();
    while client.send(b"x").is_ok() {
        assert!(begun.elapsed() < subject.max_wait, "it is read for {:?}", begun.elapsed());
        let_pass(PAUSE);
    }
}
