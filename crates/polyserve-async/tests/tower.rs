//! This project's services inside axum, and axum routers on `tokio_hyper`.
#![cfg(all(feature = "hyper", feature = "tower"))]

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::body::Body;
use axum::error_handling::HandleErrorLayer;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::{any, get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use http_body::Frame;
use http_body_util::BodyExt as _;
use polyserve_async::{AsTower, DrainBegun, RequestBody, TokioHyper, TowerTarget};
use polyserve_conformance::client::{Client, Ending};
use polyserve_core::{Answer, Drain, Echo, EntityService, Reply, Request, Running, ServerConfig, Service, promise};
use polyserve_memory::StdMutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tower_http::timeout::TimeoutLayer;
use tower_service::Service as _;

const PATIENCE: Duration = Duration::from_secs(60);

fn serve<S: TowerTarget<RequestBody, Kind>, Kind>(service: S, change: impl FnOnce(&mut ServerConfig)) -> Running {
    let mut config = ServerConfig::default().drain_grace(10 * PATIENCE);
    change(&mut config);
    let server = TokioHyper::new(config).expect("it is honoured");
    server.serve_tower(([127, 0, 0, 1], 0), service).expect("it serves")
}

fn client(running: &Running) -> Client {
    Client::connect(running.local_addr(), PATIENCE).expect("the server accepts connections")
}

/// A client that keeps all bytes that it receives.
struct Raw {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Raw {
    fn new(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).expect("the server accepts connections");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time that is valid");
        Self { stream, received: Vec::new() }
    }

    fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).expect("the server takes the request");
    }

    /// Reads until `text` has arrived.
    #[track_caller]
    fn until(&mut self, text: &str) {
        while !self.text().contains(text) {
            let mut piece = [0; 4096];
            match self.stream.read(&mut piece).expect("something comes") {
                0 => panic!("it ended before {text:?}: {}", self.text()),
                count => self.received.extend_from_slice(&piece[..count]),
            }
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.received).into_owned()
    }
}

/// A body in pieces, which the test sends through a channel.
struct ByHand(UnboundedReceiver<&'static str>);

impl http_body::Body for ByHand {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| {
            assert_ne!(piece, Some("panic"), "told to");
            piece.map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes()))))
        })
    }
}

/// A route, and a sender for the parts of its answer's body.
fn by_hand() -> (Router, UnboundedSender<&'static str>) {
    let (sender, receiver) = unbounded_channel();
    let body = Arc::new(Mutex::new(Some(ByHand(receiver))));
    let answer = move || {
        let body = body.lock().expect("no thread panics with this lock").take();
        async move { body.map_or_else(Body::empty, Body::new) }
    };
    (Router::new().route("/by-hand", get(answer)), sender)
}

/// The entity service under a path of an axum router that has other routes as well.
#[test]
fn a_service_is_nested_in_axum() {
    let entities = AsTower::new(EntityService::new(StdMutex::new())).with_max_body(1000);
    let echo = AsTower::new(Echo);
    let router =
        Router::new().route("/", get(|| async { "axum" })).nest_service("/entities", entities).fallback_service(echo);
    let running = serve(router, |_| ());
    let mut client = client(&running);
    assert_eq!(client.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200).text(), "axum");
    let entity = r#"{"id":1,"description":"one","value":60.750847}"#;
    let put = format!("PUT /entities/ HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{entity}", entity.len());
    assert_eq!(client.ask(put.as_bytes(), 201).header("Location"), Some("/1"));
    let chunked = format!("{:x}\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n", 9, &entity[..9], entity.len() - 9, &entity[9..]);
    let put = format!("PUT /entities/1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}");
    client.send(put.as_bytes()).expect("it takes the request");
    client.expect_last(200);
    let mut client = self::client(&running);
    let found = client.ask(b"GET /entities/1 HTTP/1.1\r\nHost: a\r\n\r\n", 200);
    assert_eq!((found.text().as_str(), found.header("Content-Type")), (entity, Some("application/json")));
    client.ask(b"GET /entities/2 HTTP/1.1\r\nHost: a\r\n\r\n", 404);
    assert_eq!(client.ask(b"POST /other HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", 200).text(), "hi");
    let large = "x".repeat(1001);
    let put = format!("PUT /entities/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n{large}");
    client.ask(put.as_bytes(), 413);
    let put =
        format!("PUT /entities/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n{large}\r\n0\r\n\r\n");
    Client::connect(running.local_addr(), PATIENCE).expect("it accepts").ask(put.as_bytes(), 413);
    drop(client);
    assert_eq!(running.shutdown().expect("it ends well"), Drain::new(8, 0, 0));
}

