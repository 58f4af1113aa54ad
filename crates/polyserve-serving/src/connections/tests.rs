use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};

use polyserve_core::{Echo, ListenOn, ServerConfig};

use super::*;
use crate::with_buffers;

/// A connection without a socket.
#[derive(Default)]
struct Fake {
    peer: Option<SocketAddr>,
    has_input: AtomicBool,
    woken: AtomicUsize,
    is_shut_down: AtomicBool,
    /// Called if the connection is evicted.
    on_evict: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl ConnectionHandle for Fake {
    fn with_fd<T>(&self, _: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn has_input(&self) -> bool {
        self.has_input.load(Ordering::SeqCst)
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    fn wake(&self) {
        self.woken.fetch_add(1, Ordering::SeqCst);
    }

    fn evict(&self) {
        self.wake();
        if let Some(on_evict) = self.on_evict.get() {
            on_evict();
        }
    }

    fn shut_down(&self) {
        self.is_shut_down.store(true, Ordering::SeqCst);
    }
}

impl Fake {
    fn woken(&self) -> usize {
        self.woken.load(Ordering::SeqCst)
    }
}

fn server(max_connections: usize) -> Arc<ServerState> {
    Arc::new(ServerState::new(Arc::new(Echo), &ServerConfig::default().max_connections(max_connections)))
}

/// The time at which a connection became idle, so long ago that it may be evicted. A larger `rank` was later.
fn long_ago(rank: u64) -> IdleSince {
    IdleSince::new(rank, true)
}

/// A table that has been there for long enough that its connections may be evicted.
fn table(max_connections: usize) -> ConnectionTable<Fake> {
    let mut table = ConnectionTable::new(server(max_connections), 2);
    table.clock.start -= Duration::from_secs(60);
    table
}

fn admit(table: &ConnectionTable<Fake>) -> Option<Arc<TableEntry<Fake>>> {
    table.admit(Fake::default(), table.len()).ok()
}

#[test]
fn the_connection_that_has_been_idle_for_longest_makes_room() {
    let table = table(2);
    let (first, second) = (admit(&table).unwrap(), admit(&table).unwrap());
    assert!(admit(&table).is_none(), "none is idle");
    second.set_idle(|| long_ago(1));
    first.set_idle(|| long_ago(2));
    // The last search found no idle connection, and the next one follows 50 ms later.
    *lock(&table.idle) = IdleQueue::default();
    let third = admit(&table).unwrap();
    assert!(second.is_evicted() && second.woken() == 1 && !first.is_evicted());
    let fourth = admit(&table).unwrap();
    assert!(first.is_evicted() && first.woken() == 1);
    assert!(admit(&table).is_none());
    assert_eq!((table.open(), table.len()), (2, 4), "an evicted connection does not count as open");
    for entry in [&first, &third, &fourth, &second] {
        table.remove(entry);
        table.remove(entry); // it was removed before
    }
    assert!(table.is_empty() && table.entries().is_empty());
    assert_eq!(Arc::strong_count(&third), 1, "no other thread has it");
}

#[test]
fn a_connection_with_input_is_not_evicted() {
    let table = table(1);
    let first = admit(&table).unwrap();
    first.set_idle(|| long_ago(1));
    first.has_input.store(true, Ordering::SeqCst);
    assert!(admit(&table).is_none());
    assert!(!first.is_evicted() && first.woken() == 0 && table.len() == 1);
}

/// Regression test: a connection was closed between two requests of its client, and no answer announced the close.
#[test]
fn an_eviction_of_an_active_connection_is_announced_by_all() {
    let table = table(2);
    let (first, second) = (admit(&table).unwrap(), admit(&table).unwrap());
    first.set_idle(|| long_ago(1));
    let third = admit(&table).unwrap();
    assert!(table.must_announce_close(&first) && !table.must_announce_close(&second));
    table.note_bytes(&second);
    assert!(!table.must_announce_close(&second), "it was not evicted");
    // The time may pass before the test looks, so it makes it longer.
    let lengthen = || assert_ne!(table.crowded_until.swap(NEVER, Ordering::SeqCst), 0, "nothing is announced");
    table.note_bytes(&first);
    lengthen();
    assert!(table.must_announce_close(&second) && table.must_announce_close(&third));
    table.crowded_until.store(1, Ordering::SeqCst);
    assert!(!table.must_announce_close(&second), "it is over");
    assert!(admit(&table).is_none(), "none is idle");
    lengthen();
    assert!(table.must_announce_close(&second), "a client was rejected");
}

/// Regression test: an evicted connection that received a request did not count, although it held a thread. A client that
/// connected again and again, and sent a byte on each connection that was evicted, got any number of threads.
#[test]
fn an_evicted_connection_that_is_active_counts() {
    let table = table(1);
    let first = admit(&table).unwrap();
    first.set_idle(|| long_ago(1));
    let second = admit(&table).unwrap();
    assert_eq!((table.open(), table.len()), (1, 2));
    table.note_bytes(&first);
    assert_eq!((table.open(), table.len()), (2, 2));
    second.set_idle(|| long_ago(2));
    *lock(&table.idle) = IdleQueue::default(); // the next admission searches
    assert!(admit(&table).is_none(), "the place of the second is taken by the first");
    assert!(second.is_evicted());
    table.note_bytes(&second);
    first.set_idle(|| long_ago(3));
    *lock(&table.idle) = IdleQueue::default();
    assert!(admit(&table).is_none(), "no connection is evicted twice");
    assert_eq!((table.open(), table.len()), (2, 2));
    assert!(table.begin_linger(&first));
    assert_eq!((table.open(), table.len()), (1, 2));
    assert!(!table.begin_linger(&second), "one may linger at a limit of one");
    table.remove(&second);
    let third = admit(&table).unwrap();
    table.remove(&third);
    table.remove(&first);
    assert!(table.is_empty());
}

/// An evicted connection that ends before it receives anything counts as lingering to its end.
#[test]
fn an_evicted_connection_that_is_silent_lingers() {
    let table = table(1);
    let [mut last, mut lingering] = [const { Vec::new() }; 2];
    for (rank, may_linger) in [(1, true), (2, false)] {
        let entry = last.pop().unwrap_or_else(|| admit(&table).unwrap());
        entry.set_idle(|| long_ago(rank));
        *lock(&table.idle) = IdleQueue::default();
        last.push(admit(&table).unwrap());
        assert_eq!(table.begin_linger(&entry), may_linger);
        lingering.push(entry);
        assert_eq!((table.open(), table.len()), (1, 1 + lingering.len()));
    }
    for entry in lingering.iter().chain(&last) {
        table.remove(entry);
    }
    assert!(table.is_empty());
}

/// Regression test: a connection ended just as it was evicted. The eviction changed the count last, and did not wake the thread
/// that waits for the end of the last connection.
#[test]
fn a_drain_ends_with_an_eviction() {
    let table = Arc::new(table(1));
    let entry = admit(&table).unwrap();
    entry.set_idle(|| long_ago(1));
    let (ended_table, ended) = (Arc::downgrade(&table), Arc::downgrade(&entry));
    let end = move || ended_table.upgrade().unwrap().remove(&ended.upgrade().unwrap());
    assert!(entry.on_evict.set(Box::new(end)).is_ok());
    table.server.shutdown.begin(Instant::now() + Duration::from_secs(3600));
    let (sender, woken) = channel();
    thread::spawn(move || {
        table.main.set(thread::current()).unwrap();
        assert!(table.evict().is_some() && table.is_empty());
        thread::park_timeout(Duration::from_secs(3600)); // it returns at once if the thread was woken
        let _ = sender.send(());
    });
    woken.recv_timeout(Duration::from_secs(60)).expect("the main thread is not woken");
}

/// A lingering connection does not count towards the limit. It once did, and other clients were rejected.
#[test]
fn a_connection_that_lingers_makes_room() {
    let table = table(1);
    let first = admit(&table).unwrap();
    assert!(table.begin_linger(&first));
    let second = admit(&table).unwrap();
    assert!(!table.begin_linger(&second), "one may linger at a limit of one");
    assert!(admit(&table).is_none());
    table.remove(&first);
    assert!(table.begin_linger(&second));
    let third = admit(&table).unwrap();
    assert_eq!((table.open(), table.len()), (1, 2), "a drain waits for both");
    table.remove(&second);
    assert!(admit(&table).is_none());
    table.remove(&third);
    assert!(admit(&table).is_some());
}

#[test]
fn rejected_connections_linger_up_to_a_bound() {
    let table = table(1);
    let rejected = table.admit_rejected(Fake::default(), 0).ok().unwrap();
    assert!(table.admit_rejected(Fake::default(), 1).is_err());
    assert_eq!((table.open(), table.len()), (0, 1));
    table.remove(&rejected);
    assert!(table.is_empty());
}

/// A client past its own limit is rejected before another connection is closed for it, and has its place again once its socket closes.
#[test]
fn a_client_past_its_own_limit_takes_no_place_of_others() {
    let config = ServerConfig::default().max_connections(2).max_connections_per_peer(1);
    let table = ConnectionTable::new(Arc::new(ServerState::new(Arc::new(Echo), &config)), 1);
    let from = |peer: [u8; 4]| Fake { peer: Some((peer, 1).into()), ..Fake::default() };
    let [greedy, other] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(|peer| table.admit(from(peer), 0).ok().unwrap());
    other.set_idle(|| long_ago(1));
    assert!(table.admit(from([192, 0, 2, 1]), 0).is_err());
    assert!(!other.is_evicted());
    assert_eq!((table.server.peers.refused(), table.times_crowded()), (1, 0));
    let rejected = table.admit_rejected(from([192, 0, 2, 1]), 0).ok().unwrap();
    table.remove(&greedy);
    drop(greedy);
    let again = table.admit(from([192, 0, 2, 1]), 0);
    assert!(again.is_ok(), "a rejected connection has no place");
    drop(rejected);
    assert!(table.admit(from([192, 0, 2, 1]), 0).is_err());
}

/// Regression test: past the bound of lingering connections, a rejected connection was closed with unread bytes, and its client
/// read a reset.
#[test]
fn a_rejected_client_reads_its_503_past_the_bound() {
    let table = ConnectionTable::new(server(1), 1);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut kept = Vec::new();
    for expected in [None, Some(true), Some(false), Some(false)] {
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n\r\n").unwrap();
        client.write_all(&[b'x'; 40_000]).unwrap();
        let stream = listener.accept().unwrap().0;
        let admitted = table.admit_or_reject(EventSocket { stream, peer: None, waker: Waker::noop().clone() }, 0);
        if let Some(lingers) = expected {
            assert_eq!(admitted.is_some(), lingers);
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After"), "{answer}");
            // A reset that comes after the end is no error of a read on Linux.
            assert!(client.take_error().unwrap().is_none(), "the connection is reset");
        }
        kept.push((client, admitted));
    }
}

/// A socket of which the client sends a request just after a read has found nothing.
struct LateRequest<'a>(&'a EventSocket, &'a TcpStream);

impl TurnSocket for LateRequest<'_> {
    fn poll_read(&mut self, _: &mut Context<'_>, _: &mut [u8], _: bool) -> Poll<io::Result<usize>> {
        self.1.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        Poll::Pending
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8], how: WriteKind) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, bytes, how)
    }
}

