//! Connections that the threads of a pool serve, one at a time each. There may be more connections than threads.
//!
//! A connection *waits* for a thread, is *served* by one, or is *silent*: it has not sent a byte, and its server awaits the byte
//! without a thread. All of them are in the table, and count towards the limit on connections.
//!
//! If connections lack a thread, idle connections that have one are evicted: the one that has been idle for longest, and for
//! 50 ms at least, is the first. If none is that old, the next one that is leaves by itself.
//!
//! # No lost wake-up
//!
//! A pipe wakes the thread of an evicted connection. The socket stays open in both directions, so the connection can linger.
//!
//! A thread checks for a shortage of threads once its connection has been idle for 50 ms. A shortage that is stored before is seen by
//! this check. One that is stored later is followed by a search, which finds the connection old enough.
//!
//! # Cost
//!
//! A request costs two loads and two atomic exchanges. A connection costs an uncontended lock each for queueing, taking and
//! releasing it, next to those of the table. A thread that serves has a pipe, which costs two descriptors.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::sync::{Mutex, MutexGuard, lock};
use rustix::event::PollFlags;
use rustix::process::{Resource, getrlimit};

use super::{Read, ReadWait, Transport, drive, isolate_logged};
use crate::connections::{ConnectionHandle, ConnectionTable, TableEntry, into_stream};
use crate::http1::Phase;
use crate::{EVICTION_GRACE, READ_RETRY, ServerState, net, wait, with_buffers};

/// The max number of pipes that a pool has from its start. The others are made when they are needed.
const MAX_FIRST_PIPES: usize = 256;

/// Of this number of descriptors that the process may have, a pool has one pipe from its start: the pipes take an eighth of all.
const DESCRIPTORS_FOR_A_FIRST_PIPE: u64 = 16;

/// A connection is old enough for an eviction after this time. The table rounds times up to milliseconds.
const OLD_AFTER: Duration = EVICTION_GRACE.saturating_add(Duration::from_millis(2));

/// A connection of a pool, as other threads use it.
#[derive(Debug)]
pub struct PooledConnection {
    stream: TcpStream,
    /// Wakes the thread that serves the connection. Without a descriptor for a pipe, the reading side of the socket is closed.
    wake: Mutex<Option<Arc<WakePipe>>>,
    /// Another thread closed the reading side, so an end of the input may not be the client's.
    read_closed: AtomicBool,
    /// Whether the connection counts as leaving. Changed under the lock of the pool.
    is_leaving: AtomicBool,
}

impl PooledConnection {
    fn new(stream: TcpStream) -> Self {
        let [read_closed, is_leaving] = [const { AtomicBool::new(false) }; 2];
        Self { stream, wake: Mutex::default(), read_closed, is_leaving }
    }

    fn wake_by(&self, pipe: Option<Arc<WakePipe>>) {
        *lock(&self.wake) = pipe;
    }
}

impl AsRef<TcpStream> for PooledConnection {
    fn as_ref(&self) -> &TcpStream {
        &self.stream
    }
}

impl From<PooledConnection> for TcpStream {
    fn from(connection: PooledConnection) -> Self {
        connection.stream
    }
}

impl ConnectionHandle for PooledConnection {
    fn with_fd<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        act(self.stream.as_fd())
    }

    fn wake(&self) {
        if let Some(pipe) = &*lock(&self.wake) {
            let _ = (&pipe.writer).write(&[1]); // a full pipe is readable already
        } else {
            self.read_closed.store(true, Ordering::SeqCst);
            let _ = self.stream.shutdown(Shutdown::Read); // an error: the client is gone
        }
    }
}

impl AsFd for TableEntry<PooledConnection> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
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
    fn new() -> io::Result<Arc<Self>> {
        let (reader, writer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&reader, true)?;
        Ok(Arc::new(Self { reader, writer }))
    }
}

