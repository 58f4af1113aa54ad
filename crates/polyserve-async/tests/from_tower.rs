//! `FromTower` without a server: the test calls the service, and polls and drops its answers on threads without a runtime.
#![cfg(all(feature = "tokio", feature = "tower"))]

use std::future::{Ready, pending, ready};
use std::io;
use std::iter;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use axum::Extension;
use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE, ETAG, SERVER, SET_COOKIE, TRANSFER_ENCODING, UPGRADE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version};
use axum::response::AppendHeaders;
use axum::routing::{any, get};
use bytes::Bytes;
use http_body::Frame;
use http_body_util::{Empty, Full};
use polyserve_async::{AsTower, DrainBegun, FromTower, TokioTcp};
use polyserve_conformance::client::Client;
use polyserve_core::{Answer, Echo, Head, Header, Headers, Reply, Request, ServerConfig, ServerExt as _, Service};
use tokio::runtime::{Builder, Handle};

fn head<'a>(method: &'a Method, target: &'a str) -> Head<'a> {
    Head { method, target, version: Version::HTTP_11, headers: Headers::new(&[]), certificate: None }
}

fn ask(service: &FromTower, target: &str) -> Answer<Reply> {
    service.call(Request::new(head(&Method::GET, target), b""), &mut Vec::new())
}

fn route(handler: axum::routing::MethodRouter) -> FromTower {
    FromTower::new(Router::new().route("/", handler)).expect("a runtime")
}

/// Returns the status and the body of an answer.
fn shown(answer: Answer<Reply>) -> (u16, String) {
    let reply = answer.wait();
    (reply.status().as_u16(), String::from_utf8_lossy(reply.body_bytes(&[])).into_owned())
}

fn fields(reply: &Reply) -> Vec<(&str, &str)> {
    reply.headers().map(|(name, value)| (name.as_str(), value.to_str().expect("a text"))).collect()
}

/// Reports as it is dropped whether this is in the context of a runtime.
struct ReportsContext(mpsc::Sender<bool>);

impl Drop for ReportsContext {
    fn drop(&mut self) {
        let _ = self.0.send(Handle::try_current().is_ok());
    }
}

#[test]
fn an_answer_that_is_ready_is_now() {
    let service = route(get(|| async { "ready" }));
    let Answer::Now(reply) = ask(&service, "/") else { panic!("it is deferred") };
    assert_eq!((reply.status().as_u16(), reply.body_bytes(&[])), (200, &b"ready"[..]));
    assert_eq!(reply.content_type().expect("a media type"), "text/plain; charset=utf-8");
    assert_eq!(fields(&reply), []);
}

/// The answer is polled by two threads, with other wakers, after the service was dropped.
#[test]
fn an_answer_needs_neither_a_context_nor_its_service() {
    let service = route(get(|| async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let spawned = tokio::spawn(async { thread::current().name().map(str::to_owned) }).await;
        spawned.expect("no panic").expect("a name")
    }));
    let Answer::Later(mut future) = ask(&service, "/") else { panic!("it did not sleep") };
    drop(service);
    assert!(Handle::try_current().is_err(), "this test has no runtime");
    let answer = match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reply) => Answer::Now(reply),
        Poll::Pending => Answer::Later(future),
    };
    let shown = thread::spawn(move || shown(answer)).join().expect("no panic");
    assert_eq!(shown, (200, String::from("from-tower")));
}

#[test]
fn an_abandoned_answer_is_dropped_in_the_context() {
    let (sender, receiver) = mpsc::channel();
    let service = route(get(move || {
        let report = ReportsContext(sender.clone());
        async move {
            pending::<()>().await;
            drop(report);
        }
    }));
    let answer = ask(&service, "/");
    assert_eq!(receiver.try_recv(), Err(mpsc::TryRecvError::Empty), "it is pending");
    drop((answer, service));
    assert_eq!(receiver.recv(), Ok(true));
}

/// tokio panics if a runtime is dropped as usual inside another one.
#[test]
fn service_and_answer_may_be_dropped_inside_another_runtime() {
    let outer = Builder::new_current_thread().build().expect("a runtime");
    let service = route(get(pending::<()>));
    outer.block_on(async {
        let answer = ask(&service, "/");
        drop(service);
        drop(answer); // with it the last reference to the runtime
        drop(route(get(pending::<()>)));
    });
}

/// An answer is polled on a thread of another runtime, one without timers.
#[test]
fn the_context_inside_another_runtime_is_its_own() {
    let outer = Builder::new_current_thread().build().expect("a runtime");
    let service = route(get(|| async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        "slept"
    }));
    let reply = outer.block_on(async { ask(&service, "/").await });
    assert_eq!(reply.body_bytes(&[]), b"slept");
}

