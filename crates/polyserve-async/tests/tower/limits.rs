//! The limits, timeouts and refusals of a server hold for a router too.

use std::time::Duration;

use axum::Router;
use axum::error_handling::HandleErrorLayer;
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::{any, get, post};
use bytes::Bytes;
use tower_http::timeout::TimeoutLayer;

use polyserve_async::AsTower;
use tower::Service as _;

use super::support::{client, serve};

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

/// Regression test: a service got the first 100 header fields of a request, and the others were dropped, also an `If-Match`.
#[test]
fn more_fields_than_a_service_gets_are_refused() {
    let store = polyserve_memory::StdMutex::new();
    assert!(polyserve_core::EntityRepo::put(&store, polyserve_core::Entity::new(1, "a", 0.5)).is_now());
    let mut service = AsTower::new(polyserve_core::EntityService::new(store));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut status = |fields: usize, body: &'static str| {
        let mut request = http::Request::put("/1");
        for _ in 1..fields {
            request = request.header("x", "y");
        }
        let request = request.header("If-Match", "\"other\"").body(axum::body::Body::from(body)).expect("it is valid");
        runtime.block_on(service.call(request)).expect("it never fails").status()
    };
    for body in ["", r#"{"id":1,"description":"b","value":1.5}"#] {
        assert_eq!(status(101, body), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
    assert_eq!(status(100, r#"{"id":1,"description":"b","value":1.5}"#), StatusCode::PRECONDITION_FAILED);
}
