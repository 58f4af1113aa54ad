use super::*;
use std::io::{self, Read as _};
use std::net::TcpListener;

struct Clients {
    listener: TcpListener,
    clients: Vec<TcpStream>,
}

impl Clients {
    fn new() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").unwrap(), clients: Vec::new() }
    }

    fn connect(&mut self) -> TcpStream {
        self.clients.push(TcpStream::connect(self.listener.local_addr().unwrap()).unwrap());
        self.listener.accept().unwrap().0
    }
}

fn is_shut(connection: &OpenConnection) -> bool {
    connection.is_evicted() && connection.stream().read(&mut [0]).unwrap() == 0
}

/// Makes a connection idle, and ends its grace.
fn make_idle(connections: &OpenConnections, connection: &Arc<OpenConnection>) {
    connections.set_idle(connection);
    connection.must_be_woken();
}

#[test]
fn the_connection_that_has_been_idle_for_longest_makes_room() {
    let mut clients = Clients::new();
    let connections = OpenConnections::new(2);
    let first = connections.enter(clients.connect()).unwrap();
    let second = connections.enter(clients.connect()).unwrap();
    assert!(connections.enter(clients.connect()).is_err(), "none is idle");
    make_idle(&connections, &second);
    make_idle(&connections, &first);
    let third = connections.enter(clients.connect()).unwrap();
    assert!(is_shut(&second) && !first.is_evicted());
    let fourth = connections.enter(clients.connect()).unwrap();
    assert!(is_shut(&first));
    assert!(connections.enter(clients.connect()).is_err());
    for connection in [first, second, third, fourth] {
        assert!(connections.leave(connection).is_some());
    }
    assert!(connections.wait_until_empty(Instant::now()));
}

/// Regression test: each refusal at the limit looked at every connection, and read the clock for each.
#[test]
fn a_refusal_does_not_search() {
    let mut clients = Clients::new();
    let connections = OpenConnections::new(1);
    let busy = connections.enter(clients.connect()).unwrap();
    assert!(connections.enter(clients.connect()).is_err());
    assert!(connections.tracks_idle.load(Ordering::SeqCst), "connections that become idle report themselves");
    connections.set_idle(&busy);
    assert_eq!(lock(&connections.state).idle.len(), 1);
    for _ in 0..1000 {
        connections.set_busy(&busy);
        connections.set_idle(&busy);
    }
    assert!(lock(&connections.state).idle.len() <= MAX_SEARCH_RESULTS + 3, "the queue is bounded");
    assert!(!connections.tracks_idle.load(Ordering::SeqCst), "without evictions nothing is reported");
    assert!(connections.enter(clients.connect()).is_ok());
}

#[test]
fn an_idle_connection_leaves_for_one_that_waits() {
    let mut clients = Clients::new();
    let connections = OpenConnections::new(1);
    let first = connections.enter(clients.connect()).unwrap();
    assert!(!connections.must_announce_close(&first));
    connections.wait_for_thread();
    assert!(connections.must_announce_close(&first), "its next answer says so");
    connections.set_idle(&first);
    assert!(first.is_evicted() && !first.is_read_closed(), "none was idle: the next one leaves, after its grace");
    connections.leave(first);
    let second = connections.enter_waiting(clients.connect());
    assert_eq!(connections.waiting(), 0);
    connections.set_idle(&second);
    assert!(!second.is_evicted());
}

/// An evicted connection receives a request. It serves the request and announces the close, and another connection is
/// evicted.
#[test]
fn a_request_that_comes_with_the_eviction_is_served() {
    let mut clients = Clients::new();
    let connections = OpenConnections::new(2);
    let first = connections.enter(clients.connect()).unwrap();
    let second = connections.enter(clients.connect()).unwrap();
    connections.set_idle(&first);
    connections.wait_for_thread();
    assert!(first.is_evicted());
    connections.set_busy(&first);
    assert!(connections.must_announce_close(&first) && connections.must_announce_close(&second));
    connections.set_idle(&second);
    assert!(second.is_evicted());
}

