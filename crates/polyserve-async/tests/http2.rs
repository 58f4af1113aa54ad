//! HTTP/2 with prior knowledge, through hyper's own client.
#![cfg(feature = "http2")]

use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use polyserve_async::TokioHyper;
use polyserve_conformance::client::{Client, WriteHalf};
use polyserve_core::{
    Answer, Body, Completer, Drain, Echo, EntityService, Reply, Running, ServerConfig, ServerExt, Service, Status,
    promise,
};
use polyserve_memory::StdMutex;
use polyserve_serving::http1::turn::{MAX_TURN_REQUESTS, MAX_TURN_TIME};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(60);

fn serve(service: Arc<dyn Service>, change: impl FnOnce(&mut ServerConfig)) -> Running {
    let mut config = ServerConfig::default().drain_grace(10 * PATIENCE);
    change(&mut config);
    let server = TokioHyper::new(config).expect("it is honoured").with_http2();
    server.serve(([127, 0, 0, 1], 0), service).expect("it serves")
}

fn client_runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

type Sender = SendRequest<Full<Bytes>>;

async fn connect(addr: SocketAddr) -> (Sender, JoinHandle<hyper::Result<()>>) {
    let stream = tokio::net::TcpStream::connect(addr).await.expect("the server accepts connections");
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("it speaks HTTP/2");
    (sender, tokio::spawn(connection))
}

fn request(method: Method, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let uri = format!("http://a{path}");
    Request::builder().method(method).uri(uri).body(Full::new(body.into())).expect("a request")
}

async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.expect("the answer is whole").to_bytes();
    String::from_utf8(body.to_vec()).expect("text")
}

