use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polyserve_core::ServerConfig;
use polyserve_core::service::Echo;

use super::{PolledSocket, Served, drive, serve_pooled};
use crate::{EVICTION_GRACE, LingeringSet, OpenConnections, ServerState, with_buffers};

const PATIENCE: Duration = Duration::from_secs(60);
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A server that serves one connection at a time. Each connection has a new thread.
struct Fixture {
    server: Arc<ServerState>,
    connections: Arc<OpenConnections>,
    listener: TcpListener,
}

impl Fixture {
    fn new(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut config = ServerConfig::default();
        change(&mut config);
        Self {
            server: Arc::new(ServerState::new(Arc::new(Echo), &config)),
            connections: Arc::new(OpenConnections::new(1)),
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
        }
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    }

    /// Serves the next connection, as one that was accepted at this time.
    fn serve(&self, accepted: Instant) -> JoinHandle<bool> {
        let (server, connections) = (Arc::clone(&self.server), Arc::clone(&self.connections));
        let stream = self.listener.accept().unwrap().0;
        thread::spawn(move || {
            let connection = connections.enter(stream).unwrap();
            let mut socket = PolledSocket::new(&connection, &connections, &server, Duration::ZERO);
            let linger = with_buffers(|buffers| drive(&mut socket, &server, buffers, accepted));
            connections.leave(connection);
            linger
        })
    }
}

fn ago(duration: Duration) -> Instant {
    Instant::now().checked_sub(duration).unwrap()
}

fn head(client: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// Regression test: a request had arrived in time, and then the process paused for longer than the timeouts. The request was
/// answered 408, or its connection was reset.
#[test]
fn a_request_that_is_there_is_served_however_late() {
    let fixture = Fixture::new(|c| c.requests_per_connection = Some(1));
    let mut client = fixture.connect();
    client.write_all(GET).unwrap();
    assert!(fixture.serve(ago(PATIENCE * 2)).join().unwrap());
    assert!(head(&mut client).starts_with("HTTP/1.1 200 "));
}

#[test]
fn the_time_in_a_queue_counts_towards_the_head_timeout() {
    let fixture = Fixture::new(|c| c.head_timeout = PATIENCE);
    let mut client = fixture.connect();
    client.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    assert!(fixture.serve(ago(PATIENCE)).join().unwrap());
    assert!(head(&mut client).starts_with("HTTP/1.1 408 "));
}

#[test]
fn an_answer_says_that_it_closes_if_others_wait() {
    let fixture = Fixture::new(|_| {});
    let mut client = fixture.connect();
    client.write_all(GET).unwrap();
    let serving = fixture.serve(Instant::now());
    assert!(!head(&mut client).contains("Connection: close"));
    client.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    // The connection reads this line before it can be evicted, or it is busy with the line.
    fixture.connections.wait_for_thread();
    client.write_all(b"Host: a\r\n\r\n").unwrap();
    assert!(head(&mut client).contains("Connection: close"));
    assert!(serving.join().unwrap());
}

#[test]
fn an_idle_connection_is_closed_silently_if_another_waits() {
    let fixture = Fixture::new(|_| {});
    let mut client = fixture.connect();
    client.write_all(GET).unwrap();
    let serving = fixture.serve(Instant::now());
    assert!(head(&mut client).starts_with("HTTP/1.1 200 "));
    fixture.connections.wait_for_thread();
    serving.join().unwrap(); // it lingers if it was evicted within its grace
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}

/// Regression test: a connection that was evicted between two requests was closed at once. A request that was on its way then
/// got no answer.
#[test]
fn a_connection_that_is_evicted_between_two_requests_announces_its_close() {
    let fixture = Fixture::new(|_| {});
    for _ in 0..100 {
        let mut client = fixture.connect();
        let sent = Instant::now();
        client.write_all(GET).unwrap();
        let serving = fixture.serve(Instant::now());
        assert!(head(&mut client).starts_with("HTTP/1.1 200 "));
        fixture.connections.wait_for_thread();
        client.write_all(GET).unwrap();
        if sent.elapsed() < EVICTION_GRACE {
            assert!(head(&mut client).contains("Connection: close"));
            assert!(serving.join().unwrap(), "it lingers");
            return;
        }
        serving.join().unwrap(); // this machine is too busy: again
        fixture.connections.cancel_waiting();
    }
}

/// Regression test: a connection that was evicted from a pool was closed at once. Bytes that its client sent later reset the
/// connection before the last answer was read.
#[test]
fn a_connection_that_is_evicted_from_a_pool_lingers() {
    let fixture = Fixture::new(|_| {});
    let mut client = fixture.connect();
    client.write_all(GET).unwrap();
    let (server, connections) = (Arc::clone(&fixture.server), Arc::clone(&fixture.connections));
    let stream = fixture.listener.accept().unwrap().0;
    stream.set_nonblocking(true).unwrap();
    connections.wait_for_thread();
    let serving = thread::spawn(move || serve_pooled(stream, &connections, &server, Instant::now(), PATIENCE));
    assert!(head(&mut client).starts_with("HTTP/1.1 200 "));
    fixture.connections.wait_for_thread();
    let Served::Lingering(stream) = serving.join().unwrap() else { panic!("the connection is closed") };
    let mut lingering = LingeringSet::new(PATIENCE);
    lingering.add(stream);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    client.write_all(GET).unwrap();
    client.write_all(GET).unwrap();
    assert_eq!(client.take_error().unwrap().map(|error| error.kind()), None);
    assert_eq!(lingering.len(), 1);
}

/// A connection that has not sent a byte gives its thread up, and is served again with its first byte.
#[test]
fn a_silent_connection_releases_its_thread() {
    let fixture = Fixture::new(|_| {});
    let mut client = fixture.connect();
    let stream = fixture.listener.accept().unwrap().0;
    let (server, connections) = (&fixture.server, &fixture.connections);
    connections.wait_for_thread();
    let served = serve_pooled(stream, connections, server, Instant::now(), Duration::from_millis(1));
    let Served::Silent(stream) = served else { panic!("it does not give its thread up") };
    connections.requeue_silent();
    client.write_all(GET).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let served = serve_pooled(stream, connections, server, Instant::now(), PATIENCE);
    assert!(matches!(served, Served::Closed));
    assert!(head(&mut client).starts_with("HTTP/1.1 200 "));
    assert!(connections.wait_until_empty(Instant::now()));
}

/// The thread is woken, and the request that had begun is served.
#[test]
fn a_drain_ends_idle_connections_and_serves_requests() {
    let fixture = Fixture::new(|_| {});
    let mut client = fixture.connect();
    client.write_all(GET).unwrap();
    let serving = fixture.serve(Instant::now());
    assert!(head(&mut client).starts_with("HTTP/1.1 200 "));
    client.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    fixture.server.shutdown.begin(Instant::now() + PATIENCE);
    fixture.connections.evict_idle();
    client.write_all(b"Host: a\r\n\r\n").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert!(head(&mut client).contains("Connection: close"));
    serving.join().unwrap();
    assert!(fixture.connections.wait_until_empty(Instant::now()));
    assert_eq!(fixture.server.drained(0).answered, 2);
}
