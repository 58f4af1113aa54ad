//! One connection: its blocking reads and writes, and the slot through which other threads reach it.
//!
//! The thread of a connection waits in `recv` and `send`, with the timeouts of the socket.
//!
//! Invariant: another thread uses a connection only under the lock of the connection's slot, and the connection is removed
//! from the slot before it is closed. So a shutdown never hits a file descriptor that was reused. Cost: two uncontended
//! locks for a connection, a few stores for a request.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::ServerConfig;
use polyserve_core::http1::Phase;
use polyserve_core::net;
use polyserve_core::serving::blocking::{Read, Transport, drive};
use polyserve_core::serving::{ServerState, ThreadBuffers, discard, wait};
use polyserve_core::sync::lock;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

/// How long a leader waits for the first byte of a new connection before it steps back. The kernel may round it up to a
/// tick.
const FIRST_WAIT: Duration = Duration::from_millis(1);

/// The pause between two reads of a socket if this server closed its reading side while a request was arriving.
const READ_RETRY: Duration = Duration::from_millis(2);

/// Whether connections inherit the timeouts of their listener.
const INHERITED: bool = cfg!(target_os = "linux");

/// Sets the timeouts of new connections on `listener`. They inherit them, which saves two system calls for each.
pub(super) fn set_first_timeouts(listener: &TcpListener, config: &ServerConfig) -> io::Result<()> {
    let socket = socket2::SockRef::from(listener);
    socket.set_read_timeout(Some(FIRST_WAIT))?;
    socket.set_write_timeout(Some(config.write_timeout))
}

/// The leader role of the thread that serves a connection.
pub(super) trait LeaderRole {
    /// Whether this thread is the leader.
    fn leads(&self) -> bool;

    /// Makes another thread the leader if this thread is. Called before this thread waits for its connection.
    fn step_back(&self);
}

/// What the leader is doing.
#[derive(Clone, Copy)]
pub(super) enum Leader {
    /// It accepts, serves, or does not exist.
    Busy,
    /// It waits for the listener.
    Polling,
    /// It waits, at most for [`FIRST_WAIT`], for the first byte of a new connection.
    AwaitingFirstByte,
}

/// What the threads know about the leader and about new connections.
pub(super) struct LeaderStatus {
    /// A [`Leader`], as a number.
    leader: AtomicU8,
    /// The last new connection sent nothing within [`FIRST_WAIT`].
    silent_starts: AtomicBool,
}

impl LeaderStatus {
    pub(super) const fn new() -> Self {
        Self { leader: AtomicU8::new(Leader::Busy as u8), silent_starts: AtomicBool::new(false) }
    }

    pub(super) fn set(&self, leader: Leader) {
        self.leader.store(leader as u8, Ordering::SeqCst);
    }

    pub(super) fn is(&self, leader: Leader) -> bool {
        self.leader.load(Ordering::SeqCst) == leader as u8
    }

    fn set_silent_starts(&self, silent: bool) {
        if silent != self.silent_starts() {
            self.silent_starts.store(silent, Ordering::Relaxed);
        }
    }

    fn silent_starts(&self) -> bool {
        self.silent_starts.load(Ordering::Relaxed)
    }
}

/// The clock of the idle connections, and whether a search for one to evict can succeed.
///
/// No idle connection is overlooked. A search stores that there is none before it looks at the connections. A connection
/// stores that it is idle before it loads that. All four are sequentially consistent: one of the two sees the other.
pub(super) struct IdleClock {
    /// The server's start.
    start: Instant,
    /// No connection can be evicted before this time; 0 if that is not known.
    none_before: AtomicU64,
}

