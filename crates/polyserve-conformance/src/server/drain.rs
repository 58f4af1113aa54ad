//! The drain without a deadline: what has begun is served, and nothing is lost.

use super::prelude::*;

/// A client of the load. It sends batches of requests until the server ends, and panics if an answer is torn.
fn ask_until_the_end(addr: SocketAddr, max_wait: Duration, (fields, batch): (&str, usize), answered: &AtomicU64) {
    let body = pattern(3_000);
    let bytes = with_body("POST", "/", fields, &body).repeat(batch);
    let always = || true;
    let exchanged = reconnecting(addr, max_wait, always, |client| {
        let _ = client.send(&bytes); // an error: the server has closed an idle connection
        let mut answer = || {
            let received = client.receive();
            if let Ok(response) = &received {
                assert!(response.status == 200 && response.body == body, "{}", client.show());
                answered.fetch_add(1, Ordering::SeqCst);
            }
            received
        };
        let mut last = answer()?;
        for _ in 1..batch {
            if !last.closes() {
                last = answer()?;
            }
        }
        Ok(last)
    });
    exchanged.expect_err("only its end ends the loop");
}

/// A shutdown under load loses and tears no answer. The clients receive as many whole answers as the server reports, and no
/// answer is cut.
pub(super) fn a_shutdown_under_load_loses_nothing(subject: &ServerSubject) {
    let live = echo(subject);
    let (addr, max_wait) = (live.addr, subject.max_wait);
    let answered = AtomicU64::new(0);
    // The fields and the number of the requests that each client sends at once.
    let (kept, once) = (("", 1), ("Connection: close\r\n", 1));
    let loads = [kept, kept, once, once, ("", 5), ("", 30)];
    thread::scope(|scope| {
        let answered = &answered;
        let client = |load| scope.spawn(move || ask_until_the_end(addr, max_wait, load, answered));
        let clients: Vec<_> = loads.into_iter().map(client).collect();
        let warm = eventually(max_wait, || answered.load(Ordering::SeqCst) >= 500);
        let drain = live.shutdown();
        clients.into_iter().for_each(joined);
        assert!(warm, "500 requests are answered within the max wait");
        check_counts(drain, answered.load(Ordering::SeqCst), 0);
    });
}

/// `Drain::answered` counts every answer in the server's life, whatever its status.
pub(super) fn every_answer_is_counted(subject: &ServerSubject) {
    let live = entities(subject);
    let mut client = live.sending(&get("/1").repeat(7));
    for _ in 0..7 {
        client.expect(404);
    }
    client.send(&request("HEAD", "/1", "")).expect("the server takes the request");
    client.receive_head().expect("HEAD is answered");
    client.ask(&put("/", ONE), 201);
    client.ask(&request("OPTIONS", "*", ""), 204);
    // An interim answer does not count. An answer to an invalid request does.
    client.ask(&request("PUT", "/", "Expect: 100-continue\r\nContent-Length: 2\r\n"), 100);
    client.ask(b"{}", 422);
    client.ask(b"G@T / HTTP/1.1\r\n\r\n", 400);
    drop(client);
    live.ask(&get("/1"), 200);
    check_counts(live.shutdown(), 13, 0);
}

/// A shutdown closes idle connections at once and sends them no byte. Tested with new and with used connections.
pub(super) fn a_shutdown_closes_idle_connections(subject: &ServerSubject) {
    let live = echo(subject);
    let count = subject.at_a_time(5);
    let mut clients = live.clients(count);
    for client in &mut clients {
        client.ask(&get("/"), 200);
    }
    let silent = live.clients(count);
    let drain = live.shutdown();
    for client in &mut clients {
        // A server of one connection may have closed this connection earlier, to serve the silent one.
        client.expect_end();
    }
    for mut client in silent {
        let (bytes, ending) = client.end();
        // The kernel resets connections that were not accepted yet.
        assert!(bytes.is_empty() && ending != Ending::Silent, "{ending:?}\n{}", client.show());
    }
    check_counts(drain, count as u64, 0);
}

/// The drain serves requests that wait to be accepted when the shutdown begins.
pub(super) fn a_request_in_the_queue_is_served_by_the_drain(subject: &ServerSubject) {
    let live = subject.long_drain(Echo, defaults());
    let clients = live.senders(20, &with_body("POST", "/", "", b"hello"));
    // Without a pause: the server is to accept what waits after it has begun to drain.
    let draining = live.begin_drain();
    for mut client in clients {
        assert_eq!(client.expect(200).text(), "hello");
        client.expect_end();
    }
    check_counts(draining.wait(), 20, 0);
}

/// A connection that has not sent a byte is closed 50 ms after the shutdown has begun. Until then its first request is answered, so a
/// client that has just connected loses nothing.
pub(super) fn a_request_that_follows_the_shutdown_is_served(subject: &ServerSubject) -> Result<(), String> {
    const ATTEMPTS: usize = 20;
    for _ in 0..ATTEMPTS {
        let live = subject.long_drain(Echo, defaults());
        live.ask(&get("/"), 200); // it accepts
        let mut clients = live.clients(3);
        let before = Instant::now();
        let draining = live.begin_drain();
        let_pass(EVICTION_GRACE / 4);
        let sent: Vec<_> = clients.iter_mut().map(|client| client.send(&get("/"))).collect();
        // On a busy machine an attempt may show nothing.
        if before.elapsed() >= EVICTION_GRACE {
            drop(clients);
            let _ = draining.wait();
            continue;
        }
        for (client, sent) in clients.iter_mut().zip(sent) {
            sent.expect("the connection is open");
            client.expect_last(200);
        }
        check_counts(draining.wait(), 4, 0);
        return Ok(());
    }
    Err(format!("in {ATTEMPTS} attempts, no request followed its shutdown within {EVICTION_GRACE:?}"))
}