/// Regression test: connections on their way from a worker to the accept loop did not count: 139 were open at a limit of 100.
#[test]
fn silent_connections_count_towards_the_limit() {
    let mut clients = Clients::new();
    let connections = OpenConnections::pooled(1, 2);
    assert!(connections.wait_for_thread());
    let first = connections.enter_waiting(clients.connect());
    let stream = connections.set_silent(first).unwrap();
    assert!(connections.wait_until_empty(Instant::now()), "a drain does not wait for it");
    assert!(connections.wait_for_thread());
    let second = connections.enter_waiting(clients.connect());
    let _silent = connections.set_silent(second).unwrap();
    assert!(!connections.wait_for_thread(), "two are silent");
    connections.requeue_silent();
    assert_eq!(connections.waiting(), 1);
    assert!(!connections.wait_for_thread(), "one waits, and one is silent");
    let first = connections.enter_waiting(stream);
    assert!(!connections.wait_for_thread(), "one is open, and one is silent");
    connections.close_silent();
    assert!(connections.wait_for_thread());
    connections.cancel_waiting();
    connections.set_idle(&first);
    assert!(connections.wait_for_thread() && first.is_evicted());
}

/// Regression test: an eviction closed the reading side. The kernel then resets the connection if bytes arrive after
/// its writing side is closed.
#[test]
fn an_eviction_leaves_the_socket_of_a_pool_whole() {
    let mut clients = Clients::new();
    let connections = OpenConnections::pooled(1, 10);
    for _ in 0..2 {
        assert!(connections.wait_for_thread());
        let connection = connections.enter_waiting(clients.connect());
        let is_readable = || {
            let mut ready = Vec::new();
            let eviction = connection.eviction().unwrap();
            crate::wait([(eviction, rustix::event::PollFlags::IN)], Some(Instant::now()), &mut ready).unwrap();
            ready == [true]
        };
        assert!(!is_readable(), "the byte of the last eviction was read");
        connections.set_idle(&connection);
        assert!(connections.wait_for_thread());
        assert!(connection.is_evicted() && !connection.is_read_closed() && is_readable());
        connection.stream().set_nonblocking(true).unwrap();
        assert_eq!(connection.stream().read(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        connections.cancel_waiting();
        assert!(connections.leave(connection).is_some());
    }
}

/// Regression test: answers announced the close only while a connection waited. A moment later they did not, although
/// the next connection was on its way.
#[test]
fn answers_announce_the_close_for_a_while_after_others_waited() {
    let mut clients = Clients::new();
    let connections = OpenConnections::pooled(1, 10);
    assert!(connections.wait_for_thread());
    let first = connections.enter_waiting(clients.connect());
    assert!(!connections.must_announce_close(&first), "as many connections as threads");
    assert!(connections.wait_for_thread());
    assert!(connections.wait_for_thread());
    connections.leave(first);
    connections.cancel_waiting();
    let second = connections.enter_waiting(clients.connect());
    assert!(!connections.lacks_threads() && connections.must_announce_close(&second));
    connections.crowded_until.store(1, Ordering::SeqCst);
    assert!(!connections.must_announce_close(&second), "it is over");
}

/// Regression test: a connection was closed between two requests of its client, and no answer announced the close.
#[test]
fn an_eviction_of_an_active_connection_is_announced_by_all() {
    let mut clients = Clients::new();
    let connections = OpenConnections::new(2);
    let first = connections.enter(clients.connect()).unwrap();
    let second = connections.enter(clients.connect()).unwrap();
    connections.set_idle(&first);
    let third = connections.enter(clients.connect()).unwrap();
    assert!(first.is_evicted() && !first.is_read_closed(), "its thread looks for the eviction");
    assert!(connections.must_announce_close(&first) && !connections.must_announce_close(&second));
    connections.set_busy(&first);
    connections.leave(first);
    assert!(
        !connections.lacks_threads()
            && connections.must_announce_close(&second)
            && connections.must_announce_close(&third)
    );
    connections.crowded_until.store(1, Ordering::SeqCst);
    assert!(!connections.must_announce_close(&second), "it is over");
    make_idle(&connections, &second);
    let _fourth = connections.enter(clients.connect()).unwrap();
    assert!(
        is_shut(&second) && !connections.must_announce_close(&third),
        "a connection that is really idle makes room"
    );
}

/// A lingering connection does not count towards the limit. It once did, and other clients were rejected.
#[test]
fn a_connection_that_lingers_makes_room() {
    let mut clients = Clients::new();
    let connections = OpenConnections::new(1);
    let first = connections.enter(clients.connect()).unwrap();
    connections.set_lingering(&first);
    let second = connections.enter(clients.connect()).unwrap();
    connections.set_lingering(&second);
    assert!(connections.enter(clients.connect()).is_err(), "one may linger at a limit of one");
    connections.leave(first);
    connections.set_lingering(&second);
    let third = connections.enter(clients.connect()).unwrap();
    assert_eq!(connections.len(), 2, "a drain waits for both");
    connections.leave(second);
    assert!(connections.enter(clients.connect()).is_err());
    connections.leave(third);
    assert!(connections.enter(clients.connect()).is_ok());
}