impl IdleClock {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), none_before: AtomicU64::new(0) }
    }

    /// Milliseconds since the start.
    pub(super) fn now(&self) -> u64 {
        as_millis(self.start.elapsed())
    }

    /// Not to be called during a search.
    pub(super) fn can_evict(&self) -> bool {
        let none_before = self.none_before.load(Ordering::SeqCst);
        none_before == 0 || self.now() >= none_before
    }

    /// Called before each search. Only one thread searches at a time.
    pub(super) fn begin_search(&self) {
        self.none_before.store(u64::MAX, Ordering::SeqCst);
    }

    /// Called after a search that found no connection. `earliest`: when one can be evicted, if none becomes idle meanwhile.
    pub(super) fn found_none(&self, earliest: u64) {
        // It fails if a connection became idle since the search began.
        let _ = self.none_before.compare_exchange(u64::MAX, earliest, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Makes the next search possible.
    pub(super) fn reset(&self) {
        if self.none_before.load(Ordering::SeqCst) != 0 {
            self.none_before.store(0, Ordering::SeqCst);
        }
    }
}

/// The connection that a thread serves, as the other threads see it.
pub(super) struct ConnectionSlot {
    stream: Mutex<Option<Arc<TcpStream>>>,
    clock: Arc<IdleClock>,
    /// Milliseconds since the server's start when the connection became idle, plus one; 0 while it is busy.
    idle_since: AtomicU64,
    /// Bytes have been received.
    has_received: AtomicBool,
    /// Another thread closed the reading side, so an end of input may not come from the client.
    read_closed: AtomicBool,
    /// The connection was evicted. A new connection counts in its place.
    evicted: AtomicBool,
}

impl ConnectionSlot {
    pub(super) fn new(clock: Arc<IdleClock>) -> Self {
        let [has_received, read_closed, evicted] = [const { AtomicBool::new(false) }; 3];
        Self { stream: Mutex::new(None), clock, idle_since: AtomicU64::new(0), has_received, read_closed, evicted }
    }

    /// Puts a connection into the slot.
    pub(super) fn attach(&self, stream: TcpStream) -> Arc<TcpStream> {
        let stream = Arc::new(stream);
        let mut attached = lock(&self.stream);
        self.idle_since.store(0, Ordering::SeqCst);
        for flag in [&self.has_received, &self.read_closed, &self.evicted] {
            flag.store(false, Ordering::SeqCst);
        }
        *attached = Some(Arc::clone(&stream));
        stream
    }

    /// Removes the connection. Returns whether there was one that still counts as open: an evicted one does not.
    pub(super) fn detach(&self) -> bool {
        let mut attached = lock(&self.stream);
        self.idle_since.store(0, Ordering::SeqCst);
        attached.take().is_some() && !self.evicted.load(Ordering::SeqCst)
    }

    fn set_idle(&self, idle: bool) {
        let since = if idle { self.clock.now() + 1 } else { 0 };
        self.idle_since.store(since, Ordering::SeqCst);
        if idle {
            self.clock.reset();
        }
    }

    fn set_received(&self) {
        if !self.has_received.load(Ordering::Relaxed) {
            self.has_received.store(true, Ordering::SeqCst);
        }
    }

    fn is_read_closed(&self) -> bool {
        self.read_closed.load(Ordering::SeqCst)
    }

    /// Returns since when the connection has been idle, and from when it may be evicted; `None` if it is not idle. A
    /// connection that has sent nothing may be evicted after `head_timeout` only: its first byte may be on its way.
    pub(super) fn idle_since(&self, head_timeout: Duration) -> Option<(u64, u64)> {
        let since = self.idle_since.load(Ordering::SeqCst);
        if since == 0 || self.evicted.load(Ordering::SeqCst) {
            return None;
        }
        let grace =
            if self.has_received.load(Ordering::SeqCst) { 0 } else { as_millis(head_timeout).saturating_add(1) };
        // The stored time is one more than the time itself.
        Some((since, (since - 1).saturating_add(grace)))
    }

    /// Evicts the connection if it has been idle since `since`. Returns whether it did.
    pub(super) fn evict(&self, since: u64) -> bool {
        let attached = lock(&self.stream);
        let Some(stream) = &*attached else { return false };
        if self.idle_since.load(Ordering::SeqCst) != since || self.evicted.swap(true, Ordering::SeqCst) {
            return false;
        }
        self.close_reading(stream);
        true
    }

    /// Makes the connection close if it is idle.
    pub(super) fn close_if_idle(&self) {
        if let Some(stream) = &*lock(&self.stream)
            && self.idle_since.load(Ordering::SeqCst) > 0
        {
            self.close_reading(stream);
        }
    }

    /// Closes the reading side, which wakes a thread that waits for a request.
    fn close_reading(&self, stream: &TcpStream) {
        self.read_closed.store(true, Ordering::SeqCst);
        let _ = stream.shutdown(Shutdown::Read);
    }

    /// Closes both sides, so that any wait for the client ends.
    pub(super) fn cut(&self) {
        if let Some(stream) = &*lock(&self.stream) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn as_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX - 1)
}

/// A connection that a thread serves with blocking reads and writes.
pub(super) struct BlockingIo<'a> {
    role: &'a dyn LeaderRole,
    status: &'a LeaderStatus,
    server: &'a ServerState,
    slot: &'a ConnectionSlot,
    stream: &'a TcpStream,
    /// The thread has not waited for the connection yet.
    is_new: bool,
    /// The timeouts that are set on the socket. One is set again only to change it.
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
}

