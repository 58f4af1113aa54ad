//! Requests that hyper alone would answer differently from the servers on this project's own codec.

use std::net::TcpStream;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use polyserve_conformance::client::{Ending, WriteHalf};
use polyserve_core::http::StatusCode;
use polyserve_core::{Answer, Completer, Echo, Reply, Request, Service, park_until, promise};
use polyserve_serving::http1::turn::MAX_TURN_REQUESTS;

use super::support::{ENTITY, GET, MAX_WAIT, client, entities, serve};

/// Regression test: 413 and 422 had the reason phrases of older RFCs, which the `http` crate still has.
#[test]
fn a_status_has_its_present_name() {
    let running = entities(|config| config.max_body = 10);
    for (body, line) in
        [("{}", "HTTP/1.1 422 Unprocessable Content\r\n"), ("{          }", "HTTP/1.1 413 Content Too Large\r\n")]
    {
        let mut client = client(&running);
        let length = body.len();
        let fields = format!("Host: a\r\nContent-Type: application/json\r\nContent-Length: {length}");
        client
            .send(format!("PUT / HTTP/1.1\r\n{fields}\r\nConnection: close\r\n\r\n{body}").as_bytes())
            .expect("it is taken");
        let (answer, _) = client.end();
        assert!(answer.starts_with(line.as_bytes()), "{}", client.show());
    }
}

/// Regression test: if a client left in the middle of a body, a 400 was sent and counted as an answer. The client could
/// not receive it.
#[test]
fn half_a_body_is_not_answered() {
    let running = entities(|_| ());
    for (framing, rest) in [("Content-Length: 10", "hello"), ("Transfer-Encoding: chunked", "5\r\nhello\r\n")] {
        let mut client = client(&running);
        // A request before it is answered.
        client.ask(GET.as_bytes(), 404);
        let fields = format!("Host: a\r\nContent-Type: application/json\r\n{framing}");
        client.send(format!("PUT / HTTP/1.1\r\n{fields}\r\n\r\n{rest}").as_bytes()).expect("it is taken");
        client.half_close().expect("the connection stands");
        let (answer, ending) = client.end();
        assert!(answer.is_empty() && ending == Ending::Closed, "{ending:?}\n{}", client.show());
    }
    assert_eq!(running.shutdown().expect("it ends well").answered, 2);
}

/// Regression test: a client that sent only empty lines was sent a 408. No request had begun.
#[test]
fn empty_lines_are_no_request() {
    // Whichever of these ends the connection.
    let running = entities(|config| {
        (config.head_timeout, config.idle_timeout) = (Duration::from_millis(50), Duration::from_millis(50));
        config.first_byte_timeout = Duration::from_secs(1); // a client may be held up before it sends
    });
    for lines in ["\r\n", "\r\n\r\n\r\n"] {
        let mut client = client(&running);
        client.send(lines.as_bytes()).expect("it is taken");
        let (answer, ending) = client.end();
        assert!(answer.is_empty() && ending == Ending::Closed, "{ending:?}\n{}", client.show());
    }
}

/// A head that is not written as most clients do, and a request that comes in the same read as a part of the next one.
#[test]
fn a_part_of_a_head_is_told_from_an_idle_connection() {
    let running = entities(|config| config.head_timeout = Duration::from_millis(50));
    let put =
        |fields: &str| format!("PUT / HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: {}\r\n\r\n{ENTITY}", ENTITY.len());
    let odd = "X:  y \r\nZ:\r\n";
    // The last one is a byte shorter than most clients write it: as long as a part.
    for fields in ["", odd, "Z:\r\n"] {
        for request in [put(fields), format!("GET /1 HTTP/1.1\r\nHost: a\r\n{fields}\r\n")] {
            for part in ["G", "GET / HTTP/1.1\r\nHost: a\r\n"] {
                let mut client = client(&running);
                client.send(format!("{request}{part}").as_bytes()).expect("it is taken");
                assert!([200, 201].contains(&client.receive().expect("an answer").status));
                client.expect_last(408);
            }
        }
    }
    let running = entities(|config| config.idle_timeout = Duration::from_millis(50));
    for fields in ["", odd] {
        for rest in ["", "\r\n", "\r\n\r\n"] {
            let mut client = client(&running);
            client.send(format!("{}{rest}", put(fields)).as_bytes()).expect("it is taken");
            assert!([200, 201].contains(&client.receive().expect("an answer").status));
            client.expect_end();
        }
    }
}

/// Empty lines before a request are skipped up to a limit, however they arrive.
#[test]
fn empty_lines_are_bounded() {
    let running = entities(|config| config.max_head = 1024);
    for size in [usize::MAX, 100] {
        let (mut client, lines) = (client(&running), "\r\n".repeat(4096));
        for piece in lines.as_bytes().chunks(size.min(lines.len())) {
            if client.send(piece).is_err() {
                break; // it has been answered
            }
        }
        client.expect_last(400);
    }
}

/// Regression test: a body that is malformed after its `100 Continue` had no answer.
#[test]
fn an_interim_answer_is_no_part_of_the_answer() {
    let running = entities(|_| ());
    let mut client = client(&running);
    let fields = "Host: a\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked";
    client.ask(format!("PUT / HTTP/1.1\r\n{fields}\r\n\r\n").as_bytes(), 100);
    client.send(b"1\r\n{\r\nx\r\n").expect("it is taken");
    client.expect_last(400);
}

