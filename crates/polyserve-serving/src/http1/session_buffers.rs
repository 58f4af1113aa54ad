//! The buffers of a thread that a session works with, and what it is told about its turn.

use std::time::{Duration, Instant, SystemTime};

use polyserve_core::http::Method;

use super::date::Date;
use super::repeated::LastHeads;
use super::turn::TurnBudget;
use crate::memory::MemoryBudget;

/// A buffer with a larger capacity is freed after use.
const MAX_KEPT_CAPACITY: usize = 256 * 1024;

/// The buffers and the date that the connections of one thread share. One connection at a time uses them.
#[derive(Debug)]
pub struct SessionBuffers {
    pub(super) out: Vec<u8>,
    /// The offset in `out` at which each answer ends.
    pub(super) ends: Vec<usize>,
    pub(super) body: Vec<u8>,
    pub(super) date: Date,
    /// The heads that were decoded last. A session takes them out while it serves a batch. `None` until then.
    pub(super) last_heads: Option<Box<LastHeads>>,
    pub(super) draining: bool,
    /// The last read has filled its buffer: the socket has more bytes, as a rule.
    pub(crate) input_is_full: bool,
    pub(super) others_wait: bool,
    /// The time since which the present connection has input. Set for a server with an overload policy only.
    pub(super) arrived: Option<Instant>,
    /// The time since which the connection waited for this turn, if the server knows it. Set at each read if an overload policy or a hook
    /// needs it.
    pub(crate) queued_since: Option<Instant>,
    /// When the present batch began, if the server has read the clock.
    pub(super) now: Option<Instant>,
    /// When the first byte of the present request was read, for the report of its answer. `None` if the session has noted it.
    pub(super) begun: Option<Instant>,
    /// The method of that request. `None` until its head is decoded.
    pub(super) method: Option<&'static Method>,
    /// `None` if the work of one connection is not limited.
    turn: Option<TurnBudget>,
    /// The budget of the server that the output belongs to.
    pub(super) memory: Option<MemoryBudget>,
}

impl SessionBuffers {
    /// Creates empty buffers.
    pub fn new() -> Self {
        Self {
            out: Vec::new(),
            ends: Vec::new(),
            body: Vec::new(),
            date: Date::new(SystemTime::now()),
            last_heads: None,
            draining: false,
            input_is_full: false,
            others_wait: false,
            arrived: None,
            queued_since: None,
            now: None,
            begun: None,
            method: None,
            turn: None,
            memory: None,
        }
    }

    /// Sets the time for the `Date` header and whether the server is draining. To be called before each batch, that is,
    /// before [`Session::receive`](super::Session::receive), [`resume`](super::Session::resume) or
    /// [`time_out`](super::Session::time_out).
    ///
    /// If `draining`, the session closes after the last request of which bytes have arrived: the answer to that request
    /// carries `Connection: close`, and the session's next step is [`SessionStep::Close`](super::SessionStep::Close). An idle session
    /// does not close by itself: closing it is the server's decision.
    pub fn refresh(&mut self, now: SystemTime, draining: bool) {
        self.now = None;
        self.date.refresh(now);
        self.set_draining(draining);
    }

    /// Like [`refresh`](Self::refresh), for a server that has read the monotonic clock. The time counts for the turn too, which starts
    /// with the first call. The clock of the system is read once a second.
    #[inline]
    pub fn refresh_at(&mut self, now: Instant, draining: bool) {
        self.now = Some(now);
        self.date.refresh_at(now);
        self.set_draining(draining);
        if let Some(turn) = &mut self.turn {
            turn.note_time(now);
        }
    }

    #[inline]
    fn set_draining(&mut self, draining: bool) {
        self.draining = draining;
        self.others_wait = false;
    }

    /// Begins a turn of a connection. After [`MAX_TURN_REQUESTS`](super::turn::MAX_TURN_REQUESTS) requests, or if `clock`
    /// shows that the turn has taken [`MAX_TURN_TIME`](super::turn::MAX_TURN_TIME), the session's next step is
    /// [`SessionStep::Yield`](super::SessionStep::Yield) before a further request. The turn starts with the next
    /// [`refresh_at`](Self::refresh_at).
    ///
    /// # Cost
    ///
    /// `clock` is called for every fourth request that follows another one in the same turn, and for one that follows a large one.
    #[inline]
    pub fn begin_turn(&mut self, clock: fn() -> Instant) {
        self.turn = Some(TurnBudget::new(clock));
    }

