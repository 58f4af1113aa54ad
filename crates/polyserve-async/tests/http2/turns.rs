//! The streams of a connection share a turn.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use polyserve_conformance::client::{Client, WriteHalf};
use polyserve_core::{Answer, Reply, Service};
use polyserve_serving::http1::turn::{MAX_TURN_REQUESTS, MAX_TURN_TIME};

use super::support::{MAX_WAIT, client_runtime, connect, request, serve};

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
            return Answer::Now(Reply::empty(StatusCode::OK));
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
        Answer::Now(Reply::empty(StatusCode::OK))
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
    let mut other = Client::connect(addr, MAX_WAIT).expect("it accepts");
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