/// If the head of a request arrived before the shutdown, the drain reads and serves the request. The answer has
/// `Connection: close`.
pub(super) fn a_request_in_mid_body_outlives_the_shutdown(subject: &ServerSubject) {
    let live = subject.long_drain(Echo, without_body_timeout());
    let mut client = live.client();
    client.ask(&request("POST", "/", BODY_AWAITED), 100);
    client.send(b"he").expect("the server takes the body");
    live.drain(1, move || {
        client.send(b"llo").expect("the server takes the body");
        assert_eq!(client.expect_last(200).text(), "hello");
    });
}

/// If only a part of a head arrived before the shutdown, the drain reads the rest and serves the request.
pub(super) fn half_a_head_outlives_the_shutdown(subject: &ServerSubject) {
    for used in [false, true] {
        let live = subject.long_drain(Echo, defaults());
        let mut client = live.client();
        if used {
            client.ask(&get("/"), 200);
        }
        client.send(b"GET / HT").expect("the server takes the request");
        live.drain(1 + u64::from(used), move || {
            client.send(b"TP/1.1\r\nHost: a\r\n\r\n").expect("the server takes the request");
            client.expect_last(200);
        });
    }
}

/// A request says whether the server drains, so that a health check can fail before the listener closes.
pub(super) fn a_request_in_the_drain_says_so(subject: &ServerSubject) {
    let service = |request: Request<'_>| Reply::text(request.draining.to_string());
    let live = subject.long_drain(service, defaults());
    let mut client = live.client();
    assert_eq!(client.ask(&get("/"), 200).text(), "false");
    client.send(b"GET / HT").expect("the server takes the request");
    live.drain(2, move || {
        client.send(b"TP/1.1\r\nHost: a\r\n\r\n").expect("the server takes the request");
        assert_eq!(client.expect_last(200).text(), "true");
    });
}

/// The drain waits for a deferred answer. The answer has `Connection: close`.
pub(super) fn a_waiting_answer_outlives_the_shutdown(subject: &ServerSubject) {
    let (live, held_answers, mut client) = hold_one(subject, defaults().drain_grace(subject.max_wait * 10));
    live.drain(1, move || {
        assert_eq!(held_answers.release_all(), 1, "the answer is still wanted");
        assert_eq!(client.expect_last(200).text(), "/hold");
    });
}

/// The drain closes the listener while a request is in work. So a client that comes later is refused at once, and is not reset at the end
/// of the drain, when it cannot know whether its request was done.
pub(super) fn the_listener_closes_while_a_request_is_in_work(subject: &ServerSubject) {
    let (live, held_answers, mut client) = hold_one(subject, defaults().drain_grace(subject.max_wait * 10));
    let (addr, max_wait) = (live.addr, subject.max_wait);
    live.drain(1, move || {
        let is_closed = eventually(max_wait, || TcpStream::connect(addr).is_err());
        assert!(is_closed, "the address still accepts connections");
        assert_eq!(held_answers.release_all(), 1, "the answer is still wanted");
        assert_eq!(client.expect_last(200).text(), "/hold");
    });
}

/// The drain serves all requests that arrived before the shutdown, also those behind a deferred answer.
pub(super) fn pipelined_requests_are_served_by_the_drain(subject: &ServerSubject) {
    let held_answers = HeldAnswers::new();
    let live = subject.long_drain(held_answers.clone(), defaults());
    let path = |number: usize| if number == 9 { "/hold" } else { "/" };
    let body = |number: usize| format!("request {number}");
    let requests = (0..14).flat_map(|number| with_body("POST", path(number), "", body(number).as_bytes()));
    let mut client = live.sending(&requests.collect::<Vec<u8>>());
    held_answers.wait_for(1, subject.max_wait);
    live.drain(14, move || {
        assert_eq!(held_answers.release_all(), 1, "the answer is still wanted");
        for number in 0..14 {
            let answer = if number == 13 { client.expect_last(200) } else { client.expect(200) };
            assert_eq!(answer.text(), if number == 9 { "/hold".into() } else { body(number) });
        }
    });
}

/// A large answer that is being sent when the shutdown begins arrives whole.
pub(super) fn a_large_answer_outlives_the_shutdown(subject: &ServerSubject) {
    const LENGTH: usize = 20_000_000;
    let live = subject.long_drain(large, defaults());
    let mut client = live.sending(&get(&format!("/{LENGTH}")));
    client.peek().expect("the answer begins");
    live.drain(1, move || {
        assert_eq!(client.expect(200).body.len(), LENGTH);
        client.expect_end();
    });
}

/// The drain does not wait for the rest of a refused body. The request with that body was answered before the shutdown.
pub(super) fn a_refused_body_does_not_hold_the_drain(subject: &ServerSubject) {
    let service = EntityService::new(Reference::<Entity>::default());
    let live = subject.long_drain(service, without_body_timeout());
    let refused = "Content-Encoding: gzip\r\nContent-Length: 1000\r\n";
    let mut client = live.sending(&[&request("PUT", "/", refused)[..], b"0123456789"].concat());
    client.expect(415);
    live.drain(1, move || client.expect_end());
}
