//! Connections of a pool that have not sent a byte, and wait for it without a thread.
//!
//! They are registered with one poller (epoll on Linux). Its descriptor is readable while one of them is ready, so an accept
//! loop waits for all of them with one entry in its `poll(2)`.
//!
//! Invariant: a connection in the set is registered, and its registration ends when it leaves the set. A registration
//! reports a byte that has arrived before it.
//!
//! Cost: two system calls and O(log n) for each connection, O(ready) for each poll. An uncontended lock each.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use polyserve_core::sync::lock;
use polyserve_serving::blocking::{PoolConnections, PoolEntry};
use polyserve_serving::net::wait;
use polyserve_serving::{ConnectionHandle as _, EVICTION_GRACE};
use rustix::event::PollFlags;

/// The token of the waker. Connections are numbered from 0.
const WAKER: Token = Token(usize::MAX);

/// Events taken from the system at once.
const MAX_EVENTS: usize = 256;

/// The time that a thread waits for the first byte of a connection if no other connection waits for a thread.
pub(super) const FIRST_BYTE_WAIT: Duration = Duration::from_millis(1);

/// A set of connections that have not sent a byte.
#[derive(Debug)]
pub(super) struct SilentConnections<C = PoolEntry> {
    set: Mutex<SilentSet<C>>,
    registry: Registry,
    waker: Waker,
}

#[derive(Debug)]
struct SilentSet<C> {
    poll: Poll,
    events: Events,
    /// The connections by their numbers, which is also the order in which they were added.
    connections: BTreeMap<usize, (C, Instant)>,
    next_number: usize,
}

impl<C: AsFd> SilentConnections<C> {
    pub(super) fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let waker = Waker::new(&registry, WAKER)?;
        let events = Events::with_capacity(MAX_EVENTS);
        let set = SilentSet { poll, events, connections: BTreeMap::new(), next_number: 0 };
        Ok(Self { set: Mutex::new(set), registry, waker })
    }

    /// Adds a connection that has been silent since this time. Returns whether the set was empty, so that the accept loop has a
    /// new deadline.
    ///
    /// # Errors
    ///
    /// Returns an error if the system has no memory for it. The connection is closed then.
    pub(super) fn add(&self, connection: C, since: Instant) -> io::Result<bool> {
        let mut set = lock(&self.set);
        let number = set.next_number;
        self.registry.register(&mut SourceFd(&connection.as_fd().as_raw_fd()), Token(number), Interest::READABLE)?;
        set.next_number += 1;
        let was_empty = set.connections.is_empty();
        set.connections.insert(number, (connection, since));
        Ok(was_empty)
    }

    /// Makes the descriptor readable once.
    pub(super) fn wake(&self) {
        let _ = self.waker.wake(); // an error: the counter is full, so the poller is awake
    }

    /// Takes the connections that have sent something or have ended.
    pub(super) fn take_ready(&self) -> Vec<C> {
        let mut set = lock(&self.set);
        let SilentSet { poll, events, connections, .. } = &mut *set;
        let mut ready = Vec::new();
        loop {
            if poll.poll(events, Some(Duration::ZERO)).is_err() {
                return ready; // interrupted: the descriptor stays readable
            }
            ready.extend(events.iter().filter_map(|event| self.remove(connections, event.token().0)));
            if events.iter().count() < MAX_EVENTS {
                return ready;
            }
        }
    }

    /// Takes the oldest connection, if it has been silent for `age`.
    fn take_older(&self, age: Duration) -> Option<C> {
        self.take_if(|since| since.elapsed() >= age)
    }

    /// Takes the oldest connection, if the time since which it has been silent meets `condition`.
    fn take_if(&self, condition: impl FnOnce(Instant) -> bool) -> Option<C> {
        let mut set = lock(&self.set);
        let (number, (_, since)) = set.connections.first_key_value()?;
        let number = condition(*since).then_some(*number)?;
        self.remove(&mut set.connections, number)
    }

    /// The time since which the oldest connection has been silent.
    pub(super) fn oldest(&self) -> Option<Instant> {
        lock(&self.set).connections.first_key_value().map(|(_, (_, since))| *since)
    }

    fn remove(&self, connections: &mut BTreeMap<usize, (C, Instant)>, number: usize) -> Option<C> {
        let (connection, _) = connections.remove(&number)?;
        let _ = self.registry.deregister(&mut SourceFd(&connection.as_fd().as_raw_fd())); // an error: it is closed next
        Some(connection)
    }
}

