//! The connections of a pool server, and who may touch each.
//!
//! A slot's state is one word (`word.rs`). Who moves it to `RUNNING` owns the connection until it moves it on.
//!
//! Slots are made in segments as they are needed, and used again last in, first out, so that few are touched while few
//! are open.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use mio::net::TcpStream;
use polyserve_core::http1::{Phase, Session};
use polyserve_core::sync::lock;

use super::word::{FREE, QUEUED, Word};

/// One connection's place.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) word: Word,
    /// The other side closed its writing side; edge-triggered polling says so only once.
    pub(super) ended: AtomicBool,
    /// While parked: whether it waits for a request's first byte.
    pub(super) idle: AtomicBool,
    /// While parked or lingering: when it is late, in milliseconds since the server's start.
    pub(super) deadline: AtomicU64,
    /// Taken by whoever runs it.
    pub(super) connection: Mutex<Option<Connection>>,
    /// The same socket, for the poller to cut at the end while a worker runs it.
    socket: Mutex<Option<Arc<TcpStream>>>,
}

/// A connection, as its runner has it.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: Arc<TcpStream>,
    pub(super) session: Session,
    /// The poller knows it.
    pub(super) registered: bool,
    /// The poller tells when it can be written to.
    pub(super) writable: bool,
    /// What its deadline was set for.
    pub(super) stage: Option<(u64, Phase, bool)>,
}

impl Connection {
    /// Nothing has come from it, and the poller does not know it.
    pub(super) fn is_silent(&self) -> bool {
        !self.registered && self.session.stage() == (0, Phase::Idle)
    }
}

impl Slot {
    fn new() -> Self {
        Self {
            word: Word::new(),
            ended: AtomicBool::new(false),
            idle: AtomicBool::new(false),
            deadline: AtomicU64::new(u64::MAX),
            connection: Mutex::new(None),
            socket: Mutex::new(None),
        }
    }

    /// Cuts the socket, whoever has it.
    pub(super) fn cut_socket(&self) {
        if let Some(socket) = &*lock(&self.socket) {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// All slots of a server.
#[derive(Debug)]
pub(super) struct Slots {
    segments: Box<[OnceLock<Box<[Slot]>>]>,
    free: Mutex<Free>,
}

#[derive(Debug)]
struct Free {
    names: Vec<usize>,
    /// Names from here on were never used.
    fresh: usize,
    used: usize,
}

const SEGMENT: usize = 256;

impl Slots {
    pub(super) fn new(most: usize) -> Self {
        let segments = (0..most.div_ceil(SEGMENT)).map(|_| OnceLock::new()).collect();
        Self { segments, free: Mutex::new(Free { names: Vec::new(), fresh: 0, used: 0 }) }
    }

    pub(super) fn get(&self, name: usize) -> Option<&Slot> {
        self.segments.get(name / SEGMENT)?.get()?.get(name % SEGMENT)
    }

    /// Every slot that was ever used.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Slot)> {
        let fresh = lock(&self.free).fresh;
        (0..fresh).filter_map(|name| Some((name, self.get(name)?)))
    }

    /// How many are in use.
    pub(super) fn used(&self) -> usize {
        lock(&self.free).used
    }

    /// Takes a free slot for `stream`, unless `most` are in use; it is `QUEUED` then, as if for a job.
    pub(super) fn admit(&self, stream: TcpStream, most: usize) -> Result<usize, TcpStream> {
        let mut free = lock(&self.free);
        if free.used >= most {
            return Err(stream);
        }
        let name = free.names.pop().unwrap_or(free.fresh);
        let Some(segment) = self.segments.get(name / SEGMENT) else { return Err(stream) };
        let segment = segment.get_or_init(|| (0..SEGMENT).map(|_| Slot::new()).collect());
        let Some(slot) = segment.get(name % SEGMENT) else { return Err(stream) };
        free.fresh = free.fresh.max(name + 1);
        free.used += 1;
        drop(free);
        let stream = Arc::new(stream);
        *lock(&slot.socket) = Some(Arc::clone(&stream));
        let session = Session::new();
        *lock(&slot.connection) = Some(Connection { stream, session, registered: false, writable: false, stage: None });
        slot.ended.store(false, Ordering::Relaxed);
        slot.word.set(QUEUED);
        Ok(name)
    }

    /// Closes a slot's socket and frees the slot; for who runs it. `connection` is the slot's own.
    pub(super) fn release(&self, name: usize, connection: &mut Option<Connection>) {
        let Some(slot) = self.get(name) else { return };
        *lock(&slot.socket) = None;
        *connection = None; // the last handle: the socket closes
        slot.word.set(FREE);
        let mut free = lock(&self.free);
        free.names.push(name);
        free.used -= 1;
    }
}
