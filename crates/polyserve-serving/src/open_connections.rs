//! The open connections of a server in which a connection holds a thread, and the eviction of idle ones.
//!
//! # How the thread of an evicted connection is woken
//!
//! * A thread of a pool: by a pipe. The socket stays open in both directions, so the connection can linger.
//! * A thread that serves one connection only, during the [grace](super::EVICTION_GRACE) after the connection became idle: it
//!   checks for an eviction itself at the end of the grace. A pipe for each connection would cost two descriptors.
//! * Such a thread after the grace: the eviction closes the reading side of the socket, which ends the thread's wait.
//!
//! In all cases, bytes that have arrived can still be read, so no request that arrived is lost.
//!
//! # Connections of a pool
//!
//! A connection of a pool is in one of three states. It *waits* for a thread. It is *open*: it has a thread. It is *silent*:
//! it has not sent a byte, and waits for its first byte without a thread. All of them count towards the limit on
//! connections.
//!
//! # No lost wake-up
//!
//! A connection that becomes idle stores that, and then loads `shortage`, the number of connections that lack a thread. A
//! thread that needs an eviction stores `shortage`, and then reads the states of the connections. All four operations are
//! sequentially consistent, so at least one of the two threads sees the store of the other.
//!
//! The same holds for the wake-up. A thread at the end of its grace stores that it must be woken, and then loads whether its
//! connection was evicted. An eviction stores that, and then loads whether the thread must be woken.
//!
//! The same holds for `tracks_idle`. A search sets it and then reads the states. A connection stores its state and then loads
//! `tracks_idle`.
//!
//! # Cost
//!
//! A request costs three stores and two loads. Entering and leaving cost an uncontended lock each. An eviction costs O(1)
//! amortised: a search of n connections finds the 64 that have been idle for longest; if there are fewer, the connections
//! that become idle report themselves, under the lock, until evictions are rare again.

use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use polyserve_core::sync::{Condvar, Mutex, lock};

use super::open_connection::{BUSY, HAS_SENT, LEAVING, OpenConnection, WakePipe};
use super::{CROWDED_AFTER, MAX_LINGERING, SHUTDOWN_SLACK, ServerState};
use crate::net;

/// The max number of connections that one search finds.
const MAX_SEARCH_RESULTS: usize = 64;

/// The max number of pipes that a pool has from its start.
const MAX_FIRST_PIPES: usize = 256;

/// The open connections of a server in which a connection holds a thread.
///
/// If more connections need a thread than there are threads, connections are evicted: first those that have never sent a
/// byte, then those that have been idle for longest, then those that become idle next.
#[derive(Debug)]
pub struct OpenConnections {
    threads: usize,
    /// The max number of connections of a pool, with or without a thread.
    max_connections: usize,
    state: Mutex<ConnectionSets>,
    empty: Condvar,
    /// The number of connections that lack a thread: no thread is free for them, or about to be free.
    shortage: AtomicUsize,
    /// Answers say `Connection: close` until this time, in nanoseconds since the start; 0 if the time has passed.
    crowded_until: AtomicU64,
    /// Whether connections that become idle add themselves to `ConnectionSets::idle`.
    tracks_idle: AtomicBool,
    start: Instant,
}

#[derive(Debug, Default)]
struct ConnectionSets {
    open: Vec<Arc<OpenConnection>>,
    /// Connections that wait for a thread.
    waiting: usize,
    /// Connections of a pool that have no thread and have not sent a byte.
    silent: usize,
    /// Open connections that do not count towards the limit: those that were evicted and have received no request since,
    /// and those that linger.
    leaving: usize,
    /// The number of connections that linger on their threads.
    lingering: usize,
    /// Connections to evict, in this order, and the time since which each is idle. An entry is skipped if its connection was
    /// active after that time.
    idle: VecDeque<(u64, Weak<OpenConnection>)>,
    /// The pipes that no connection has.
    wake_pipes: Vec<WakePipe>,
}

impl ConnectionSets {
    /// The number of connections that count towards the limit.
    fn count(&self) -> usize {
        (self.open.len() + self.waiting + self.silent).saturating_sub(self.leaving)
    }
}