/// A service that answers with a `Location`: the part of the path after the first `/to/`.
struct Sends;

impl Service for Sends {
    fn call(&self, request: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        let path = request.head.path().split_once("/to/").map_or("", |(_, path)| path).to_owned();
        let reply = Reply::empty(polyserve_core::Status::CREATED).with_header("Location", path).expect("a valid field");
        if request.head.path().starts_with("/later") { Answer::later(async { reply }) } else { reply.into() }
    }
}

/// Regression test: a service that was nested under a path sent a wrong `Location`: it lacked the path that the router
/// strips.
#[test]
fn a_nested_service_sends_the_full_location() {
    let entities = || AsTower::new(EntityService::new(StdMutex::new()));
    let sends = AsTower::new(Arc::new(Sends)).under("/sends").expect("a path");
    let router = Router::new()
        .nest_service("/entities", entities().under("/entities").expect("a path"))
        .nest_service("/deep/er", entities().under("/deep/er/").expect("a path"))
        .nest_service("/sends", sends);
    let running = serve(router, |_| ());
    let mut client = client(&running);
    let entity = r#"{"id":1,"description":"one","value":60.750847}"#;
    for prefix in ["/entities", "/deep/er"] {
        let put = format!("PUT {prefix}/ HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{entity}", entity.len());
        let location = client.ask(put.as_bytes(), 201).header("Location").map(str::to_owned).expect("it says where");
        assert_eq!(location, format!("{prefix}/1"));
        assert_eq!(client.ask(format!("GET {location} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes(), 200).text(), entity);
    }
    for (asked, location) in [
        ("now/to//1", "/sends/1"),
        ("later/to//1", "/sends/1"),
        ("now/to/1", "1"),
        ("now/to///b/1", "//b/1"),
        ("now/to/http://b/1", "http://b/1"),
    ] {
        let get = format!("GET /sends/{asked} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.ask(get.as_bytes(), 201).header("Location"), Some(location), "{asked}");
    }
    for none in ["", "entities", "//b", "/a?b", "/a b", "/{tenant}", "/a\r\nb"] {
        let error = entities().under(none).expect_err("it is no path");
        assert!(error.to_string().contains("path"), "{error}");
    }
}

/// A service that panics in `call` or in its deferred answer.
struct Panics;

impl Service for Panics {
    fn call(&self, request: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        match request.head.path() {
            "/later" => Answer::later(async { panic!("told to") }),
            "/dropped" => promise(Reply::empty(polyserve_core::Status::SERVICE_UNAVAILABLE)).1,
            _ => panic!("told to"),
        }
    }
}

#[test]
fn a_panic_in_a_nested_service_is_a_500() {
    let mut service = AsTower::new(Arc::new(Panics));
    for (path, status) in [("/now", 500), ("/later", 500), ("/dropped", 503)] {
        let request = http::Request::get(path).body(http_body_util::Empty::<Bytes>::new()).expect("a request");
        let mut answer = pin!(service.call(request));
        let Poll::Ready(Ok(answer)) = answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("{path} is not answered");
        };
        assert_eq!(answer.status(), status, "{path}");
    }
}

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
    let mut raw = Raw::new(running.local_addr()); // a chunked body is the last of its connection
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

/// Regression test: an answer that ends with its connection was not counted, if its end came after its last piece.
#[test]
fn an_answer_that_ends_with_the_connection_is_counted() {
    let (by_hand, sender) = by_hand();
    let running = serve(by_hand, |_| ());
    let mut raw = Raw::new(running.local_addr());
    raw.send("GET /by-hand HTTP/1.0\r\n\r\n");
    sender.send("first").expect("it is wanted");
    raw.until("first");
    drop(sender);
    let mut rest = Vec::new();
    raw.stream.read_to_end(&mut rest).expect("it ends");
    assert_eq!(running.shutdown().expect("it ends well"), Drain::new(1, 0, 0));
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
        .route("/read", post(async move |body| read(body).await.map_err(|_| axum::http::StatusCode::BAD_REQUEST)));
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

/// Regression test: a limit around the service cut a body off, and the answer was 400 in place of 413.
#[test]
fn a_limit_of_a_layer_is_too_large() {
    let limited = |request: axum::extract::Request| async move {
        request.map(|body| Body::new(http_body_util::Limited::new(body, 1000)))
    };
    let entities = AsTower::new(EntityService::new(StdMutex::new()));
    let router = Router::new().nest_service("/entities", entities).layer(axum::middleware::map_request(limited));
    let running = serve(router, |_| ());
    let body = |length: usize| {
        let fixed = r#"{"id":1,"description":"","value":2}"#.len();
        format!(r#"{{"id":1,"description":"{}","value":2}}"#, "x".repeat(length - fixed))
    };
    let put = |length: usize, is_chunked: bool| {
        let body = body(length);
        let framing = match is_chunked {
            true => format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"),
            false => format!("Content-Length: {length}\r\n\r\n{body}"),
        };
        format!("PUT /entities/1 HTTP/1.1\r\nHost: a\r\n{framing}")
    };
    for is_chunked in [false, true] {
        client(&running).ask(put(1001, is_chunked).as_bytes(), 413);
        client(&running).ask(put(1000, is_chunked).as_bytes(), if is_chunked { 200 } else { 201 });
    }
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

/// An answer that streams when the shutdown begins is sent to its end.
#[test]
fn a_streamed_answer_outlives_the_shutdown() {
    let (router, sender) = by_hand();
    let running = serve(router, |_| ());
    let (mut raw, mut idle) = (Raw::new(running.local_addr()), client(&running));
    raw.send("GET /by-hand HTTP/1.1\r\nHost: a\r\n\r\n");
    sender.send("begun").expect("it is wanted");
    raw.until("begun");
    let mut drained = Box::pin(running.drained());
    idle.expect_end(); // the drain has begun
    sender.send("ended").expect("it is wanted");
    drop(sender);
    raw.until("ended");
    raw.until("0\r\n\r\n");
    assert_eq!(raw.stream.read(&mut [0; 16]).expect("an end is no error"), 0, "the connection ends");
    let end = polyserve_core::park_until(None, |cx| drained.as_mut().poll(cx)).expect("it ends");
    assert_eq!(end.expect("it ends well"), Drain::new(1, 0, 0));
}

/// The hook sees a streamed answer when it ends, with all its bytes, and one that is cut with those that were made.
#[test]
fn the_hook_sees_streamed_answers() {
    for end in ["", "panic"] {
        let (reports, seen) = std::sync::mpsc::channel();
        let (router, sender) = by_hand();
        let running = serve(router, |config| {
            *config = config.clone().on_answer(move |report| reports.send(*report).expect("the test receives it"));
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
        let report = seen.recv_timeout(PATIENCE).expect("it is reported");
        assert_eq!((report.status.code(), report.bytes), (200, raw.received.len() as u64));
        assert_eq!(report.peer, raw.stream.local_addr().ok());
        drop(raw);
        assert!(running.shutdown().is_ok() && seen.try_recv().is_err(), "once");
    }
}

/// A streaming answer that does not end is cut at the deadline. The client can detect that.
#[test]
fn a_streamed_answer_without_end_is_cut() {
    let (router, sender) = by_hand();
    let running = serve(router, |_| ());
    let mut raw = Raw::new(running.local_addr());
    raw.send("GET /by-hand HTTP/1.1\r\nHost: a\r\n\r\n");
    sender.send("begun").expect("it is wanted");
    raw.until("begun");
    let end = running.shutdown_within(Duration::from_millis(50)).expect("it ends");
    assert_eq!(end, Drain::new(0, 1, 0));
    let _ = raw.stream.read_to_end(&mut raw.received);
    assert!(!raw.text().contains("0\r\n\r\n"), "it looks whole: {}", raw.text());
}

/// A request to change the protocol is answered in HTTP/1.1, and the protocol stays.
#[test]
fn an_upgrade_is_refused() {
    let upgrade = |headers: HeaderMap| async move {
        assert!(headers.contains_key(header::UPGRADE));
        (StatusCode::SWITCHING_PROTOCOLS, [(header::UPGRADE, "chat"), (header::CONNECTION, "upgrade")])
    };
    let taken = |request: axum::extract::Request| async move {
        assert!(request.headers().contains_key(header::UPGRADE));
        "still HTTP"
    };
    let running = serve(Router::new().route("/", get(upgrade)).route("/other", any(taken)), |_| ());
    let ask = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n");
    let mut client = client(&running);
    assert_eq!(client.ask(ask("/other").as_bytes(), 200).text(), "still HTTP");
    client.send(ask("/").as_bytes()).expect("it takes the request");
    client.expect_last(501);
}

/// Answers with the address of the client.
struct ShowPeer;

impl Service for ShowPeer {
    fn call(&self, request: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        Reply::text(request.peer.map_or_else(String::new, |peer| peer.to_string())).into()
    }
}

/// Asks for `path` on a new connection. Returns the answer, and the client's address.
fn address_shown(addr: SocketAddr, path: &str) -> (String, String) {
    let mut client = Client::connect(addr, PATIENCE).expect("the server accepts connections");
    let own = client.local_addr().expect("the connection stands").to_string();
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let shown = client.ask(request.as_bytes(), 200).text();
    assert_eq!(client.ask(request.as_bytes(), 200).text(), shown, "for each request");
    (shown, own)
}

/// A service and a router get the address of the client, the service as the peer of its request.
#[test]
fn the_clients_address_is_passed_on() {
    let shows = |Extension(peer): Extension<SocketAddr>| async move { peer.to_string() };
    let running = serve(Router::new().route("/", get(shows)).nest_service("/nested", AsTower::new(ShowPeer)), |_| ());
    for path in ["/", "/nested"] {
        let (shown, own) = address_shown(running.local_addr(), path);
        assert_eq!(shown, own, "{path}");
    }
}

/// Regression test: a service in a router did not see that the server drains.
#[test]
fn the_drain_is_passed_on() {
    let shows = |request: Request<'_>| Reply::text(request.draining.to_string());
    let handler = |request: http::Request<axum::body::Body>| async move {
        request.extensions().get::<DrainBegun>().is_some().to_string()
    };
    let running = serve(Router::new().route("/", get(handler)).nest_service("/nested", AsTower::new(shows)), |_| ());
    let addr = running.local_addr();
    let begun = ["/", "/nested"].map(|path| {
        let mut client = client(&running);
        let line = format!("GET {path} HTTP/1.1\r\n");
        assert_eq!(client.ask(format!("{line}Host: a\r\n\r\n").as_bytes(), 200).text(), "false", "{path}");
        client.send(line.as_bytes()).expect("it takes the request line");
        (client, path)
    });
    let drain = std::thread::spawn(move || running.shutdown());
    while TcpStream::connect(addr).is_ok() {
        std::thread::yield_now();
    }
    for (mut client, path) in begun {
        client.send(b"Host: a\r\n\r\n").expect("it takes the rest");
        assert_eq!(client.expect_last(200).text(), "true", "{path}");
    }
    drain.join().expect("no panic").expect("it ends well");
}

/// Regression test: axum's `ConnectInfo` was not there, and each such handler was answered with 500.
#[test]
fn axum_handlers_get_connect_info() {
    let shows = |ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.to_string() };
    let router = Router::new().route("/", get(shows)).nest_service("/nested", AsTower::new(ShowPeer));
    let running = serve(router.into_make_service_with_connect_info::<SocketAddr>(), |_| ());
    for path in ["/", "/nested"] {
        let (shown, own) = address_shown(running.local_addr(), path);
        assert_eq!(shown, own, "{path}");
    }
}

/// A make-service that counts its calls. It fails while it is told to, and is pending at first.
#[derive(Clone)]
struct CountedMake {
    calls: Arc<AtomicUsize>,
    fails: Arc<AtomicBool>,
}

impl tower_service::Service<SocketAddr> for CountedMake {
    type Response = AsTower;
    type Error = &'static str;
    type Future = Pin<Box<dyn Future<Output = Result<AsTower, &'static str>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: SocketAddr) -> Self::Future {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let fails = self.fails.load(Ordering::SeqCst);
        Box::pin(async move {
            tokio::task::yield_now().await;
            if fails { Err("told to") } else { Ok(AsTower::new(ShowPeer)) }
        })
    }
}

#[test]
fn a_make_service_is_called_once_for_a_connection() {
    let make = CountedMake { calls: Arc::default(), fails: Arc::default() };
    let running = serve(make.clone(), |_| ());
    for calls in 1..=3 {
        let (shown, own) = address_shown(running.local_addr(), "/");
        assert_eq!((shown, make.calls.load(Ordering::SeqCst)), (own, calls));
    }
    make.fails.store(true, Ordering::SeqCst);
    let mut client = client(&running);
    client.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 500);
    make.fails.store(false, Ordering::SeqCst);
    client.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200);
}

/// The peer of a service inside `axum::serve`.
#[test]
fn a_service_sees_its_peer_under_axums_own_server() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("it listens");
    let addr = listener.local_addr().expect("it is bound");
    let shows = AsTower::new(ShowPeer).with_peer(|extensions| extensions.get().map(|info: &ConnectInfo<_>| info.0));
    let router = Router::new().fallback_service(shows);
    let _server = runtime
        .spawn(async { axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>()).await });
    let (shown, own) = address_shown(addr, "/");
    assert_eq!(shown, own);
}

/// Regression test: the runtime had no timers, so a handler that slept panicked, and the answer was 500.
#[test]
fn a_handler_may_sleep() {
    let sleeps = || async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        "slept"
    };
    let running = serve(Router::new().route("/", get(sleeps)), |_| ());
    assert_eq!(client(&running).ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200).text(), "slept");
    assert_eq!(running.counters().panics, 0);
}