    /// Like [`begin_turn`](Self::begin_turn), for a thread that serves one connection: the turn is bounded by its time only.
    #[inline]
    pub fn begin_thread_turn(&mut self, clock: fn() -> Instant) {
        self.turn = Some(TurnBudget::of_thread(clock));
    }

    /// Ends the turn. Without a turn, the work of one connection is not limited.
    #[inline]
    pub fn end_turn(&mut self) {
        self.turn = None;
    }

    /// Whether the session yields before a further request.
    #[inline]
    pub fn turn_is_over(&mut self) -> bool {
        self.turn.as_mut().is_some_and(TurnBudget::is_over)
    }

    /// Counts a request with an answer of `length` bytes.
    pub(super) fn count_request(&mut self, length: usize) {
        if let Some(turn) = &mut self.turn {
            turn.count_request();
            turn.note_bytes(length);
        }
    }

    /// Notes the length of a request's body.
    pub(super) fn note_body(&mut self, length: usize) {
        if let Some(turn) = &mut self.turn {
            turn.note_bytes(length);
        }
    }

    /// Sets whether other connections wait for this thread. To be called after [`refresh`](Self::refresh), which resets
    /// it.
    ///
    /// If `others_wait`, the session closes soon, whatever the client sends. The answer to the last request that has
    /// arrived completely carries `Connection: close`; the start of a further request is dropped. If many requests have
    /// arrived, at most [`MAX_TURN_REQUESTS`](super::turn::MAX_TURN_REQUESTS) are answered, and none after an answer
    /// that fills the output. After a deferred answer the session closes at once. It drops all further requests: a
    /// client repeats requests that are not answered before a `Connection: close` (RFC 9112, 9.6).
    pub fn set_others_wait(&mut self, others_wait: bool) {
        self.others_wait = others_wait;
    }

    /// Sets the time since which the connection that is served next has input, for a server with an overload policy.
    pub fn set_arrived(&mut self, arrived: Instant) {
        self.arrived = Some(arrived);
    }

    /// Returns the method of the present request, when it began, and how long its connection has waited for the turn, unless the session
    /// has noted them.
    #[inline]
    pub(super) fn take_times(&mut self) -> (Option<&'static Method>, Option<Instant>, Option<Duration>) {
        let Some(begun) = self.begun.take() else { return (None, None, None) };
        let queued = self.queued_since.take().map(|since| begun.saturating_duration_since(since));
        (self.method.take(), Some(begun), queued)
    }

    /// Returns the bytes to write for the connection that was served last.
    pub fn out(&self) -> &[u8] {
        &self.out
    }

    /// Bytes that the buffers can hold without an allocation.
    pub fn capacity(&self) -> usize {
        let ends = self.ends.capacity().saturating_mul(size_of::<usize>());
        self.out.capacity().saturating_add(self.body.capacity()).saturating_add(ends)
    }

    /// Releases the buffers if they hold more than `limit` bytes and no output waits to be written.
    #[inline]
    pub fn trim(&mut self, limit: usize) {
        if self.capacity() > limit && self.out.is_empty() {
            (self.out, self.ends, self.body) = (Vec::new(), Vec::new(), Vec::new());
        }
    }

    /// Notes the budget that the output counts towards if it is kept.
    #[inline]
    pub(super) fn set_memory(&mut self, memory: &MemoryBudget) {
        if !self.memory.as_ref().is_some_and(|known| known.is(memory)) {
            self.memory = Some(memory.clone());
        }
    }

    /// Releases the buffer of a body that was copied into the output, if it is large. To be called before a wait for the client
    /// to take the output.
    pub(crate) fn release_body(&mut self) {
        if self.body.capacity() > MAX_KEPT_CAPACITY {
            self.body = Vec::new();
        }
    }

    /// Drops the output.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.out.clear();
        self.ends.clear();
        for buffer in [&mut self.out, &mut self.body] {
            if buffer.capacity() > MAX_KEPT_CAPACITY {
                *buffer = Vec::new();
            }
        }
    }
}

impl Default for SessionBuffers {
    fn default() -> Self {
        Self::new()
    }
}
