//! An axum `Router` on every server of the catalog.
#![cfg(feature = "tower")]

mod support;

use std::convert::Infallible;
use std::future::pending;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::http::header::{CONNECTION, CONTENT_LENGTH, DATE, SET_COOKIE, TRANSFER_ENCODING};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{AppendHeaders, IntoResponse};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_lite::stream;
use polyserve::async_::FromTower;
use polyserve::prelude::*;
use polyserve_conformance::client::Client;
use tokio::runtime::Handle;

/// Only used if the test fails.
const MAX_WAIT: Duration = Duration::from_secs(60);

#[derive(serde::Serialize, serde::Deserialize)]
struct Account {
    name: String,
    balance: u64,
}

fn servers(test: &str) -> impl Iterator<Item = String> {
    support::servers(test).into_iter().map(|entry| entry.name)
}

fn serve(name: &str, config: &ServerConfig, service: FromTower) -> Running {
    let server = Catalog::builtin().server(name).expect("it is in the catalog").build(config).expect("it is made");
    server.serve("127.0.0.1:0", service).expect("it serves")
}

fn client(running: &Running) -> Client {
    Client::connect(running.local_addr(), MAX_WAIT).expect("the server accepts connections")
}

/// Sleeps, so that the future is pending at its first poll.
async fn sleep() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// A body without a known length and without an end.
async fn endless() -> Body {
    Body::from_stream(stream::unfold((), |()| async {
        sleep().await;
        Some((Ok::<_, Infallible>("x".repeat(400)), ()))
    }))
}

/// Header fields that the server sets itself, and some that it passes on.
async fn fields() -> impl IntoResponse {
    let fields = [
        (SET_COOKIE, "a=1"),
        (SET_COOKIE, "b=2"),
        (CONNECTION, "close"),
        (CONTENT_LENGTH, "7"),
        (DATE, "today"),
        (TRANSFER_ENCODING, "chunked"),
    ];
    (AppendHeaders(fields), "fields")
}

async fn late_panic() {
    sleep().await;
    panic!("told to")
}

async fn slept() -> &'static str {
    sleep().await;
    "slept"
}

fn router() -> Router {
    Router::new()
        .route("/now", get(|| async { "now" }))
        .route("/sleep", get(slept))
        .route("/echo", post(|Json(account): Json<Account>| async move { (StatusCode::CREATED, Json(account)) }))
        .route("/length", post(|body: Bytes| async move { body.len().to_string() }))
        .route("/peer", get(|ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.to_string() }))
        .route("/fields", get(fields))
        .route("/bodiless", get(|| async { (StatusCode::NOT_MODIFIED, "not sent") }))
        .route("/endless", get(endless))
        .route("/panic", get(|| async { panic!("told to") as () }))
        .route("/late-panic", get(late_panic))
}

/// A value that is not ASCII is sent as it is. Regression test: it was answered with 500.
#[test]
fn any_value_of_a_field_is_sent() {
    const VALUE: &[u8] = b"caf\xe9 \xc3\xa9";
    let field = || async { [("x-name", HeaderValue::from_bytes(VALUE).expect("a valid value"))] };
    for name in servers("any_value_of_a_field_is_sent") {
        let service = FromTower::new(Router::new().route("/", get(field))).expect("a runtime");
        let running = serve(&name, &ServerConfig::default(), service);
        let mut stream = TcpStream::connect(running.local_addr()).expect("a connection");
        stream.set_read_timeout(Some(MAX_WAIT)).expect("a timeout");
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it is sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        let line = [b"\r\nx-name: ", VALUE, b"\r\n"].concat();
        // Some servers send the name as `X-Name`.
        let is_sent = answer.to_ascii_lowercase().windows(line.len()).any(|window| window == line);
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n") && is_sent, "{name}: {}", answer.escape_ascii());
    }
}

