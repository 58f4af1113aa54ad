//! A connection and its turns. A turn reads, calls the service and writes.
//!
//! A turn ends if the connection has to wait, or after a bounded amount of work: after [`MAX_FULL_READS`] reads that filled
//! the buffer, at the end of the session's [turn](polyserve_serving::http1::turn), and, while other connections wait, before a
//! second deferred answer.

use std::io::{self, ErrorKind, Read as _};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use polyserve_core::ServerConfig;
use polyserve_serving::http1::{Phase, Session, TimeLimit, Want};
use polyserve_serving::net;
use polyserve_serving::{IdleSince, ServerState, ThreadBuffers, WaitOutcome};
use rustix::io::Errno;

use super::timing::millis;

/// A turn ends after this number of reads that filled the buffer.
pub(super) const MAX_FULL_READS: usize = 2;

/// The part of a connection that only its owner uses.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: Arc<TcpStream>,
    pub(super) session: Session,
    /// It is registered with the poller.
    is_registered: bool,
    /// It is registered for writing too.
    is_registered_for_writing: bool,
    /// The wait that `deadline` was set for: the request, the phase, and whether it waits to write.
    wait: Option<(u64, Phase, bool)>,
    /// When that wait began, in milliseconds since the server's start.
    wait_start: u64,
    /// The deadline of that wait, in milliseconds since the server's start.
    pub(super) deadline: u64,
    /// The number of the first request of its turn.
    first_request: u64,
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

const CUT: TurnResult = TurnResult::Close { linger: false };

/// The parts of the server that a turn uses.
pub(super) trait TurnContext {
    fn server(&self) -> &ServerState;

    /// Whether other connections wait for a worker.
    fn others_wait(&self) -> bool;

    /// Waits for the deferred answer of `session`.
    fn wait_for_answer(&self, session: &mut Session) -> WaitOutcome;
}

impl Connection {
    /// A connection that was just accepted.
    pub(super) fn new(stream: Arc<TcpStream>) -> Self {
        let session = Session::from_peer(net::peer(&*stream));
        Self {
            stream,
            session,
            is_registered: false,
            is_registered_for_writing: false,
            wait: None,
            wait_start: 0,
            deadline: u64::MAX,
            first_request: 0,
        }
    }

