//! Bodies that stream, fail or are too large.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io::Read as _;
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::routing::{any, get, post};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue, Response};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use polyserve_async::RequestBody;
use polyserve_conformance::client::Ending;
use polyserve_conformance::log::messages;
use polyserve_core::Drain;
use tokio::sync::mpsc::unbounded_channel;

use super::support::{MAX_WAIT, Raw, by_hand, client, serve};

/// A request's body reaches the handler in parts, as it arrives. An answer's body is sent in parts, as it is made.
#[test]
fn bodies_stream_both_ways() {
    let (by_hand, sender) = by_hand();
    let (seen, mut pieces) = unbounded_channel();
    let reading = move |body: Body| {
        let seen = seen.clone();
        async move {
            let mut body = body;
            while let Some(Ok(frame)) = body.frame().await {
                let text = frame.into_data().map(|data| String::from_utf8_lossy(&data).into_owned());
                seen.send(text.unwrap_or_default()).expect("the test receives it");
            }
            "read"
        }
    };
    let running = serve(by_hand.route("/read", post(reading)), |_| ());
    let mut raw = Raw::new(running.local_addr());
    raw.send("POST /read HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for piece in ["one", "two"] {
        raw.send(&format!("3\r\n{piece}\r\n"));
        assert_eq!(pieces.blocking_recv().as_deref(), Some(piece), "before the rest is sent");
    }
    raw.send("0\r\n\r\n");
    raw.until("\r\n\r\nread");
    let mut raw = Raw::new(running.local_addr());
    raw.send("GET /by-hand HTTP/1.1\r\nHost: a\r\n\r\n");
    for piece in ["first", "second"] {
        sender.send(piece).expect("it is wanted");
        raw.until(piece);
    }
    drop(sender);
    raw.until("0\r\n\r\n");
    raw.send("GET /by-hand HTTP/1.1\r\nHost: a\r\n\r\n");
    raw.until("content-length: 0");
    drop(raw);
    assert_eq!(running.shutdown().expect("it ends well"), Drain::new(3, 0, 0));
}

/// Regression test: an answer that ends with its connection was not counted, if its end came after its last piece. To a client of HTTP/1.0
/// that asked to keep its connection, it said `keep-alive`.
#[test]
fn an_answer_that_ends_with_the_connection_is_counted() {
    for fields in ["", "Connection: keep-alive\r\n"] {
        let (by_hand, sender) = by_hand();
        let running = serve(by_hand, |_| ());
        let mut raw = Raw::new(running.local_addr());
        raw.send(&format!("GET /by-hand HTTP/1.0\r\n{fields}\r\n"));
        sender.send("first").expect("it is wanted");
        raw.until("first");
        drop(sender);
        raw.stream.read_to_end(&mut raw.received).expect("it ends");
        let answer = raw.text();
        assert!(answer.contains("connection: close\r\n") && !answer.contains("keep-alive"), "{answer}");
        assert_eq!(running.shutdown().expect("it ends well"), Drain::new(1, 0, 0));
    }
}

