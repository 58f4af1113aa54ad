//! Evictions, drains and waits of a connection that holds a thread.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::channel;

use polyserve_core::{Echo, ServerConfig};

use super::*;
use crate::blocking::tests::head;
use crate::{IdleSince, ServerState};

const MAX_WAIT: Duration = Duration::from_secs(60);
const FOREVER: Duration = Duration::from_secs(3600);
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A server of one connection, and a client.
struct Fixture {
    table: ConnectionTable<ThreadConnection>,
    listener: TcpListener,
}

impl Fixture {
    fn new() -> Self {
        Self::with_linger_timeout(ServerConfig::default().linger_timeout)
    }

    fn with_linger_timeout(linger_timeout: Duration) -> Self {
        let mut config = ServerConfig::default().max_connections(1);
        // Only an eviction or a drain ends a connection in time.
        (config.first_byte_timeout, config.idle_timeout) = (FOREVER, FOREVER);
        config.linger_timeout = linger_timeout;
        let server = ServerState::new(Arc::new(Echo), &config);
        Self { table: ConnectionTable::new(Arc::new(server), 1), listener: TcpListener::bind("127.0.0.1:0").unwrap() }
    }

    fn connect(&self) -> (TcpStream, ThreadConnection) {
        let client = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(MAX_WAIT)).unwrap();
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        (client, ThreadConnection::new(stream))
    }

    /// Admits another connection, for which the present one is evicted.
    fn evict(&self) -> Arc<TableEntry<ThreadConnection>> {
        self.evict_for(self.connect().1)
    }

    /// Closes the idle connection, by a drain or for another connection, which then leaves.
    fn close_idle(&self, drains: bool) {
        if drains {
            self.begin_drain();
        } else {
            let other = self.evict();
            self.table.remove(&other);
        }
    }

    fn begin_drain(&self) {
        self.table.server.shutdown.begin(Instant::now() + MAX_WAIT);
        self.table.wake_idle();
    }

    fn evict_for(&self, mut connection: ThreadConnection) -> Arc<TableEntry<ThreadConnection>> {
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            connection = match self.table.admit(connection, 0) {
                Ok(entry) => return entry,
                Err(connection) => connection,
            };
            assert!(Instant::now() < deadline, "nothing is evicted");
            thread::yield_now();
        }
    }
}

/// Returns when the thread of a connection waits for its next request.
fn await_idle(entry: &TableEntry<ThreadConnection>) {
    let deadline = Instant::now() + MAX_WAIT;
    while !entry.must_be_woken.load(Ordering::SeqCst) {
        assert!(Instant::now() < deadline, "the thread does not wait");
        thread::yield_now();
    }
}

/// Regression test: an evicted connection, which does not count any more, was served for as long as its client
/// pipelined. It was then closed without an announcement.
#[test]
#[cfg_attr(
    not(target_os = "linux"),
    ignore = "only Linux keeps bytes that have arrived when the reading side is closed"
)]
fn an_evicted_connection_that_pipelines_ends_with_its_next_answer() {
    const REQUESTS: usize = 1000;
    let fixture = Fixture::new();
    let (mut client, connection) = fixture.connect();
    let entry = fixture.table.admit(connection, 0).ok().unwrap();
    // The connection has been served before. Its requests arrive as it is evicted: more than one read takes.
    entry.set_idle(|| IdleSince::new(0, true));
    let other = fixture.evict();
    assert!(entry.is_evicted() && fixture.table.must_announce_close(&entry));
    client.write_all(&GET.repeat(REQUESTS)).unwrap();
    let stream = serve_until_linger(entry, &fixture.table, &(), Instant::now()).unwrap();
    linger(&stream, &fixture.table.server, &mut [0; 4096]);
    assert_eq!(fixture.table.open(), 1, "the evicted connection does not count as open");
    fixture.table.remove(&other);
    assert!(fixture.table.is_empty());
    drop(stream);
    let mut bytes = Vec::new();
    let _ = client.read_to_end(&mut bytes); // an error: the connection was reset after the last answer
    let text = String::from_utf8(bytes).unwrap();
    let answers: Vec<&str> = text.split_inclusive("\r\n\r\n").collect();
    assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 200 ")), "{text}");
    assert!(answers.len() < REQUESTS, "the evicted connection is served on");
    assert!(answers.last().is_some_and(|last| last.contains("\r\nConnection: close\r\n")), "{:?}", answers.last());
}

/// Regression test: a thread looked for an eviction only after a read that timed out. A client that sent an empty line
/// before each timeout kept its thread.
#[test]
fn an_evicted_connection_that_sends_empty_lines_ends() {
    /// Sends an empty line each time the thread is about to wait.
    struct EmptyLines(TcpStream, AtomicUsize);
    impl ThreadRole for EmptyLines {
        fn about_to_wait(&self) {
            assert!(self.1.fetch_add(1, Ordering::SeqCst) < 10, "the evicted connection waits on");
            (&self.0).write_all(b"\r\n").unwrap();
        }
    }
    let fixture = Fixture::new();
    let (client, connection) = fixture.connect();
    let entry = fixture.table.admit(connection, 0).ok().unwrap();
    entry.set_idle(|| IdleSince::new(0, true));
    let other = fixture.evict();
    (&client).write_all(b"\r\n").unwrap();
    let role = EmptyLines(client, AtomicUsize::new(0));
    assert!(serve_until_linger(entry, &fixture.table, &role, Instant::now()).is_some(), "it lingers");
    assert_eq!(role.1.into_inner(), 0, "it waits for bytes");
    fixture.table.remove(&other);
    assert!(fixture.table.is_empty());
}

