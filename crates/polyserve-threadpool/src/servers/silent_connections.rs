//! Connections that have not sent a byte, and wait for it without a thread.
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

/// The token of the waker. Connections are numbered from 0.
const WAKER: Token = Token(usize::MAX);

/// Events taken from the system at once.
const MAX_EVENTS: usize = 256;

/// A set of connections that have not sent a byte.
#[derive(Debug)]
pub(super) struct SilentConnections<C = TcpStream> {
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

    /// Adds a connection that has been silent since this time. If the set was empty, the accept loop is woken, because it
    /// has a new deadline.
    ///
    /// # Errors
    ///
    /// Returns an error if the system has no memory for it. The connection is closed then.
    pub(super) fn add(&self, connection: C, since: Instant) -> io::Result<()> {
        let mut set = lock(&self.set);
        let number = set.next_number;
        self.registry.register(&mut SourceFd(&connection.as_fd().as_raw_fd()), Token(number), Interest::READABLE)?;
        set.next_number += 1;
        if set.connections.is_empty() {
            self.wake();
        }
        set.connections.insert(number, (connection, since));
        Ok(())
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
    pub(super) fn take_older(&self, age: Duration) -> Option<C> {
        let mut set = lock(&self.set);
        let (number, (_, since)) = set.connections.first_key_value()?;
        let number = (since.elapsed() >= age).then_some(*number)?;
        self.remove(&mut set.connections, number)
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.set).connections.len()
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

    use polyserve_serving::wait;
    use rustix::event::PollFlags;

    fn is_readable(silent: &SilentConnections) -> bool {
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
            silent.add(listener.accept().unwrap().0, Instant::now()).unwrap();
        }
        assert!(is_readable(&silent), "the first one wakes the accept loop, which has a new deadline");
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
        assert!(silent.take_older(Duration::ZERO).is_none());
    }
}
