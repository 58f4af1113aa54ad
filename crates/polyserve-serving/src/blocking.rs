//! Serving one connection on a thread that may block, from its first byte to its close.
//!
//! [`serve`] serves a connection on a thread of its own, and [`serve_pooled`] on a thread of a pool. Both run the loop
//! [`drive`]: read, call the service, write.
//!
//! The loop reads and writes through a [`Transport`], which decides how the thread waits. [`ThreadSocket`] waits in `recv`, and
//! [`PolledSocket`] in `poll(2)`. A server may use its own transport.

mod thread_socket;

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::panics::isolate;
use rustix::event::PollFlags;

use super::{
    Connection, EVICTION_GRACE, OpenConnection, OpenConnections, READ_RETRY, ServerState, Step, ThreadBuffers, Turn,
    WaitOutcome, wait, wait_for_answer, with_buffers,
};
use crate::http1::{Phase, Session, TimeLimit};
use crate::memory::Reservation;
use crate::net;
pub use thread_socket::{ThreadConnection, ThreadRole, ThreadSocket, into_stream, serve, serve_until_linger};

/// A socket, as a thread that may block uses it.
pub trait Transport {
    /// Reads some bytes, waiting until `deadline` at the latest.
    ///
    /// Bytes in the socket are read before a timeout is reported, even if the deadline passed long ago. So a request that
    /// arrived in time is served after a pause of the whole process. While the phase [may close](Phase::may_close), the
    /// connection may be evicted, and a drain closes it as soon as the socket is empty.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection is lost.
    fn read(&mut self, buffer: &mut [u8], phase: Phase, deadline: Instant) -> io::Result<Read>;

    /// Writes until all is written, the deadline has passed or the client is gone. Returns the number of bytes written.
    ///
    /// `last`: the connection is closed next. `deadline`: if the kernel does not take all bytes at once, it returns the
    /// deadline of the wait that begins, given the number of unsent bytes. It is called at most once.
    fn write(&mut self, bytes: &[u8], last: bool, deadline: &dyn Fn(usize) -> Instant) -> usize;

    /// Returns the address of the connection's other end.
    fn peer(&self) -> Option<SocketAddr>;

    /// Whether other connections wait for this thread. If so, the answers that are written next say `Connection: close`.
    fn others_wait(&self) -> bool {
        false
    }

    /// Called before the thread waits for an answer that comes later.
    fn about_to_wait(&mut self) {}
}

/// The result of a read.
#[derive(Debug)]
pub enum Read {
    /// This number of bytes was read.
    Bytes(usize),
    /// The client sends no more.
    End,
    /// The deadline has passed, and the socket is empty.
    TimedOut,
    /// Nothing was read. A shutdown has begun, so the caller has to read again with the new deadline.
    Again,
    /// The connection was idle, or a body was skipped, and the connection is to be closed.
    Leave,
    /// The connection was idle, and is to be closed for another. It lingers, because a request may be on its way.
    Evicted,
}

/// A thread that has waited for this long for bytes releases large buffers.
const SHRINK_AFTER: Duration = Duration::from_millis(500);

/// Serves a connection to its end. Returns whether it must linger.
///
/// `accepted`: when the connection was accepted. The time that it has waited for a thread since then counts towards its
/// timeouts of its first byte and of its first head.
pub fn drive(
    transport: &mut impl Transport,
    server: &ServerState,
    buffers: &mut ThreadBuffers,
    accepted: Instant,
) -> bool {
    let mut connection = Connection::new(Session::from_peer(transport.peer()));
    let queued = accepted.elapsed();
    let turn = Turn { queued_since: Some(accepted), ..Turn::new(server, buffers) };
    let lingers = Drive { transport, turn, queued, reservation: Reservation::default() }.run(&mut connection);
    if connection.take_cut() {
        server.count_cut();
    }
    lingers
}

/// The state in which [`serve_pooled`] leaves a connection.
#[derive(Debug)]
pub enum Served {
    /// The connection is closed.
    Closed,
    /// The connection does not count any more. It must linger.
    Lingering(TcpStream),
    /// The connection has not sent a byte. It counts as silent, and is to be served again when its first byte is there.
    Silent(TcpStream),
}