impl<'a> BlockingIo<'a> {
    pub(super) fn new(
        role: &'a dyn LeaderRole,
        status: &'a LeaderStatus,
        server: &'a ServerState,
        slot: &'a ConnectionSlot,
        stream: &'a TcpStream,
    ) -> Self {
        let read_timeout = INHERITED.then_some(FIRST_WAIT);
        let write_timeout = INHERITED.then_some(server.config.write_timeout);
        Self { role, status, server, slot, stream, is_new: true, read_timeout, write_timeout }
    }

    /// Serves the connection to its end.
    pub(super) fn run(mut self, buffers: &mut ThreadBuffers) {
        let server = self.server;
        if drive(&mut self, server, buffers, Instant::now()) {
            self.role.step_back();
            self.linger(buffers);
        }
    }

    /// Closes the writing side, and reads until the client closes or the linger timeout has passed.
    fn linger(&self, buffers: &mut ThreadBuffers) {
        let deadline = self.server.within(Instant::now() + self.server.config.linger_timeout);
        if self.stream.shutdown(Shutdown::Write).is_err() || self.stream.set_nonblocking(true).is_err() {
            return;
        }
        while discard(self.stream, &mut buffers.input) && Instant::now() < deadline {
            let socket = (self.stream.as_fd(), PollFlags::IN);
            if wait([socket], Some(self.server.within(deadline)), &mut Vec::new()).is_err() {
                return;
            }
        }
    }

    /// Reads the bytes that have arrived, without waiting.
    fn read_now(&self, buffer: &mut [u8]) -> io::Result<Read> {
        match rustix::net::recv(self.stream, buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Ok(Read::End),
            Ok((count, _)) => Ok(Read::Bytes(count)),
            Err(Errno::AGAIN) => Ok(Read::Leave),
            Err(error) => Err(error.into()),
        }
    }

    /// Sets the read timeout to what is left of `whole` before `deadline`. Returns false if nothing is left.
    ///
    /// The first wait for a new connection is short, because its first byte is on its way as a rule. It is not short while
    /// new connections are silent: a leader would wait for each of them before it accepts the next. Before a longer wait,
    /// a leader steps back.
    fn prepare_read(&mut self, deadline: Instant, whole: Duration) -> io::Result<bool> {
        let left = self.server.within(deadline).saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let is_expected = std::mem::take(&mut self.is_new) && !self.status.silent_starts();
        let timeout = if is_expected && left > FIRST_WAIT {
            FIRST_WAIT
        } else {
            self.role.step_back();
            round_up(left, whole)
        };
        if self.read_timeout != Some(timeout) {
            self.stream.set_read_timeout(Some(timeout))?;
            self.read_timeout = Some(timeout);
        }
        Ok(true)
    }
    /// Reads, and waits at most for the timeout of the socket.
    fn wait_and_read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let read = || rustix::net::recv(self.stream, buffer, RecvFlags::empty()).map(|(count, _)| count);
        if !self.role.leads() {
            return read();
        }
        // Before any other wait, this thread has stepped back.
        self.status.set(Leader::AwaitingFirstByte);
        let result = read();
        self.status.set(Leader::Busy);
        result
    }

    fn send(&self, bytes: &[u8], flags: SendFlags) -> Result<usize, Errno> {
        rustix::net::send(self.stream, bytes, flags)
    }
}

/// Rounds `left` up to a sixteenth of `whole`. A busy connection always has nearly the whole timeout left, so its timeout
/// stays the same and needs no system call.
fn round_up(left: Duration, whole: Duration) -> Duration {
    let step = (whole / 16).max(Duration::from_millis(1));
    let steps = left.as_nanos().div_ceil(step.as_nanos());
    step * u32::try_from(steps).unwrap_or(u32::MAX)
}

