//! Late answers, bodies and heads, and clients that do not take their answers.

use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use hyper::client::conn::http2::handshake;
use hyper_util::rt::{TokioExecutor, TokioIo};
use polyserve_conformance::client::Client;
use polyserve_core::overload::{Arrival, Overload, OverloadPolicy, OverloadReason};
use polyserve_core::{Answer, Body, Drain, Echo, Reply, ServerConfig, Service};
use tokio::runtime::Builder;

use super::support::{
    HeldReplies, MAX_WAIT, client_runtime, connect, connect_with, request, serve, text, try_connect_with,
};

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
            let ended = tokio::time::timeout(MAX_WAIT, connection).await;
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
        config.write_timeout = 10 * MAX_WAIT;
    });
    let addr = running.local_addr();
    client_runtime().block_on(async {
        let body = "0123456789".repeat(20_000);
        // On a busy machine the server may close a connection as idle before its request arrives.
        let deadline = Instant::now() + MAX_WAIT;
        let (_sender, _connection, answer) = loop {
            let failure = match try_connect_with(addr, 1000).await {
                Ok((mut sender, connection)) => {
                    match sender.send_request(request(Method::POST, "/", body.clone())).await {
                        Ok(answer) => break (sender, connection, answer),
                        Err(failure) => failure,
                    }
                }
                Err(failure) => failure,
            };
            assert!(Instant::now() < deadline, "no head: {failure}");
        };
        for _ in 0..4 {
            if let Ok((_idle, connection)) = try_connect_with(addr, 1000).await {
                let _ = connection.await.expect("no panic"); // that one was idle
            }
        }
        assert!(text(answer).await == body, "it comes whole");
    });
    assert_eq!(running.shutdown().expect("it ends well"), Drain::new(1, 0, 0));
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
            Answer::Now(Reply::new(StatusCode::OK, "text/plain", Body::Owned(vec![b'x'; LENGTH])))
        }
    }
    let running = serve(Arc::new(Large), |config| config.write_timeout = Duration::from_millis(500));
    let mut client = std::net::TcpStream::connect(running.local_addr()).expect("it accepts");
    client.set_read_timeout(Some(MAX_WAIT)).expect("the timeout is not zero");
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
    bodies_are_late(|config| config.body_timeout = 10 * MAX_WAIT);
}

/// Regression test: the time in which a body arrived counted as a wait for the server. So the policy `gradient` refused an upload to an
/// idle server.
#[test]
fn the_time_of_a_body_is_no_wait() {
    #[derive(Debug)]
    struct Waits(mpsc::Sender<Duration>);
    impl OverloadPolicy for Waits {
        fn admit(&self, arrival: &Arrival) -> Result<(), OverloadReason> {
            self.0.send(arrival.waited).expect("the test receives it");
            Ok(())
        }
    }
    let (sender, waits) = mpsc::channel();
    let own = Overload::own(move || Waits(sender.clone()));
    let running = serve(Arc::new(Echo), |config| config.overload = Some(own));
    let mut client = std::net::TcpStream::connect(running.local_addr()).expect("it accepts");
    // The preface, empty settings, and the head of a POST.
    client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("it takes it");
    client.write_all(b"\0\0\x06\x01\x04\0\0\0\x01\x83\x84\x86\x41\x01a").expect("it takes it");
    std::thread::sleep(Duration::from_millis(200));
    let sent = Instant::now();
    client.write_all(b"\0\0\x01\0\x01\0\0\0\x01x").expect("it takes it");
    let waited = waits.recv_timeout(MAX_WAIT).expect("the policy is asked");
    assert!(waited <= sent.elapsed(), "{waited:?}");
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
    let mut client = Client::connect(running.local_addr(), MAX_WAIT).expect("it accepts");
    client.send(BEGUN).expect("it takes it");
    let (answer, _) = client.end();
    assert_eq!(answer.get(3), Some(&4), "its settings, and then the end: {answer:?}");
    let mut client = Client::connect(running.local_addr(), MAX_WAIT).expect("it accepts");
    client.send(&BEGUN[..10]).expect("it takes it");
    client.expect_last(408);
    assert_eq!(running.shutdown().expect("it ends well").cut, 0);
}