impl SilentConnections {
    /// Passes the connections to `queue` that have sent something, and closes those that have been silent for the timeout of
    /// the first byte.
    pub(super) fn queue_ready(&self, pool: &PoolConnections, queue: impl FnMut(PoolEntry)) {
        self.take_ready().into_iter().for_each(queue);
        while let Some(entry) = self.take_older(pool.table.server.config.first_byte_timeout) {
            pool.table.remove(&entry);
        }
    }

    /// At the limit on connections, evicts those that have been silent for longest, until there is room. Passes those to `queue`
    /// that have sent something meanwhile. Returns the others, which must linger.
    pub(super) fn make_room(&self, pool: &PoolConnections, mut queue: impl FnMut(PoolEntry)) -> Vec<TcpStream> {
        let mut evicted = Vec::new();
        while pool.table.is_full()
            && let Some(oldest) = self.take_older(EVICTION_GRACE)
        {
            if oldest.has_input() {
                queue(oldest);
            } else {
                evicted.extend(pool.take_out(oldest));
            }
        }
        evicted
    }

    /// Waits for first bytes while a drain waits for them: see [`ServerState::silent_until`](polyserve_serving::ServerState::silent_until).
    /// Passes the connections that have sent something to `queue`. Returns false if no connection is silent. To be called after
    /// [`drain`](Self::drain).
    pub(super) fn await_first_bytes(&self, pool: &PoolConnections, queue: impl FnMut(PoolEntry)) -> bool {
        let server = &pool.table.server;
        let Some(oldest) = self.oldest() else { return false };
        let _ = wait([(self.as_fd(), PollFlags::IN)], server.silent_until(oldest), &mut Vec::new()); // an error: no memory
        self.take_ready().into_iter().for_each(queue);
        true
    }

    /// Takes the connections that a drain waits for no more. Passes those with a first byte to `queue`, and closes the others. Past the
    /// shutdown's deadline, closes all connections and those that wait for a thread, and counts their requests as cut.
    pub(super) fn drain(&self, pool: &PoolConnections, mut queue: impl FnMut(PoolEntry)) {
        let server = &pool.table.server;
        let is_over = server.is_over();
        while let Some(entry) = self.take_if(|since| server.closes_silent(since)) {
            match entry.has_input() {
                true if !is_over => queue(entry),
                has_input => {
                    if has_input {
                        pool.table.count_cut(&entry);
                    }
                    pool.table.remove(&entry);
                }
            }
        }
        while is_over && pool.close_next() {}
    }
}

impl<C> AsFd for SilentConnections<C> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.registry.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::TcpListener;

    fn is_readable(silent: &SilentConnections<TcpStream>) -> bool {
        let mut ready = Vec::new();
        wait([(silent.as_fd(), PollFlags::IN)], Some(Instant::now()), &mut ready).unwrap();
        ready == [true]
    }

    /// Regression test: for each new connection, all sockets of 4 000 silent connections were polled, which took milliseconds.
    #[test]
    fn one_descriptor_reports_all_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = SilentConnections::new().unwrap();
        let mut clients = Vec::new();
        for _ in 0..600 {
            clients.push(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            let was_empty = silent.add(listener.accept().unwrap().0, Instant::now()).unwrap();
            assert_eq!(was_empty, clients.len() == 1);
        }
        silent.wake();
        assert!(is_readable(&silent), "an accept loop that waits has a new deadline");
        assert!(silent.take_ready().is_empty() && !is_readable(&silent));
        clients[7].write_all(b"G").unwrap();
        assert!(is_readable(&silent));
        let ready = silent.take_ready();
        assert_eq!(ready.len(), 1);
        assert_eq!(ready[0].peer_addr().unwrap(), clients[7].local_addr().unwrap());
        assert!(!is_readable(&silent), "a connection that was taken is not reported again");
        for client in &mut clients {
            client.write_all(b"G").unwrap();
        }
        assert_eq!(silent.take_ready().len(), 599);
        assert!(silent.oldest().is_none());
    }

    /// A byte that arrives before the connection is added is reported.
    #[test]
    fn a_byte_that_is_there_is_reported() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = SilentConnections::new().unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(b"G").unwrap();
        silent.add(listener.accept().unwrap().0, Instant::now()).unwrap();
        assert_eq!(silent.take_ready().len(), 1);
        assert!(silent.oldest().is_none());
    }
}