impl Transport for BlockingIo<'_> {
    fn read(&mut self, buffer: &mut [u8], phase: Phase, deadline: Instant) -> io::Result<Read> {
        let (server, slot) = (self.server, self.slot);
        let idle = phase.may_close();
        loop {
            if idle {
                slot.set_idle(true);
                // In this order: either the drain sees that this connection is idle, or this thread sees the drain.
                if server.shutdown.is_begun() {
                    return self.read_now(buffer);
                }
            }
            let first = self.is_new.then(Instant::now);
            if !self.prepare_read(deadline, phase.timeout(&server.config))? {
                return Ok(match self.read_now(buffer)? {
                    Read::Leave => Read::TimedOut,
                    read => read,
                });
            }
            let result = self.wait_and_read(buffer);
            if let Some(since) = first {
                self.status.set_silent_starts(result.is_err() || since.elapsed() > FIRST_WAIT);
            }
            if idle {
                slot.set_idle(false);
            }
            match result {
                Ok(0) if slot.is_read_closed() => {
                    if idle {
                        return Ok(Read::Leave);
                    }
                    // A request had begun to arrive before the reading side was closed. The rest can still be read.
                    self.role.step_back();
                    thread::park_timeout(READ_RETRY);
                }
                Ok(0) => return Ok(Read::End),
                Ok(count) => {
                    slot.set_received();
                    return Ok(Read::Bytes(count));
                }
                // The read timed out or was interrupted: the next round checks the deadline.
                Err(Errno::INTR | Errno::AGAIN | Errno::TIMEDOUT) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn write(&mut self, bytes: &[u8], last: bool, deadline: Instant) -> usize {
        let mut written = 0;
        if self.role.leads() {
            written = self.send(bytes, net::send_flags(last) | SendFlags::DONTWAIT).unwrap_or(0);
            if written < bytes.len() {
                self.role.step_back();
            }
        }
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = self.server.config.write_timeout;
            // The first write has the whole timeout, which is set once. Only after a short write is the rest set.
            let timeout = if written == 0 { timeout } else { left };
            if left.is_zero() {
                break;
            }
            if self.write_timeout != Some(timeout) {
                if self.stream.set_write_timeout(Some(timeout.max(Duration::from_millis(1)))).is_err() {
                    break;
                }
                self.write_timeout = Some(timeout);
            }
            match self.send(rest, net::send_flags(last)) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        written
    }

    fn about_to_wait(&mut self) {
        self.role.step_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each connection cost two system calls for timeouts that it can inherit from its listener.
    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "only Linux hands a listener's timeouts on")]
    fn connections_inherit_the_timeouts() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = ServerConfig::default();
        set_first_timeouts(&listener, &config).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let first = stream.read_timeout().unwrap().unwrap();
        assert!(first >= FIRST_WAIT && first <= Duration::from_millis(20), "{first:?}");
        assert_eq!(stream.write_timeout().unwrap(), Some(config.write_timeout));
    }

    /// Each connection rejected at the limit cost a walk over all threads, under their lock, while none was idle.
    #[test]
    fn no_search_while_no_connection_becomes_idle() {
        let clock = Arc::new(IdleClock::new());
        let slot = ConnectionSlot::new(Arc::clone(&clock));
        assert!(clock.can_evict());
        clock.begin_search();
        clock.found_none(u64::MAX);
        assert!(!clock.can_evict());
        slot.set_idle(true);
        assert!(clock.can_evict());
        // A connection that becomes idle during a search counts.
        clock.begin_search();
        slot.set_idle(true);
        clock.found_none(u64::MAX);
        assert!(clock.can_evict());
        // Time alone makes a silent connection evictable.
        clock.begin_search();
        clock.found_none(clock.now());
        assert!(clock.can_evict());
    }

    #[test]
    fn what_is_left_is_rounded_up() {
        let second = Duration::from_secs(1);
        assert_eq!(round_up(60 * second, 64 * second), 60 * second);
        assert_eq!(round_up(61 * second, 64 * second), 64 * second);
        assert_eq!(round_up(Duration::from_nanos(1), 2 * Duration::from_millis(1)), Duration::from_millis(1));
    }
}
