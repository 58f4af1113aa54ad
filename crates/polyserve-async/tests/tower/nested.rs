//! This project's services under the paths of an axum router.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::routing::get;
use bytes::Bytes;
use polyserve_async::AsTower;
use polyserve_conformance::client::Client;
use polyserve_core::{Answer, Drain, Echo, EntityService, Reply, Request, Service, promise};
use polyserve_memory::StdMutex;
use tower_service::Service as _;

use super::support::{MAX_WAIT, client, serve};

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
    client.ask(put.as_bytes(), 200);
    let found = client.ask(b"GET /entities/1 HTTP/1.1\r\nHost: a\r\n\r\n", 200);
    assert_eq!((found.text().as_str(), found.header("Content-Type")), (entity, Some("application/json")));
    client.ask(b"GET /entities/2 HTTP/1.1\r\nHost: a\r\n\r\n", 404);
    assert_eq!(client.ask(b"POST /other HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", 200).text(), "hi");
    let large = "x".repeat(1001);
    let put = format!("PUT /entities/ HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n{large}");
    client.ask(put.as_bytes(), 413);
    let put =
        format!("PUT /entities/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n{large}\r\n0\r\n\r\n");
    Client::connect(running.local_addr(), MAX_WAIT).expect("it accepts").ask(put.as_bytes(), 413);
    drop(client);
    assert_eq!(running.shutdown().expect("it ends well"), Drain::new(8, 0, 0));
}

/// A service that answers with a `Location`: the part of the path after the first `/to/`.
struct Sends;

impl Service for Sends {
    fn call(&self, request: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        let path = request.head.path().split_once("/to/").map_or("", |(_, path)| path).to_owned();
        let reply = Reply::empty(StatusCode::CREATED).with_header("Location", path).expect("a valid field");
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
            "/dropped" => promise(Reply::empty(StatusCode::SERVICE_UNAVAILABLE)).1,
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