/// Header fields of an answer.
type Fields<'a> = &'a [(HeaderName, &'static str)];

/// Regression test: a `Content-Length` of the service was sent even if its body had another length, so the client took the rest for the
/// next answer. One that is no number, or that comes twice or with `Transfer-Encoding`, ended the connection without an answer.
#[test]
fn the_length_of_an_answer_is_that_of_its_body() {
    let answer = |fields: Fields<'_>, is_stream: bool| {
        let fields: Vec<_> =
            fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect();
        move || {
            let mut response = Response::new(match is_stream {
                true => Body::new(Unsized::from("hello world")),
                false => Body::from("hello world"),
            });
            fields.iter().for_each(|(name, value)| {
                response.headers_mut().append(name, value.clone());
            });
            ready(response)
        }
    };
    let cases: &[(Fields<'_>, Option<&str>)] = &[
        (&[(CONTENT_LENGTH, "5")], Some("11")),
        (&[(CONTENT_LENGTH, "20")], Some("11")),
        (&[(CONTENT_LENGTH, "abc")], Some("11")),
        (&[(CONTENT_LENGTH, "11"), (CONTENT_LENGTH, "12")], Some("11")),
        (&[(CONTENT_LENGTH, "11"), (TRANSFER_ENCODING, "chunked")], Some("11")),
        (&[(TRANSFER_ENCODING, "gzip")], Some("11")),
    ];
    let streams: &[(Fields<'_>, Option<&str>)] = &[
        (&[(CONTENT_LENGTH, "11")], Some("11")),
        (&[(CONTENT_LENGTH, "abc")], None),
        (&[(CONTENT_LENGTH, "+11")], None),
        (&[(CONTENT_LENGTH, "11"), (CONTENT_LENGTH, "12")], None),
        (&[(CONTENT_LENGTH, "11"), (TRANSFER_ENCODING, "chunked")], Some("11")),
        (&[(TRANSFER_ENCODING, "gzip")], None),
    ];
    for (is_stream, cases) in [(false, cases), (true, streams)] {
        for (fields, length) in cases {
            let running = serve(Router::new().route("/", any(answer(fields, is_stream))), |_| ());
            let mut client = client(&running).of_any_server(); // a small body may be chunked
            for _ in 0..2 {
                let answer = client.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200);
                assert_eq!((answer.text().as_str(), answer.header("content-length")), ("hello world", *length));
                assert_eq!(answer.header("transfer-encoding"), length.is_none().then_some("chunked"), "{fields:?}");
            }
            for _ in 0..2 {
                client.send(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").expect("it takes it");
                assert_eq!(client.receive_head().expect("an answer").status, 200, "{fields:?}");
            }
        }
    }
}

/// A body that does not tell its length.
struct Unsized(Option<Bytes>);

impl From<&'static str> for Unsized {
    fn from(text: &'static str) -> Self {
        Self(Some(Bytes::from_static(text.as_bytes())))
    }
}

impl http_body::Body for Unsized {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// Regression test: an answer that did not wait for the body said nothing, and then the connection was closed, with the next request unread.
#[test]
fn an_answer_before_the_body_announces_the_close() {
    let running = serve(Router::new().route("/x", post(|| async { "ok" })), |_| ());
    for (request, must_stay) in [
        (&["POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"][..], true),
        (&["POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"], false),
        (&["POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"], false),
        (&["POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", "hello"], false),
        (&["PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", "hello"], false),
    ] {
        let mut client = client(&running);
        client.send(request[0].as_bytes()).expect("it takes it");
        let answer = request[1..].iter().fold(None, |before, part| {
            let answer = before.or_else(|| client.receive().ok());
            let _ = client.send(part.as_bytes()); // the connection may be closed
            answer
        });
        let _ = client.send(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = answer.unwrap_or_else(|| client.receive().expect("an answer"));
        match answer.is_last() {
            true => assert!(!must_stay, "{request:?}"),
            false => drop(client.expect(405)),
        }
    }
}

/// A client that has sent all, and reads on, gets the whole stream. A request that comes during the stream is answered after it.
#[test]
fn a_stream_goes_on_for_a_client_that_has_sent_all() {
    for next in ["", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let (by_hand, sender) = by_hand();
        let running = serve(by_hand, |_| ());
        let mut raw = Raw::new(running.local_addr());
        raw.send("GET /by-hand HTTP/1.1\r\nHost: a\r\n\r\n");
        sender.send("first").expect("it is wanted");
        raw.until("first");
        if next.is_empty() {
            raw.stream.shutdown(Shutdown::Write).expect("it is connected");
        } else {
            raw.send(next);
        }
        sender.send("second").expect("it is wanted");
        raw.until("second");
        drop(sender);
        raw.until("0\r\n\r\n");
        if !next.is_empty() {
            raw.until("404 Not Found");
        }
    }
}

/// Regression test: a body that its service kept after the answer changed the state of the next request, which then had no limit
/// on its body.
#[test]
fn a_body_that_is_kept_does_not_change_the_next_request() {
    let (keeping, mut kept) = unbounded_channel();
    let keep = move |body: Body| {
        let keeping = keeping.clone();
        async move { keeping.send(body).expect("the test receives it") }
    };
    let (calling, mut called) = unbounded_channel();
    let read = move |body: Body| {
        let calling = calling.clone();
        async move {
            calling.send(()).expect("the test receives it");
            body.collect().await.map(http_body_util::Collected::to_bytes)
        }
    };
    let routes = Router::new()
        .route("/keep", post(keep))
        .route("/read", post(async move |body| read(body).await.map_err(|_| StatusCode::BAD_REQUEST)));
    let running = serve(routes, |config| config.body_timeout = Duration::from_millis(500));
    let mut client = client(&running);
    client.ask(b"POST /keep HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab", 200);
    let body = kept.blocking_recv().expect("it was called");
    client.send(b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na").expect("it is taken");
    called.blocking_recv().expect("it is called");
    drop(body);
    client.expect_last(408);
}

/// A body past the limit is answered with 413: at once if its length is known, else while no byte of the answer was sent.
#[test]
fn a_body_past_the_limit_is_too_large() {
    let read = |body: Bytes| async move { format!("{} bytes", body.len()) };
    let running = serve(Router::new().route("/", post(read)), |config| config.max_body = 1000);
    let body = "x".repeat(1001);
    for framing in [
        format!("Content-Length: 1001\r\n\r\n{body}"),
        format!("Transfer-Encoding: chunked\r\n\r\n200\r\n{}\r\n1e9\r\n{}\r\n0\r\n\r\n", &body[..512], &body[512..]),
    ] {
        let mut client = client(&running);
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}").as_bytes()).expect("it takes the request");
        client.expect_last(413);
    }
    let mut client = client(&running);
    let whole = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{}", &body[1..]);
    assert_eq!(client.ask(whole.as_bytes(), 200).text(), "1000 bytes");
}

/// A service that fails if its body does, and at `/fails`.
#[derive(Clone)]
struct Failing;

impl tower_service::Service<http::Request<RequestBody>> for Failing {
    type Response = http::Response<Body>;
    type Error = axum::BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<RequestBody>) -> Self::Future {
        Box::pin(async move {
            if request.uri().path() == "/fails" {
                return Err("told to".into());
            }
            request.into_body().collect().await?;
            Ok(http::Response::new(Body::empty()))
        })
    }
}

/// Regression test: a service that passed on the error of a refused body was logged as one that had failed.
#[test]
fn a_refused_body_is_no_failure_of_the_service() {
    let messages = messages();
    let running = serve(Failing, |config| config.max_body = 1000);
    let mut refused = client(&running);
    let chunk = "x".repeat(1001);
    let request =
        format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n{chunk}\r\n0\r\n\r\n");
    refused.send(request.as_bytes()).expect("it takes the request");
    refused.expect_last(413);
    client(&running).ask(b"GET /fails HTTP/1.1\r\nHost: a\r\n\r\n", 500);
    let is_failure = |message: &String| message.contains("a service failed");
    let logged = std::iter::from_fn(|| messages.recv_timeout(MAX_WAIT).ok()).map(|(_, message)| message);
    assert!({ logged }.find(is_failure).is_some_and(|message| message.contains("told to")), "the first failure");
}

/// Regression test: a handler echoed a chunked body, and the first chunk was past the limit. The connection was closed
/// without a byte of an answer.
#[test]
fn an_echo_past_the_limit_is_too_large() {
    let echo = |body: Body| async move { body };
    let running = serve(Router::new().route("/", post(echo)), |config| config.max_body = 1000);
    let request = |length: usize| {
        let body = format!("{length:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(length));
        format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}")
    };
    let mut client = client(&running);
    client.send(request(1001).as_bytes()).expect("it takes the request");
    client.expect_last(413);
    let mut raw = Raw::new(running.local_addr());
    raw.send(&request(1000));
    raw.until("x\r\n0\r\n\r\n");
    assert!(raw.text().starts_with("HTTP/1.1 200 OK\r\n"), "{}", raw.text());
    drop(raw);
    // A part of the answer was sent, so it cannot become a 413. The client can detect that the answer is incomplete.
    let mut raw = Raw::new(running.local_addr());
    raw.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
    raw.until("one\r\n");
    raw.send(&format!("3e6\r\n{}\r\n0\r\n\r\n", "x".repeat(998)));
    let _ = raw.stream.read_to_end(&mut raw.received);
    assert!(raw.text().ends_with("\r\n3\r\none\r\n"), "{}", raw.text());
    drop(client);
    assert_eq!(running.shutdown().expect("it ends well"), Drain::new(2, 0, 0));
}

/// Regression test: after its `100 Continue` had been sent, an answer counted as begun. So a body past the limit was not answered.
#[test]
fn an_interim_answer_is_no_part_of_the_answer() {
    // The answer is made once a part of the body is there.
    let echo = |mut body: Body| async move {
        drop(body.frame().await);
        body
    };
    let running = serve(Router::new().route("/", post(echo)), |config| config.max_body = 10);
    for fields in ["", "Expect: 100-continue\r\n"] {
        let mut client = client(&running);
        client
            .send(format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}Transfer-Encoding: chunked\r\n\r\n").as_bytes())
            .expect("it takes the head");
        if !fields.is_empty() {
            client.expect(100);
        }
        client.send(b"2\r\nab\r\n9\r\n123456789\r\n0\r\n\r\n").expect("it takes the body");
        client.expect_last(413);
    }
}

/// The hook sees a streamed answer when it ends, with all its bytes, and one that is cut with those that were made.
#[test]
fn the_hook_sees_streamed_answers() {
    for end in ["", "panic"] {
        let (reports, seen) = std::sync::mpsc::channel();
        let (router, sender) = by_hand();
        let running = serve(router, |config| {
            *config = config.clone().on_answer(move |report| {
                let line = report.request.map(|request| format!("{} {}", request.method, request.target));
                reports.send((report.status.as_u16(), report.bytes, report.peer, line)).expect("the test receives it");
            });
        });
        let mut raw = Raw::new(running.local_addr());
        raw.send("GET /by-hand HTTP/1.1\r\nHost: a\r\n\r\n");
        for piece in ["first", "second"] {
            sender.send(piece).expect("it is wanted");
            raw.until(piece);
        }
        assert!(seen.try_recv().is_err(), "the answer goes on");
        if end.is_empty() {
            drop(sender);
            raw.until("0\r\n\r\n");
        } else {
            sender.send(end).expect("it is wanted");
            let _ = raw.stream.read_to_end(&mut raw.received);
        }
        let (status, bytes, peer, line) = seen.recv_timeout(MAX_WAIT).expect("it is reported");
        assert_eq!((status, bytes), (200, raw.received.len() as u64));
        assert_eq!((peer, line.as_deref()), (raw.stream.local_addr().ok(), Some("GET /by-hand")));
        drop(raw);
        assert!(running.shutdown().is_ok() && seen.try_recv().is_err(), "once");
    }
}

/// If a handler panics, the answer is 500. If an answer's body panics, the answer is cut short.
#[test]
fn a_panic_costs_one_client_one_answer() {
    let (router, sender) = by_hand();
    let panics = || async { if true { panic!("told to") } else { "never" } };
    let running = serve(router.route("/panic", get(panics)).route("/", get(|| async { "well" })), |_| ());
    let mut client = client(&running);
    client.ask(b"GET /panic HTTP/1.1\r\nHost: a\r\n\r\n", 500);
    assert_eq!(client.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200).text(), "well");
    let mut raw = Raw::new(running.local_addr());
    raw.send("GET /by-hand HTTP/1.1\r\nHost: a\r\n\r\n");
    sender.send("begun").expect("it is wanted");
    raw.until("begun");
    sender.send("panic").expect("it is wanted");
    let _ = raw.stream.read_to_end(&mut raw.received);
    assert!(!raw.text().contains("0\r\n\r\n"), "it looks whole: {}", raw.text());
    assert_eq!(running.counters().panics, 2);
    assert_eq!(client.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200).text(), "well");
}

/// If a client leaves in the middle of a body, only its own request ends.
#[test]
fn a_client_may_leave_half_way() {
    let (sender, mut ends) = unbounded_channel();
    let read = move |body: Body| {
        let sender = sender.clone();
        async move {
            sender.send(body.collect().await.is_err()).expect("the test receives it");
        }
    };
    let running = serve(Router::new().route("/", post(read)), |_| ());
    let mut raw = Raw::new(running.local_addr());
    raw.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    raw.stream.shutdown(Shutdown::Write).expect("the connection stands");
    assert_eq!(ends.blocking_recv(), Some(true), "the body ends with an error");
    let mut other = client(&running);
    other.ask(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", 200);
    drop(other.half_close());
    assert_eq!(other.end().1, Ending::Closed);
}

/// The place at which a body panics.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PanicsIn {
    SizeHint,
    EndOfStream,
    Drop,
}

/// A body of one piece. It panics at `place`: in its hints before or after the piece, or as it is dropped.
struct PanickingBody {
    place: PanicsIn,
    after_piece: bool,
    piece: Option<&'static str>,
}

impl PanickingBody {
    fn check(&self, place: PanicsIn) {
        assert!(self.place != place || self.after_piece != self.piece.is_none(), "told to");
    }
}

impl http_body::Body for PanickingBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.piece.take().map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes())))))
    }

    fn size_hint(&self) -> SizeHint {
        self.check(PanicsIn::SizeHint);
        SizeHint::with_exact(self.piece.map_or(0, str::len) as u64)
    }

    fn is_end_stream(&self) -> bool {
        self.check(PanicsIn::EndOfStream);
        false
    }
}