/// Regression test: a request that came while its idle connection was closed was answered with a reset.
#[test]
fn a_request_that_comes_as_an_idle_connection_closes_is_not_reset() {
    let table = ConnectionTable::multiplexed(server(1), 0);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let socket = EventSocket { stream: listener.accept().unwrap().0, peer: None, waker: Waker::noop().clone() };
    let (entry, mut connection) = table.admit_or_reject(socket, 0).unwrap();
    let accepted = Instant::now();
    table.server.shutdown.begin(accepted + Duration::from_secs(3600));
    while !table.server.closes_silent(accepted) {
        std::thread::yield_now();
    }
    let socket = &mut LateRequest(entry.handle(), &client);
    let cx = &mut Context::from_waker(Waker::noop());
    assert_eq!(with_buffers(|buffers| table.serve(&entry, &mut connection, socket, cx, buffers)), TurnEnd::Close);
    table.close(&entry, &mut connection);
    drop(entry);
    assert_eq!(client.read_to_string(&mut String::new()).unwrap(), 0);
    assert!(client.take_error().unwrap().is_none(), "the connection is reset");
}

/// A drain wakes what is idle, and at its deadline shuts down what is left.
#[test]
fn a_drain_ends_the_rest_at_its_deadline() {
    let table = table(2);
    let (idle, busy) = (admit(&table).unwrap(), admit(&table).unwrap());
    idle.set_idle(|| long_ago(1));
    table.set_busy(&busy);
    table.server.shutdown.begin(Instant::now());
    table.wake_idle();
    assert_eq!((idle.woken(), busy.woken()), (1, 0));
    table.remove(&idle);
    assert_eq!(table.finish(|| None), 1, "the service has the other thread");
    assert!(busy.is_shut_down.load(Ordering::SeqCst) && !idle.is_shut_down.load(Ordering::SeqCst));
}

