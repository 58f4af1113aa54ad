//! Serving one connection on a thread that may block, from its first byte to its close.
//!
//! [`serve`] serves a connection on a thread of its own, and [`PoolConnections::serve_next`] on a thread of a pool. Both run the
//! loop [`drive`]: read, call the service, write.
//!
//! The loop reads and writes through a [`Transport`], which decides how the thread waits. [`ThreadSocket`] waits in `recv`, and
//! the connections of a pool in `poll(2)`. A server may use its own transport.

mod pooled;
mod thread_socket;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use polyserve_core::panics::isolate;

use super::{Connection, QueuedSince, ServerState, Step, ThreadBuffers, Turn, WaitOutcome, wait_for_answer};
use crate::http1::{Phase, Session};
use crate::memory::Reservation;
pub use pooled::{PoolConnections, PoolEntry, PoolRole, PooledConnection, Served};
pub use thread_socket::{ThreadConnection, ThreadRole, ThreadSocket, serve, serve_until_linger};

/// A socket, as a thread that may block uses it.
pub trait Transport {
    /// Reads some bytes, and waits for them. Returns [`Read::Empty`] if none have come by the end of the wait.
    ///
    /// While the phase [may close](Phase::may_close), the connection may be evicted, which ends the wait.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection is lost.
    fn read(&mut self, buffer: &mut [u8], wait: ReadWait) -> io::Result<Read>;

    /// Reads the bytes that have arrived, without waiting.
    ///
    /// # Errors
    ///
    /// Returns an error if the connection is lost.
    fn read_now(&mut self, buffer: &mut [u8]) -> io::Result<Read>;

    /// Whether the connection was evicted.
    fn is_evicted(&self) -> bool;

    /// Writes some bytes. `last`: the connection is closed next. `until`: waits until the kernel takes some, but not after this time;
    /// if it is `None`, does not wait.
    ///
    /// # Errors
    ///
    /// Returns [`WouldBlock`](ErrorKind::WouldBlock) if the kernel takes nothing for now, and another error if the connection is lost
    /// or a shutdown cuts it.
    fn write_some(&mut self, bytes: &[u8], last: bool, until: Option<Instant>) -> io::Result<usize>;

    /// Writes until all is written, the deadline has passed or the client is gone. Returns the number of bytes written.
    ///
    /// `deadline`: if the kernel does not take all bytes at once, it returns the deadline of the wait that begins, given the number
    /// of unsent bytes. It is called at most once.
    fn write(&mut self, bytes: &[u8], last: bool, deadline: &dyn Fn(usize) -> Instant) -> usize {
        let (mut written, mut until) = (0_usize, None);
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match self.write_some(rest, last, until) {
                Ok(0) => break,
                Ok(count) => written = written.saturating_add(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if *until.get_or_insert_with(|| deadline(rest.len())) <= Instant::now() {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        written
    }

    /// Returns the address of the connection's other end.
    fn peer(&self) -> Option<SocketAddr>;

    /// Whether other connections wait for this thread. If so, the answers that are written next say `Connection: close`.
    fn others_wait(&self) -> bool {
        false
    }

    /// Ends a connection that is idle, and that is closed next: see [`net::leave`](crate::net::leave).
    fn leave(&mut self, buffer: &mut [u8]);

    /// Called before the thread waits for an answer that comes later.
    fn about_to_wait(&mut self) {}
}

/// A wait for bytes.
#[derive(Clone, Copy, Debug)]
pub struct ReadWait {
    /// What is awaited.
    pub phase: Phase,
    /// The wait ends then.
    pub until: Instant,
    /// The wait ends if a shutdown has begun, because the connection may close.
    pub ends_with_drain: bool,
}

/// The result of a read.
#[derive(Debug)]
pub enum Read {
    /// This number of bytes was read.
    Bytes(usize),
    /// The client sends no more.
    End,
    /// There is nothing to read for now.
    Empty,
    /// The server wants the thread back: the connection has sent nothing.
    Leave,
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
    let mut connection = Connection::accepted(Session::from_peer(transport.peer()), accepted);
    let queued = accepted.elapsed();
    let turn = Turn { queued_since: Some(QueuedSince::Instant(accepted)), ..Turn::new(server, buffers) };
    let lingers = BlockingDriver { transport, turn, queued, reservation: Reservation::default() }.run(&mut connection);
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

struct BlockingDriver<'a, T> {
    transport: &'a mut T,
    turn: Turn<'a>,
    /// How long the connection has waited for its thread.
    queued: Duration,
    /// The buffers that the thread keeps while it waits.
    reservation: Reservation,
}

impl<T: Transport> BlockingDriver<'_, T> {
    fn run(&mut self, connection: &mut Connection) -> bool {
        let mut step = connection.begin_turn(&mut self.turn);
        loop {
            step = match step {
                Step::Read { past_report } => self.read(connection, past_report),
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
                Step::Wait(_) => {
                    // A read and a write wait themselves. An eviction or a shutdown may have ended the wait.
                    self.turn.note_shutdown();
                    self.turn.is_evicted = self.transport.is_evicted();
                    connection.next(&mut self.turn)
                }
                Step::Linger => return true,
                Step::Leave => {
                    self.transport.leave(&mut self.turn.buffers.input);
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
        let (memory, reserved) = (&server.http.memory, connection.reserved_bytes());
        if !self.reservation.try_set(memory, buffers.kept_bytes().saturating_sub(reserved)) {
            buffers.shrink();
            self.reservation.set(memory, buffers.kept_bytes().saturating_sub(reserved));
        }
    }

    fn write(&mut self, connection: &mut Connection, last: bool) -> Step {
        self.turn.buffers.http.release_body();
        self.reserve_buffers(connection);
        let output = connection.output(self.turn.buffers);
        let length = output.len();
        let deadline = |unsent| connection.write_deadline(self.turn.server, unsent);
        let written = self.transport.write(output, last, &deadline);
        if connection.has_more() {
            self.begin_turn();
        }
        let step = connection.on_written(&mut self.turn, written);
        if written == length { step } else { connection.on_error(&mut self.turn) }
    }

    /// Reads once. `past_report`: does not wait for the bytes.
    fn read(&mut self, connection: &mut Connection, past_report: bool) -> Step {
        let phase = connection.phase();
        let read = if past_report {
            self.transport.read_now(&mut self.turn.buffers.input)
        } else {
            self.read_or_shrink(connection, phase)
        };
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
            Ok(Read::Empty) => connection.on_empty(&mut self.turn),
            Ok(Read::Leave) => connection.leave(&mut self.turn, false),
            Err(_) => connection.on_error(&mut self.turn),
        }
    }

    /// Reads once. If nothing comes for a while, releases large buffers, and waits again.
    fn read_or_shrink(&mut self, connection: &mut Connection, phase: Phase) -> io::Result<Read> {
        let until = connection.input_deadline(&self.turn);
        let wait = ReadWait { phase, until, ends_with_drain: phase.may_close() && self.turn.draining_at.is_none() };
        let shrink_at = Instant::now() + SHRINK_AFTER;
        if shrink_at < until && self.turn.buffers.is_large() {
            self.reserve_buffers(connection);
            match self.transport.read(&mut self.turn.buffers.input, ReadWait { until: shrink_at, ..wait })? {
                Read::Empty => self.turn.buffers.shrink(),
                read => return Ok(read),
            }
        }
        self.reserve_buffers(connection);
        self.transport.read(&mut self.turn.buffers.input, wait)
    }
}

#[cfg(test)]
mod tests;