/// The number of pipes that a pool of this number of threads has from its start. Connections need descriptors too.
fn first_pipes(threads: usize) -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let allowed = usize::try_from(descriptors / DESCRIPTORS_FOR_A_FIRST_PIPE).unwrap_or(usize::MAX);
    threads.min(MAX_FIRST_PIPES).min(allowed)
}

/// The connections of a server with a pool of threads.
#[derive(Debug)]
pub struct PoolConnections {
    /// All connections of the pool.
    pub table: Arc<ConnectionTable<PooledConnection>>,
    threads: usize,
    state: Mutex<PoolState>,
    /// The number of connections that lack a thread: no thread is free for them, or about to be free.
    shortage: AtomicUsize,
}

/// A connection in the table of a pool.
pub type PoolEntry = Arc<TableEntry<PooledConnection>>;

/// A connection that waits for a thread, and when it began to wait.
type QueuedEntry = (PoolEntry, Instant);

#[derive(Debug, Default)]
struct PoolState {
    waiting: VecDeque<QueuedEntry>,
    /// The number of connections that a thread serves.
    serving: usize,
    /// The number of those that were evicted, and have received no request since.
    leaving: usize,
    /// The pipes that no connection has.
    pipes: Vec<Arc<WakePipe>>,
}

/// The state in which [`PoolConnections::serve_next`] leaves a connection.
#[derive(Debug)]
pub enum Served {
    /// The connection is closed.
    Closed,
    /// The connection has sent its last answer, and must linger. Until it is [taken out](PoolConnections::take_out) of the
    /// table, it counts, and a drain waits for it.
    Lingering(PoolEntry),
    /// The connection has not sent a byte since it was queued, at this time. It is to be [queued](PoolConnections::queue) when its
    /// first byte is there.
    Silent(PoolEntry, Instant),
}

