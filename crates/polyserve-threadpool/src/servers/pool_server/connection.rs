//! The connections of a pool server: the place of each, which says which thread may touch it and until when it waits, and its turns.
//!
//! Each connection has a slot. The slot's [`SlotState`] says which thread owns the connection. Slots are allocated in segments when
//! they are needed. The slot that was freed last is used first, so that few slots are touched while few connections are open. Times
//! are those of the server's [`DeadlineClock`](polyserve_serving::DeadlineClock).
//!
//! The owner is the driver of a [`Connection`], which decides what is done next. A turn ends if the connection has to wait, or after
//! a bounded amount of work: at the end of the connection's own turn, and, while other connections wait, before a second deferred
//! answer.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use polyserve_core::sync::lock;
use polyserve_serving::http1::Session;
use polyserve_serving::{
    Connection, HasSent, IdleSince, MAX_LINGERING, PeerPlace, QueuedSince, Step, ThreadBuffers, Turn, TurnEnd,
    WaitOutcome, net, with_buffers,
};

use super::slot_state::{FREE, PARKED, QUEUED, SlotState};
use super::worker::PoolServerState;

/// The place of one connection.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) state: SlotState,
    /// The client has closed its writing side. Edge-triggered polling reports that only once.
    pub(super) ended: AtomicBool,
    /// While parked: the bits of the [`IdleSince`] if every request that has begun is answered, or 0.
    pub(super) idle_since: AtomicU64,
    /// The deadline holds while the connection is queued too.
    pub(super) keeps_deadline: AtomicBool,
    /// When the connection was last put into the ready list, in nanoseconds.
    pub(super) queued_at: AtomicU64,
    /// While queued or parked: the deadline.
    pub(super) deadline: AtomicU64,
    /// The connection has sent its last answer. It does not count towards the limit on connections. Changed by its owner, under
    /// the lock of [`Free`].
    lingers: AtomicBool,
    /// Locked by the owner of the connection.
    pub(super) connection: Mutex<Option<PoolConnection>>,
    /// The connection's socket, for the supervisor: it can cut the socket while a worker serves the connection.
    socket: Mutex<Option<Arc<TcpStream>>>,
}

impl Slot {
    /// The time since which the connection is idle. `None` if it is not parked, or not idle.
    pub(super) fn idle_since(&self) -> Option<IdleSince> {
        let bits = self.idle_since.load(Ordering::Relaxed); // the state publishes it
        (bits != 0 && self.state.get() == PARKED).then(|| IdleSince::from_bits(bits))
    }

    /// Whether the connection has sent its last answer.
    pub(super) fn lingers(&self) -> bool {
        self.lingers.load(Ordering::Relaxed) // the state publishes it
    }

