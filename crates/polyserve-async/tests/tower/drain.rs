//! Streamed answers in a drain.

use std::io::Read as _;
use std::net::TcpStream;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use polyserve_async::{AsTower, DrainBegun};
use polyserve_core::{Drain, Reply, Request};

use super::support::{Raw, by_hand, client, serve};

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
