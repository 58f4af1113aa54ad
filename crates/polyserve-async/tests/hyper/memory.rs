//! The memory that a connection of `tokio_hyper` may keep.

use std::sync::{Arc, Mutex, mpsc};

use polyserve_conformance::client::Client;
use polyserve_core::{Echo, Reply, Request, Running, ServerConfig};
use polyserve_serving::http1::OUTPUT_BOUND;
use polyserve_serving::memory::STEP;

use super::support::{GET, MAX_WAIT, client, serve};

/// The number of connections with a reservation of a step that use up the smallest budget.
const CLIENTS: usize = ServerConfig::MIN_MEMORY / STEP;

fn small() -> Running {
    serve(Arc::new(Echo), |config| {
        (config.workers, config.memory) = (Some(1), Some(ServerConfig::MIN_MEMORY));
        (config.head_timeout, config.linger_timeout) = (10 * MAX_WAIT, 10 * MAX_WAIT);
    })
}

/// Connections that have sent `bytes`, which the server has read.
fn clients(running: &Running, bytes: &[u8], mut answered: impl FnMut(&mut Client)) -> Vec<Client> {
    let connect = || {
        let mut client = client(running);
        client.send(bytes).expect("it is taken");
        answered(&mut client);
        client
    };
    let clients = std::iter::repeat_with(connect).take(CLIENTS).collect();
    // The server has one worker. Earlier bytes are handled when these answers come.
    let mut other = client(running);
    (0..3).for_each(|_| drop(other.ask(GET.as_bytes(), 200)));
    clients
}

/// The status of the answer to a body of which a part has to be kept.
fn status_of_a_body(running: &Running) -> u16 {
    let mut client = client(running);
    let body = vec![b'x'; STEP];
    client
        .send(format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes())
        .expect("sent");
    for piece in body.chunks(STEP / 2) {
        if client.send(piece).is_err() {
            break; // it is refused
        }
    }
    client.receive().expect("an answer").status
}

/// Regression test: parts of heads counted towards no budget.
#[test]
fn a_part_of_a_head_counts_towards_the_memory() {
    let running = small();
    let part = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(STEP / 2));
    let clients = clients(&running, part.as_bytes(), |_| ());
    assert_eq!(status_of_a_body(&running), 503);
    drop(clients);
}

/// Bytes after a refused request are not kept while the connection lingers.
#[test]
fn a_connection_that_lingers_keeps_nothing() {
    let running = small();
    let refused = format!("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n{}", "x".repeat(STEP / 2));
    let clients = clients(&running, refused.as_bytes(), |client| drop(client.receive()));
    assert_eq!(status_of_a_body(&running), 200);
    drop(clients);
}

/// Regression test: all answers of a turn were collected before the first was sent.
#[test]
fn pipelined_answers_are_sent_at_the_bound() {
    let (received, is_received) = mpsc::channel();
    let state = Arc::new(Mutex::new((0, is_received)));
    let service = move |_: Request<'_>| {
        let (calls, is_received) = &mut *state.lock().expect("no thread panics with this lock");
        *calls += 1;
        if *calls == 4 {
            is_received.recv_timeout(MAX_WAIT).expect("the first answer was sent before the fourth call");
        }
        Reply::text("x".repeat(OUTPUT_BOUND / 2))
    };
    let running = serve(Arc::new(service), |config| config.workers = Some(1));
    let mut client = client(&running);
    client.send(&GET.as_bytes().repeat(4)).expect("it is taken");
    for number in 1..=4 {
        assert_eq!(client.expect(200).body.len(), OUTPUT_BOUND / 2);
        if number == 1 {
            received.send(()).expect("the service waits for it");
        }
    }
}
