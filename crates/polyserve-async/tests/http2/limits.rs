//! The budget of memory and the limit on connections.

use std::sync::Arc;

use http::{Method, StatusCode};
use polyserve_conformance::client::Client;
use polyserve_core::{Answer, Body, Echo, Reply, Service};

use super::support::{HeldReplies, MAX_WAIT, client_runtime, connect, connect_with, request, serve, text};

/// Answers of streams that the client does not take, and bodies that do not end, share the memory of the server: beyond it a
/// GET and a body are answered with 503. A stream that ends releases its memory.
#[test]
fn streams_share_the_memory_budget() {
    const LENGTH: usize = 700 * 1024;
    struct Large;
    impl Service for Large {
        fn call(&self, request: polyserve_core::Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
            let length = if request.head.path() == "/small" { 1 } else { LENGTH };
            Answer::Now(Reply::new(StatusCode::OK, "text/plain", Body::Owned(vec![b'x'; length])))
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
            let called = tokio::time::timeout(MAX_WAIT, held_replies.asked.acquire()).await;
            called.expect("the service is not called: the body was refused").expect("it is not closed").forget();
        }
        assert_eq!(held_replies.open(), 2);
        for answer in answers {
            assert_eq!(answer.await.expect("no panic").expect("an answer").status(), StatusCode::OK);
        }
    });
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
        let mut refused = Client::connect(addr, MAX_WAIT).expect("it accepts");
        refused.expect_last(503);
        assert_eq!(held_replies.open(), 1);
        let (answer, _sender) = asked.await.expect("no panic");
        assert_eq!(answer, "given");
        // The connection is evicted once it has been idle for a moment.
        while !connection.is_finished() {
            let mut refused = Client::connect(addr, MAX_WAIT).expect("it accepts");
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

/// Regression test: `requests_per_connection` had no effect over HTTP/2.
#[test]
fn a_connection_ends_after_its_requests() {
    let running = serve(Arc::new(Echo), |config| config.requests_per_connection = Some(3));
    client_runtime().block_on(async {
        let (mut sender, connection) = connect(running.local_addr()).await;
        let mut answers = 0;
        while let Ok(answer) = sender.send_request(request(Method::GET, "/", "")).await {
            assert_eq!(answer.status(), StatusCode::OK);
            answers += 1;
            assert!(answers < 10, "the connection goes on");
        }
        assert!(answers >= 3, "{answers} answers");
        let ended = tokio::time::timeout(MAX_WAIT, connection).await;
        assert!(ended.is_ok(), "the connection stands");
        drop(sender);
    });
}