/// Serves a connection on this thread of a pool, until it closes or gives the thread up because it has not sent a byte.
///
/// `stream` waited for a thread, as [`OpenConnections::wait_for_thread`] counts. `queued`: when it began to wait. The time
/// since then counts towards the timeouts of its first byte and of its first head. `first_byte`: how long this thread waits for the
/// first byte if no connection waits for a thread.
pub fn serve_pooled(
    stream: TcpStream,
    connections: &OpenConnections,
    server: &ServerState,
    queued: Instant,
    first_byte: Duration,
) -> Served {
    let connection = connections.enter_waiting(stream);
    let mut socket = PolledSocket::pooled(&connection, connections, server, first_byte);
    let lingers = isolate_logged(|| with_buffers(|buffers| drive(&mut socket, server, buffers, queued)));
    let lingers = lingers.unwrap_or(false);
    let served = if socket.is_silent() {
        connections.set_silent(connection).map(Served::Silent)
    } else {
        connections.leave(connection).filter(|_| lingers).map(Served::Lingering)
    };
    served.unwrap_or(Served::Closed)
}

/// Returns `None` if `work` panics, and logs the panic.
fn isolate_logged<T>(work: impl FnOnce() -> T) -> Option<T> {
    let result = isolate(work);
    if let Err(text) = &result {
        let _ = isolate(|| {
            polyserve_core::throttled!(error, panic = text, "a connection's thread panicked; the connection is closed");
        });
    }
    result.ok()
}

struct Drive<'a, T> {
    transport: &'a mut T,
    turn: Turn<'a>,
    /// How long the connection has waited for its thread.
    queued: Duration,
    /// The buffers that the thread keeps while it waits.
    reservation: Reservation,
}

impl<T: Transport> Drive<'_, T> {
    fn run(&mut self, connection: &mut Connection) -> bool {
        let mut step = connection.begin_turn(&mut self.turn);
        loop {
            step = match step {
                Step::Read { .. } => self.read(connection),
                Step::Write { last, .. } => self.write(connection, last),
                Step::Await => {
                    self.transport.about_to_wait();
                    self.reserve_buffers(connection);
                    match wait_for_answer(self.turn.server, |cx| connection.poll_answer(cx)) {
                        WaitOutcome::Here => {
                            self.turn.others_wait = self.transport.others_wait();
                            connection.on_answer(&mut self.turn)
                        }
                        WaitOutcome::TimedOut => connection.on_deadline(&mut self.turn),
                        WaitOutcome::Cut => connection.on_error(&mut self.turn),
                    }
                }
                Step::Yield => {
                    self.turn.queued_since = None; // the next turn begins at once
                    connection.begin_turn(&mut self.turn)
                }
                Step::Wait(_) => connection.next(&mut self.turn), // a read and a write wait themselves
                Step::Linger => return true,
                Step::Close => return false,
            };
        }
    }

    /// Reserves the memory of large buffers, before a wait. If memory is used up, releases what is not needed.
    #[inline]
    fn reserve_buffers(&mut self, connection: &Connection) {
        if self.turn.buffers.is_large() || !self.reservation.is_empty() {
            self.reserve_large_buffers(connection);
        }
    }

    fn reserve_large_buffers(&mut self, connection: &Connection) {
        let Turn { server, buffers, .. } = &mut self.turn;
        let (memory, reserved) = (&server.env.memory, connection.reserved_bytes());
        if !self.reservation.try_set(memory, buffers.kept_bytes().saturating_sub(reserved)) {
            buffers.shrink();
            self.reservation.set(memory, buffers.kept_bytes().saturating_sub(reserved));
        }
    }

    fn write(&mut self, connection: &mut Connection, last: bool) -> Step {
        self.turn.buffers.scratch.release_body();
        self.reserve_buffers(connection);
        let output = connection.output(self.turn.buffers);
        let length = output.len();
        let config = &self.turn.server.config;
        let deadline = |unsent| Instant::now() + TimeLimit::Write { unsent }.of(config);
        let written = self.transport.write(output, last, &deadline);
        if connection.has_more() {
            self.turn.others_wait = self.transport.others_wait();
        }
        let step = connection.on_written(&mut self.turn, written);
        if written == length { step } else { connection.on_error(&mut self.turn) }
    }

    /// Reads once, and waits for the bytes.
    fn read(&mut self, connection: &mut Connection) -> Step {
        let (phase, deadline) = (connection.phase(), connection.input_deadline(&self.turn));
        match self.read_or_shrink(connection, phase, deadline) {
            Ok(Read::Bytes(count)) => {
                if phase == Phase::FirstByte {
                    // The time in the queue counts towards the timeout of the head, but not the time until its first byte.
                    self.turn.queued_since = Instant::now().checked_sub(self.queued);
                }
                self.turn.others_wait = self.transport.others_wait();
                connection.on_bytes(&mut self.turn, count)
            }
            Ok(Read::End) => connection.on_end(&mut self.turn),
            // The client may still be sending a body that is skipped, so the connection lingers.
            Ok(Read::Leave) if phase != Phase::Skip => Step::Close,
            Ok(Read::TimedOut | Read::Leave) => connection.on_deadline(&mut self.turn),
            Ok(Read::Again) => connection.next(&mut self.turn),
            Ok(Read::Evicted) => Step::Linger,
            Err(_) => connection.on_error(&mut self.turn),
        }
    }

    /// Reads once. If nothing comes for a while, releases large buffers, and waits again.
    fn read_or_shrink(&mut self, connection: &Connection, phase: Phase, deadline: Instant) -> io::Result<Read> {
        let shrink_at = Instant::now() + SHRINK_AFTER;
        if shrink_at < deadline && self.turn.buffers.is_large() {
            self.reserve_buffers(connection);
            match self.transport.read(&mut self.turn.buffers.input, phase, shrink_at)? {
                Read::TimedOut => self.turn.buffers.shrink(),
                read => return Ok(read),
            }
        }
        self.reserve_buffers(connection);
        self.transport.read(&mut self.turn.buffers.input, phase, deadline)
    }
}

