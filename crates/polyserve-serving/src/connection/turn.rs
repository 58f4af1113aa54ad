//! What a driver and a [`Connection`] pass to each other: a [`Turn`], and a [`Step`].

use std::time::{Duration, Instant};

#[cfg(doc)]
use super::Connection;
use crate::http1::SessionTurn;
use crate::{DeadlineClock, ServerState, ThreadBuffers};

/// What a thread lends a connection for a turn.
#[derive(Debug)]
pub struct Turn<'a> {
    /// The run that the connection belongs to.
    pub server: &'a ServerState,
    /// The buffers of the thread.
    pub buffers: &'a mut ThreadBuffers,
    /// Other connections wait for the thread: answers announce the close.
    pub others_wait: bool,
    /// The connection was evicted: it closes as soon as its socket is empty, or after the answer to the request that has arrived.
    pub is_evicted: bool,
    /// When the first request of this turn arrived, if it had to wait for a thread. The time since then counts towards the timeout
    /// of its head, and the time since the connection was accepted towards that of its first byte.
    pub queued_since: Option<QueuedSince<'a>>,
    /// When the connection became ready for this turn, if the driver knows it otherwise. For an overload policy.
    pub ready_since: Option<Instant>,
    /// When the turn began, if a shutdown had begun by then. A shutdown that begins later is seen in the next turn: the driver may
    /// have found the socket empty before, without a read.
    pub draining_at: Option<Instant>,
    /// The clock of deadlines.
    pub clock: fn() -> Instant,
}

impl<'a> Turn<'a> {
    /// A turn of a connection for which no other one waits.
    #[inline]
    pub fn new(server: &'a ServerState, buffers: &'a mut ThreadBuffers) -> Self {
        // Inlined, so that the turn is not moved: a move of what was just stored by parts stalls the processor.
        Self {
            server,
            buffers,
            others_wait: false,
            is_evicted: false,
            queued_since: None,
            ready_since: None,
            draining_at: server.shutdown.is_begun().then(Instant::now),
            clock: Instant::now,
        }
    }

    /// What the session works with in this turn.
    #[inline]
    pub(super) fn of_session(&mut self) -> SessionTurn<'_> {
        self.server.http.turn(&mut self.buffers.http)
    }

    /// Looks again whether a shutdown has begun. For a driver of which the turn goes on after a wait.
    pub(crate) fn note_shutdown(&mut self) {
        self.draining_at = self.server.shutdown.is_begun().then(self.clock);
    }

    /// Notes the time since which the connection could have been served, for the overload policy and for the reports of answers.
    /// `is_start`: it has read at most once in this turn.
    #[inline]
    pub(super) fn note_arrival(&mut self, is_start: bool) {
        if self.ready_since.is_some() || self.queued_since.is_some() || self.server.http.admission.is_some() {
            self.note_known_arrival(is_start);
        } else {
            self.buffers.http.queued_since = None; // it may be that of the connection before
        }
    }

    #[inline(never)]
    fn note_known_arrival(&mut self, is_start: bool) {
        let since = || self.ready_since.or_else(|| self.queued_since?.instant());
        let arrived = if is_start { since() } else { None };
        self.buffers.http.queued_since = arrived;
        if self.server.http.admission.is_some() {
            self.buffers.http.set_arrived(arrived.unwrap_or_else(self.clock));
        }
    }

    /// Whether the connection is to close for another one.
    #[inline]
    pub(super) fn must_give_way(&self) -> bool {
        self.others_wait || self.is_evicted
    }
}

/// What the driver does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Read into the turn's buffers. Then call [`Connection::on_bytes`], [`on_empty`](Connection::on_empty),
    /// [`on_end`](Connection::on_end) or [`on_error`](Connection::on_error).
    Read {
        /// Read even if the socket was not reported as ready.
        past_report: bool,
    },
    /// Write [`Connection::output`]. Then call [`Connection::on_written`], [`on_blocked`](Connection::on_blocked) or
    /// [`on_error`](Connection::on_error).
    Write {
        /// The connection is closed next.
        last: bool,
        /// Write even if the socket was not reported as ready.
        past_report: bool,
    },
    /// Call [`Connection::poll_answer`]. Then call [`Connection::on_answer`] or [`on_pending`](Connection::on_pending).
    Await,
    /// Wait for this, until [`Connection::deadline`] at the latest. Then call [`Connection::next`].
    Wait(WaitFor),
    /// The turn is over. Serve other connections, look at the sockets, and then call [`Connection::begin_turn`].
    Yield,
    /// Close the writing side, and call [`Connection::on_lingering`]; or close the connection, if too many linger.
    Linger,
    /// Close the writing side, discard what has arrived, and close the connection. It was idle, and a request may be on its way: its
    /// client reads the end, not a reset, and may repeat the request.
    Leave,
    /// Close the connection.
    Close,
}

/// Since when a request waits for a thread.
#[derive(Clone, Copy, Debug)]
pub enum QueuedSince<'a> {
    /// Since this time.
    Instant(Instant),
    /// Since this number of nanoseconds after the start of a clock. Most turns do not need it, so it is converted only if one does.
    Nanos(&'a DeadlineClock, u64),
}

impl QueuedSince<'_> {
    pub(super) fn instant(self) -> Option<Instant> {
        match self {
            Self::Instant(instant) => Some(instant),
            Self::Nanos(clock, nanos) => clock.instant_after(Duration::from_nanos(nanos)),
        }
    }
}

/// What ends a wait before its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// Bytes, or their end.
    Input,
    /// The kernel takes more output.
    Room,
    /// The answer of the service.
    Answer,
}
