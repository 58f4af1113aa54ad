//! The loop over the connections of a pool. The kit tests the servers that use it, with sockets: what happens to a client if others wait
//! for its thread, and in a drain.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polyserve_core::{Echo, ServerConfig};

use super::{PoolConnections, Served};
use crate::{EVICTION_GRACE, ServerState};

mod tls;

const MAX_WAIT: Duration = Duration::from_secs(60);
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A server that serves one connection at a time. Each connection has a new thread.
struct Fixture {
    pool: Arc<PoolConnections>,
    listener: TcpListener,
}

impl Fixture {
    fn new(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut config = ServerConfig::default();
        change(&mut config);
        let server = Arc::new(ServerState::new(Arc::new(Echo), &config));
        let pool = Arc::new(PoolConnections::new(server, 1));
        Self { pool, listener: TcpListener::bind("127.0.0.1:0").unwrap() }
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(MAX_WAIT)).unwrap();
        client
    }

    /// Accepts and queues the next connection, as one that began to wait at this time.
    fn queue(&self, since: Instant) {
        let stream = self.listener.accept().unwrap().0;
        stream.set_nonblocking(true).unwrap();
        let entry = self.pool.admit(stream, || false).unwrap();
        self.pool.queue(entry, since);
    }

    /// Serves the next connection. It does not give its thread up.
    fn serve(&self, since: Instant) -> JoinHandle<bool> {
        self.queue(since);
        let pool = Arc::clone(&self.pool);
        thread::spawn(move || match pool.serve_next(MAX_WAIT, &()).unwrap() {
            Served::Lingering(entry) => pool.take_out(entry).is_some(),
            Served::Closed | Served::Silent(..) => false,
        })
    }

    /// Another connection waits for the thread.
    fn add_waiting(&self) -> TcpStream {
        let client = self.connect();
        self.queue(Instant::now());
        client
    }

    /// Serves a request, and evicts its connection for another, which is then taken out. Returns both ends of the evicted one.
    fn evict(&self) -> (TcpStream, TcpStream) {
        let mut client = self.connect();
        client.write_all(GET).unwrap();
        self.queue(Instant::now());
        let pool = Arc::clone(&self.pool);
        let serving = thread::spawn(move || pool.serve_next(MAX_WAIT, &()));
        assert!(head(&mut client).starts_with("HTTP/1.1 200 "));
        let _waiting = self.add_waiting();
        let Some(Served::Lingering(entry)) = serving.join().unwrap() else { panic!("the connection is closed") };
        assert!(self.pool.take_last().is_some());
        (client, self.pool.take_out(entry).unwrap())
    }
}

fn ago(duration: Duration) -> Instant {
    Instant::now().checked_sub(duration).unwrap()
}

/// Reads the head of an answer.
pub(super) fn head(client: &mut TcpStream) -> String {
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
    assert!(fixture.serve(ago(MAX_WAIT * 2)).join().unwrap());
    assert!(head(&mut client).starts_with("HTTP/1.1 200 "));
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
        let _waiting = fixture.add_waiting();
        client.write_all(GET).unwrap();
        if sent.elapsed() < EVICTION_GRACE {
            assert!(head(&mut client).contains("Connection: close"));
            assert!(serving.join().unwrap(), "it lingers");
            return;
        }
        serving.join().unwrap(); // this machine is too busy: again
        assert!(fixture.pool.take_last().is_some());
    }
}

/// A connection that has not sent a byte gives its thread up, and is served again with its first byte.
#[test]
fn a_silent_connection_releases_its_thread() {
    let fixture = Fixture::new(|_| {});
    let mut client = fixture.connect();
    fixture.queue(Instant::now());
    let Some(Served::Silent(entry, _)) = fixture.pool.serve_next(Duration::from_millis(1), &()) else {
        panic!("it does not give its thread up")
    };
    client.write_all(GET).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    fixture.pool.queue(entry, Instant::now());
    assert!(matches!(fixture.pool.serve_next(MAX_WAIT, &()), Some(Served::Closed)));
    assert!(head(&mut client).starts_with("HTTP/1.1 200 "));
    assert!(fixture.pool.table.is_empty());
}

/// Regression test: connections on their way from a worker to the accept loop did not count: 139 were open at a limit of 100.
#[test]
fn silent_connections_count_towards_the_limit() {
    let fixture = Fixture::new(|c| c.max_connections = 2);
    let mut clients = [(); 3].map(|()| fixture.connect());
    let mut silent = Vec::new();
    for _ in 0..2 {
        fixture.queue(Instant::now());
        let Some(Served::Silent(entry, _)) = fixture.pool.serve_next(Duration::ZERO, &()) else {
            panic!("it has sent nothing")
        };
        silent.push(entry);
    }
    let mut third = fixture.listener.accept().unwrap().0;
    let mut is_rejected = |why| third = fixture.pool.admit(third.try_clone().unwrap(), || false).expect_err(why);
    is_rejected("two are silent");
    let first = silent.remove(0);
    fixture.pool.queue(first, Instant::now());
    is_rejected("one waits, and one is silent");
    clients[0].write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    clients[0].shutdown(Shutdown::Write).unwrap();
    let _ = fixture.pool.serve_next(MAX_WAIT, &());
    assert!(fixture.pool.admit(third, || false).is_ok(), "one is silent");
}

/// Regression test: answers announced the close only while a connection waited. A moment later they did not, although
/// the next connection was on its way.
#[test]
fn answers_announce_the_close_for_a_while_after_others_waited() {
    let fixture = Fixture::new(|_| {});
    let mut client = fixture.connect();
    client.write_all(GET).unwrap();
    let serving = fixture.serve(Instant::now());
    assert!(!head(&mut client).contains("Connection: close"), "as many connections as threads");
    let _waiting = [fixture.add_waiting(), fixture.add_waiting()];
    let crowded = Instant::now();
    assert!(fixture.pool.lacks_threads());
    for _ in 0..2 {
        assert!(fixture.pool.take_last().is_some());
    }
    client.write_all(GET).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let answer = head(&mut client);
    assert!(answer.contains("Connection: close") || crowded.elapsed() > crate::CROWDED_AFTER, "{answer}");
    serving.join().unwrap();
}

/// Regression test: an eviction closed the reading side. The kernel then resets the connection if bytes arrive after
/// its writing side is closed. The pipe that wakes a thread serves one connection after the other.
#[test]
fn an_eviction_leaves_the_socket_of_a_pool_whole() {
    let fixture = Fixture::new(|_| {});
    for _ in 0..3 {
        let (_client, stream) = fixture.evict();
        assert_eq!(crate::net::receive(&stream, &mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    }
}