impl Drop for PanickingBody {
    fn drop(&mut self) {
        if self.place == PanicsIn::Drop {
            panic!("told to");
        }
    }
}

/// Answers with a body that panics in the place that the path names: `/size_hint/false` before its piece, `/end/true` after it.
#[derive(Clone)]
struct PanickingBodies;

impl tower_service::Service<http::Request<RequestBody>> for PanickingBodies {
    type Response = http::Response<PanickingBody>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<RequestBody>) -> Self::Future {
        let path = request.uri().path();
        let place = match path {
            _ if path.starts_with("/size_hint") => PanicsIn::SizeHint,
            _ if path.starts_with("/end") => PanicsIn::EndOfStream,
            _ => PanicsIn::Drop,
        };
        let body = PanickingBody { place, after_piece: path.ends_with("true"), piece: Some("piece") };
        ready(Ok(http::Response::new(body)))
    }
}

/// Regression test: a panic in the hints or in the destructor of an answer's body ended the task of its connection.
#[test]
fn a_panic_in_the_hints_of_a_body_is_caught() {
    let running = serve(PanickingBodies, |_| ());
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    for path in ["/size_hint/false", "/end/false"] {
        let mut client = client(&running);
        for _ in 0..2 {
            client.ask(get(path).as_bytes(), 500);
        }
    }
    for path in ["/size_hint/true", "/end/true"] {
        let mut raw = Raw::new(running.local_addr());
        raw.send(&get(path));
        let _ = raw.stream.read_to_end(&mut raw.received);
        assert!(!raw.text().contains("piece"), "it looks whole: {}", raw.text());
    }
    let mut client = client(&running);
    for _ in 0..2 {
        assert_eq!(client.ask(get("/drop").as_bytes(), 200).text(), "piece");
    }
    drop(client);
    assert_eq!(running.counters().panics, 8);
    assert_eq!(running.shutdown().expect("it ends well"), Drain::new(6, 0, 0));
}