#[test]
fn entities_are_put_and_got() {
    const ONE: &str = r#"{"id":1,"description":"one","value":60.750847}"#;
    let running = serve(Arc::new(EntityService::new(StdMutex::new())), |config| config.max_body = 1000);
    let addr = running.local_addr();
    client_runtime().block_on(async {
        let (mut sender, _connection) = connect(addr).await;
        let mut ask = async |method, path, body: String| {
            sender.send_request(request(method, path, body)).await.expect("an answer")
        };
        let put = ask(Method::PUT, "/", ONE.into()).await;
        assert_eq!((put.status(), put.headers()["location"].to_str().unwrap()), (StatusCode::CREATED, "/1"));
        let found = ask(Method::GET, "/1", String::new()).await;
        assert_eq!(found.status(), StatusCode::OK);
        assert!(found.headers().contains_key("date"));
        assert_eq!(text(found).await, ONE);
        let head = ask(Method::HEAD, "/1", String::new()).await;
        assert_eq!(head.headers()["content-length"], ONE.len().to_string());
        assert_eq!(text(head).await, "");
        assert_eq!(ask(Method::GET, "/2", String::new()).await.status(), StatusCode::NOT_FOUND);
        assert_eq!(ask(Method::TRACE, "/1", String::new()).await.status(), StatusCode::NOT_IMPLEMENTED);
        let large = ask(Method::PUT, "/", "x".repeat(1001)).await;
        assert_eq!(large.status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(ask(Method::DELETE, "/1", String::new()).await.status(), StatusCode::NO_CONTENT);
    });
    // HTTP/1 is served at the same address.
    let mut old = Client::connect(addr, PATIENCE).expect("it accepts");
    old.ask(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n", 404);
    drop(old);
    assert_eq!(running.shutdown().expect("it ends well"), Drain::new(8, 0, 0));
}

/// Regression test: from the second HEAD of a large entity on, the length was 0, because the body was not written.
#[test]
fn the_head_of_a_large_entity_has_its_length() {
    let large = format!(r#"{{"id":1,"description":"{}","value":0.5}}"#, "x".repeat(6 * 1024));
    let length = large.len().to_string();
    let running = serve(Arc::new(EntityService::new(StdMutex::new())), |_| ());
    client_runtime().block_on(async {
        let (mut sender, _connection) = connect(running.local_addr()).await;
        let put = sender.send_request(request(Method::PUT, "/1", large)).await.expect("an answer");
        assert_eq!(put.status(), StatusCode::CREATED);
        for _ in 0..2 {
            let head = sender.send_request(request(Method::HEAD, "/1", "")).await.expect("an answer");
            assert_eq!(head.headers().get_all("content-length").iter().collect::<Vec<_>>(), [&length]);
            assert_eq!(text(head).await, "");
        }
    });
    let mut client = Client::connect(running.local_addr(), PATIENCE).expect("it accepts");
    for _ in 0..2 {
        client.send(b"HEAD /1 HTTP/1.1\r\nHost: a\r\n\r\n").expect("it takes it");
        let head = client.receive_head().expect("an answer");
        assert_eq!(head.header("content-length"), Some(length.as_str()));
    }
}

/// The hook sees the answers of all streams.
#[test]
fn the_hook_sees_streams() {
    let (reports, seen) = std::sync::mpsc::channel();
    let running = serve(Arc::new(EntityService::new(StdMutex::new())), |config| {
        *config = config.clone().on_answer(move |report| reports.send(*report).expect("the test receives it"));
    });
    client_runtime().block_on(async {
        let (mut sender, _connection) = connect(running.local_addr()).await;
        for (method, path) in [(Method::GET, "/1"), (Method::TRACE, "/1"), (Method::DELETE, "/1")] {
            let response = sender.send_request(request(method, path, String::new())).await.expect("an answer");
            let status = response.status().as_u16();
            let length = text(response).await.len() as u64;
            let report = seen.recv_timeout(PATIENCE).expect("it is reported");
            assert_eq!((report.status.code(), report.bytes), (status, length));
            assert!(report.peer.is_some() && report.elapsed.is_some());
        }
    });
    assert!(running.shutdown().is_ok() && seen.try_recv().is_err(), "once each");
}

/// A service with answers that wait until the test releases them. It panics at `/panic`.
struct HeldReplies {
    waiting: Mutex<Vec<Completer<Reply>>>,
    asked: Semaphore,
}

fn empty(status: Status) -> Reply {
    Reply::empty(status)
}

impl HeldReplies {
    fn shared() -> Arc<Self> {
        Arc::new(Self { waiting: Mutex::default(), asked: Semaphore::new(0) })
    }

    fn open(&self) -> usize {
        let waiting = std::mem::take(&mut *self.waiting.lock().expect("no thread panics with this lock"));
        let given = |completer: Completer<Reply>| {
            completer.complete(Reply::new(Status::OK, "text/plain", Body::Static(b"given")))
        };
        waiting.into_iter().map(given).filter(Result::is_ok).count()
    }
}

impl Service for HeldReplies {
    fn call(&self, request: polyserve_core::Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        assert_ne!(request.head.path(), "/panic", "told to");
        let (completer, answer) = promise(empty(Status::SERVICE_UNAVAILABLE));
        self.waiting.lock().expect("no thread panics with this lock").push(completer);
        self.asked.add_permits(1);
        answer
    }
}

#[test]
fn a_hundred_streams_at_once_and_a_large_body() {
    let held_replies = HeldReplies::shared();
    let running = serve(held_replies.clone(), |_| ());
    let addr = running.local_addr();
    client_runtime().block_on(async {
        let (sender, _connection) = connect(addr).await;
        let asked: Vec<_> = (0..100)
            .map(|_| {
                let mut sender = sender.clone();
                tokio::spawn(async move {
                    let answer = sender.send_request(request(Method::GET, "/", "")).await.expect("an answer");
                    text(answer).await
                })
            })
            .collect();
        held_replies.asked.acquire_many(100).await.expect("it is not closed").forget();
        assert_eq!(held_replies.open(), 100, "all wait at the same time");
        for asked in asked {
            assert_eq!(asked.await.expect("no panic"), "given");
        }
        let mut sender = sender;
        let answer = sender.send_request(request(Method::GET, "/panic", "")).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    });
    assert_eq!(running.shutdown().expect("it ends well"), Drain::new(101, 0, 0));

    let running = serve(Arc::new(Echo), |_| ());
    let addr = running.local_addr();
    client_runtime().block_on(async {
        let (mut sender, _connection) = connect(addr).await;
        let body = "0123456789".repeat(70_000);
        let answer = sender.send_request(request(Method::POST, "/", body.clone())).await.expect("an answer");
        assert!(text(answer).await == body, "a body of many windows comes back whole");
    });
    assert_eq!(running.shutdown().expect("it ends well"), Drain::new(1, 0, 0));
}

/// Regression test: the scanner for HTTP/1 read the frames of HTTP/2 too. It refused a body that looked like a
/// malformed chunked body, and the connection was closed.
#[test]
fn a_body_may_look_like_http1() {
    let running = serve(Arc::new(Echo), |_| ());
    let addr = running.local_addr();
    client_runtime().block_on(async {
        for body in ["\n".repeat(100), "\r\n".repeat(100), "\na\nTransfer-Encoding: chunked\n\nx\n".to_owned()] {
            let (mut sender, _connection) = connect(addr).await;
            for _ in 0..2 {
                let answer = sender.send_request(request(Method::POST, "/", body.clone())).await.expect("an answer");
                assert_eq!(text(answer).await, body);
            }
        }
    });
    assert_eq!(running.shutdown().expect("it ends well"), Drain::new(6, 0, 0));
}

/// A request that began before the shutdown is answered. The connection then ends, as an idle connection does.
#[test]
fn a_drain_serves_what_has_begun() {
    let held_replies = HeldReplies::shared();
    let running = serve(held_replies.clone(), |_| ());
    let addr = running.local_addr();
    let drain = client_runtime().block_on(async {
        let (mut sender, connection) = connect(addr).await;
        let (_idle, idle_connection) = connect(addr).await;
        let asked = tokio::spawn(async move {
            let answer = sender.send_request(request(Method::GET, "/", "")).await.expect("an answer");
            text(answer).await
        });
        held_replies.asked.acquire().await.expect("it is not closed").forget();
        let drained = tokio::spawn(running.drained());
        let _ = idle_connection.await.expect("no panic"); // so the drain has begun
        assert_eq!(held_replies.open(), 1, "the answer is still wanted");
        assert_eq!(asked.await.expect("no panic"), "given");
        let _ = connection.await.expect("no panic");
        drained.await.expect("no panic").expect("it ends well")
    });
    assert_eq!(drain, Drain::new(1, 0, 0));
}

#[test]
fn the_deadline_cuts_streams_and_counts_them() {
    let held_replies = HeldReplies::shared();
    let running = serve(held_replies.clone(), |_| ());
    let addr = running.local_addr();
    let runtime = client_runtime();
    let drain = runtime.block_on(async {
        let (sender, _connection) = connect(addr).await;
        for _ in 0..3 {
            let mut sender = sender.clone();
            tokio::spawn(async move { sender.send_request(request(Method::GET, "/", "")).await });
        }
        held_replies.asked.acquire_many(3).await.expect("it is not closed").forget();
        tokio::task::spawn_blocking(move || running.shutdown_within(Duration::from_millis(50))).await
    });
    assert_eq!(drain.expect("no panic").expect("it ends"), Drain::new(0, 3, 0));
}

/// A stream has its client's address. A panic of a stream, at once or later, is a 500 and is counted.
#[test]
fn streams_have_a_peer_and_their_panics_are_counted() {
    struct PeerOrPanic;
    impl Service for PeerOrPanic {
        fn call(&self, request: polyserve_core::Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
            match request.head.path() {
                "/now" => panic!("as the test asked"),
                "/later" => Answer::later(async { panic!("as the test asked") }),
                _ => Reply::text(request.peer.map_or_else(String::new, |peer| peer.to_string())).into(),
            }
        }
    }
    let running = serve(Arc::new(PeerOrPanic), |_| ());
    let addr = running.local_addr();
    client_runtime().block_on(async {
        let stream = tokio::net::TcpStream::connect(addr).await.expect("the server accepts connections");
        let local = stream.local_addr().expect("an address").to_string();
        let (mut sender, connection) =
            handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("it speaks HTTP/2");
        let _connection = tokio::spawn(connection);
        let shown = sender.send_request(request(Method::GET, "/", "")).await.expect("an answer");
        assert_eq!(text(shown).await, local);
        assert_eq!(running.counters().open, 1);
        for path in ["/now", "/later"] {
            let answer = sender.send_request(request(Method::GET, path, "")).await.expect("an answer");
            assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
        }
    });
    assert_eq!(running.counters().panics, 2);
}

#[test]
fn a_late_answer_to_a_stream_is_a_503() {
    let held_replies = HeldReplies::shared();
    let running = serve(held_replies.clone(), |config| config.answer_timeout = Duration::from_millis(50));
    let addr = running.local_addr();
    client_runtime().block_on(async {
        let (mut sender, _connection) = connect(addr).await;
        let answer = sender.send_request(request(Method::GET, "/", "")).await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    });
    assert_eq!(held_replies.open(), 0, "the request no longer waits for its answer");
}

/// A preface in pieces is HTTP/2. If HTTP/2 is off, the preface is answered with 400.
#[test]
fn the_preface_is_recognised_if_http2_is_on() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let running = serve(Arc::new(Echo), |_| ());
    for cut in [1, 5, 15, 20, 24] {
        let mut client = Client::connect(running.local_addr(), PATIENCE).expect("it accepts");
        for piece in [&PREFACE[..cut], &PREFACE[cut..]] {
            client.send(piece).expect("it takes it");
            std::thread::yield_now();
        }
        client.half_close().expect("the connection stands");
        let (answer, _) = client.end();
        assert_eq!(answer.get(3), Some(&4), "it answers with its settings, cut at {cut}: {answer:?}");
    }
    let without_http2 = TokioHyper::new(ServerConfig::default()).expect("it is honoured");
    let without_http2 = without_http2.serve(([127, 0, 0, 1], 0), Echo).expect("it serves");
    let mut client = Client::connect(without_http2.local_addr(), PATIENCE).expect("it accepts");
    client.send(PREFACE).expect("it takes it");
    client.expect_last(400);
}

#[test]
fn a_tower_service_is_not_served_so() {
    let server = TokioHyper::new(ServerConfig::default()).expect("it is honoured").with_http2();
    let error = server.serve_tower(([127, 0, 0, 1], 0), axum::Router::new()).expect_err("it is refused");
    assert!(error.to_string().contains("http2"), "{error}");
}

/// Connects with a window of `window` bytes for each stream.
async fn connect_with(addr: SocketAddr, window: u32) -> (Sender, JoinHandle<hyper::Result<()>>) {
    let stream = tokio::net::TcpStream::connect(addr).await.expect("the server accepts connections");
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.expect("it speaks HTTP/2");
    (sender, tokio::spawn(connection))
}

/// Regression test: a client with a window of 0 bytes kept its answers waiting, and its connection open, for ever.
#[test]
fn a_client_that_takes_no_answer_is_cut() {
    let running = serve(Arc::new(Echo), |config| config.write_timeout = Duration::from_millis(50));
    let addr = running.local_addr();
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    // With a window of 7, hyper's codec takes the whole answer and holds it back.
    for window in [0, 7] {
        let ended = runtime.block_on(async {
            let (mut sender, connection) = connect_with(addr, window).await;
            let answer = sender.send_request(request(Method::POST, "/", "hello, world")).await.expect("a head");
            assert_eq!(answer.status(), StatusCode::OK);
            let ended = tokio::time::timeout(PATIENCE, connection).await;
            drop((sender, answer)); // so it was not the client that ended it
            ended
        });
        assert!(ended.is_ok(), "the connection stands, window {window}");
    }
    assert_eq!(running.shutdown().expect("it ends well"), Drain::new(0, 0, 0));
}

/// Regression test: a client that read a large answer slowly was cut as idle once hyper's codec had the whole answer.
#[test]
fn a_client_that_takes_its_time_is_not_idle() {
    let running = serve(Arc::new(Echo), |config| {
        config.idle_timeout = Duration::from_millis(20);
        config.linger_timeout = Duration::from_millis(20);
        config.write_timeout = 10 * PATIENCE;
    });
    let addr = running.local_addr();
    client_runtime().block_on(async {
        let body = "0123456789".repeat(20_000);
        let (mut sender, _connection) = connect_with(addr, 1000).await;
        let answer = sender.send_request(request(Method::POST, "/", body.clone())).await.expect("a head");
        for _ in 0..4 {
            let (_idle, connection) = connect(addr).await;
            let _ = connection.await.expect("no panic"); // that one was idle
        }
        assert!(text(answer).await == body, "it comes whole");
    });
    assert_eq!(running.shutdown().expect("it ends well"), Drain::new(1, 0, 0));
}

/// Answers of streams that the client does not take, and bodies that do not end, share the memory of the server: beyond it a
/// GET and a body are answered with 503. A stream that ends releases its memory.
#[test]
fn streams_share_the_memory_budget() {
    const LENGTH: usize = 700 * 1024;
    struct Large;
    impl Service for Large {
        fn call(&self, request: polyserve_core::Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
            let length = if request.head.path() == "/small" { 1 } else { LENGTH };
            Answer::Now(Reply::new(Status::OK, "text/plain", Body::Owned(vec![b'x'; length])))
        }
    }
    let running = serve(Arc::new(Large), |config| *config = config.clone().memory(1 << 20));
    let addr = running.local_addr();
    client_runtime().block_on(async {
        // The connection of the first client takes nothing of its answer.
        let (mut slow, _slow) = connect_with(addr, 0).await;
        let (mut other, _other) = connect(addr).await;
        let held = slow.send_request(request(Method::GET, "/", "")).await.expect("a head");
        assert_eq!(held.status(), StatusCode::OK);
        let refused = other.send_request(request(Method::GET, "/", "")).await.expect("an answer");
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused.headers()["retry-after"], "1");
        let refused = other.send_request(request(Method::POST, "/small", vec![b'x'; LENGTH])).await.expect("an answer");
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        let small = other.send_request(request(Method::POST, "/small", "x")).await.expect("an answer");
        assert_eq!(small.status(), StatusCode::OK);
        drop((held, slow)); // the server may need a moment to see it
        while other.send_request(request(Method::GET, "/", "")).await.expect("an answer").status() != StatusCode::OK {}
    });
    assert!(running.shutdown().is_ok());
}

/// A service that answers at once, and keeps the order of its calls.
struct OrderedCalls {
    /// Whether each call came from the other client.
    calls: Mutex<Vec<bool>>,
    /// A connection of the other client. Its request is sent in the third call.
    other: Mutex<Option<WriteHalf>>,
    /// The minimum time of a call.
    busy: Duration,
}

impl Service for OrderedCalls {
    fn call(&self, request: polyserve_core::Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        if request.head.path() == "/first" {
            return Answer::Now(Reply::empty(Status::OK));
        }
        let mut calls = self.calls.lock().expect("no thread panics with this lock");
        calls.push(request.head.path() == "/other");
        if calls.len() == 3 {
            let mut other = self.other.lock().expect("no thread panics with this lock");
            let other = other.as_mut().expect("the test has connected it");
            other.send(b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n").expect("the kernel takes it");
        }
        let end = Instant::now() + self.busy;
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        Answer::Now(Reply::empty(Status::OK))
    }
}

/// Regression test: the streams of a connection had no turn. Each was a task of its own, so a worker answered all that were
/// ready, up to 128, before it looked at other sockets.
#[test]
fn a_connection_with_many_streams_lets_others_have_their_turn() {
    // A worker looks at its sockets after 61 tasks too, so the test begins at different numbers of tasks.
    for tasks in (0..61).step_by(6) {
        streams_have_a_turn(Duration::ZERO, MAX_TURN_REQUESTS, tasks);
    }
    // The clock is read at every fourth request of a turn.
    for tasks in (0..61).step_by(20) {
        streams_have_a_turn(MAX_TURN_TIME, 4, tasks);
    }
}

/// Sends more requests than a turn has on one connection, and one on another, after `tasks` requests. The other one is answered
/// within two turns of `turn` requests, as over HTTP/1.
fn streams_have_a_turn(busy: Duration, turn: u32, tasks: usize) {
    let service = Arc::new(OrderedCalls { calls: Mutex::default(), other: Mutex::default(), busy });
    let running = serve(service.clone(), |config| config.workers = Some(1));
    let addr = running.local_addr();
    let mut other = Client::connect(addr, PATIENCE).expect("it accepts");
    for _ in 0..=tasks {
        other.ask(b"GET /first HTTP/1.1\r\nHost: a\r\n\r\n", 200); // then the server waits for its next request
    }
    client_runtime().block_on(async {
        let (sender, _connection) = connect(addr).await;
        *service.other.lock().expect("no thread panics with this lock") = Some(other.write_half().expect("a handle"));
        let asked: Vec<_> = (0..128)
            .map(|_| {
                let mut sender = sender.clone();
                tokio::spawn(async move { sender.send_request(request(Method::GET, "/", "")).await })
            })
            .collect();
        for asked in asked {
            assert_eq!(asked.await.expect("no panic").expect("an answer").status(), StatusCode::OK);
        }
    });
    other.expect(200);
    let calls = service.calls.lock().expect("no thread panics with this lock");
    let others = calls.iter().position(|is_other| *is_other).expect("it was answered") - 3;
    assert!(others <= 2 * turn as usize, "{others} answers to others after the request was sent, {busy:?}, {tasks}");
    assert_eq!(calls.len(), 129);
}

/// Regression test: a wait for the client to take output kept the deadline of the first such wait. A client that read all the
/// time was cut.
#[test]
fn a_client_that_never_stops_reading_is_not_cut() {
    const LENGTH: usize = 1 << 20;
    const ANSWERS: u32 = 16;
    struct Large;
    impl Service for Large {
        fn call(&self, _: polyserve_core::Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
            Answer::Now(Reply::new(Status::OK, "text/plain", Body::Owned(vec![b'x'; LENGTH])))
        }
    }
    let running = serve(Arc::new(Large), |config| config.write_timeout = Duration::from_millis(500));
    let mut client = std::net::TcpStream::connect(running.local_addr()).expect("it accepts");
    client.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    // The preface, windows as large as they can be, and requests for "/" on the first odd streams.
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\x7f\xff\xff\xff".to_vec();
    sent.extend_from_slice(b"\0\0\x04\x08\0\0\0\0\0\x7f\xff\0\0");
    for stream in (0..ANSWERS).map(|number| 2 * number + 1) {
        sent.extend_from_slice(b"\0\0\x06\x01\x05");
        sent.extend_from_slice(&stream.to_be_bytes());
        sent.extend_from_slice(b"\x82\x84\x86\x41\x01a");
    }
    client.write_all(&sent).expect("it takes it");
    let (mut buffer, mut received) = (vec![0; 64 * 1024], 0);
    // For longer than the limit of one write, which is the timeout and a second for each 64 KiB.
    let slowly_until = Instant::now() + Duration::from_secs(4);
    while received < ANSWERS as usize * LENGTH {
        let count = client.read(&mut buffer).unwrap_or_else(|error| panic!("after {received} bytes: {error}"));
        assert!(count > 0, "the connection was cut after {received} bytes");
        received += count;
        if Instant::now() < slowly_until {
            std::thread::sleep(Duration::from_millis(40));
        }
    }
}

/// Regression test: the memory of a body stayed reserved until the answer came. Over HTTP/1 it is free when the service has it.
#[test]
fn a_body_takes_no_memory_while_its_answer_is_awaited() {
    let held_replies = HeldReplies::shared();
    let running = serve(held_replies.clone(), |config| *config = config.clone().memory(1 << 20));
    let addr = running.local_addr();
    client_runtime().block_on(async {
        let (sender, _connection) = connect(addr).await;
        let asked = (0..2).map(|_| {
            let mut sender = sender.clone();
            tokio::spawn(async move { sender.send_request(request(Method::POST, "/", vec![b'x'; 700 * 1024])).await })
        });
        let mut answers = Vec::new();
        for asked in asked {
            answers.push(asked);
            let called = tokio::time::timeout(PATIENCE, held_replies.asked.acquire()).await;
            called.expect("the service is not called: the body was refused").expect("it is not closed").forget();
        }
        assert_eq!(held_replies.open(), 2);
        for answer in answers {
            assert_eq!(answer.await.expect("no panic").expect("an answer").status(), StatusCode::OK);
        }
    });
}

/// A body that has a byte, and never ends.
struct EndlessBody(Option<Bytes>);

impl http_body::Body for EndlessBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        self.0.take().map_or(Poll::Pending, |bytes| Poll::Ready(Some(Ok(http_body::Frame::data(bytes)))))
    }
}

