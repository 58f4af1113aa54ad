//! A connection and its turns: the driver of a [`Connection`], which decides what is done next.
//!
//! A turn ends if the connection has to wait, or after a bounded amount of work: at the end of the connection's own turn, and,
//! while other connections wait, before a second deferred answer.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use polyserve_serving::{
    Connection, HasSent, IdleSince, QueuedSince, Step, ThreadBuffers, Turn, TurnEnd, WaitOutcome, net, with_buffers,
};

use super::slots::Slot;
use super::worker::PoolServerState;

/// The part of a connection that only its owner uses.
#[derive(Debug)]
pub(super) struct PoolConnection {
    pub(super) stream: Arc<TcpStream>,
    pub(super) connection: Connection,
    /// What the poller watches the socket for.
    watched_for: Option<Interest>,
}

impl PoolConnection {
    pub(super) fn new(stream: Arc<TcpStream>, connection: Connection) -> Self {
        Self { stream, connection, watched_for: None }
    }

    /// Whether the connection waits for its client to read.
    pub(super) fn is_writing(&self) -> bool {
        !self.connection.is_new_output()
    }

    /// Whether the deadline of its wait holds while it is queued too: it waits for its client to read, or lingers.
    pub(super) fn keeps_deadline(&self) -> bool {
        self.is_writing() || self.connection.is_lingering()
    }

    /// The time since which every request that has begun is answered, as the bits of an [`IdleSince`]. 0 if one is not. `since`: when
    /// the present wait began.
    pub(super) fn idle_since(&self, since: u64) -> u64 {
        self.connection.idle().map_or(0, |HasSent(has_sent)| IdleSince::new(since, has_sent).bits())
    }

    /// Serves one turn.
    pub(super) fn serve(&mut self, shared: &PoolServerState, slot: &Slot, buffers: &mut ThreadBuffers) -> TurnEnd {
        buffers.begin_turn();
        let queued_since = QueuedSince::Millis(&shared.clock, slot.queued_at.load(Ordering::Relaxed));
        let mut turn = Turn { queued_since: Some(queued_since), ..Turn::new(&shared.server, buffers) };
        let step = self.connection.begin_turn(&mut turn);
        self.carry_out(step, &mut turn, shared, slot)
    }

    /// Ends the connection with a last answer, or without one, as `end` decides. Does not call the service.
    pub(super) fn end(
        &mut self,
        shared: &PoolServerState,
        slot: &Slot,
        end: fn(&mut Connection, &mut Turn<'_>) -> Step,
    ) -> TurnEnd {
        with_buffers(|buffers| {
            let mut turn = Turn::new(&shared.server, buffers);
            let step = end(&mut self.connection, &mut turn);
            self.carry_out(step, &mut turn, shared, slot)
        })
    }

    /// Carries `step` out, and the steps that follow it, to the end of the turn.
    #[inline]
    fn carry_out(&mut self, mut step: Step, turn: &mut Turn<'_>, shared: &PoolServerState, slot: &Slot) -> TurnEnd {
        let Self { stream, connection, .. } = self;
        let (mut is_empty, mut deferred_answers) = (false, 0);
        loop {
            step = match step {
                // A read that did not fill the buffer has emptied the socket. Later bytes cause an event. Only the client's end
                // may have been reported together with the bytes that were read.
                Step::Read { past_report: false } if is_empty && !slot.ended.load(Ordering::Relaxed) => {
                    connection.on_empty(turn)
                }
                Step::Read { .. } => match net::receive(&**stream, &mut turn.buffers.input) {
                    Ok(0) => connection.on_end(turn),
                    Ok(count) => {
                        is_empty = count < turn.buffers.input.len();
                        connection.on_bytes(turn, count)
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => step,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => connection.on_empty(turn),
                    Err(_) => connection.on_error(turn),
                },
                Step::Write { last, .. } => match net::send(&**stream, connection.output(turn.buffers), last) {
                    Ok(count) if count > 0 => connection.on_written(turn, count),
                    Err(error) if error.kind() == ErrorKind::Interrupted => step,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => connection.on_blocked(turn),
                    _ => connection.on_error(turn),
                },
                Step::Await if deferred_answers > 0 && !shared.ready.is_empty() => return TurnEnd::Yield,
                Step::Await => {
                    deferred_answers += 1;
                    match shared.wait_for_answer(connection) {
                        WaitOutcome::Here => connection.on_answer(turn),
                        WaitOutcome::TimedOut => connection.on_deadline(turn),
                        WaitOutcome::Cut => connection.on_error(turn),
                    }
                }
                Step::Linger if net::end_output(&**stream).is_ok() && shared.slots.begin_linger(slot) => {
                    connection.on_lingering(turn)
                }
                Step::Wait(_) => return TurnEnd::Wait,
                Step::Yield => return TurnEnd::Yield,
                Step::Linger | Step::Leave => {
                    let _ = net::leave(&**stream, &mut turn.buffers.input); // an error: the client is gone
                    return TurnEnd::Close;
                }
                Step::Close => return TurnEnd::Close,
            };
        }
    }

    /// Ends a write that has lasted too long, if the socket takes no bytes. Otherwise its client has read while this process was
    /// stopped, and a worker goes on. Does not call the service.
    pub(super) fn end_write(&mut self, shared: &PoolServerState) -> TurnEnd {
        with_buffers(|buffers| {
            let mut turn = Turn::new(&shared.server, buffers);
            while self.is_writing() {
                match net::send(&*self.stream, self.connection.output(turn.buffers), false) {
                    Ok(count) if count > 0 => self.connection.note_written(&mut turn, count),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    _ => {
                        let _ = self.connection.on_error(&mut turn);
                        return TurnEnd::Close;
                    }
                }
            }
            TurnEnd::Yield
        })
    }

    /// Registers the connection with the poller for what it waits for, unless it is registered for that already.
    pub(super) fn watch(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let (fd, is_writing) = (self.stream.as_raw_fd(), self.is_writing());
        let interest = if is_writing { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        match self.watched_for {
            None => registry.register(&mut SourceFd(&fd), token, interest)?,
            Some(known) if is_writing && !known.is_writable() => {
                registry.reregister(&mut SourceFd(&fd), token, interest)?;
            }
            Some(_) => return Ok(()),
        }
        self.watched_for = Some(interest);
        Ok(())
    }
}
