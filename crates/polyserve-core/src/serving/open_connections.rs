//! The open connections of a server in which a connection holds a thread, and the eviction of idle ones.
//!
//! The thread of an evicted connection is woken in one of three ways. A thread of a pool has a pipe, and its connection can
//! linger: the socket is whole. If each connection has a thread of its own, a pipe for each would cost two descriptors. Then
//! the thread itself looks for an eviction at the end of a grace. Only after that does an eviction close the reading side of
//! the socket. In all cases, bytes that have arrived can still be read, so no request that arrived is lost.
//!
//! # Connections of a pool
//!
//! A connection waits for a thread, then has one and is open, and may be silent after that: it has not sent a byte, and
//! waits for its first one without a thread. Each of these counts towards the limit on connections.
//!
//! # No lost wake-up
//!
//! A connection that becomes idle stores that and then loads whether others wait. A thread that makes others wait stores
//! that and then looks for idle connections. All four are sequentially consistent: one of the two sees the other.
//!
//! A thread at the end of its grace stores that it has to be woken and then loads whether it was evicted. An eviction stores
//! that and then loads whether the thread has to be woken. Again, one of the two sees the other.
//!
//! The same holds for `tracks`. A search sets `tracks` and then reads the states. A connection stores its state and then
//! loads `tracks`.
//!
//! # Cost
//!
//! A request costs three stores and two loads. Entering and leaving cost an uncontended lock each. An eviction costs O(1)
//! amortised: a search of n connections finds the 64 that have been idle for longest; if there are fewer, the connections
//! that become idle report themselves, under the lock, until evictions are rare again.

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::{CROWDED_AFTER, MAX_LINGERING, SHUTDOWN_SLACK, ServerState};
use crate::net;
use crate::sync::{Condvar, Mutex, lock};

/// Connections that one search finds at most.
const SEARCH: usize = 64;

/// Pipes that a pool has from its start, at most.
const MAX_FIRST_PIPES: usize = 256;

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
    /// The thread of the connection does not look for an eviction itself any more.
    must_be_woken: AtomicBool,
    /// An eviction closed the reading side.
    read_closed: AtomicBool,
    /// Readable once the connection was evicted.
    wake: Option<WakePipe>,
    /// The position in the set. Changed under the set's lock.
    index: AtomicUsize,
    /// Whether the connection counts as leaving. Changed under the set's lock.
    counted: AtomicBool,
    /// Whether the connection counts as lingering. Changed under the set's lock.
    lingers: AtomicBool,
}

impl OpenConnection {
    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether the connection was evicted. It has to leave once it is idle.
    pub fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::SeqCst)
    }

    /// Whether an eviction closed the reading side, so that an end of the input may not be the client's.
    pub fn is_read_closed(&self) -> bool {
        self.read_closed.load(Ordering::SeqCst)
    }

    /// A descriptor that is readable once the connection was evicted. `None` if the connection has none: see
    /// [`must_be_woken`](Self::must_be_woken).
    pub fn eviction(&self) -> Option<BorrowedFd<'_>> {
        self.wake.as_ref().map(|wake| wake.reader.as_fd())
    }

    /// Notes that the thread of an idle connection waits until it is woken. From now on, an eviction of a connection without
    /// a descriptor closes the reading side, which makes the socket readable. To be called before a check of
    /// [`is_evicted`](Self::is_evicted).
    pub fn must_be_woken(&self) {
        self.must_be_woken.store(true, Ordering::SeqCst);
    }

    /// Evicts the connection if it has been idle since `since`. Returns false if it is not idle any more.
    fn evict(&self, since: u64) -> bool {
        let evicted = self.state.compare_exchange(since, LEAVING, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if evicted && !self.evicted.swap(true, Ordering::SeqCst) {
            match &self.wake {
                Some(wake) => drop((&wake.writer).write(&[1])),
                None if self.must_be_woken.load(Ordering::SeqCst) => self.close_reading(),
                None => {} // its thread looks for the eviction at the end of the grace
            }
        }
        evicted
    }

    fn close_reading(&self) {
        self.read_closed.store(true, Ordering::SeqCst);
        let _ = net::shut(&self.stream, Shutdown::Read); // an error: the client is gone
    }
}