/// The timeouts of tower and of tower-http work, both if they pass and if they do not.
#[test]
fn layers_with_a_timeout_work() {
    let routes = || {
        Router::new().route("/", get(|| async { "in time" })).route("/never", get(std::future::pending::<&'static str>))
    };
    let soon = Duration::from_millis(20);
    let timeout = TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, soon);
    let late = |_: axum::BoxError| async { StatusCode::GATEWAY_TIMEOUT };
    let tower =
        tower::ServiceBuilder::new().layer(HandleErrorLayer::new(late)).layer(tower::timeout::TimeoutLayer::new(soon));
    for router in [routes().layer(timeout), routes().layer(tower)] {
        let running = serve(router, |_| ());
        let mut client = client(&running);
        client.ask(b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n", 504);
        assert_eq!(client.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200).text(), "in time");
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

/// The checks and limits of the servers hold for a router too: hosts, heads, timeouts.
#[test]
fn a_router_has_the_limits_of_a_server() {
    let never = || std::future::pending::<&str>();
    let read = |body: Bytes| async move { format!("{} bytes", body.len()) };
    let running = serve(Router::new().route("/never", get(never)).route("/", post(read)), |config| {
        config.answer_timeout = Duration::from_millis(50);
        config.body_timeout = Duration::from_millis(50);
        config.max_head = 1000;
    });
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(1000));
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET /never HTTP/1.1\r\nHost: a\r\n\r\n", 503),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel", 408),
        ("BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        (long.as_str(), 431),
    ] {
        let mut client = client(&running);
        client.send(request.as_bytes()).expect("it takes the request");
        client.expect_last(status);
    }
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

/// The answers and bodies of a router count towards the memory of the server: beyond it a GET and a body are answered with 503.
#[test]
fn a_router_keeps_to_the_memory_budget() {
    // More than the kernel takes for a client that does not read, and half of the budget or more is left.
    const LENGTH: usize = 12 << 20;
    const BUDGET: usize = 16 << 20;
    let large = || async { vec![b'x'; LENGTH] };
    let read = |body: Bytes| async move { format!("{} bytes", body.len()) };
    let router = Router::new().route("/", get(large)).route("/", post(read)).route("/small", get(async || "small"));
    let router = router.layer(axum::extract::DefaultBodyLimit::disable());
    let running = serve(router, |config| *config = config.clone().memory(BUDGET).max_body(LENGTH));
    let mut slow = client(&running);
    slow.limit_receive_buffer(64 << 10).expect("the system takes the size of a buffer");
    slow.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("it takes the request");
    slow.peek().expect("it is answered");
    let mut other = client(&running);
    let refused = other.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 503);
    assert_eq!(refused.header("Retry-After"), Some("1"));
    other.ask(b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n", 200);
    let post =
        [format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n").into_bytes(), vec![b'x'; LENGTH]];
    let mut sender = client(&running);
    let _ = sender.send(&post.concat()); // an error: the server has refused the body
    sender.expect(503);
    assert_eq!(slow.expect(200).body.len(), LENGTH);
    other.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200);
    assert!(running.shutdown().is_ok());
}