/// Regression test: a client that had sent its whole body with the head was asked for it. A body that reads like that question is none.
#[test]
fn a_body_that_is_there_is_not_asked_for() {
    let running = serve(Arc::new(Echo), |_| ());
    let mut client = client(&running);
    let body = "HTTP/1.1 100 Continue\r\n\r\n";
    let fields = format!("Host: a\r\nExpect: 100-continue\r\nContent-Length: {}", body.len());
    let request = format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n{body}");
    for _ in 0..3 {
        assert_eq!(client.ask(request.as_bytes(), 200).text(), body);
    }
    client.send([request.as_bytes(); 3].concat().as_slice()).expect("it is taken");
    (0..3).for_each(|_| assert_eq!(client.expect(200).text(), body));
    client.ask(request.strip_suffix(body).expect("it ends with the body").as_bytes(), 100);
    assert_eq!(client.ask(body.as_bytes(), 200).text(), body);
}

/// Regression test: the time of a request began with an empty line that came long before it.
#[test]
fn the_time_of_a_request_begins_with_its_first_byte() {
    let (sender, reports) = mpsc::channel();
    let sender = Mutex::new(sender);
    let running = entities(|config| {
        config.workers = Some(1);
        *config = std::mem::take(config).on_answer(move |report| {
            let _ = sender.lock().expect("no thread panics with this lock").send(report.elapsed);
        });
    });
    let (mut client, mut other) = (client(&running), super::support::client(&running));
    client.ask(GET.as_bytes(), 404);
    client.send(b"\r\n").expect("it is taken");
    // The server has one worker, so it has read the empty line before the last of these.
    (0..3).for_each(|_| drop(other.ask(GET.as_bytes(), 404)));
    let begun = Instant::now();
    client.ask(GET.as_bytes(), 404);
    let passed = begun.elapsed();
    let elapsed = reports.try_iter().last().flatten().expect("the last answer is reported");
    assert!(elapsed <= passed, "{elapsed:?} of {passed:?}");
}

/// A service that hands the completer of each answer to the test.
struct Handed(Mutex<mpsc::Sender<Completer<Reply>>>);

impl Service for Handed {
    fn call(&self, _: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        let (completer, answer) = promise(Reply::empty(StatusCode::SERVICE_UNAVAILABLE));
        self.0.lock().expect("no thread panics with this lock").send(completer).expect("the test receives it");
        answer
    }
}

/// Regression test: if a part of a request came with the request before it, and a drain began before that one was answered, the
/// rest was read only at the head timeout.
#[test]
fn a_drain_reads_on_after_a_part_of_a_request() {
    let (sender, asked) = mpsc::channel();
    let running = serve(Arc::new(Handed(Mutex::new(sender))), |config| {
        (config.head_timeout, config.drain_grace) = (10 * MAX_WAIT, 10 * MAX_WAIT);
    });
    let (mut client, addr) = (client(&running), running.local_addr());
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HT").expect("it is taken");
    let first = asked.recv_timeout(MAX_WAIT).expect("it is asked");
    let draining = std::thread::spawn(move || running.shutdown());
    while TcpStream::connect(addr).is_ok() {
        std::thread::yield_now(); // the listener is closed in the drain
    }
    first.complete(Reply::text("first")).expect("it is awaited");
    assert_eq!(client.expect(200).text(), "first");
    client.send(b"TP/1.1\r\nHost: a\r\n\r\n").expect("it is taken");
    let second = asked.recv_timeout(MAX_WAIT).expect("it is asked");
    second.complete(Reply::text("second")).expect("it is awaited");
    client.expect_last(200);
    assert_eq!(draining.join().expect("no panic").expect("it ends well").answered, 2);
}

/// Regression test: if the deadline of a shutdown came after a turn of 16 requests, the next request, which waited for its turn, was
/// not counted as cut.
#[test]
fn a_request_that_waits_for_its_turn_is_cut() {
    let (asked, other_asked) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let state = Arc::new(Mutex::new((asked, released, 0, None::<WriteHalf>)));
    let shared = Arc::clone(&state);
    let service = move |request: Request<'_>| {
        let mut state = shared.lock().expect("no thread panics with this lock");
        let (asked, released, calls, other) = &mut *state;
        if request.head.path() == "/other" {
            asked.send(()).expect("the test receives it");
            released.recv().expect("the test sends it");
            return Reply::text("other");
        }
        *calls += 1;
        if *calls == 3 {
            let other = other.as_mut().expect("the test has connected it");
            other.send(b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n").expect("the kernel takes it");
        }
        Reply::text("answer")
    };
    let running = serve(Arc::new(service), |config| (config.workers, config.drain_grace) = (Some(1), Duration::ZERO));
    let (mut client, other) = (client(&running), super::support::client(&running));
    state.lock().expect("no thread panics with this lock").3 = Some(other.write_half().expect("a handle"));
    // The other client has its turn after two turns of this one at the latest.
    let requests = 4 * MAX_TURN_REQUESTS as usize;
    client.send(&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(requests)).expect("it is taken");
    other_asked.recv_timeout(MAX_WAIT).expect("it is asked between two turns");
    let mut drained = Box::pin(running.drained()); // its deadline is now
    release.send(()).expect("it waits");
    let drain = park_until(None, |cx| drained.as_mut().poll(cx)).expect("it ends").expect("it ends well");
    let calls = state.lock().expect("no thread panics with this lock").2;
    // The answers so far, the one to the other client, which may come too late for its socket, and the request that waits.
    assert_eq!((drain.answered + drain.cut, drain.stuck), (calls + 2, 0), "{drain:?}");
    assert!(drain.cut > 0 && calls < requests as u64, "{drain:?}, {calls} calls");
}