impl OpenConnections {
    /// An empty set for a server in which each connection has a thread of its own, and with at most this number of them.
    pub fn new(threads: usize) -> Self {
        Self {
            threads,
            max_connections: usize::MAX,
            state: Mutex::default(),
            empty: Condvar::new(),
            shortage: AtomicUsize::new(0),
            crowded_until: AtomicU64::new(0),
            tracks_idle: AtomicBool::new(false),
            start: Instant::now(),
        }
    }

    /// An empty set for a server with a pool of this number of threads, and with at most `max_connections`. An evicted
    /// connection does not count any more. Each thread has a pipe, which costs two descriptors.
    pub fn pooled(threads: usize, max_connections: usize) -> Self {
        // A large pool starts with some of its pipes. The others are made when they are needed.
        let pipes = (0..threads.min(MAX_FIRST_PIPES)).map_while(|_| WakePipe::new().ok()).collect();
        let connections = Self { max_connections, ..Self::new(threads) };
        lock(&connections.state).wake_pipes = pipes;
        connections
    }

    /// Adds a connection that gets a thread now. If all threads are taken, the connection that has been idle for longest
    /// is evicted for it. If that connection turns out to be active, or none is idle, answers announce the close for a while.
    ///
    /// # Errors
    ///
    /// Returns the stream if all threads are taken and no connection is idle. The caller must reject it.
    pub fn enter(&self, stream: TcpStream) -> Result<Arc<OpenConnection>, TcpStream> {
        let mut state = lock(&self.state);
        if state.open.len() + state.waiting >= self.threads + state.leaving && !self.evict_one(&mut state) {
            self.set_crowded();
            return Err(stream);
        }
        Ok(insert(&mut state, stream, None))
    }

    /// Whether as many connections of a pool count as may be open.
    pub fn is_full(&self) -> bool {
        self.count() >= self.max_connections
    }

    /// Notes that a new connection waits for a thread. If no thread is free or about to be free, the connection that has been
    /// idle for longest is evicted; if none is idle, the next one that becomes idle. A call of
    /// [`enter_waiting`](Self::enter_waiting) or [`cancel_waiting`](Self::cancel_waiting) must follow.
    ///
    /// Returns false if the limit on connections is reached and no connection is idle. Then the new connection is not
    /// counted, and the caller must reject it.
    pub fn wait_for_thread(&self) -> bool {
        let mut state = lock(&self.state);
        if state.count() >= self.max_connections && !self.evict_one(&mut state) {
            self.set_crowded();
            return false;
        }
        state.waiting += 1;
        self.settle(&mut state);
        true
    }

    /// Adds a connection that waited for a thread of a pool and has one now.
    pub fn enter_waiting(&self, stream: TcpStream) -> Arc<OpenConnection> {
        let mut state = lock(&self.state);
        state.waiting = state.waiting.saturating_sub(1);
        // Without a descriptor for a pipe, an eviction closes the reading side.
        let wake = state.wake_pipes.pop().or_else(|| WakePipe::new().ok());
        insert(&mut state, stream, wake)
    }

    /// Records that a connection that has not sent a byte gives up its thread. It still counts towards the limit. The caller
    /// then calls [`requeue_silent`](Self::requeue_silent) or [`close_silent`](Self::close_silent). Returns the stream as
    /// [`leave`](Self::leave) does.
    pub fn set_silent(&self, connection: Arc<OpenConnection>) -> Option<TcpStream> {
        let mut state = lock(&self.state);
        state.silent += 1;
        self.remove(&mut state, connection)
    }

    /// Notes that a silent connection has sent something, and waits for a thread again.
    pub fn requeue_silent(&self) {
        let mut state = lock(&self.state);
        state.silent = state.silent.saturating_sub(1);
        state.waiting += 1;
        self.settle(&mut state);
    }

    /// Notes that a silent connection is closed.
    pub fn close_silent(&self) {
        let mut state = lock(&self.state);
        state.silent = state.silent.saturating_sub(1);
    }