/// Regression test: evicted connections lingered on their threads in any number.
#[test]
fn an_evicted_connection_beyond_the_bound_does_not_linger() {
    let fixture = Fixture::with_linger_timeout(FOREVER);
    let first = fixture.table.admit(fixture.connect().1, 0).ok().unwrap();
    first.set_idle(|| IdleSince::new(0, true));
    let (client, connection) = fixture.connect();
    let second = fixture.evict_for(connection);
    assert!(fixture.table.begin_linger(&first));
    second.set_idle(|| IdleSince::new(0, true));
    let third = fixture.evict();
    thread::scope(|scope| {
        let _client = client; // closed if this test fails, so that the thread ends
        let ((sender, ended), table) = (channel(), &fixture.table);
        scope.spawn(move || {
            serve(second, table, Instant::now());
            let _ = sender.send(());
        });
        ended.recv_timeout(MAX_WAIT).expect("two linger at a limit of one");
    });
    fixture.table.remove(&third);
    fixture.table.remove(&first);
    assert!(fixture.table.is_empty());
}

/// Regression test: a client that read an answer for longer than 100 ms kept its place at the limit: others were refused in the
/// meantime, and answers said so for 100 ms only.
#[test]
fn a_refusal_while_a_request_is_served_is_seen_after_it() {
    let fixture = Fixture::new();
    let (_client, connection) = fixture.connect();
    let entry = fixture.table.admit(connection, 0).ok().unwrap();
    let mut socket = ThreadSocket::new(&entry, &fixture.table, &());
    assert!(matches!(socket.received(1), Read::Bytes(1)) && !socket.others_wait());
    let (_other, other) = fixture.connect();
    assert!(fixture.table.admit(other, 0).is_err(), "the connection has a request");
    let deadline = Instant::now() + MAX_WAIT;
    while fixture.table.must_announce_close(&entry) {
        assert!(Instant::now() < deadline, "it is crowded for good");
        thread::yield_now();
    }
    assert!(matches!(socket.received(1), Read::Bytes(1)) && socket.others_wait());
    // A connection that was idle would have been evicted.
    let wait = ReadWait { phase: Phase::Idle, until: Instant::now() + 2 * LOOK_AFTER, ends_with_drain: true };
    assert!(matches!(socket.read(&mut [0], wait), Ok(Read::Empty)) && !socket.others_wait());
}

/// Regression test: a drain closed the reading side of each idle connection. If a request came just then, its client was answered, and
/// what it sent after the answer made the kernel reset the connection.
#[test]
fn a_request_that_comes_with_a_drain_leaves_room_to_linger() {
    let fixture = Fixture::with_linger_timeout(FOREVER);
    let (mut client, connection) = fixture.connect();
    let entry = fixture.table.admit(connection, 0).ok().unwrap();
    entry.set_idle(|| IdleSince::new(0, true));
    client.write_all(GET).unwrap();
    // The drain finds an idle connection. The request is read after that.
    fixture.begin_drain();
    thread::scope(|scope| {
        let serving = scope.spawn(|| serve(entry, &fixture.table, Instant::now()));
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\r\nConnection: close\r\n"), "{answer}");
        for _ in 0..3 {
            client.write_all(GET).unwrap();
            assert_eq!(client.read(&mut [0]).unwrap(), 0, "it lingers");
        }
        drop(client);
        serving.join().unwrap();
    });
    assert!(fixture.table.is_empty());
}

/// A thread that waits for a request is woken by an eviction, and by a drain.
#[test]
fn an_idle_connection_is_woken() {
    for drains in [false, true] {
        let fixture = Fixture::new();
        let (client, connection) = fixture.connect();
        let entry = fixture.table.admit(connection, 0).ok().unwrap();
        let waiting = Arc::clone(&entry);
        thread::scope(|scope| {
            let mut client = client; // closed if this test fails, so that the thread ends
            let serving = scope.spawn(|| serve(entry, &fixture.table, Instant::now()));
            client.write_all(GET).unwrap();
            assert!(head(&mut client).starts_with("HTTP/1.1 200 "));
            await_idle(&waiting);
            drop(waiting); // it would keep the socket open
            fixture.close_idle(drains);
            assert_eq!(client.read(&mut [0]).unwrap(), 0);
            serving.join().unwrap();
        });
        assert!(fixture.table.is_empty());
    }
}

/// Regression test: a request that came between the last read of an idle connection and its close made the kernel reset the
/// connection. Its client got an error, and not an end.
#[test]
fn a_request_that_comes_after_the_last_read_finds_an_end() {
    for drains in [false, true] {
        let fixture = Fixture::new();
        let (mut client, connection) = fixture.connect();
        let entry = fixture.table.admit(connection, 0).ok().unwrap();
        let open = Arc::clone(&entry); // it keeps the socket open
        thread::scope(|scope| {
            let serving = scope.spawn(|| serve(entry, &fixture.table, Instant::now()));
            client.write_all(GET).unwrap();
            assert!(head(&mut client).starts_with("HTTP/1.1 200 "));
            await_idle(&open);
            fixture.close_idle(drains);
            serving.join().unwrap();
        });
        let _ = client.write_all(GET); // an error: the connection has ended
        drop(open);
        assert_eq!(client.read(&mut [0]).expect("the connection was reset"), 0, "in a drain: {drains}");
    }
}

#[test]
fn what_is_left_is_rounded_up() {
    let millis = Duration::from_millis;
    assert_eq!(round_up(millis(512)), millis(512));
    assert_eq!(round_up(millis(513)), millis(576));
    assert_eq!(round_up(millis(1025)), millis(1152));
    assert_eq!(round_up(Duration::from_nanos(1)), millis(1));
}
