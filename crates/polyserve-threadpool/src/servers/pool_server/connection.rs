//! A connection and its turns: the driver of a [`Connection`](polyserve_serving::Connection), which decides what is done next.
//!
//! A turn ends if the connection has to wait, or after a bounded amount of work: at the end of the connection's own turn, and,
//! while other connections wait, before a second deferred answer.

use std::io::{self, ErrorKind, Read as _};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use polyserve_serving::http1::Session;
use polyserve_serving::net;
use polyserve_serving::{Connection, HasSent, IdleSince, ServerState, Step, ThreadBuffers, Turn, WaitFor, WaitOutcome};
use rustix::io::Errno;

use super::slots::Slot;
use super::worker::PoolServerState;

/// The part of a connection that only its owner uses.
#[derive(Debug)]
pub(super) struct PoolConnection {
    pub(super) stream: Arc<TcpStream>,
    pub(super) connection: Connection,
    /// It is registered with the poller.
    is_registered: bool,
    /// It is registered for writing too.
    is_registered_for_writing: bool,
    /// It waits for the client to read.
    pub(super) is_writing: bool,
    /// The deadline of its wait, in milliseconds since the server's start.
    pub(super) deadline: u64,
}

/// What happens to a connection after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnResult {
    /// It waits for bytes, or to be written to.
    Park,
    /// Its turn is over, and it has more to do.
    Yield,
    /// It is closed.
    Close {
        /// Whether it is read from for a while, so that the client sees the last answer.
        linger: bool,
    },
}

impl PoolConnection {
    /// A connection that was just accepted.
    pub(super) fn new(stream: Arc<TcpStream>) -> Self {
        let connection = Connection::new(Session::from_peer(net::peer(&*stream)));
        Self {
            stream,
            connection,
            is_registered: false,
            is_registered_for_writing: false,
            is_writing: false,
            deadline: u64::MAX,
        }
    }