/// What a thread of a pool does while it waits for its connection. `()` only waits.
pub trait PoolRole {
    /// Waits like [`wait`], and for the connections that the thread accepts. Returns whether [`accept`](Self::accept) is to be
    /// called; `None` if the role did not look for connections.
    ///
    /// `is_old`: the connection of the thread is idle, and may be closed for another.
    ///
    /// # Errors
    ///
    /// Returns the error of [`wait`].
    fn wait(
        &self,
        sockets: &[(BorrowedFd<'_>, PollFlags)],
        _is_old: bool,
        deadline: Instant,
    ) -> io::Result<Option<bool>> {
        wait(sockets.iter().copied(), Some(deadline), &mut Vec::new()).map(|()| None)
    }

    /// Queues the connections that have come. Returns whether some had to be left waiting. `is_old`: as in [`wait`](Self::wait).
    fn accept(&self, _is_old: bool) -> bool {
        false
    }
}

impl PoolRole for () {}

impl PoolConnections {
    /// The connections of a pool with this number of threads.
    pub fn new(server: Arc<ServerState>, threads: usize) -> Self {
        let pipes = (0..first_pipes(threads)).map_while(|_| WakePipe::new().ok()).collect();
        Self {
            table: Arc::new(ConnectionTable::new(server, 1)),
            threads,
            state: Mutex::new(PoolState { pipes, ..PoolState::default() }),
            shortage: AtomicUsize::new(0),
        }
    }

    /// Adds a connection that was accepted and does not block. At the limit, calls `make_room`, which closes a connection that is
    /// silent, or returns false. If none is, the connection that has been idle for longest leaves.
    ///
    /// # Errors
    ///
    /// Returns the stream if `max_connections` are open and none is silent or idle, or if its client has `max_connections_per_peer`.
    /// The caller then rejects the connection.
    pub fn admit(&self, stream: TcpStream, mut make_room: impl FnMut() -> bool) -> Result<PoolEntry, TcpStream> {
        let evict = || make_room() || self.evict(&mut lock(&self.state));
        self.table.admit_evicting(PooledConnection::new(stream), 0, evict).map_err(|connection| connection.stream)
    }

    /// Adds a connection to those that wait for a thread. `since`: when it began to wait. A call of
    /// [`serve_next`](Self::serve_next) must follow for each, or of [`take_last`](Self::take_last) or
    /// [`close_next`](Self::close_next).
    pub fn queue(&self, entry: PoolEntry, since: Instant) {
        let mut state = lock(&self.state);
        state.waiting.push_back((entry, since));
        self.settle(&mut state);
    }

    /// Removes the connection that has waited for the shortest time. Returns its stream.
    pub fn take_last(&self) -> Option<TcpStream> {
        let (entry, _) = self.take(VecDeque::pop_back)?;
        self.take_out(entry)
    }

    /// Closes the connection that has waited for longest. Past the shutdown's deadline, a request that has come counts as cut.
    /// Returns false if none waits.
    pub fn close_next(&self) -> bool {
        let Some((entry, _)) = self.take(VecDeque::pop_front) else { return false };
        if self.table.server.is_over() && net::has_input(&entry.stream) {
            self.table.server.count_cut();
        }
        self.table.remove(&entry);
        true
    }

    /// The number of connections that wait for a thread.
    pub fn waiting(&self) -> usize {
        lock(&self.state).waiting.len()
    }

    fn take(&self, pop: fn(&mut VecDeque<QueuedEntry>) -> Option<QueuedEntry>) -> Option<QueuedEntry> {
        let mut state = lock(&self.state);
        let taken = pop(&mut state.waiting);
        self.settle(&mut state);
        taken
    }

    /// Serves the connection that has waited for longest on this thread, until it closes or gives the thread up because it has not
    /// sent a byte. Returns `None` if none waits.
    ///
    /// The time in the queue counts towards the timeouts of the first byte and of the first head. `first_byte`: how long this
    /// thread waits for the first byte if no connection waits for a thread.
    pub fn serve_next(&self, first_byte: Duration, role: &impl PoolRole) -> Option<Served> {
        let (entry, queued, pipe) = {
            let mut state = lock(&self.state);
            let (entry, queued) = state.waiting.pop_front()?;
            state.serving += 1;
            (entry, queued, state.pipes.pop().or_else(|| WakePipe::new().ok()))
        };
        entry.wake_by(pipe.clone());
        let silent_until = Some(Instant::now() + first_byte);
        let mut socket = PoolSocket::new(&entry, self, role, pipe.as_deref(), silent_until);
        let lingers =
            isolate_logged(|| with_buffers(|buffers| drive(&mut socket, &self.table.server, buffers, queued)));
        let is_silent = socket.is_silent;
        self.release(&entry, pipe);
        if is_silent {
            return Some(Served::Silent(entry, queued));
        }
        if lingers.unwrap_or(false) {
            return Some(Served::Lingering(entry));
        }
        self.table.remove(&entry);
        Some(Served::Closed)
    }

    /// Removes a connection from the table. Returns its stream; `None` if the process has no descriptor left.
    pub fn take_out(&self, entry: PoolEntry) -> Option<TcpStream> {
        self.table.remove(&entry);
        into_stream(entry)
    }

    /// Notes that the thread of a connection is free.
    fn release(&self, entry: &TableEntry<PooledConnection>, pipe: Option<Arc<WakePipe>>) {
        let mut state = lock(&self.state); // while an eviction has it, the eviction may use the pipe
        let was_evicted = entry.set_quiet();
        entry.wake_by(None);
        if let Some(pipe) = pipe.as_deref().filter(|_| was_evicted || self.table.server.shutdown.is_begun()) {
            let _ = (&pipe.reader).read(&mut [0; 8]); // the byte that has woken the thread
        }
        state.pipes.extend(pipe);
        state.serving -= 1;
        state.leaving -= usize::from(entry.is_leaving.swap(false, Ordering::Relaxed));
        self.settle(&mut state);
    }

    /// Whether a connection lacks a thread: none is free, or about to be free.
    pub fn lacks_threads(&self) -> bool {
        self.shortage.load(Ordering::SeqCst) > 0
    }

    /// Counts the connections that lack a thread, and evicts one idle connection for each of them.
    fn settle(&self, state: &mut MutexGuard<'_, PoolState>) {
        loop {
            let shortage = (state.waiting.len() + state.serving).saturating_sub(self.threads + state.leaving);
            if self.shortage.load(Ordering::Relaxed) != shortage {
                self.shortage.store(shortage, Ordering::SeqCst);
            }
            if shortage == 0 {
                return;
            }
            if !self.evict(state) {
                // A single waiting connection is no sign of a crowd: another connection may be about to close.
                if shortage > 1 {
                    self.table.set_crowded();
                }
                return;
            }
        }
    }

    /// Evicts the connection that has been idle for longest. Returns false if none is idle.
    fn evict(&self, state: &mut MutexGuard<'_, PoolState>) -> bool {
        let Some(entry) = self.table.evict() else { return false };
        entry.is_leaving.store(true, Ordering::Relaxed);
        state.leaving += 1;
        true
    }

    /// Evicts this connection if others lack a thread. Returns whether it did.
    fn evict_if_short(&self, entry: &TableEntry<PooledConnection>) -> bool {
        let mut state = lock(&self.state);
        let is_evicted = self.lacks_threads() && self.table.evict_entry(entry);
        if is_evicted {
            entry.is_leaving.store(true, Ordering::Relaxed);
            state.leaving += 1;
            self.settle(&mut state);
        }
        is_evicted
    }

    /// Notes that a connection has bytes. If it was evicted, another is evicted in its place.
    fn note_bytes(&self, entry: &TableEntry<PooledConnection>) {
        if self.table.begin_request(entry) {
            let mut state = lock(&self.state);
            state.leaving -= usize::from(entry.is_leaving.swap(false, Ordering::Relaxed));
            self.settle(&mut state);
        }
    }
}

/// The transport of a connection that a thread of a pool serves. The thread waits in `poll(2)`.
struct PoolSocket<'a, R> {
    entry: &'a TableEntry<PooledConnection>,
    pool: &'a PoolConnections,
    role: &'a R,
    pipe: Option<&'a WakePipe>,
    /// Nothing was read yet. The thread waits for the first byte until then.
    silent_until: Option<Instant>,
    /// The connection gives its thread up, because its first byte is not there.
    is_silent: bool,
    /// The role has looked for connections in the last wait, and found none that it could not queue.
    has_looked: Cell<bool>,
}

impl<'a, R: PoolRole> PoolSocket<'a, R> {
    fn new(
        entry: &'a TableEntry<PooledConnection>,
        pool: &'a PoolConnections,
        role: &'a R,
        pipe: Option<&'a WakePipe>,
        silent_until: Option<Instant>,
    ) -> Self {
        Self { entry, pool, role, pipe, silent_until, is_silent: false, has_looked: Cell::new(false) }
    }