#[test]
fn the_runtime_may_be_the_callers() {
    let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("given").enable_all().build();
    let runtime = runtime.expect("a runtime");
    let spawns = || async {
        let spawned = tokio::spawn(async { thread::current().name().map(str::to_owned) });
        spawned.await.expect("no panic").expect("a name")
    };
    let service = FromTower::with_handle(Router::new().route("/", get(spawns)), runtime.handle().clone());
    assert_eq!(shown(ask(&service, "/")), (200, String::from("given")));
}

/// A `tower::Service` that is not ready at first. It fails in `poll_ready` or in its future, if it is told to.
#[derive(Clone)]
struct Stepwise {
    polls: u32,
    fails_ready: bool,
    fails_call: bool,
}

impl tower_service::Service<http::Request<Full<Bytes>>> for Stepwise {
    type Response = Response<Empty<Bytes>>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.polls += 1;
        if self.polls == 3 {
            return Poll::Ready(if self.fails_ready { Err(io::Error::other("not ready")) } else { Ok(()) });
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn call(&mut self, _: http::Request<Full<Bytes>>) -> Self::Future {
        assert_eq!(self.polls, 3, "it is called before it is ready");
        ready(if self.fails_call { Err(io::Error::other("told to")) } else { Ok(Response::default()) })
    }
}

#[test]
fn readiness_is_awaited_and_an_error_is_a_500() {
    for (fails_ready, fails_call, status) in [(false, false, 200), (true, false, 500), (false, true, 500)] {
        let service = FromTower::new(Stepwise { polls: 0, fails_ready, fails_call }).expect("a runtime");
        for _ in 0..2 {
            let (code, body) = shown(ask(&service, "/"));
            assert_eq!((code, body.contains("The service failed.")), (status, status == 500), "{body}");
        }
    }
}

/// A body of these frames, without a known length.
struct Frames<I>(I);

impl<I: Iterator<Item = io::Result<Frame<Bytes>>> + Unpin> http_body::Body for Frames<I> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Poll::Ready(self.0.next())
    }
}

fn piece(text: &'static str) -> io::Result<Frame<Bytes>> {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

fn frames(frames: impl IntoIterator<Item = io::Result<Frame<Bytes>>, IntoIter: Send + Unpin + 'static>) -> Body {
    Body::new(Frames(frames.into_iter()))
}

#[test]
fn a_body_is_collected_up_to_the_limit() {
    let router = Router::new()
        .route("/whole", get(|| async { frames([piece("12345"), piece("678"), piece("90")]) }))
        .route("/known", get(|| async { "12345678901" }))
        .route("/endless", get(|| async { frames(iter::repeat_with(|| piece("x"))) }))
        .route("/broken", get(|| async { frames([piece("12345"), Err(io::Error::other("told to"))]) }));
    let service = FromTower::new(router).expect("a runtime").with_max_reply_body(10);
    assert_eq!(shown(ask(&service, "/whole")), (200, String::from("1234567890")));
    for path in ["/known", "/endless"] {
        let (code, body) = shown(ask(&service, path));
        let sentence = "The answer has more than 10 bytes, the limit of this server.";
        assert_eq!((code, body.contains(sentence)), (500, true), "{path}: {body}");
    }
    let (code, body) = shown(ask(&service, "/broken"));
    assert_eq!((code, body.contains("The service failed.")), (500, true), "{body}");
}

/// Regression test: bodies that were being collected had no limit together.
#[test]
fn bodies_that_are_not_complete_have_a_budget() {
    const LENGTH: usize = 700 * 1024;
    struct Stalls(Option<Bytes>);
    impl http_body::Body for Stalls {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
            self.0.take().map_or(Poll::Pending, |bytes| Poll::Ready(Some(Ok(Frame::data(bytes)))))
        }
    }
    let large = || Bytes::from(vec![b'x'; LENGTH]);
    let router = Router::new()
        .route("/stalls", get(move || async move { Body::new(Stalls(Some(large()))) }))
        .route("/", any(move || async move { large() }));
    let service = FromTower::new(router).expect("a runtime").with_memory(1 << 20);
    let ask_by = |method| service.call(Request::new(head(method, "/"), b""), &mut Vec::new()).wait();
    let stalled = ask(&service, "/stalls");
    assert!(matches!(stalled, Answer::Later(_)), "it does not stall");
    let refused = ask_by(&Method::GET);
    assert_eq!((refused.status().as_u16(), fields(&refused)), (503, vec![("retry-after", "1")]));
    assert_eq!(ask_by(&Method::POST).body_bytes(&[]).len(), LENGTH, "the answer to a write is sent");
    drop(stalled);
    assert_eq!(ask_by(&Method::GET).body_bytes(&[]).len(), LENGTH);
}

