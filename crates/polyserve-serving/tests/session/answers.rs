//! Answers byte for byte: bodies that are omitted, the date, the `Server` header, the fields of a reply.

use std::time::{Duration, UNIX_EPOCH};

use polyserve_core::http::StatusCode;
use polyserve_core::{Answer, Body, Reply, Request};
use polyserve_serving::http1::{HttpState, Session, SessionBuffers};

use super::support::*;

/// Serves a status and a kind of body for each path.
fn server_by_path(change: impl FnOnce(&mut polyserve_core::ServerConfig)) -> HttpState {
    let call = |request: &Request<'_>, body: &mut Vec<u8>| {
        body.extend_from_slice(b"in place");
        Answer::Now(match request.head.path() {
            "/204" => Reply::empty(StatusCode::NO_CONTENT),
            "/204-body" => Reply::new(StatusCode::NO_CONTENT, "text/plain", Body::InPlace),
            "/304" => Reply::empty(StatusCode::NOT_MODIFIED),
            "/201" => Reply::empty(StatusCode::CREATED).with_header("Location", "/1").unwrap(),
            "/static" => Reply::new(StatusCode::OK, "text/plain", Body::Static(b"static")),
            "/owned" => Reply::new(StatusCode::OK, "text/plain", Body::Owned(b"owned".to_vec())),
            "/599" => Reply::new(StatusCode::from_u16(599).unwrap(), "text/plain", Body::InPlace),
            _ => Reply::new(StatusCode::OK, "text/plain", Body::InPlace),
        })
    };
    server_by(change, call, |_| None)
}

fn reply_to(method: &str, path: &str) -> String {
    ask(&server_by_path(|_| ()), format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).0
}

#[test]
fn bodies_are_where_the_reply_says() {
    assert_eq!(reply_to("GET", "/"), ok("in place"));
    assert_eq!(reply_to("GET", "/static"), ok("static"));
    assert_eq!(reply_to("GET", "/owned"), ok("owned"));
    let other = ok("in place").replacen("200 OK", "599 ", 1);
    assert_eq!(reply_to("GET", "/599"), other);
}

#[test]
fn answers_without_a_body() {
    for (status, path) in [("204 No Content", "/204"), ("204 No Content", "/204-body"), ("304 Not Modified", "/304")] {
        for method in ["GET", "HEAD", "DELETE"] {
            assert_eq!(reply_to(method, path), format!("HTTP/1.1 {status}\r\nDate: {DATE}\r\n\r\n"), "{method} {path}");
        }
    }
    let created = format!("HTTP/1.1 201 Created\r\nContent-Length: 0\r\nLocation: /1\r\nDate: {DATE}\r\n\r\n");
    assert_eq!(reply_to("PUT", "/201"), created);
}

#[test]
fn head_has_the_head_of_get() {
    for (path, body) in [("/", "in place"), ("/static", "static"), ("/owned", "owned")] {
        assert_eq!(reply_to("HEAD", path) + body, reply_to("GET", path), "{path}");
    }
    let server = server_by_path(|_| ());
    let head = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
    let answer = ok("in place");
    assert_eq!(ask(&server, head.repeat(3).as_bytes()).0, answer.strip_suffix("in place").unwrap().repeat(3));
}

#[test]
fn a_server_header_only_if_it_is_configured() {
    let server = server_by_path(|c| c.server_header = Some("polyserve/0.1 (test)".into()));
    let expected = ok_with("Server: polyserve/0.1 (test)\r\n", "in place");
    assert_eq!(ask(&server, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").0, expected);
    let closing = expected.replacen("\r\nDate:", "\r\nConnection: close\r\nDate:", 1);
    assert_eq!(ask(&server, b"GET / HTTP/1.0\r\n\r\n").0, closing);
    let refused = ask(&server, b"\0").0;
    assert!(refused.contains("\r\nServer: polyserve/0.1 (test)\r\n"), "{refused}");
    assert!(!reply_to("GET", "/").contains("Server:"));
}

#[test]
fn the_date_is_that_of_the_last_refresh() {
    let server = server_by_path(|_| ());
    let (mut session, mut buffers) = (Session::new(), SessionBuffers::new());
    let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    for (time, date) in [
        (at(0), "Thu, 01 Jan 1970 00:00:00 GMT"),
        (at(951_827_696), "Tue, 29 Feb 2000 12:34:56 GMT"),
        (at(951_827_697), "Tue, 29 Feb 2000 12:34:57 GMT"),
        (at(253_402_300_799), "Fri, 31 Dec 9999 23:59:59 GMT"),
        // The nearest time that the format has.
        (UNIX_EPOCH - Duration::from_secs(1), "Thu, 01 Jan 1970 00:00:00 GMT"),
        (at(253_402_300_809), "Fri, 31 Dec 9999 23:59:59 GMT"),
    ] {
        buffers.refresh(time, false);
        let _ = session.receive(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &mut server.turn(&mut buffers));
        assert_eq!(String::from_utf8_lossy(buffers.out()), ok("in place").replace(DATE, date));
        session.written(buffers.out().len(), &mut buffers);
    }
}

/// A service cannot write a field that ends its line or the head.
#[test]
fn a_service_cannot_break_out_of_its_answer() {
    for (name, value) in [
        ("X", "a\r\nEvil: 1"),
        ("X\r\nEvil", "a"),
        ("X", "a\0"),
        ("X", " a"),
        ("X", "a\t"),
        ("", "a"),
        ("X:", "a"),
        ("Connection", "close"),
        ("content-length", "5"),
        ("Transfer-Encoding", "chunked"),
        ("DATE", "now"),
    ] {
        assert!(Reply::empty(StatusCode::OK).with_header(name, value).is_err(), "{name:?}: {value:?}");
    }
}