    /// Whether bytes, or the end, can be read.
    pub(super) fn has_input(&self) -> bool {
        !self.stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// The time since which every request that has begun is answered. `None` if one is not.
    pub(super) fn idle_since(&self) -> Option<IdleSince> {
        let (requests, phase) = self.session.stage();
        let has_sent = requests > 0 || phase == Phase::Skip;
        (!self.session.is_busy()).then(|| IdleSince::new(self.wait_start, has_sent))
    }

    /// Whether it waits for the client to read.
    pub(super) fn is_writing(&self) -> bool {
        !self.session.unsent().is_empty()
    }

    /// Serves one turn. `ended` is the slot's flag that the client has closed its writing side.
    pub(super) fn serve(
        &mut self,
        context: &impl TurnContext,
        ended: &AtomicBool,
        buffers: &mut ThreadBuffers,
    ) -> TurnResult {
        let server = context.server();
        let (first_request, _) = self.session.stage();
        self.first_request = first_request;
        buffers.begin_turn();
        let mut want = match self.session.want() {
            Want::Yield => Want::Write, // this is the next turn
            want => want,
        };
        let (mut full_reads, mut is_empty, mut deferred_answers) = (0, false, 0);
        loop {
            match self.flush(matches!(want, Want::Close { .. }), buffers) {
                Flushed::All => {}
                Flushed::Blocked => return TurnResult::Park,
                Flushed::Broken => {
                    server.abandon(&mut self.session);
                    return CUT;
                }
            }
            let session = &mut self.session;
            match want {
                Want::Close { linger } => return TurnResult::Close { linger },
                Want::Yield => return TurnResult::Yield,
                Want::Write => {}
                Want::Answer => {
                    if deferred_answers > 0 && context.others_wait() {
                        return TurnResult::Yield;
                    }
                    deferred_answers += 1;
                    match context.wait_for_answer(session) {
                        WaitOutcome::Here => {}
                        WaitOutcome::TimedOut => {
                            buffers.refresh(server);
                            want = session.time_out(&server.env, &mut buffers.scratch);
                            continue;
                        }
                        WaitOutcome::Cut => {
                            server.abandon(session);
                            return CUT;
                        }
                    }
                }
                Want::Read(phase) => {
                    // A read that did not fill the buffer has emptied the socket. Later bytes cause an event. Only the
                    // client's end may have been reported together with the bytes that were read.
                    let draining = server.shutdown.is_begun();
                    if is_empty && !draining && !ended.load(Ordering::Relaxed) {
                        return TurnResult::Park;
                    }
                    if full_reads == MAX_FULL_READS || buffers.scratch.turn_is_over() {
                        return TurnResult::Yield;
                    }
                    match (&*self.stream).read(&mut buffers.input) {
                        Ok(0) => want = session.end_of_input(),
                        Ok(count) => {
                            is_empty = count < buffers.input.len();
                            full_reads += usize::from(!is_empty);
                            want = buffers.receive(count, session, server, false);
                        }
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {
                            // The rest of a refused body does not hold a drain.
                            let ends = draining && phase.may_close();
                            let linger = phase == Phase::Skip;
                            return if ends { TurnResult::Close { linger } } else { TurnResult::Park };
                        }
                        Err(_) => {
                            server.abandon(session);
                            return CUT;
                        }
                    }
                    continue;
                }
            }
            buffers.refresh(server);
            want = session.resume(&server.env, &mut buffers.scratch);
        }
    }

    /// Updates the deadline of the connection's present wait, and returns whether it has passed at `now`. The deadline stays
    /// the same during one wait. The time in the queue, since `queued_at`, counts towards the timeout of a head.
    pub(super) fn update_deadline(&mut self, now: u64, queued_at: u64, config: &ServerConfig) -> bool {
        let ((request, phase), writing) = (self.session.stage(), self.is_writing());
        let is_new = self.wait.replace((request, phase, writing)) != Some((request, phase, writing));
        if is_new {
            let was_queued = phase == Phase::Head && request == self.first_request;
            self.wait_start = if was_queued { queued_at } else { now };
        }
        // A body that arrives has more time. The limit of a write follows from what was unsent when its wait began.
        if is_new || (!writing && matches!(phase, Phase::Body | Phase::Skip)) {
            let limit = match writing {
                true => TimeLimit::Write { unsent: self.session.unsent().len() },
                false => self.session.time_limit(),
            };
            self.deadline = self.wait_start.saturating_add(millis(limit.of(config)));
        }
        self.deadline < now
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

    /// Answers 503 in place of the next answer. Writes only what the socket takes at once. Returns the result of the turn.
    pub(super) fn reject(&mut self, server: &ServerState, buffers: &mut ThreadBuffers) -> TurnResult {
        buffers.refresh(server);
        let want = self.session.reject(&server.env, &mut buffers.scratch);
        self.write_last(want, buffers)
    }

    /// Ends a wait that has timed out: with a 408, a 503, or no answer. Returns the result of the turn.
    pub(super) fn time_out(&mut self, server: &ServerState, buffers: &mut ThreadBuffers) -> TurnResult {
        if self.is_writing() {
            // The client may have read while this process was stopped, so that the socket has space.
            if self.flush(false, buffers) == Flushed::All {
                return TurnResult::Yield;
            }
            server.abandon(&mut self.session); // it reads too slowly
            return CUT;
        }
        buffers.refresh(server);
        let want = self.session.time_out(&server.env, &mut buffers.scratch);
        self.write_last(want, buffers)
    }

    /// Writes a last answer as far as the socket takes it at once.
    fn write_last(&mut self, want: Want, buffers: &mut ThreadBuffers) -> TurnResult {
        let written = self.flush(true, buffers) == Flushed::All;
        if !written {
            self.session.abandon();
        }
        TurnResult::Close { linger: written && want == Want::Close { linger: true } }
    }

    /// Writes the session's output. `last`: the connection is closed next.
    fn flush(&mut self, last: bool, buffers: &mut ThreadBuffers) -> Flushed {
        let (stream, session) = (&*self.stream, &mut self.session);
        if !buffers.scratch.out().is_empty() {
            // If earlier output is still unsent, the new output is appended to it.
            let sent = if session.unsent().is_empty() { write(stream, buffers.scratch.out(), last) } else { Ok(0) };
            session.written(*sent.as_ref().unwrap_or(&0), &mut buffers.scratch);
            if sent.is_err() {
                return Flushed::Broken;
            }
        }
        while !session.unsent().is_empty() {
            match write(stream, session.unsent(), last) {
                Ok(0) => return Flushed::Blocked,
                Ok(count) => drop(session.advance(count)),
                Err(_) => return Flushed::Broken,
            }
        }
        Flushed::All
    }
}

/// The result of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flushed {
    All,
    /// The socket takes no more for now; the session keeps the rest.
    Blocked,
    /// The client is gone.
    Broken,
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