/// The request arrives as it was sent: method, target, version, repeated fields in their order, body, peer, drain.
#[test]
fn a_request_is_passed_on_whole() {
    let handler = |request: http::Request<Body>| async move {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 100).await.expect("a whole body");
        let values = |name| parts.headers.get_all(name).iter().map(HeaderValue::as_bytes).collect::<Vec<_>>();
        assert_eq!(values("x-a"), [&b"1"[..], b"\xff 2", b""]);
        let names: Vec<_> = parts.headers.keys().map(http::HeaderName::as_str).collect();
        assert_eq!(names, ["x-a", "host"]);
        let extensions = &parts.extensions;
        let (peer, draining) = (extensions.get::<SocketAddr>().copied(), extensions.get::<DrainBegun>().is_some());
        format!("{} {} {:?} {body:?} {peer:?} {draining}", parts.method, parts.uri, parts.version)
    };
    let service = FromTower::new(Router::new().fallback(handler)).expect("a runtime");
    let fields = [("X-A", &b"1"[..]), ("Host", b"a"), ("x-a", b"\xff 2"), ("X-A", b"")];
    let fields = fields.map(|(name, value)| Header { name, value });
    let head = Head {
        method: &Method::PATCH,
        target: "/a%20b?c=d&e",
        version: Version::HTTP_10,
        headers: Headers::new(&fields),
        certificate: None,
    };
    let peer = SocketAddr::from(([127, 0, 0, 1], 40_000));
    let request = Request::new(head, b"hello").with_peer(Some(peer)).with_draining(true);
    let expected = r#"PATCH /a%20b?c=d&e HTTP/1.0 b"hello" Some(127.0.0.1:40000) true"#;
    assert_eq!(shown(service.call(request, &mut Vec::new())), (200, expected.to_owned()));
}

#[test]
fn a_target_that_is_no_uri_is_a_400() {
    let service = FromTower::new(AsTower::new(Echo)).expect("a runtime");
    for target in ["/?a=b c", "/\u{7f}", "no path"] {
        let (code, body) = shown(ask(&service, target));
        assert_eq!((code, body.contains("not valid here: invalid")), (400, true), "{target}: {body}");
    }
    assert_eq!(ask(&service, "*").wait().status().as_u16(), 200);
    assert_eq!(ask(&service, "http://a:80/b?c").wait().status().as_u16(), 200);
}

#[test]
fn the_fields_of_an_answer_are_kept_and_those_of_the_server_left_out() {
    let service = route(get(|| async {
        let own = AppendHeaders([
            (SET_COOKIE, "a=1"),
            (CONNECTION, "close"),
            (CONTENT_LENGTH, "2"),
            (DATE, "today"),
            (SERVER, "me"),
            (TRANSFER_ENCODING, "chunked"),
            (UPGRADE, "h2c"),
            (ETAG, "W/\"1\""),
            (SET_COOKIE, "b=2"),
        ]);
        let more = [("x-empty", ""), ("x-spaces", " a b "), ("keep-alive", "timeout=5"), ("trailer", "x-empty")];
        (StatusCode::NON_AUTHORITATIVE_INFORMATION, own, more, [(CONTENT_TYPE, "text/csv")], "hi")
    }));
    let reply = ask(&service, "/").wait();
    assert_eq!((reply.status().as_u16(), reply.content_type()), (203, Some(&HeaderValue::from_static("text/csv"))));
    let mut kept = fields(&reply);
    assert_eq!(kept.remove(1), ("set-cookie", "b=2"));
    assert_eq!(kept, [("set-cookie", "a=1"), ("etag", "W/\"1\""), ("x-empty", ""), ("x-spaces", "a b")]);
    assert_eq!(reply.body_bytes(&[]), b"hi");
}

/// Regression test: an answer with a value that is not ASCII was a 500.
#[test]
fn a_value_that_is_not_ascii_is_kept() {
    let name = || HeaderValue::from_bytes(b"caf\xe9 \xc3\xa9").expect("a valid value");
    let service =
        route(get(move || async move { HeaderMap::from_iter([(HeaderName::from_static("x-name"), name())]) }));
    let reply = ask(&service, "/").wait();
    let expected = (&HeaderName::from_static("x-name"), &name());
    assert_eq!((reply.status(), reply.headers().next()), (StatusCode::OK, Some(expected)));
}

