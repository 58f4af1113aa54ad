//! The connections of a pool server: which thread may touch each, and until when each waits.
//!
//! Each connection has a slot. The slot's [`SlotState`] says which thread owns the connection.
//!
//! Slots are allocated in segments when they are needed. The slot that was freed last is used first, so that few slots
//! are touched while few connections are open.
//!
//! Times are those of the server's [`DeadlineClock`](polyserve_serving::DeadlineClock).

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use polyserve_core::sync::lock;
use polyserve_serving::http1::Session;
use polyserve_serving::{Connection, IdleSince, MAX_LINGERING, net};

use super::connection::PoolConnection;
use super::slot_state::{FREE, PARKED, QUEUED, SlotState};

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
    /// When the connection was last put into the ready list.
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

    /// Takes a free slot for `stream`. Its state is `QUEUED`, since `now` and with `deadline`. `lingers`: the connection was
    /// rejected.
    ///
    /// # Errors
    ///
    /// Returns the stream if the limit on connections, or on those that linger, is reached.
    pub(super) fn admit(&self, stream: TcpStream, lingers: bool, now: u64, deadline: u64) -> Result<usize, TcpStream> {
        let mut free = lock(&self.free);
        let is_full = if lingers { free.lingering >= MAX_LINGERING } else { free.open >= self.max_connections };
        if is_full {
            return Err(stream);
        }
        let id = free.ids.pop().unwrap_or(free.first_unused);
        let Some(segment) = self.segments.get(id / SEGMENT_SIZE) else { return Err(stream) };
        let segment = segment.get_or_init(|| (0..SEGMENT_SIZE).map(|_| Slot::default()).collect());
        let Some(slot) = segment.get(id % SEGMENT_SIZE) else { return Err(stream) };
        free.first_unused = free.first_unused.max(id + 1);
        *free.count(lingers) += 1;
        slot.lingers.store(lingers, Ordering::Relaxed);
        drop(free);
        let connection =
            if lingers { Connection::lingering() } else { Connection::new(Session::from_peer(net::peer(&stream))) };
        let stream = Arc::new(stream);
        *lock(&slot.socket) = Some(Arc::clone(&stream));
        *lock(&slot.connection) = Some(PoolConnection::new(stream, connection));
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