    /// Waits for the socket, and for an eviction or a drain if `is_woken`.
    fn wait(&self, flags: PollFlags, is_woken: bool, is_old: bool, deadline: Instant) -> io::Result<()> {
        let socket = (self.entry.stream.as_fd(), flags);
        let found = match self.pipe.filter(|_| is_woken) {
            Some(pipe) => self.role.wait(&[socket, (pipe.reader.as_fd(), PollFlags::IN)], is_old, deadline),
            None => self.role.wait(&[socket], is_old, deadline),
        }?;
        let must_accept = found == Some(true);
        self.has_looked.set(found.is_some() && !(must_accept && self.role.accept(is_old)));
        Ok(())
    }

    fn is_draining(&self) -> bool {
        self.pool.table.server.shutdown.is_begun()
    }

    /// Whether the connection gives its thread up, because its first byte is not there.
    fn gives_up(&self) -> bool {
        let is_late = |until| Instant::now() >= until || self.pool.lacks_threads();
        self.silent_until.is_some_and(is_late) && !self.is_draining()
    }

    fn is_read_closed(&self) -> bool {
        self.entry.read_closed.load(Ordering::SeqCst)
    }
}

impl<R: PoolRole> Transport for PoolSocket<'_, R> {
    fn peer(&self) -> Option<SocketAddr> {
        net::peer(&self.entry.stream)
    }