/// The pipe that wakes a thread of a pool. One connection at a time has it.
#[derive(Debug)]
struct WakePipe {
    /// It does not block.
    reader: PipeReader,
    writer: PipeWriter,
}

impl WakePipe {
    fn new() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&reader, true)?;
        Ok(Self { reader, writer })
    }
}

/// The open connections of a server in which a connection holds a thread.
///
/// If more connections want a thread than there are threads, the connections that have been idle for longest are evicted,
/// and then those that become idle next.
#[derive(Debug)]
pub struct OpenConnections {
    threads: usize,
    /// The max number of connections of a pool, with or without a thread.
    max: usize,
    state: Mutex<ConnectionSets>,
    empty: Condvar,
    /// The number of connections that want a thread, and for which none is free or about to be.
    short: AtomicUsize,
    /// Until this time answers say `Connection: close`: nanoseconds since the start; 0 if that is over.
    crowded_until: AtomicU64,
    /// Connections that become idle report themselves in `ConnectionSets::idle`.
    tracks: AtomicBool,
    start: Instant,
}

#[derive(Debug, Default)]
struct ConnectionSets {
    open: Vec<Arc<OpenConnection>>,
    /// Connections that wait for a thread.
    waiting: usize,
    /// Connections of a pool that have no thread and have not sent a byte.
    silent: usize,
    /// Open connections that do not count towards the limit: those that were evicted and have not come back with a request,
    /// and those that linger.
    leaving: usize,
    /// The number of connections that linger on their threads.
    lingering: usize,
    /// Connections to evict, in this order. An entry is skipped if its connection is no longer idle since the same time.
    idle: VecDeque<(u64, Weak<OpenConnection>)>,
    /// The pipes that no connection has.
    wake_pipes: Vec<WakePipe>,
}

impl OpenConnections {
    /// An empty set for a server in which each connection has a thread of its own, and with at most this number of them.
    pub fn new(threads: usize) -> Self {
        Self {
            threads,
            max: usize::MAX,
            state: Mutex::default(),
            empty: Condvar::new(),
            short: AtomicUsize::new(0),
            crowded_until: AtomicU64::new(0),
            tracks: AtomicBool::new(false),
            start: Instant::now(),
        }
    }

    /// An empty set for a server with a pool of this number of threads, and with at most `max` connections. An evicted
    /// connection does not count any more. Each thread has a pipe, which costs two descriptors.
    pub fn pooled(threads: usize, max: usize) -> Self {
        // If the number of threads is not known, the other pipes are made when they are needed.
        let pipes = (0..threads.min(MAX_FIRST_PIPES)).map_while(|_| WakePipe::new().ok()).collect();
        let connections = Self { max, ..Self::new(threads) };
        lock(&connections.state).wake_pipes = pipes;
        connections
    }

    /// Adds a connection that gets a thread now. If all threads are taken, the connection that has been idle for longest
    /// is evicted for it. If that connection turns out to be active, or none is idle, answers announce the close for a while.
    ///
    /// # Errors
    ///
    /// Returns the stream if all threads are taken and no connection is idle. It is to be rejected.
    pub fn enter(&self, stream: TcpStream) -> Result<Arc<OpenConnection>, TcpStream> {
        let mut state = lock(&self.state);
        if state.open.len() + state.waiting >= self.threads + state.leaving && !self.evict_one(&mut state) {
            self.set_crowded();
            return Err(stream);
        }
        Ok(insert(&mut state, stream, None))
    }