/// A multiplexed server's connections are woken for their deadlines, once each, and for a shutdown.
#[test]
fn the_main_thread_wakes_connections_for_deadlines_and_a_shutdown() {
    let table = ConnectionTable::multiplexed(server(9), 1);
    let [late, early] = [(); 2].map(|()| table.admit(Fake::default(), 0).ok().unwrap());
    table.set_deadline(&late, Instant::now() + Duration::from_secs(3600));
    table.set_deadline(&early, Instant::now());
    let main = thread::spawn({
        let table = Arc::clone(&table);
        move || table.supervise()
    });
    let until = |holds: &dyn Fn() -> bool| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !holds() {
            assert!(Instant::now() < deadline, "it is not woken");
            thread::yield_now();
        }
    };
    until(&|| early.woken() == 1);
    table.set_deadline(&early, Instant::now());
    until(&|| early.woken() == 2);
    assert_eq!(late.woken(), 0);
    table.server.shutdown.begin(Instant::now() + Duration::from_secs(3600));
    assert_eq!((early.woken(), late.woken()), (3, 1));
    table.remove(&early);
    table.accept_loop_ended();
    table.remove(&late);
    assert_eq!(main.join().unwrap(), Drain::new(0, 0, 0));
}

/// A request that is left at the end is stuck if the service has its thread, and cut otherwise.
#[test]
fn a_request_that_is_left_is_stuck_or_cut() {
    let table = ConnectionTable::multiplexed(server(9), 0);
    let [stuck, cut, idle] = [(); 3].map(|()| table.admit(Fake::default(), 0).ok().unwrap());
    table.set_busy(&stuck);
    stuck.set_calling(true);
    table.set_busy(&cut);
    idle.set_idle(|| table.idle_since(Instant::now(), false));
    let listener = Arc::new(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    table.register_listener(&listener);
    table.server.shutdown.begin(Instant::now());
    assert_eq!(table.supervise(), Drain::new(0, 1, 1));
    table.count_cut(&cut);
    assert_eq!(table.server.drained(0).cut, 1, "a request is cut once");
    assert!(std::net::TcpStream::connect(listener.local_addr().unwrap()).is_err(), "the listener is shut down");
}

/// Regression test: a server with a stuck thread shut down the listener that it had been given. After a hand-over, the next process
/// listened there in vain.
#[test]
fn a_listener_that_was_given_stays_open() {
    let listener = Arc::new(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let on = ListenOn::Listener(listener.try_clone().unwrap());
    let server = ServerState::new(Arc::new(Echo), &ServerConfig::default()).listening_on(&on);
    let table = ConnectionTable::<Fake>::multiplexed(Arc::new(server), 1);
    table.register_listener(&listener);
    table.server.shutdown.begin(Instant::now());
    assert_eq!(table.supervise(), Drain::new(0, 0, 0), "its accept loop has not ended");
    std::net::TcpStream::connect(listener.local_addr().unwrap()).expect("another process listens there");
}