#[test]
fn an_answer_that_cannot_be_sent_is_a_500() {
    let router = Router::new()
        .route("/early", get(|| async { StatusCode::EARLY_HINTS }))
        .route("/700", get(|| async { StatusCode::from_u16(700).expect("a status of the http crate") }))
        .route("/upgrade", get(|| async { StatusCode::SWITCHING_PROTOCOLS }));
    let service = FromTower::new(router).expect("a runtime");
    for path in ["/early", "/700"] {
        let (code, body) = shown(ask(&service, path));
        assert_eq!((code, body.contains("The service failed.")), (500, true), "{path}: {body}");
    }
    let (code, body) = shown(ask(&service, "/upgrade"));
    assert_eq!((code, body.contains("This server changes no protocols.")), (501, true), "{body}");
}

/// axum answers HEAD without a body, and with the length that GET has.
#[test]
fn the_answer_to_head_has_the_length_of_get() {
    let router = Router::new().route("/", get(|| async { "hello" })).route("/any", any(|| async { "hello" }));
    let service = FromTower::new(router).expect("a runtime");
    let reply = service.call(Request::new(head(&Method::HEAD, "/"), b""), &mut Vec::new()).wait();
    assert!(matches!(reply.body(), polyserve_core::Body::Omitted(Some(5))), "{reply:?}");
    assert_eq!(ask(&service, "/").wait().body_bytes(&[]), b"hello");
}

/// Regression test: an answer to HEAD without a length said that the length is 0. That is not the length of the answer to GET.
#[test]
fn an_answer_to_head_without_a_length_has_none() {
    let service = tower::service_fn(|request: http::Request<_>| async move {
        let body = if request.method() == Method::HEAD { "" } else { "hello" };
        Ok::<_, std::convert::Infallible>(Response::new(Body::from(body)))
    });
    let service = FromTower::new(service).expect("a runtime");
    let reply = service.call(Request::new(head(&Method::HEAD, "/"), b""), &mut Vec::new()).wait();
    assert!(matches!(reply.body(), polyserve_core::Body::Omitted(None)), "{reply:?}");
    let server = TokioTcp::new(ServerConfig::default().workers(1)).expect("every setting is supported");
    let running = server.serve(([127, 0, 0, 1], 0), service).expect("it serves");
    let mut client = Client::connect(running.local_addr(), Duration::from_secs(60)).expect("it accepts connections");
    client.send(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is taken");
    assert_eq!(client.receive_head().expect("an answer").header("Content-Length"), None);
    let get = client.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200);
    assert_eq!((get.header("Content-Length"), get.body.as_slice()), (Some("5"), &b"hello"[..]));
}

#[test]
fn an_empty_answer_has_no_media_type() {
    let service = route(get(|| async { StatusCode::NO_CONTENT }));
    let reply = ask(&service, "/").wait();
    assert_eq!((reply.status().as_u16(), reply.content_type(), reply.body_bytes(&[])), (204, None, &b""[..]));
}

/// A make-service is called for each request, with the client's address.
#[test]
fn a_make_service_gets_the_peer() {
    let shows = |ConnectInfo(peer): ConnectInfo<SocketAddr>, Extension(own): Extension<SocketAddr>| async move {
        format!("{peer} {own}")
    };
    let router = Router::new().route("/", get(shows));
    let service = FromTower::new(router.into_make_service_with_connect_info::<SocketAddr>()).expect("a runtime");
    for port in [40_000, 40_001] {
        let peer = SocketAddr::from(([127, 0, 0, 1], port));
        let request = Request::new(head(&Method::GET, "/"), b"").with_peer(Some(peer));
        assert_eq!(shown(service.call(request, &mut Vec::new())), (200, format!("{peer} {peer}")));
    }
    let (code, body) = shown(ask(&service, "/"));
    assert_eq!((code, body.contains("The service failed.")), (500, true), "its address is not known: {body}");
}

/// A service of this project that went both ways answers as before.
#[test]
fn there_and_back() {
    let service = FromTower::new(AsTower::new(Echo)).expect("a runtime");
    let post = Request::new(head(&Method::POST, "/"), b"hello");
    assert_eq!(shown(service.call(post, &mut Vec::new())), (200, String::from("hello")));
}

#[test]
fn trailers_are_dropped() {
    let service = route(get(|| async { frames([piece("data"), Ok(Frame::trailers(HeaderMap::new()))]) }));
    assert_eq!(shown(ask(&service, "/")), (200, String::from("data")));
}