/// A connection of [`OpenConnections`]. Its thread waits in `poll(2)`.
///
/// It is evicted if others wait for a thread while it is idle or skips a body. A drain wakes its thread by
/// [`OpenConnections::evict_idle`]. On a thread of a pool, a connection that has not sent a byte gives its thread up.
#[derive(Debug)]
pub struct PolledSocket<'a> {
    connection: &'a Arc<OpenConnection>,
    connections: &'a OpenConnections,
    server: &'a ServerState,
    /// Nothing was read yet; the connection counts as idle from this time on.
    silent_until: Option<Instant>,
    /// The connection has a thread of a pool.
    is_pooled: bool,
    is_silent: bool,
}

impl<'a> PolledSocket<'a> {
    /// Creates a connection from which nothing was read yet. It cannot be evicted for `grace`, because its first bytes
    /// usually follow.
    pub fn new(
        connection: &'a Arc<OpenConnection>,
        connections: &'a OpenConnections,
        server: &'a ServerState,
        grace: Duration,
    ) -> Self {
        let silent_until = Some(Instant::now() + grace);
        Self { connection, connections, server, silent_until, is_pooled: false, is_silent: false }
    }

    /// Creates a connection on a thread of a pool, from which nothing was read yet. If its first byte does not arrive within
    /// `first_byte`, or if others wait for a thread, the connection [is silent](Self::is_silent), and leaves.
    pub fn pooled(
        connection: &'a Arc<OpenConnection>,
        connections: &'a OpenConnections,
        server: &'a ServerState,
        first_byte: Duration,
    ) -> Self {
        Self { is_pooled: true, ..Self::new(connection, connections, server, first_byte) }
    }

    /// Whether the connection has left its thread without having sent a byte. It can be served again.
    pub fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Waits for the socket, and for an eviction if `is_idle`.
    fn wait(&self, flags: PollFlags, is_idle: bool, deadline: Instant) -> io::Result<()> {
        let eviction = self.connection.eviction().filter(|_| is_idle).map(|fd| (fd, PollFlags::IN));
        let sockets = [(self.connection.stream().as_fd(), flags)].into_iter().chain(eviction);
        wait(sockets, Some(deadline), &mut Vec::new())
    }

