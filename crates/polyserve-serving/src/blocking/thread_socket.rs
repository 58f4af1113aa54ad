//! A connection that holds a thread. The thread waits in `recv` and `send`, with the timeouts of the socket.
//!
//! The thread of an idle connection looks for an eviction and for a drain itself before it waits in `recv`, and once more after
//! 100 ms. After that it waits in `poll`, for the drain too. An eviction must then wake it: another thread closes the reading side of its
//! socket. Bytes that have arrived are still read, so no request that has arrived is lost. While the reading side is open, the connection
//! can linger. If it is closed, the kernel resets the connection if bytes arrive after its close. So a drain does not close it: an answer
//! may be on its way, and its client may send more. An idle connection has its writing side closed before its socket, so that a client
//! reads the end before a reset.
//!
//! *No lost wake-up.* The thread stores that it must be woken, and then loads whether the connection was evicted. An eviction
//! stores that, and then loads whether the thread must be woken. All four are sequentially consistent: one of the two sees the
//! other. The descriptor of a drain stays readable.
//!
//! Cost: a `recv` and a `send` for each request; after a pause of 100 ms a `poll` and a second `recv`, and a `setsockopt` at times.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::{Read, ReadWait, Transport, drive, isolate_logged};
use crate::connections::{ConnectionHandle, ConnectionTable, TableEntry, into_stream};
use crate::http1::Phase;
use crate::{EVICTION_GRACE, READ_RETRY, linger, net, with_buffers};

/// A connection that holds a thread, as other threads use it.
#[derive(Debug)]
pub struct ThreadConnection {
    stream: TcpStream,
    /// The thread does not look for an eviction itself any more: an eviction must wake it.
    must_be_woken: AtomicBool,
    /// An eviction closed the reading side, so an end of the input may not be the client's.
    read_closed: AtomicBool,
    /// Whether the stream blocks when it is accepted, and the timeouts that it then has for reading and writing.
    is_blocking: bool,
    timeouts: [Option<Duration>; 2],
}

impl ThreadConnection {
    /// A connection that was accepted and does not block.
    pub fn new(stream: TcpStream) -> Self {
        let [must_be_woken, read_closed] = [const { AtomicBool::new(false) }; 2];
        Self { stream, must_be_woken, read_closed, is_blocking: false, timeouts: [None; 2] }
    }

    /// A connection that was accepted and blocks, with timeouts for reading and writing that are set already.
    pub fn blocking(stream: TcpStream, timeouts: [Option<Duration>; 2]) -> Self {
        Self { is_blocking: true, timeouts, ..Self::new(stream) }
    }
}

impl AsRef<TcpStream> for ThreadConnection {
    fn as_ref(&self) -> &TcpStream {
        &self.stream
    }
}

impl From<ThreadConnection> for TcpStream {
    fn from(connection: ThreadConnection) -> Self {
        connection.stream
    }
}

impl ConnectionHandle for ThreadConnection {
    fn with_fd<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        act(self.stream.as_fd())
    }

    /// The thread waits for the shutdown itself, or looks for it soon.
    fn wake(&self) {}

    fn evict(&self) {
        if self.must_be_woken.load(Ordering::SeqCst) {
            self.read_closed.store(true, Ordering::SeqCst);
            let _ = self.stream.shutdown(Shutdown::Read); // an error: the client is gone
        }
    }
}

/// The thread of a connection that has become idle looks for an eviction and for a drain after this time. No connection is evicted before
/// [`EVICTION_GRACE`], and most that are evicted are so just after it.
const LOOK_AFTER: Duration = EVICTION_GRACE.saturating_add(Duration::from_millis(50));

/// What a thread does before it waits for its connection. `()` does nothing.
pub trait ThreadRole {
    /// Called before the first read of a new connection. Returns how long the thread waits for the first byte before it calls
    /// [`about_to_wait`](Self::about_to_wait); `None` if it calls that first.
    fn begin_first_read(&self) -> Option<Duration> {
        None
    }

    /// Called after the first read. `waited`: how long it took; `None` if no byte came.
    fn end_first_read(&self, _waited: Option<Duration>) {}

    /// Called before the thread may wait for long.
    fn about_to_wait(&self) {}
}

impl ThreadRole for () {}

