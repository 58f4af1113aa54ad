//! The open connections of a server in which a connection holds a thread, and the eviction of idle ones.
//!
//! A thread that waits for a request is woken by closing the reading side of its socket: bytes that have arrived can still
//! be read, so no request that arrived is lost.
//!
//! # No lost wake-up
//!
//! A connection that becomes idle stores that and then loads whether others wait; a thread that makes others wait stores
//! that and then looks for idle connections. All four are sequentially consistent: one of the two sees the other. The same
//! holds for `tracks`: a search sets it and then reads the states; a connection stores its state and then loads it.
//!
//! # Cost
//!
//! A request costs two stores and two loads. Entering and leaving cost an uncontended lock each. An eviction costs O(1)
//! amortised: a search of n connections finds the 64 that have been idle for longest; if there are fewer, the connections
//! that become idle report themselves, under the lock, until evictions are rare again.

use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Instant;

use super::{SHUTDOWN_SLACK, ServerState};
use crate::net;
use crate::sync::{Condvar, Mutex, lock};

/// Connections that one search finds at most.
const SEARCH: usize = 64;

/// A connection serves a request.
const BUSY: u64 = 0;
/// A connection was idle, and has to close.
const LEAVING: u64 = u64::MAX;

/// A connection that holds a thread. The socket closes when the last handle is dropped.
#[derive(Debug)]
pub struct OpenConnection {
    stream: TcpStream,
    /// [`BUSY`], [`LEAVING`], or the time since which it is idle: nanoseconds since the set's start, plus one.
    state: AtomicU64,
    evicted: AtomicBool,
    /// The position in the set. Changed under the set's lock.
    index: AtomicUsize,
    /// Whether the connection counts as leaving. Changed under the set's lock.
    counted: AtomicBool,
}

impl OpenConnection {
    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether the reading side was closed by an eviction, so that an end of the input may not be the client's.
    pub fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::SeqCst)
    }

    /// Tells a connection that has been idle `since` then to leave. Returns false if it is not idle any more.
    fn evict(&self, since: u64) -> bool {
        let evicted = self.state.compare_exchange(since, LEAVING, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if evicted {
            self.evicted.store(true, Ordering::SeqCst);
            let _ = net::shut(&self.stream, Shutdown::Read); // an error: the client is gone
        }
        evicted
    }
}

/// The open connections of a server in which a connection holds a thread.
///
/// If more connections want a thread than there are threads, the connections that have been idle for longest are evicted,
/// and then those that become idle next.
#[derive(Debug)]
pub struct OpenConnections {
    threads: usize,
    state: Mutex<ConnectionSets>,
    empty: Condvar,
    /// The number of connections that want a thread, and for which none is free or about to be.
    short: AtomicUsize,
    /// Connections that become idle report themselves in `ConnectionSets::idle`.
    tracks: AtomicBool,
    start: Instant,
}

#[derive(Debug, Default)]
struct ConnectionSets {
    open: Vec<Arc<OpenConnection>>,
    /// Connections that wait for a thread.
    waiting: usize,
    /// Open connections that were evicted and have not come back with a request.
    leaving: usize,
    /// Connections to evict, in this order. Those that are not idle since the same time any more are skipped.
    idle: VecDeque<(u64, Weak<OpenConnection>)>,
}

impl OpenConnections {
    /// An empty set for a server with this number of threads, or of connections if each has a thread of its own.
    pub fn new(threads: usize) -> Self {
        Self {
            threads,
            state: Mutex::default(),
            empty: Condvar::new(),
            short: AtomicUsize::new(0),
            tracks: AtomicBool::new(false),
            start: Instant::now(),
        }
    }

    /// Adds a connection that gets a thread now. If all threads are taken, the connection that has been idle for longest
    /// is evicted for it.
    ///
    /// # Errors
    ///
    /// Returns the stream if all threads are taken and no connection is idle. It is to be rejected.
    pub fn enter(&self, stream: TcpStream) -> Result<Arc<OpenConnection>, TcpStream> {
        let mut state = lock(&self.state);
        if state.open.len() + state.waiting >= self.threads + state.leaving && !self.evict_one(&mut state) {
            return Err(stream);
        }
        Ok(self.insert(&mut state, stream))
    }

    /// Notes that a connection waits for a thread. If none is free or about to be, the connection that has been idle for
    /// longest is evicted, or the next one that becomes idle. [`enter_waiting`](Self::enter_waiting) or
    /// [`cancel_waiting`](Self::cancel_waiting) is to follow.
    pub fn wait_for_thread(&self) {
        let mut state = lock(&self.state);
        state.waiting += 1;
        self.settle(&mut state);
    }