/// Regression test: a malformed body replaced the answer of a service that does not read it, if both had arrived at once.
#[test]
fn a_service_that_does_not_read_a_malformed_body_answers() {
    let running = serve(Router::new(), |_| ());
    for parts in [1, 2] {
        let mut raw = Raw::new(running.local_addr());
        let head = "POST /nowhere HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        if parts == 1 {
            raw.send(&format!("{head}x\r\n"));
            raw.until("HTTP/1.1 404 ");
        } else {
            raw.send(head);
            raw.until("HTTP/1.1 404 ");
            raw.send("x\r\n");
        }
        let _ = raw.stream.read_to_end(&mut raw.received); // it ends, with a reset or without one
        assert_eq!(raw.text().matches("HTTP/1.1").count(), 1, "{}", raw.text());
    }
    assert_eq!(running.shutdown().expect("it ends well"), Drain::new(2, 0, 0));
}

/// Regression test: the 100 for a body that another task reads was made and not sent.
#[test]
fn a_task_that_reads_a_body_asks_for_it() {
    let read = |body: Body| async {
        let reading = tokio::spawn(async { body.collect().await.expect("it is complete").to_bytes().len() });
        reading.await.expect("it ends").to_string()
    };
    let running = serve(Router::new().route("/read", post(read)), |_| ());
    for expect in ["100-continue", "100-continue, 100-continue"] {
        let mut raw = Raw::new(running.local_addr());
        raw.send(&format!("POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: {expect}\r\n\r\n"));
        raw.until("HTTP/1.1 100 Continue\r\n\r\n");
        raw.send("body");
        raw.until("\r\n\r\n4");
    }
    assert_eq!(running.shutdown().expect("it ends well"), Drain::new(2, 0, 0));
}