    /// Whether bytes, or the end, can be read.
    pub(super) fn has_input(&self) -> bool {
        !self.stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// The time since which every request that has begun is answered. `None` if one is not.
    pub(super) fn idle_since(&self, shared: &PoolServerState) -> Option<IdleSince> {
        let HasSent(has_sent) = self.connection.idle()?;
        Some(IdleSince::new(shared.clock.millis_at(self.connection.waiting_since()), has_sent))
    }

    /// Serves one turn.
    pub(super) fn serve(&mut self, shared: &PoolServerState, slot: &Slot, buffers: &mut ThreadBuffers) -> TurnResult {
        buffers.begin_turn();
        let queued_since = shared.clock.instant(slot.queued_at.load(Ordering::Relaxed));
        let mut turn = Turn { queued_since, ..Turn::new(&shared.server, buffers) };
        let (mut is_empty, mut deferred_answers) = (false, 0);
        self.is_writing = false;
        let mut step = self.connection.begin_turn(&mut turn);
        loop {
            step = match step {
                // A read that did not fill the buffer has emptied the socket. Later bytes cause an event. Only the client's end
                // may have been reported together with the bytes that were read.
                Step::Read { past_report: false } if is_empty && !slot.ended.load(Ordering::Relaxed) => {
                    self.connection.on_empty(&mut turn)
                }
                Step::Read { .. } => match (&*self.stream).read(&mut turn.buffers.input) {
                    Ok(0) => self.connection.on_end(&mut turn),
                    Ok(count) => {
                        is_empty = count < turn.buffers.input.len();
                        self.connection.on_bytes(&mut turn, count)
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => step,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => self.connection.on_empty(&mut turn),
                    Err(_) => self.connection.on_error(&mut turn),
                },
                Step::Await if deferred_answers > 0 && !shared.ready.is_empty() => return TurnResult::Yield,
                Step::Await => {
                    deferred_answers += 1;
                    match shared.wait_for_answer(&mut self.connection) {
                        WaitOutcome::Here => self.connection.on_answer(&mut turn),
                        WaitOutcome::TimedOut => self.connection.on_deadline(&mut turn),
                        WaitOutcome::Cut => self.connection.on_error(&mut turn),
                    }
                }
                Step::Wait(reason) => {
                    self.deadline = shared.clock.millis_at(self.connection.deadline());
                    self.is_writing = reason == WaitFor::Room;
                    return TurnResult::Park;
                }
                Step::Yield => return TurnResult::Yield,
                Step::Write { .. } | Step::Linger | Step::Close => match self.write(&mut turn, step) {
                    Ok(next) => next,
                    Err(result) => return result,
                },
            }
        }
    }

    /// Writes, or closes. Returns the next step, or the result of the turn.
    fn write(&mut self, turn: &mut Turn<'_>, step: Step) -> Result<Step, TurnResult> {
        Ok(match step {
            Step::Write { last, .. } => match write(&self.stream, self.connection.output(turn.buffers), last) {
                Ok(0) => self.connection.on_blocked(turn),
                Ok(count) => self.connection.on_written(turn, count),
                Err(_) => self.connection.on_error(turn),
            },
            Step::Linger => return Err(TurnResult::Close { linger: true }),
            Step::Close => return Err(TurnResult::Close { linger: false }),
            Step::Read { .. } | Step::Await | Step::Wait(_) | Step::Yield => return Err(TurnResult::Yield),
        })
    }

    /// Registers the connection with the poller, if it is not registered yet. `writing`: for writing too.
    pub(super) fn register(&mut self, registry: &Registry, token: Token, writing: bool) -> io::Result<()> {
        let fd = self.stream.as_raw_fd();
        let interest = if writing { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        if !self.is_registered {
            registry.register(&mut SourceFd(&fd), token, interest)?;
        } else if writing && !self.is_registered_for_writing {
            registry.reregister(&mut SourceFd(&fd), token, interest)?;
        }
        self.is_registered = true;
        self.is_registered_for_writing |= writing;
        Ok(())
    }

    /// Registers the connection with the poller, or does so again: bytes that have arrived make an event once more.
    pub(super) fn rearm(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        if !self.is_registered {
            return self.register(registry, token, false);
        }
        self.is_registered_for_writing = false;
        registry.reregister(&mut SourceFd(&self.stream.as_raw_fd()), token, Interest::READABLE)
    }

    /// Answers 503 in place of the next answer. Writes only what the socket takes at once. Returns the result of the turn.
    pub(super) fn reject(&mut self, server: &ServerState, buffers: &mut ThreadBuffers) -> TurnResult {
        let mut turn = Turn::new(server, buffers);
        let step = self.connection.reject(&mut turn);
        self.write_last(&mut turn, step)
    }

    /// Ends a wait that has timed out: with a 408, a 503, or no answer. Returns the result of the turn.
    pub(super) fn time_out(&mut self, server: &ServerState, buffers: &mut ThreadBuffers) -> TurnResult {
        let mut turn = Turn::new(server, buffers);
        if !std::mem::take(&mut self.is_writing) {
            let step = self.connection.on_deadline(&mut turn);
            return self.write_last(&mut turn, step);
        }
        // The client may have read while this process was stopped, so that the socket has space. A worker then goes on.
        loop {
            let output = self.connection.output(turn.buffers);
            if output.is_empty() {
                return TurnResult::Yield;
            }
            match write(&self.stream, output, false) {
                Ok(count) if count > 0 => self.connection.note_written(&mut turn, count),
                _ => {
                    let _ = self.connection.on_error(&mut turn); // the client reads too slowly
                    return TurnResult::Close { linger: false };
                }
            }
        }
    }

    /// Writes a last answer as far as the socket takes it at once. Does not call the service.
    fn write_last(&mut self, turn: &mut Turn<'_>, mut step: Step) -> TurnResult {
        loop {
            let was_writing = matches!(step, Step::Write { .. });
            step = match self.write(turn, step) {
                // The socket takes no more.
                Ok(Step::Wait(_)) if was_writing => self.connection.on_error(turn),
                Ok(step) => step,
                Err(result) => return result,
            }
        }
    }
}

/// Writes once. Returns 0 if the socket takes nothing for now.
fn write(stream: &TcpStream, bytes: &[u8], last: bool) -> io::Result<usize> {
    loop {
        match rustix::net::send(stream, bytes, net::send_flags(last)) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(0),
            written => return Ok(written?),
        }
    }
}