    /// As [`wait_for_thread`](Self::wait_for_thread), within a limit of `max` connections: open ones, those that wait for a
    /// thread, and `others` that the caller keeps elsewhere. At the limit, the connection that has been idle for longest is
    /// evicted for the new one.
    ///
    /// Returns false if the limit is reached and no connection is idle. The new connection is to be rejected.
    #[must_use]
    pub fn wait_for_thread_within(&self, max: usize, others: usize) -> bool {
        let mut state = lock(&self.state);
        let total = state.open.len() + state.waiting + others;
        if total >= max.saturating_add(state.leaving) && !self.evict_one(&mut state) {
            return false;
        }
        state.waiting += 1;
        self.settle(&mut state);
        true
    }

    /// Adds a connection that waited for a thread and has one now.
    pub fn enter_waiting(&self, stream: TcpStream) -> Arc<OpenConnection> {
        let mut state = lock(&self.state);
        state.waiting = state.waiting.saturating_sub(1);
        self.insert(&mut state, stream)
    }

    /// Notes that a connection does not wait for a thread any more.
    pub fn cancel_waiting(&self) {
        let mut state = lock(&self.state);
        state.waiting = state.waiting.saturating_sub(1);
        self.settle(&mut state);
        self.notify_if_empty(&state);
    }

    /// The number of connections that wait for a thread.
    pub fn waiting(&self) -> usize {
        lock(&self.state).waiting
    }

    fn insert(&self, state: &mut ConnectionSets, stream: TcpStream) -> Arc<OpenConnection> {
        let connection = Arc::new(OpenConnection {
            stream,
            state: AtomicU64::new(BUSY),
            evicted: AtomicBool::new(false),
            index: AtomicUsize::new(state.open.len()),
            counted: AtomicBool::new(false),
        });
        state.open.push(Arc::clone(&connection));
        connection
    }

    /// Removes a connection. Returns its stream, unless the caller has another handle of the connection.
    pub fn leave(&self, connection: Arc<OpenConnection>) -> Option<TcpStream> {
        let mut state = lock(&self.state);
        let index = connection.index.load(Ordering::Relaxed);
        if state.open.get(index).is_some_and(|open| Arc::ptr_eq(open, &connection)) {
            state.open.swap_remove(index);
            if let Some(moved) = state.open.get(index) {
                moved.index.store(index, Ordering::Relaxed);
            }
            state.leaving -= usize::from(connection.counted.load(Ordering::Relaxed));
            self.settle(&mut state);
            self.notify_if_empty(&state);
        }
        // Under the lock, because only there others have a handle for a moment.
        Arc::into_inner(connection).map(|connection| connection.stream)
    }

    /// Notes that a connection waits for its next request. It may be evicted at once.
    pub fn set_idle(&self, connection: &Arc<OpenConnection>) {
        let since = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(BUSY).saturating_add(1);
        // One that is idle stays so since the same time; one that was evicted stays evicted.
        if connection.state.compare_exchange(BUSY, since, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return;
        }
        let (short, tracks) = (self.short.load(Ordering::SeqCst), self.tracks.load(Ordering::SeqCst));
        if short > 0 || tracks {
            let mut state = lock(&self.state);
            if tracks {
                self.track(&mut state, since, connection);
            }
            self.settle(&mut state);
        }
    }

    /// Notes that a connection has its next request. If it was evicted, another is evicted in its place.
    pub fn set_busy(&self, connection: &OpenConnection) {
        if connection.state.swap(BUSY, Ordering::SeqCst) != LEAVING {
            return;
        }
        let mut state = lock(&self.state);
        if connection.counted.swap(false, Ordering::Relaxed) {
            state.leaving -= 1;
        }
        self.settle(&mut state);
    }

    /// Whether `connection` is to say `Connection: close` in its next answer: it was evicted, or others wait for a thread.
    ///
    /// # Cost
    ///
    /// Two loads.
    pub fn is_wanted(&self, connection: &OpenConnection) -> bool {
        self.short.load(Ordering::SeqCst) > 0 || connection.is_evicted()
    }

    /// Evicts all idle connections, for a drain. A connection that becomes idle later must look at the shutdown itself,
    /// after [`set_idle`](Self::set_idle).
    pub fn evict_idle(&self) {
        for connection in &lock(&self.state).open {
            let since = connection.state.load(Ordering::SeqCst);
            if since != BUSY && since != LEAVING {
                connection.evict(since);
            }
        }
    }

    /// Shuts all connections down, in any state.
    pub fn cut(&self) {
        for connection in &lock(&self.state).open {
            let _ = net::shut(&connection.stream, Shutdown::Both); // an error: the client is gone
        }
    }

    /// The number of open connections.
    pub fn len(&self) -> usize {
        lock(&self.state).open.len()
    }

