//! Serving one connection on a thread that may block, from its first byte to its close.
//!
//! [`serve`] serves a connection on a thread of its own, and [`PoolConnections::serve_next`] on a thread of a pool. Both run the
//! loop [`drive`]: read, call the service, write.
//!
//! The loop reads and writes through a [`Transport`], which decides how the thread waits. [`ThreadSocket`] waits in `recv`, and
//! the connections of a pool in `poll(2)`. A server may use its own transport.

mod pooled;
mod thread_socket;

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use polyserve_core::panics::isolate;

use super::{Connection, QueuedSince, ServerState, Step, ThreadBuffers, Turn, WaitOutcome, wait_for_answer};
use crate::http1::{Phase, Session, TimeLimit};
use crate::memory::Reservation;
pub use pooled::{PoolConnections, PoolEntry, PoolRole, PooledConnection, Served};
pub use thread_socket::{ThreadConnection, ThreadRole, ThreadSocket, serve, serve_until_linger};

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

    /// Closes the writing side of a connection that is idle and is closed next. If a request comes meanwhile, the kernel resets the
    /// connection, but its client reads the end first.
    fn end_output(&mut self) {}

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
    let turn = Turn { queued_since: Some(QueuedSince::Instant(accepted)), ..Turn::new(server, buffers) };
    let lingers = Drive { transport, turn, queued, reservation: Reservation::default() }.run(&mut connection);
    if connection.take_cut() {
        server.count_cut();
    }
    lingers
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
                            self.begin_turn();
                            connection.on_answer(&mut self.turn)
                        }
                        WaitOutcome::TimedOut => connection.on_deadline(&mut self.turn),
                        WaitOutcome::Cut => connection.on_error(&mut self.turn),
                    }
                }
                Step::Yield => {
                    self.turn.queued_since = None; // the next turn begins at once
                    self.turn.buffers.begin_thread_turn();
                    connection.begin_turn(&mut self.turn)
                }
                Step::Wait(_) => connection.next(&mut self.turn), // a read and a write wait themselves
                Step::Linger => return true,
                Step::Leave => {
                    self.transport.end_output();
                    return false;
                }
                Step::Close => return false,
            };
        }
    }

    /// Begins a turn of the session. Looks whether other connections wait for the thread: if so, the connection gives it up after
    /// the answers of this turn.
    #[inline]
    fn begin_turn(&mut self) {
        self.turn.others_wait = self.transport.others_wait();
        self.turn.buffers.begin_thread_turn();
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
        let is_waited_for = !connection.has_only_end(); // the client has time to read its answers, and none for the end of TLS
        let limit = |unsent| if is_waited_for { TimeLimit::Write { unsent }.of(config) } else { Duration::ZERO };
        let deadline = |unsent| Instant::now() + limit(unsent);
        let written = self.transport.write(output, last, &deadline);
        if connection.has_more() {
            self.begin_turn();
        }
        let step = connection.on_written(&mut self.turn, written);
        if written == length { step } else { connection.on_error(&mut self.turn) }
    }

    /// Reads once, and waits for the bytes.
    fn read(&mut self, connection: &mut Connection) -> Step {
        let (phase, deadline) = (connection.phase(), connection.input_deadline(&self.turn));
        let read = self.read_or_shrink(connection, phase, deadline);
        match read {
            Ok(Read::Bytes(count)) => {
                if phase == Phase::FirstByte {
                    // The time in the queue counts towards the timeout of the head, but not the time until its first byte.
                    // Over TLS, the first byte of the first request has a second wait, for which the connection was not queued.
                    self.turn.queued_since =
                        Instant::now().checked_sub(std::mem::take(&mut self.queued)).map(QueuedSince::Instant);
                }
                self.begin_turn();
                connection.on_bytes(&mut self.turn, count)
            }
            Ok(Read::End) => connection.on_end(&mut self.turn),
            // The client may still be sending a body that is skipped, so the connection lingers.
            Ok(Read::Leave) if phase != Phase::Skip => connection.leave(&mut self.turn, false),
            Ok(Read::TimedOut | Read::Leave) => connection.on_deadline(&mut self.turn),
            Ok(Read::Evicted) => connection.leave(&mut self.turn, true),
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

#[cfg(test)]
mod tests;