    fn read(&mut self, buffer: &mut [u8], wait: ReadWait) -> io::Result<Read> {
        let (server, may_close) = (&self.pool.table.server, wait.phase.may_close());
        let mut old_at = None; // once the connection is noted as idle: when it is old enough to leave for others
        // A client that waited for an answer has sent nothing since, so a read right after the answer would find nothing.
        let mut waits_first = may_close && self.silent_until.is_none();
        loop {
            // A connection that has not sent a byte is not evicted from its thread, but a drain closes it.
            if may_close && old_at.is_none() && (self.silent_until.is_none() || self.is_draining()) {
                let now = Instant::now();
                self.entry.set_idle(|| self.pool.table.idle_since(now, wait.phase != Phase::FirstByte));
                old_at = Some(now + OLD_AFTER);
            }
            // The checks come after the store: either the drain sees that this connection is idle, or this thread sees the
            // drain. The same holds for an eviction.
            let is_idle = old_at.is_some();
            if is_idle && (self.entry.is_evicted() || wait.ends_with_drain && self.is_draining()) {
                return Ok(Read::Empty);
            }
            if !std::mem::take(&mut waits_first) {
                match self.read_now(buffer)? {
                    Read::Empty if Instant::now() >= server.within(wait.until) => return Ok(Read::Empty),
                    Read::Empty if self.is_read_closed() => {
                        // A request began to arrive at the same time. Its rest can still be read.
                        thread::park_timeout(READ_RETRY);
                        continue;
                    }
                    Read::Empty if self.gives_up() => {
                        self.is_silent = true;
                        return Ok(Read::Leave);
                    }
                    Read::Empty => {}
                    read => return Ok(read),
                }
            }
            let is_old = old_at.is_some_and(|old_at| Instant::now() >= old_at);
            if is_old && self.pool.lacks_threads() && self.pool.evict_if_short(self.entry) {
                continue;
            }
            let until = if is_old { None } else { old_at.or(self.silent_until) };
            let until = until.map_or(wait.until, |until| until.min(wait.until));
            self.wait(PollFlags::IN, is_idle && wait.ends_with_drain, is_old, until)?;
        }
    }

    /// Returns [`Read::Empty`] too if another thread has closed the reading side.
    fn read_now(&mut self, buffer: &mut [u8]) -> io::Result<Read> {
        loop {
            return match net::receive(&self.entry.stream, buffer) {
                Ok(0) if self.is_read_closed() => Ok(Read::Empty),
                Ok(0) => Ok(Read::End),
                Ok(count) => {
                    self.pool.note_bytes(self.entry);
                    self.silent_until = None;
                    Ok(Read::Bytes(count))
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Read::Empty),
                Err(error) => Err(error),
            };
        }
    }

    fn is_evicted(&self) -> bool {
        self.entry.is_evicted()
    }

    fn write_some(&mut self, bytes: &[u8], last: bool, until: Option<Instant>) -> io::Result<usize> {
        if let Some(until) = until {
            let until = self.pool.table.server.within(until);
            if Instant::now() >= until {
                return Err(ErrorKind::TimedOut.into());
            }
            self.wait(PollFlags::OUT, false, false, until)?;
        }
        net::send(&self.entry.stream, bytes, last)
    }

    fn leave(&mut self, buffer: &mut [u8]) {
        if !self.is_silent {
            let _ = net::leave(&self.entry.stream, buffer); // an error: the client is gone
        }
    }

    fn others_wait(&self) -> bool {
        let are_left = !self.has_looked.take() && self.role.accept(false);
        are_left || self.pool.lacks_threads() || self.pool.table.must_announce_close(self.entry)
    }
}

#[cfg(test)]
mod tests;