    /// Whether no connection is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn notify_if_empty(&self, state: &ConnectionSets) {
        if state.open.is_empty() && state.waiting == 0 {
            self.empty.notify_all();
        }
    }

    /// Waits until no connection is open or waits for a thread. Returns false if `deadline` has passed before.
    pub fn wait_until_empty(&self, deadline: Instant) -> bool {
        let mut state = lock(&self.state);
        while !state.open.is_empty() || state.waiting > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            (state, _) = self.empty.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// Waits until no connection is open, and shuts those down that are open at the shutdown's deadline. Returns the number
    /// of connections with a thread that is stuck in the service's code. For the end of a drain, after
    /// [`evict_idle`](Self::evict_idle).
    pub fn finish(&self, server: &ServerState) -> usize {
        let deadline = server.shutdown.deadline().unwrap_or_else(Instant::now);
        if !self.wait_until_empty(deadline) {
            self.cut();
            self.wait_until_empty(deadline + SHUTDOWN_SLACK);
        }
        self.len()
    }

    /// Evicts as many connections as want a thread that is neither free nor about to be.
    fn settle(&self, state: &mut ConnectionSets) {
        loop {
            let short = (state.waiting + state.open.len()).saturating_sub(self.threads + state.leaving);
            if self.short.load(Ordering::Relaxed) != short {
                self.short.store(short, Ordering::SeqCst);
            }
            if short == 0 || !self.evict_one(state) {
                return;
            }
        }
    }

    /// Evicts the connection that has been idle for longest. Returns false if none is idle.
    fn evict_one(&self, state: &mut ConnectionSets) -> bool {
        let mut searched = false;
        loop {
            while let Some((since, connection)) = state.idle.pop_front() {
                if let Some(connection) = connection.upgrade()
                    && connection.evict(since)
                {
                    connection.counted.store(true, Ordering::Relaxed);
                    state.leaving += 1;
                    return true;
                }
            }
            // While connections report themselves, the queue has all that are idle.
            if searched || self.tracks.load(Ordering::SeqCst) {
                return false;
            }
            self.search(state);
            searched = true;
        }
    }

    /// Queues the connections that have been idle for longest. If they are all that are idle, others report themselves from
    /// now on.
    fn search(&self, state: &mut ConnectionSets) {
        self.tracks.store(true, Ordering::SeqCst);
        let since = |connection: &Arc<OpenConnection>| connection.state.load(Ordering::SeqCst);
        let idle = state.open.iter().map(|connection| (since(connection), connection));
        let mut idle: Vec<_> = idle.filter(|(since, _)| *since != BUSY && *since != LEAVING).collect();
        if idle.len() > SEARCH {
            self.tracks.store(false, Ordering::SeqCst);
            idle.select_nth_unstable_by_key(SEARCH, |(since, _)| *since);
            idle.truncate(SEARCH);
        }
        idle.sort_unstable_by_key(|(since, _)| *since);
        state.idle = idle.into_iter().map(|(since, connection)| (since, Arc::downgrade(connection))).collect();
    }

    /// Queues a connection that has become idle. If evictions are rare, so that the queue only grows, tracking ends.
    fn track(&self, state: &mut ConnectionSets, since: u64, connection: &Arc<OpenConnection>) {
        if state.idle.len() > SEARCH + 2 * state.open.len() {
            state.idle = VecDeque::new();
            self.tracks.store(false, Ordering::SeqCst);
        } else {
            state.idle.push_back((since, Arc::downgrade(connection)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
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

    #[test]
    fn the_connection_that_has_been_idle_for_longest_makes_room() {
        let mut clients = Clients::new();
        let connections = OpenConnections::new(2);
        let first = connections.enter(clients.connect()).unwrap();
        let second = connections.enter(clients.connect()).unwrap();
        assert!(connections.enter(clients.connect()).is_err(), "none is idle");
        connections.set_idle(&second);
        connections.set_idle(&first);
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

    /// Each refusal at the limit looked at every connection, with a clock read each.
    #[test]
    fn a_refusal_does_not_search() {
        let mut clients = Clients::new();
        let connections = OpenConnections::new(1);
        let busy = connections.enter(clients.connect()).unwrap();
        assert!(connections.enter(clients.connect()).is_err());
        assert!(connections.tracks.load(Ordering::SeqCst), "connections that become idle report themselves");
        connections.set_idle(&busy);
        assert_eq!(lock(&connections.state).idle.len(), 1);
        for _ in 0..1000 {
            connections.set_busy(&busy);
            connections.set_idle(&busy);
        }
        assert!(lock(&connections.state).idle.len() <= SEARCH + 3, "the queue is bounded");
        assert!(!connections.tracks.load(Ordering::SeqCst), "without evictions nothing is reported");
        assert!(connections.enter(clients.connect()).is_ok());
    }

    #[test]
    fn an_idle_connection_leaves_for_one_that_waits() {
        let mut clients = Clients::new();
        let connections = OpenConnections::new(1);
        let first = connections.enter(clients.connect()).unwrap();
        assert!(!connections.is_wanted(&first));
        connections.wait_for_thread();
        assert!(connections.is_wanted(&first), "its next answer says so");
        connections.set_idle(&first);
        assert!(is_shut(&first), "none was idle: the next one leaves");
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
        assert!(connections.is_wanted(&first) && connections.is_wanted(&second));
        connections.set_idle(&second);
        assert!(second.is_evicted());
    }
}