/// Regression test: a service that reads a body late, which had arrived in time, got the time-out of a slow client.
#[test]
fn a_body_that_has_arrived_may_be_read_late() {
    let body_timeout = Duration::from_millis(50);
    let read = move |body: Body| async move {
        tokio::time::sleep(4 * body_timeout).await;
        body.collect().await.expect("it has arrived").to_bytes()
    };
    let running = serve(Router::new().route("/read", post(read)), |config| config.body_timeout = body_timeout);
    let mut raw = Raw::new(running.local_addr());
    raw.send("POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    raw.until("\r\n\r\nbody");
    drop(raw);
    assert_eq!(running.shutdown().expect("it ends well"), Drain::new(1, 0, 0));
}

/// Regression test: 205 was sent with its body, and 204 with the length of its body to HEAD.
#[test]
fn a_status_without_a_body_has_none() {
    let routes = Router::new()
        .route("/204", any(|| async { (StatusCode::NO_CONTENT, "a body") }))
        .route("/205", any(|| async { (StatusCode::RESET_CONTENT, "a body") }));
    let running = serve(routes, |_| ());
    let mut client = client(&running);
    for (status, method, length) in
        [(204, "HEAD", None), (204, "GET", None), (205, "HEAD", None), (205, "GET", Some("0")), (204, "GET", None)]
    {
        client
            .send(format!("{method} /{status} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
            .expect("it takes the request");
        let head = client.receive_head().expect("an answer");
        assert_eq!((head.status, head.header("Content-Length")), (status, length), "{method}");
    }
}