/// Serves a connection on its thread, from its first byte to its close, and removes it from `table`. It does not count towards
/// the limit while it lingers, unless too many linger.
///
/// `accepted`: as in [`drive`].
pub fn serve(entry: Arc<TableEntry<ThreadConnection>>, table: &ConnectionTable<ThreadConnection>, accepted: Instant) {
    isolate_logged(|| {
        with_buffers(|buffers| {
            if drive(&mut ThreadSocket::new(&entry, table, &()), &table.server, buffers, accepted) {
                // If too many linger, a connection that counts as open lingers all the same, because the limit bounds these. One
                // that was evicted is closed.
                if table.begin_linger(&entry) || !entry.lingers() {
                    linger(&entry.stream, &table.server, &mut buffers.input);
                } else {
                    let _ = net::leave(&entry.stream, &mut buffers.input); // an error: the client is gone
                }
            }
        });
    });
    table.remove(&entry);
    drop(entry); // the last handle: the socket closes
}

/// Serves a connection on its thread, and removes it from `table`. Returns its stream if it must linger.
///
/// `accepted`: as in [`drive`].
pub fn serve_until_linger(
    entry: Arc<TableEntry<ThreadConnection>>,
    table: &ConnectionTable<ThreadConnection>,
    role: &impl ThreadRole,
    accepted: Instant,
) -> Option<TcpStream> {
    let serve =
        || with_buffers(|buffers| drive(&mut ThreadSocket::new(&entry, table, role), &table.server, buffers, accepted));
    let lingers = isolate_logged(serve).unwrap_or(false);
    table.remove(&entry);
    if lingers { into_stream(entry) } else { None }
}

/// The transport of a connection that holds a thread.
#[derive(Debug)]
pub struct ThreadSocket<'a, R> {
    entry: &'a TableEntry<ThreadConnection>,
    table: &'a ConnectionTable<ThreadConnection>,
    role: &'a R,
    /// Nothing was read yet.
    is_new: bool,
    /// The table's [count](ConnectionTable::times_crowded) at the start, or when the connection had been idle for so long that it could be
    /// evicted.
    times_crowded: u64,
    is_blocking: bool,
    /// The timeouts that are set on the socket. A timeout is set again only if it changes.
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
}

impl<'a, R: ThreadRole> ThreadSocket<'a, R> {
    /// A connection from which nothing was read yet.
    pub fn new(
        entry: &'a TableEntry<ThreadConnection>,
        table: &'a ConnectionTable<ThreadConnection>,
        role: &'a R,
    ) -> Self {
        let (is_blocking, [read_timeout, write_timeout]) = (entry.is_blocking, entry.timeouts);
        let (is_new, times_crowded) = (true, table.times_crowded());
        Self { entry, table, role, is_new, times_crowded, is_blocking, read_timeout, write_timeout }
    }

    fn set_must_be_woken(&self, must_be_woken: bool) {
        // Only this thread stores it.
        if self.entry.must_be_woken.load(Ordering::Relaxed) != must_be_woken {
            self.entry.must_be_woken.store(must_be_woken, Ordering::SeqCst);
        }
    }

    fn is_read_closed(&self) -> bool {
        self.entry.read_closed.load(Ordering::SeqCst)
    }

    fn received(&mut self, count: usize) -> Read {
        self.table.note_bytes(self.entry);
        Read::Bytes(count)
    }

    /// Sets the read timeout to what is left before `deadline`, or to `short` or `longest` if that is less. Returns false if
    /// nothing is left. A connection that is rarely idle for `longest` keeps this timeout.
    fn prepare_read(&mut self, deadline: Instant, short: Option<Duration>, longest: Duration) -> io::Result<bool> {
        let remaining = self.table.server.within(deadline).saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Ok(false);
        }
        let timeout = short.filter(|short| remaining > *short).unwrap_or_else(|| {
            self.role.about_to_wait();
            round_up(remaining).min(longest)
        });
        self.block()?;
        if self.read_timeout != Some(timeout) {
            self.entry.stream.set_read_timeout(Some(timeout))?;
            self.read_timeout = Some(timeout);
        }
        Ok(true)
    }

    /// Waits until the socket is ready or the wait ends.
    fn wait_for_long(&self, wait: ReadWait) -> io::Result<()> {
        self.role.about_to_wait();
        let mut until = self.table.server.within(wait.until);
        let drain = if wait.ends_with_drain { self.table.server.drain_fd() } else { None };
        if drain.is_none() {
            until = until.min(Instant::now() + LOOK_AFTER); // the thread must look for the shutdown itself
        }
        let sockets = [Some(self.entry.stream.as_fd()), drain].into_iter().flatten();
        crate::wait(sockets.map(|socket| (socket, PollFlags::IN)), Some(until), &mut Vec::new())
    }

    fn block(&mut self) -> io::Result<()> {
        if !std::mem::replace(&mut self.is_blocking, true) {
            self.entry.stream.set_nonblocking(false)?;
        }
        Ok(())
    }
}