    /// The number of silent connections.
    pub fn silent(&self) -> usize {
        lock(&self.state).silent
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

    /// Notes that a connection with a thread of its own has sent its last answer, and lingers. It does not count towards the
    /// limit any more. It still counts if the number of lingering connections has reached the limit on open connections, or
    /// [`MAX_LINGERING`].
    pub fn set_lingering(&self, connection: &OpenConnection) {
        let mut state = lock(&self.state);
        if state.lingering < self.threads.min(MAX_LINGERING) && !connection.lingers.swap(true, Ordering::Relaxed) {
            state.lingering += 1;
            state.leaving += usize::from(!connection.is_leaving.swap(true, Ordering::Relaxed));
            self.settle(&mut state);
        }
    }

    /// Removes a connection. Returns its stream, unless the caller has another handle of the connection.
    pub fn leave(&self, connection: Arc<OpenConnection>) -> Option<TcpStream> {
        self.remove(&mut lock(&self.state), connection)
    }

    fn remove(&self, state: &mut ConnectionSets, connection: Arc<OpenConnection>) -> Option<TcpStream> {
        let index = connection.index.load(Ordering::Relaxed);
        if state.open.get(index).is_some_and(|open| Arc::ptr_eq(open, &connection)) {
            state.open.swap_remove(index);
            if let Some(moved) = state.open.get(index) {
                moved.index.store(index, Ordering::Relaxed);
            }
            state.leaving -= usize::from(connection.is_leaving.load(Ordering::Relaxed));
            state.lingering -= usize::from(connection.lingers.load(Ordering::Relaxed));
            self.settle(state);
            self.notify_if_empty(state);
        }
        // Under the lock: other threads clone handles only under the lock, and drop them before they release it.
        let (wake, stream) = Arc::into_inner(connection)?.into_parts();
        state.wake_pipes.extend(wake);
        Some(stream)
    }

    /// Notes that a connection waits for its next request. It may be evicted at once. Its thread must look for an eviction
    /// until it calls [`must_be_woken`](OpenConnection::must_be_woken).
    pub fn set_idle(&self, connection: &Arc<OpenConnection>) {
        let since = if connection.has_sent() { self.now() | HAS_SENT } else { self.now() };
        if !connection.set_idle(since) {
            return;
        }
        let (shortage, tracks_idle) = (self.shortage.load(Ordering::SeqCst), self.tracks_idle.load(Ordering::SeqCst));
        if shortage > 0 || tracks_idle {
            let mut state = lock(&self.state);
            if tracks_idle {
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
        if connection.is_leaving.swap(false, Ordering::Relaxed) {
            state.leaving -= 1;
        }
        if connection.wake.is_none() {
            self.set_crowded(); // the connection that has been idle for longest is active
        }
        self.settle(&mut state);
    }

    /// Whether the next answer on `connection` must say `Connection: close`. It must in three cases:
    ///
    /// * The connection was evicted.
    /// * A connection lacks a thread.
    /// * In the last 100 ms there were more active connections than threads: one was rejected, several connections of a pool
    ///   waited while none was idle, or an eviction hit an active connection that has a thread of its own.
    ///
    /// # Cost
    ///
    /// Three loads. In the third case also a clock read.
    pub fn must_announce_close(&self, connection: &OpenConnection) -> bool {
        self.lacks_threads() || connection.is_evicted() || self.is_crowded()
    }

    /// Whether a connection lacks a thread: none is free, or about to be free.
    pub fn lacks_threads(&self) -> bool {
        self.shortage.load(Ordering::SeqCst) > 0
    }

    /// Whether there were more active connections than threads in the last [`CROWDED_AFTER`].
    fn is_crowded(&self) -> bool {
        let until = self.crowded_until.load(Ordering::Relaxed);
        if until == 0 {
            return false;
        }
        let is_crowded = self.now() < until;
        if !is_crowded {
            let _ = self.crowded_until.compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        is_crowded
    }

    fn set_crowded(&self) {
        let until = self.start.elapsed().saturating_add(CROWDED_AFTER);
        self.crowded_until.store(as_nanos(until), Ordering::Relaxed);
    }

    /// Nanoseconds since the start, plus one.
    fn now(&self) -> u64 {
        as_nanos(self.start.elapsed()) + 1
    }

    /// Evicts all idle connections, for a drain. A connection that becomes idle later must look at the shutdown itself,
    /// after [`set_idle`](Self::set_idle).
    pub fn evict_idle(&self) {
        for connection in &lock(&self.state).open {
            let since = connection.state.load(Ordering::SeqCst);
            let is_evicted = since != BUSY && since != LEAVING && connection.evict(since);
            if is_evicted && connection.wake.is_none() {
                connection.close_reading(); // so that its thread does not wait for the end of the grace
            }
        }
    }

    /// Shuts all connections down, in any state.
    pub fn cut(&self) {
        for connection in &lock(&self.state).open {
            let _ = net::shutdown(connection.stream(), Shutdown::Both); // an error: the client is gone
        }
    }

    /// The number of connections that count towards the limit, those that wait for a thread included.
    pub fn count(&self) -> usize {
        lock(&self.state).count()
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

    /// Counts the connections that lack a thread, and evicts one idle connection for each of them.
    fn settle(&self, state: &mut ConnectionSets) {
        loop {
            let shortage = (state.waiting + state.open.len()).saturating_sub(self.threads + state.leaving);
            if self.shortage.load(Ordering::Relaxed) != shortage {
                self.shortage.store(shortage, Ordering::SeqCst);
            }
            if shortage == 0 {
                return;
            }
            if !self.evict_one(state) {
                // A single waiting connection is no sign of a crowd: another connection may be about to close.
                if shortage > 1 {
                    self.set_crowded();
                }
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
                    connection.is_leaving.store(true, Ordering::Relaxed);
                    state.leaving += 1;
                    return true;
                }
            }
            // While connections that become idle are tracked, the queue has all idle connections.
            if searched || self.tracks_idle.load(Ordering::SeqCst) {
                return false;
            }
            self.search(state);
            searched = true;
        }
    }

    /// Queues the connections that have been idle for longest. If no other connection is idle, connections that become idle
    /// later are tracked.
    fn search(&self, state: &mut ConnectionSets) {
        self.tracks_idle.store(true, Ordering::SeqCst);
        let since = |connection: &Arc<OpenConnection>| connection.state.load(Ordering::SeqCst);
        let idle = state.open.iter().map(|connection| (since(connection), connection));
        let mut idle: Vec<_> = idle.filter(|(since, _)| *since != BUSY && *since != LEAVING).collect();
        if idle.len() > MAX_SEARCH_RESULTS {
            self.tracks_idle.store(false, Ordering::SeqCst);
            idle.select_nth_unstable_by_key(MAX_SEARCH_RESULTS, |(since, _)| *since);
            idle.truncate(MAX_SEARCH_RESULTS);
        }
        idle.sort_unstable_by_key(|(since, _)| *since);
        state.idle = idle.into_iter().map(|(since, connection)| (since, Arc::downgrade(connection))).collect();
    }

    /// Queues a connection that has become idle. If evictions are rare, the queue only grows. When it is too long, tracking
    /// ends.
    fn track(&self, state: &mut ConnectionSets, since: u64, connection: &Arc<OpenConnection>) {
        if state.idle.len() > MAX_SEARCH_RESULTS + 2 * state.open.len() {
            state.idle = VecDeque::new();
            self.tracks_idle.store(false, Ordering::SeqCst);
        } else {
            // Silent connections come before the others.
            let is_silent = |since: u64| since & HAS_SENT == 0;
            let silent =
                if is_silent(since) { state.idle.partition_point(|(since, _)| is_silent(*since)) } else { usize::MAX };
            state.idle.insert(silent.min(state.idle.len()), (since, Arc::downgrade(connection)));
        }
    }
}

/// The nanoseconds of `duration`, capped so that the result plus one, with [`HAS_SENT`], is less than [`LEAVING`].
fn as_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(HAS_SENT - 3)
}

fn insert(state: &mut ConnectionSets, stream: TcpStream, wake: Option<WakePipe>) -> Arc<OpenConnection> {
    let connection = Arc::new(OpenConnection::new(stream, wake, state.open.len()));
    state.open.push(Arc::clone(&connection));
    connection
}

#[cfg(test)]
mod tests;