/// Sends a body that does not end on two streams of a connection, one after the other. Both are answered with 408.
fn bodies_are_late(change: impl FnOnce(&mut ServerConfig)) {
    let running = serve(Arc::new(Echo), change);
    let addr = running.local_addr();
    client_runtime().block_on(async {
        let stream = tokio::net::TcpStream::connect(addr).await.expect("the server accepts connections");
        let (mut sender, connection) =
            handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("it speaks HTTP/2");
        let _connection = tokio::spawn(connection);
        let mut begin = || {
            let body = EndlessBody(Some(Bytes::from_static(b"a")));
            sender.send_request(Request::builder().method(Method::POST).uri("http://a/").body(body).expect("a request"))
        };
        for asked in [begin(), begin()] {
            assert_eq!(asked.await.expect("an answer").status(), StatusCode::REQUEST_TIMEOUT);
        }
    });
    assert_eq!(running.shutdown().expect("it ends well"), Drain::new(2, 0, 0));
}

#[test]
fn a_late_body_of_a_stream_is_a_408() {
    bodies_are_late(|config| config.body_timeout = Duration::from_millis(50));
}

/// The minimum rate counts after five seconds, so this test takes as long.
#[test]
fn a_body_of_a_stream_below_the_rate_is_a_408() {
    bodies_are_late(|config| config.body_timeout = 10 * PATIENCE);
}