    /// Shuts the socket down, whichever thread owns the connection.
    pub(super) fn cut_socket(&self) {
        if let Some(socket) = &*lock(&self.socket) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// All slots of a server.
#[derive(Debug)]
pub(super) struct Slots {
    segments: Box<[OnceLock<Box<[Slot]>>]>,
    /// The max number of connections, those that linger not counted.
    max_connections: usize,
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    ids: Vec<usize>,
    /// Slots from this index on were never used.
    first_unused: usize,
    /// Used slots of connections that count towards the limit, and of those that linger.
    open: usize,
    lingering: usize,
}

impl Free {
    /// The number of connections that linger, or of the others.
    fn count(&mut self, lingers: bool) -> &mut usize {
        if lingers { &mut self.lingering } else { &mut self.open }
    }
}

const SEGMENT_SIZE: usize = 256;

impl Slots {
    /// Creates slots for at most `max_connections`, and for those that linger. Allocates no slot.
    pub(super) fn new(max_connections: usize) -> Self {
        let segments = max_connections.saturating_add(MAX_LINGERING).div_ceil(SEGMENT_SIZE);
        Self { segments: (0..segments).map(|_| OnceLock::new()).collect(), max_connections, free: Mutex::default() }
    }

    pub(super) fn get(&self, id: usize) -> Option<&Slot> {
        self.segments.get(id / SEGMENT_SIZE)?.get()?.get(id % SEGMENT_SIZE)
    }

    /// Returns every slot that was ever used.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Slot)> {
        let first_unused = lock(&self.free).first_unused;
        (0..first_unused).filter_map(|id| Some((id, self.get(id)?)))
    }

    /// The number of slots in use.
    pub(super) fn used(&self) -> usize {
        let free = lock(&self.free);
        free.open + free.lingering
    }

    /// The number of connections that count towards the limit.
    pub(super) fn open(&self) -> usize {
        lock(&self.free).open
    }

    /// Takes a free slot for `stream`. Its state is `QUEUED`, since `now` in nanoseconds, and with `deadline`. `place`: the connection's
    /// place among those of its client; `None` if the connection was rejected, and lingers.
    ///
    /// # Errors
    ///
    /// Returns the connection if the limit on connections, or on those that linger, is reached.
    pub(super) fn admit(
        &self,
        stream: TcpStream,
        place: Option<PeerPlace>,
        now: u64,
        deadline: u64,
    ) -> Result<usize, (TcpStream, Option<PeerPlace>)> {
        let lingers = place.is_none();
        let mut free = lock(&self.free);
        let is_full = if lingers { free.lingering >= MAX_LINGERING } else { free.open >= self.max_connections };
        if is_full {
            return Err((stream, place));
        }
        let id = free.ids.pop().unwrap_or(free.first_unused);
        let Some(segment) = self.segments.get(id / SEGMENT_SIZE) else { return Err((stream, place)) };
        let segment = segment.get_or_init(|| (0..SEGMENT_SIZE).map(|_| Slot::default()).collect());
        let Some(slot) = segment.get(id % SEGMENT_SIZE) else { return Err((stream, place)) };
        free.first_unused = free.first_unused.max(id + 1);
        *free.count(lingers) += 1;
        slot.lingers.store(lingers, Ordering::Relaxed);
        drop(free);
        let connection =
            if lingers { Connection::lingering() } else { Connection::new(Session::from_peer(net::peer(&stream))) };
        let stream = Arc::new(stream);
        *lock(&slot.socket) = Some(Arc::clone(&stream));
        *lock(&slot.connection) =
            Some(PoolConnection { stream, connection, watched_for: None, _place: place.unwrap_or_default() });
        slot.ended.store(false, Ordering::Relaxed);
        slot.queued_at.store(now, Ordering::Relaxed);
        slot.deadline.store(deadline, Ordering::Relaxed); // the state publishes it
        slot.state.set(QUEUED);
        Ok(id)
    }

    /// Counts the connection of `slot` as lingering from now on. Returns false if too many linger.
    pub(super) fn begin_linger(&self, slot: &Slot) -> bool {
        let mut free = lock(&self.free);
        let may_linger = free.lingering < MAX_LINGERING;
        if may_linger {
            free.open -= 1;
            free.lingering += 1;
            slot.lingers.store(true, Ordering::Relaxed);
        }
        may_linger
    }

    /// Closes the socket of slot `id` and frees the slot. For the owner of the connection; `connection` is the slot's.
    pub(super) fn release(&self, id: usize, connection: &mut Option<PoolConnection>) {
        let Some(slot) = self.get(id) else { return };
        *lock(&slot.socket) = None;
        *connection = None; // the last handle: the socket closes
        slot.state.set(FREE);
        let mut free = lock(&self.free);
        free.ids.push(id);
        *free.count(slot.lingers()) -= 1;
    }
}

/// The part of a connection that only its owner uses.
#[derive(Debug)]
pub(super) struct PoolConnection {
    pub(super) stream: Arc<TcpStream>,
    pub(super) connection: Connection,
    /// What the poller watches the socket for.
    watched_for: Option<Interest>,
    /// The place among the connections of the client. Freed after the socket is closed.
    _place: PeerPlace,
}

impl PoolConnection {
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
        let queued_since = QueuedSince::Nanos(&shared.clock, slot.queued_at.load(Ordering::Relaxed));
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
            // As in `ConnectionTable::serve`, most turns pass through these branches only.
            if let Step::Read { past_report } = step {
                // A read that did not fill the buffer has emptied the socket. Later bytes cause an event. Only the client's end
                // may have been reported together with the bytes that were read.
                let is_known_empty = !past_report && is_empty && !slot.ended.load(Ordering::Relaxed);
                step = if is_known_empty {
                    connection.on_empty(turn)
                } else {
                    match net::receive(&**stream, &mut turn.buffers.input) {
                        Ok(count) if count > 0 => {
                            is_empty = count < turn.buffers.input.len();
                            connection.on_bytes(turn, count)
                        }
                        Ok(_) => connection.on_end(turn),
                        Err(error) if error.kind() == ErrorKind::Interrupted => step,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => connection.on_empty(turn),
                        Err(_) => connection.on_error(turn),
                    }
                };
            }
            if let Step::Write { last, .. } = step {
                step = match net::send(&**stream, connection.output(turn.buffers), last) {
                    Ok(count) if count > 0 => connection.on_written(turn, count),
                    Err(error) if error.kind() == ErrorKind::Interrupted => step,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => connection.on_blocked(turn),
                    _ => connection.on_error(turn),
                };
                continue;
            }
            if let Step::Wait(_) = step {
                return TurnEnd::Wait;
            }
            step = match step {
                Step::Read { .. } | Step::Write { .. } | Step::Wait(_) => continue,
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