#[test]
fn a_router_runs_on_servers_of_each_family() {
    for name in servers("a_router_runs_on_servers_of_each_family") {
        let target = router().into_make_service_with_connect_info::<SocketAddr>();
        let service = FromTower::new(target).expect("a runtime").with_max_reply_body(1_000);
        let running = serve(&name, &ServerConfig::default(), service);
        let mut client = client(&running);
        let mut ask = |request: &str, body: &str, status| {
            let head = format!("{request} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n");
            client.ask(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes(), status)
        };
        let now = ask("GET /now", "", 200);
        assert_eq!((now.text().as_str(), now.closes()), ("now", false), "{name}");
        assert_eq!(ask("GET /sleep", "", 200).text(), "slept", "{name}");
        let account = r#"{"name":"a","balance":7}"#;
        let echo = ask("POST /echo", account, 201);
        assert_eq!((echo.text().as_str(), echo.header("Content-Type")), (account, Some("application/json")), "{name}");
        ask("POST /echo", "no json", 400);
        assert_eq!(ask("POST /length", &"x".repeat(100_000), 200).text(), "100000", "{name}");
        let fields = ask("GET /fields", "", 200);
        assert_eq!(fields.all("Set-Cookie").collect::<Vec<_>>(), ["a=1", "b=2"], "{name}");
        assert_eq!((fields.text().as_str(), fields.closes()), ("fields", false), "{name}");
        assert_eq!(ask("GET /bodiless", "", 304).body, b"", "{name}");
        let refused = ask("GET /endless", "", 500).text();
        assert!(refused.contains("The answer has more than 1000 bytes"), "{name}: {refused}");
        ask("GET /nowhere", "", 404);
        ask("GET /panic", "", 500);
        ask("GET /late-panic", "", 500);
        assert_eq!(ask("GET /now", "", 200).text(), "now", "{name}");
        let own = ask("GET /peer", "", 200).text();
        assert_eq!(own, client.local_addr().expect("the connection stands").to_string(), "{name}");
        client.send(b"HEAD /now HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it takes the request");
        let head = client.receive_head().expect("an answer");
        assert_eq!((head.status, head.header("Content-Length")), (200, Some("3")), "{name}");
        client.expect_end();
        assert_eq!(running.counters().panics, 2, "{name}");
        assert_eq!(running.shutdown().expect("it ends well"), Drain::new(14, 0, 0), "{name}");
    }
}

/// Reports as it is dropped whether this is in the context of a runtime, and panics.
struct PanicsInDrop(mpsc::Sender<bool>);

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        let _ = self.0.send(Handle::try_current().is_ok());
        panic!("told to");
    }
}

/// The future of an answer that did not come in time is dropped inside the runtime. Its panic costs nothing else.
#[test]
fn an_abandoned_future_is_dropped_inside_the_runtime() {
    for name in servers("an_abandoned_future_is_dropped_inside_the_runtime") {
        let (sender, receiver) = mpsc::channel();
        let never = move || {
            let report = PanicsInDrop(sender.clone());
            async move {
                pending::<()>().await;
                drop(report);
            }
        };
        let router = Router::new().route("/never", get(never)).route("/now", get(|| async { "now" }));
        let config = ServerConfig::default().answer_timeout(Duration::from_millis(50));
        let running = serve(&name, &config, FromTower::new(router).expect("a runtime"));
        // On a busy machine the time may be over before a worker takes a request.
        let deadline = Instant::now() + MAX_WAIT;
        let mut answered = 0;
        loop {
            client(&running).ask(b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n", 503);
            answered += 1;
            match receiver.recv_timeout(Duration::from_secs(1)) {
                Ok(is_inside) => break assert!(is_inside, "{name}"),
                Err(error) => assert!(Instant::now() < deadline, "{name}: {error}"),
            }
        }
        loop {
            let mut client = client(&running);
            client.send(b"GET /now HTTP/1.1\r\nHost: a\r\n\r\n").expect("it takes the request");
            let answer = client.expect_one_of(&[200, 503]);
            answered += 1;
            if answer.status == 200 {
                break assert_eq!(answer.text(), "now", "{name}");
            }
            assert!(Instant::now() < deadline, "{name}");
        }
        assert_eq!(running.shutdown().expect("it ends well"), Drain::new(answered, 0, 0), "{name}");
    }
}