    /// Whether the connection may be evicted while it waits for a request. A connection of a pool
    /// cannot be evicted before its first byte, but a drain closes it.
    fn may_be_evicted(&self) -> bool {
        let is_over = |until| Instant::now() >= until;
        self.silent_until.is_none_or(|until| if self.is_pooled { self.is_draining() } else { is_over(until) })
    }

    /// Whether the connection gives its thread up, because its first byte is not there.
    fn gives_up(&self) -> bool {
        let is_late = |until| Instant::now() >= until || self.connections.lacks_threads();
        self.is_pooled && self.silent_until.is_some_and(is_late) && !self.is_draining()
    }

    fn is_draining(&self) -> bool {
        self.server.shutdown.is_begun()
    }
}

impl Transport for PolledSocket<'_> {
    fn peer(&self) -> Option<SocketAddr> {
        net::peer(self.connection.stream())
    }

    fn read(&mut self, buffer: &mut [u8], phase: Phase, deadline: Instant) -> io::Result<Read> {
        let mut is_idle = false; // whether the connection is noted as idle, so that it may be evicted
        let mut grace_until = None;
        // A client that waited for an answer has sent nothing since, so a read right after the answer would find nothing.
        let mut waits_first = phase.may_close() && self.silent_until.is_none();
        loop {
            if phase.may_close() && !is_idle && self.may_be_evicted() {
                self.connections.set_idle(self.connection);
                is_idle = true;
                grace_until = Some(Instant::now() + EVICTION_GRACE);
            }
            let grace = grace_until.filter(|until| !self.is_draining() && Instant::now() < *until);
            if is_idle && grace.is_none() {
                self.connection.must_be_woken();
            }
            // The checks come after the stores: either the drain sees that this connection is idle, or this thread sees the
            // drain. The same holds for an eviction.
            let is_evicted = is_idle && self.connection.is_evicted();
            let leaves = is_idle && (self.is_draining() || is_evicted) && grace.is_none();
            if leaves || !std::mem::take(&mut waits_first) {
                match net::receive(self.connection.stream(), buffer) {
                    Ok(0) if self.connection.is_read_closed() && phase.may_close() => return Ok(Read::Leave),
                    Ok(0) if self.connection.is_read_closed() && Instant::now() < self.server.within(deadline) => {
                        // A request began to arrive at the same time. Its rest can still be read.
                        thread::park_timeout(READ_RETRY);
                        continue;
                    }
                    Ok(0) => return Ok(Read::End),
                    Ok(count) => {
                        if is_idle {
                            self.connections.set_busy(self.connection);
                        }
                        if self.silent_until.take().is_some() {
                            self.connection.set_has_sent();
                        }
                        return Ok(Read::Bytes(count));
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                    Err(_) if leaves && self.is_draining() => return Ok(Read::Leave),
                    Err(_) if leaves => return Ok(Read::Evicted),
                    Err(_) => {}
                }
                if self.gives_up() {
                    self.is_silent = true;
                    return Ok(Read::Leave);
                }
                if Instant::now() >= deadline {
                    return Ok(Read::TimedOut);
                }
            }
            // Without a descriptor, this thread looks for an eviction at the end of the grace.
            let grace = grace.filter(|_| is_evicted || self.connection.eviction().is_none());
            let until = grace.or(self.silent_until.filter(|_| phase == Phase::FirstByte && !is_idle));
            self.wait(PollFlags::IN, is_idle && !is_evicted, until.map_or(deadline, |until| until.min(deadline)))?;
        }
    }

    fn write(&mut self, bytes: &[u8], last: bool, deadline: &dyn Fn(usize) -> Instant) -> usize {
        let mut written = 0;
        let mut until = None;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match net::send(self.connection.stream(), rest, last) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let deadline = self.server.within(*until.get_or_insert_with(|| deadline(rest.len())));
                    if Instant::now() >= deadline || self.wait(PollFlags::OUT, false, deadline).is_err() {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        written
    }

    fn others_wait(&self) -> bool {
        self.connections.must_announce_close(self.connection)
    }
}

#[cfg(test)]
mod tests;