/// A head that does not end is no request: its connection is closed as an idle one. A preface that does not end is a late head.
#[test]
fn a_late_head_ends_the_connection() {
    // An empty SETTINGS frame, and HEADERS without END_HEADERS.
    const BEGUN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\x01\0\0\0\x01\x82";
    let running = serve(Arc::new(Echo), |config| {
        config.head_timeout = Duration::from_millis(50);
        config.idle_timeout = Duration::from_millis(50);
        config.linger_timeout = Duration::from_millis(50);
    });
    let mut client = Client::connect(running.local_addr(), PATIENCE).expect("it accepts");
    client.send(BEGUN).expect("it takes it");
    let (answer, _) = client.end();
    assert_eq!(answer.get(3), Some(&4), "its settings, and then the end: {answer:?}");
    let mut client = Client::connect(running.local_addr(), PATIENCE).expect("it accepts");
    client.send(&BEGUN[..10]).expect("it takes it");
    client.expect_last(408);
    assert_eq!(running.shutdown().expect("it ends well").cut, 0);
}

/// At the limit, a connection without open streams is closed for a new one. A connection with an open stream is not.
#[test]
fn an_idle_connection_is_closed_for_a_new_one() {
    let held_replies = HeldReplies::shared();
    let running = serve(held_replies.clone(), |config| config.max_connections = 1);
    let addr = running.local_addr();
    client_runtime().block_on(async {
        let (mut sender, connection) = connect(addr).await;
        let asked = tokio::spawn(async move {
            let answer = sender.send_request(request(Method::GET, "/", "")).await.expect("an answer");
            (text(answer).await, sender)
        });
        held_replies.asked.acquire().await.expect("it is not closed").forget();
        let mut refused = Client::connect(addr, PATIENCE).expect("it accepts");
        refused.expect_last(503);
        assert_eq!(held_replies.open(), 1);
        let (answer, _sender) = asked.await.expect("no panic");
        assert_eq!(answer, "given");
        // The connection is evicted once it has been idle for a moment.
        while !connection.is_finished() {
            let mut refused = Client::connect(addr, PATIENCE).expect("it accepts");
            let _ = refused.half_close();
            let _ = refused.end();
            tokio::task::yield_now().await;
        }
        let (mut sender, _connection) = connect(addr).await;
        let asked = tokio::spawn(async move { sender.send_request(request(Method::GET, "/", "")).await });
        held_replies.asked.acquire().await.expect("it is not closed").forget();
        assert_eq!(held_replies.open(), 1);
        assert_eq!(asked.await.expect("no panic").expect("an answer").status(), StatusCode::OK);
    });
    assert_eq!(running.shutdown().expect("it ends well").cut, 0);
}