/// Rounds `remaining` up by at most an eighth, so that a slow connection seldom sets its timeout again.
fn round_up(remaining: Duration) -> Duration {
    let millis = crate::millis(remaining).min(u64::MAX / 2);
    let step = (millis.next_power_of_two() / 16).max(1);
    Duration::from_millis(millis.div_ceil(step).saturating_mul(step))
}

impl<R: ThreadRole> Transport for ThreadSocket<'_, R> {
    fn peer(&self) -> Option<SocketAddr> {
        net::peer(&self.entry.stream)
    }

    fn read(&mut self, buffer: &mut [u8], wait: ReadWait) -> io::Result<Read> {
        if self.is_new && !self.is_blocking {
            // Usually the first request has arrived.
            match self.read_now(buffer)? {
                Read::Empty => {}
                read => return Ok(read),
            }
        }
        let is_idle = wait.phase.may_close();
        let mut looks_itself = is_idle;
        loop {
            if is_idle {
                if looks_itself {
                    self.set_must_be_woken(false);
                    self.entry.set_idle(|| self.table.idle_since(Instant::now(), wait.phase != Phase::FirstByte));
                } else {
                    self.set_must_be_woken(true);
                    self.times_crowded = self.table.times_crowded();
                }
                // The checks come after the stores: either the drain sees that this connection is idle, or this thread sees
                // the drain. The same holds for an eviction.
                if self.entry.is_evicted() || wait.ends_with_drain && self.table.server.shutdown.is_begun() {
                    return Ok(Read::Empty);
                }
            }
            if is_idle && !looks_itself {
                self.wait_for_long(wait)?;
                match self.read_now(buffer)? {
                    Read::Empty if Instant::now() < self.table.server.within(wait.until) => continue,
                    read => return Ok(read),
                }
            }
            let longest = if std::mem::take(&mut looks_itself) { LOOK_AFTER } else { Duration::MAX };
            let is_first = std::mem::take(&mut self.is_new);
            let short = if is_first { self.role.begin_first_read() } else { None };
            let began = is_first.then(Instant::now);
            let prepared = self.prepare_read(wait.until, short, longest);
            if is_first && !matches!(prepared, Ok(true)) {
                self.role.end_first_read(None);
            }
            if !prepared? {
                return self.read_now(buffer);
            }
            let result =
                rustix::net::recv(&self.entry.stream, &mut *buffer, RecvFlags::empty()).map(|(count, _)| count);
            if let Some(began) = began {
                self.role.end_first_read(result.is_ok().then(|| began.elapsed()));
            }
            match result {
                Ok(0) if self.is_read_closed() && is_idle => return Ok(Read::Empty),
                Ok(0) if self.is_read_closed() => {
                    // A request had begun to arrive before the reading side was closed. The rest can still be read.
                    self.role.about_to_wait();
                    thread::park_timeout(READ_RETRY);
                }
                Ok(0) => return Ok(Read::End),
                Ok(count) => return Ok(self.received(count)),
                // The read timed out or was interrupted: the next round checks the deadline.
                Err(Errno::INTR | Errno::AGAIN | Errno::TIMEDOUT) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns [`Read::Empty`] too if an eviction has closed the reading side.
    fn read_now(&mut self, buffer: &mut [u8]) -> io::Result<Read> {
        loop {
            return match rustix::net::recv(&self.entry.stream, &mut *buffer, RecvFlags::DONTWAIT) {
                Ok((0, _)) if self.is_read_closed() => Ok(Read::Empty),
                Ok((0, _)) => Ok(Read::End),
                Ok((count, _)) => Ok(self.received(count)),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => Ok(Read::Empty),
                Err(error) => Err(error.into()),
            };
        }
    }

    fn is_evicted(&self) -> bool {
        self.entry.is_evicted()
    }

    fn write_some(&mut self, bytes: &[u8], last: bool, until: Option<Instant>) -> io::Result<usize> {
        let Some(until) = until else { return net::send(&self.entry.stream, bytes, last) };
        self.role.about_to_wait();
        self.block()?;
        let timeout = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        if self.write_timeout != Some(timeout) {
            self.entry.stream.set_write_timeout(Some(timeout))?;
            self.write_timeout = Some(timeout);
        }
        Ok(rustix::net::send(&self.entry.stream, bytes, net::send_flags(last))?)
    }

    /// A client that reads slowly may take longer than the table stays crowded.
    fn others_wait(&self) -> bool {
        self.table.must_announce_close(self.entry) || self.table.times_crowded() != self.times_crowded
    }

    fn leave(&mut self, buffer: &mut [u8]) {
        let _ = net::leave(&self.entry.stream, buffer); // an error: the client is gone
    }

    fn about_to_wait(&mut self) {
        self.role.about_to_wait();
    }
}

#[cfg(test)]
mod tests;
