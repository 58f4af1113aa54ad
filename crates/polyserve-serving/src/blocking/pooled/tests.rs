//! Evictions and drains of the connections of a pool.

use std::fs::File;
use std::net::TcpListener;
use std::process::Command;
use std::sync::mpsc::channel;

use polyserve_core::{Echo, ServerConfig};

use super::*;
use crate::IdleSince;

/// An evicted connection receives a request. It serves the request and announces the close, and another connection is
/// evicted.
#[test]
fn a_request_that_comes_with_the_eviction_is_served() {
    let server = ServerState::new(Arc::new(Echo), &ServerConfig::default());
    let pool = PoolConnections::new(Arc::new(server), 2);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut clients = Vec::new();
    let mut admit = || {
        clients.push(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        pool.admit(listener.accept().unwrap().0, || false).unwrap()
    };
    let (first, second) = (admit(), admit());
    lock(&pool.state).serving = 2; // both have a thread
    first.set_idle(|| IdleSince::new(0, true));
    pool.queue(admit(), Instant::now());
    assert!(pool.lacks_threads() || first.is_evicted());
    let deadline = Instant::now() + Duration::from_secs(60);
    while !first.is_evicted() {
        assert!(Instant::now() < deadline, "it never leaves");
        pool.evict_if_short(&first);
    }
    assert!(!pool.lacks_threads(), "its thread is about to be free");
    second.set_idle(|| IdleSince::new(0, true));
    while !second.is_evicted() {
        assert!(Instant::now() < deadline, "no other connection is evicted in its place");
        pool.note_bytes(&first);
        pool.evict_if_short(&second);
    }
    assert!(pool.table.must_announce_close(&first) && !pool.lacks_threads());
    assert_eq!(lock(&pool.state).leaving, 1);
    assert_eq!((pool.table.open(), pool.table.len()), (2, 3), "the first counts again");
}

/// Regression test: an admission could evict a connection that the pool did not count as leaving.
#[test]
fn connections_that_leave_for_a_new_one_count_as_leaving() {
    let server = ServerState::new(Arc::new(Echo), &ServerConfig::default().max_connections(2));
    let pool = PoolConnections::new(Arc::new(server), 2);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut clients = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut admit = || {
        clients.push(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let mut stream = listener.accept().unwrap().0;
        loop {
            stream = match pool.admit(stream, || false) {
                Ok(entry) => return entry,
                Err(stream) => stream,
            };
            assert!(Instant::now() < deadline, "no connection leaves");
            thread::yield_now();
        }
    };
    let (first, second) = (admit(), admit());
    first.set_idle(|| IdleSince::new(0, true));
    let third = admit();
    pool.note_bytes(&first);
    assert_eq!((pool.table.open(), lock(&pool.state).leaving), (3, 0));
    for entry in [&second, &third] {
        entry.set_idle(|| IdleSince::new(0, true));
    }
    let _fourth = admit();
    assert!(second.is_evicted() && third.is_evicted());
    assert_eq!((pool.table.open(), lock(&pool.state).leaving), (2, 2));
}

/// Regression test: a request that came between the last read of an idle connection and its close made the kernel reset the
/// connection. Its client got an error, and not an end.
#[test]
fn a_request_that_comes_after_the_last_read_finds_an_end() {
    let server = ServerState::new(Arc::new(Echo), &ServerConfig::default());
    let pool = PoolConnections::new(Arc::new(server), 1);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let stream = listener.accept().unwrap().0;
    stream.set_nonblocking(true).unwrap();
    let open = pool.admit(stream, || false).unwrap(); // it keeps the socket open
    pool.queue(Arc::clone(&open), Instant::now());
    pool.table.server.shutdown.begin(Instant::now() + Duration::from_secs(60));
    assert!(matches!(pool.serve_next(Duration::ZERO, &()), Some(Served::Closed)));
    let _ = client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"); // an error: the connection has ended
    drop(open);
    assert_eq!(client.read(&mut [0]).expect("the connection was reset"), 0);
}

/// Regression test: the reading side of a connection was closed during its request. At the deadline of the drain, its thread
/// read on, and counted as stuck.
#[test]
fn a_read_ends_at_the_deadline_of_a_drain() {
    let server = ServerState::new(Arc::new(Echo), &ServerConfig::default());
    let pool = PoolConnections::new(Arc::new(server), 1);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let stream = listener.accept().unwrap().0;
    stream.set_nonblocking(true).unwrap();
    let entry = pool.admit(stream, || false).unwrap();
    entry.wake(); // without a pipe, it closes the reading side
    pool.table.server.shutdown.begin(Instant::now());
    let (sender, read) = channel();
    thread::spawn(move || {
        let mut socket = PoolSocket::new(&entry, &pool, &(), None, None);
        let until = Instant::now() + Duration::from_secs(3600);
        let _ = sender.send(socket.read(&mut [0; 16], ReadWait { phase: Phase::Head, until, ends_with_drain: false }));
    });
    assert!(matches!(read.recv_timeout(Duration::from_secs(60)), Ok(Ok(Read::Empty))));
}

/// Regression test: the pipes of a large pool took all descriptors before a client came.
#[test]
fn the_first_pipes_leave_most_descriptors_to_connections() {
    const TEST: &str = "blocking::pooled::tests::the_first_pipes_leave_most_descriptors_to_connections";
    const IN_CHILD: &str = "POLYSERVE_SERVING_TEST_CHILD";
    if std::env::var_os(IN_CHILD).is_none() {
        let mut child = Command::new("/bin/sh");
        child.args(["-c", "ulimit -n 64 && exec \"$0\" --exact \"$1\" --test-threads=1"]);
        let output = child.arg(std::env::current_exe().unwrap()).arg(TEST).env(IN_CHILD, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let server = ServerState::new(Arc::new(Echo), &ServerConfig::default());
    let pool = PoolConnections::new(Arc::new(server), 10_000);
    assert!(!lock(&pool.state).pipes.is_empty());
    let files: io::Result<Vec<_>> = (0..40).map(|_| File::open("/dev/null")).collect();
    assert!(files.is_ok(), "{files:?}");
}