    /// Notes that a new connection waits for a thread. If none is free or about to be, the connection that has been idle for
    /// longest is evicted, or the next one that becomes idle. [`enter_waiting`](Self::enter_waiting) or
    /// [`cancel_waiting`](Self::cancel_waiting) is to follow.
    ///
    /// Returns false if the limit on connections is reached and no connection is idle. Then the new connection does not
    /// count, and is to be rejected.
    pub fn wait_for_thread(&self) -> bool {
        let mut state = lock(&self.state);
        let total = state.open.len() + state.waiting + state.silent;
        if total >= self.max.saturating_add(state.leaving) && !self.evict_one(&mut state) {
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
    /// limit any more. If as many connections linger as the limit allows to be open, or [`MAX_LINGERING`], it counts on.
    pub fn set_lingering(&self, connection: &OpenConnection) {
        let mut state = lock(&self.state);
        if state.lingering < self.threads.min(MAX_LINGERING) && !connection.lingers.swap(true, Ordering::Relaxed) {
            state.lingering += 1;
            state.leaving += usize::from(!connection.counted.swap(true, Ordering::Relaxed));
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
            state.leaving -= usize::from(connection.counted.load(Ordering::Relaxed));
            state.lingering -= usize::from(connection.lingers.load(Ordering::Relaxed));
            self.settle(state);
            self.notify_if_empty(state);
        }
        // Under the lock, because only there others have a handle for a moment.
        let connection = Arc::into_inner(connection)?;
        if let Some(mut wake) = connection.wake {
            let _ = wake.reader.read(&mut [0]); // the byte of an eviction, if there was one
            state.wake_pipes.push(wake);
        }
        Some(connection.stream)
    }

    /// Notes that a connection waits for its next request. It may be evicted at once. Its thread must look for an eviction
    /// until it calls [`must_be_woken`](OpenConnection::must_be_woken).
    pub fn set_idle(&self, connection: &Arc<OpenConnection>) {
        let since = self.now();
        connection.must_be_woken.store(false, Ordering::SeqCst);
        // A connection that is idle already keeps its time. A connection that was evicted stays evicted.
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
        if connection.wake.is_none() {
            self.set_crowded(); // the connection that has been idle for longest is active
        }
        self.settle(&mut state);
    }

    /// Whether `connection` is to say `Connection: close` in its next answer: it was evicted, others wait for a thread, or in
    /// the last 100 ms several connections of a pool waited and none was idle, one was rejected, or an eviction hit an active
    /// connection that has a thread of its own.
    ///
    /// # Cost
    ///
    /// Three loads; a clock too after others had to wait.
    pub fn must_announce_close(&self, connection: &OpenConnection) -> bool {
        self.lacks_threads() || connection.is_evicted() || self.is_crowded()
    }

    /// Whether a connection waits for a thread, and none is free or about to be.
    pub fn lacks_threads(&self) -> bool {
        self.short.load(Ordering::SeqCst) > 0
    }

    /// Whether, a short time ago, more connections were active than fit.
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
            if short == 0 {
                return;
            }
            if !self.evict_one(state) {
                // A single connection may wait for one that is about to close.
                if short > 1 {
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

    /// Queues the connections that have been idle for longest. If no other connection is idle, connections that become idle
    /// later are tracked.
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

    /// Queues a connection that has become idle. If evictions are rare, the queue only grows. When it is too long, tracking
    /// ends.
    fn track(&self, state: &mut ConnectionSets, since: u64, connection: &Arc<OpenConnection>) {
        if state.idle.len() > SEARCH + 2 * state.open.len() {
            state.idle = VecDeque::new();
            self.tracks.store(false, Ordering::SeqCst);
        } else {
            state.idle.push_back((since, Arc::downgrade(connection)));
        }
    }
}

/// The nanoseconds of `duration`, at most a number that is neither [`LEAVING`] nor before it.
fn as_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(LEAVING - 2)
}

fn insert(state: &mut ConnectionSets, stream: TcpStream, wake: Option<WakePipe>) -> Arc<OpenConnection> {
    let connection = Arc::new(OpenConnection {
        stream,
        state: AtomicU64::new(BUSY),
        evicted: AtomicBool::new(false),
        must_be_woken: AtomicBool::new(false),
        read_closed: AtomicBool::new(false),
        wake,
        index: AtomicUsize::new(state.open.len()),
        counted: AtomicBool::new(false),
        lingers: AtomicBool::new(false),
    });
    state.open.push(Arc::clone(&connection));
    connection
}

#[cfg(test)]
mod tests;
