//! The buffers of a thread that serves connections.
//!
//! Invariant: a waiting thread keeps at most [`MAX_IDLE_BYTES`] bytes, and with TLS the same once more. Cost: no allocation for small
//! requests.

use std::cell::Cell;
use std::time::Instant;

use super::ServerState;
use crate::answer_count::AnswerCounter;
use crate::connections::LastMillis;
use crate::http1::{Session, SessionBuffers, SessionStep};
use crate::tls::TlsBuffers;

/// One thread's buffers.
#[derive(Debug)]
pub struct ThreadBuffers {
    /// The buffer that bytes are read into.
    pub input: Box<[u8]>,
    /// What a session works with: among others, the buffers that answers are written to.
    pub http: SessionBuffers,
    /// The buffers between the two, of a connection with TLS.
    pub(crate) tls: TlsBuffers,
    pub(crate) last_millis: LastMillis,
    pub(crate) answers: AnswerCounter,
    round: Option<Round>,
}

/// The turns of a thread between two waits.
#[derive(Debug)]
struct Round {
    /// The time at which the last turn has ended, or the round began. `None` in a turn, and after one that read no clock at its end.
    now: Option<Instant>,
}

/// The max number of bytes that the buffers of a waiting thread keep.
const MAX_IDLE_BYTES: usize = 16 * 1024;

/// The same for the buffers of TLS.
const MAX_IDLE_TLS_BYTES: usize = 16 * 1024;

/// The size of the input buffer of a waiting thread.
const SMALL_INPUT: usize = 4 * 1024;

/// Bytes read at once after a read that filled the buffer: a pipeline of some hundred small requests, or a large body.
const LARGE_INPUT: usize = 32 * 1024;

thread_local! {
    static BUFFERS: Cell<Option<Box<ThreadBuffers>>> = const { Cell::new(None) };
}

/// Lends this thread's buffers to `work`. A call inside `work`, for instance by a service that runs jobs, gets buffers
/// of its own. If `work` panics, its buffers are dropped.
///
/// # Cost
///
/// Two swaps of a thread-local pointer.
pub fn with_buffers<T>(work: impl FnOnce(&mut ThreadBuffers) -> T) -> T {
    // The thread-local is gone while the thread's other locals are being destroyed.
    let mut buffers = BUFFERS.try_with(Cell::take).ok().flatten().unwrap_or_default();
    let result = work(&mut buffers);
    buffers.http.end_turn();
    buffers.end_round();
    buffers.shrink();
    let _ = BUFFERS.try_with(|cell| cell.set(Some(buffers)));
    result
}

fn zeroed(length: usize) -> Box<[u8]> {
    vec![0; length].into_boxed_slice()
}

impl Default for ThreadBuffers {
    fn default() -> Self {
        Self::new()
    }
}

impl ThreadBuffers {
    /// Fresh buffers: 4 KiB to read into.
    pub fn new() -> Self {
        Self {
            input: zeroed(SMALL_INPUT),
            http: SessionBuffers::new(),
            tls: TlsBuffers::default(),
            last_millis: LastMillis::default(),
            answers: AnswerCounter::default(),
            round: None,
        }
    }

    /// Begins a connection's turn: the session yields after a bounded number of requests, and a bounded time. See
    /// [`SessionBuffers::begin_turn`]. In [`with_buffers`], the turn ends with the call.
    #[inline]
    pub fn begin_turn(&mut self) {
        self.http.begin_turn(Instant::now);
    }

    /// Begins a turn of the connection that this thread serves. See [`SessionBuffers::begin_thread_turn`].
    #[inline]
    pub fn begin_thread_turn(&mut self) {
        self.http.begin_thread_turn(Instant::now);
    }

    /// Begins a round: until [`end_round`](Self::end_round), this thread serves one turn after the other, and waits for nothing between
    /// them. So a turn starts when the one before it has ended, and the clock is read once for both. `now`: the time since the last wait.
    #[inline]
    pub fn begin_round(&mut self, now: Instant) {
        self.round = Some(Round { now: Some(now) });
    }

    /// Ends a round. To be called before a wait.
    #[inline]
    pub fn end_round(&mut self) {
        self.round = None;
    }

    /// Notes that a turn ends now.
    #[inline]
    pub(crate) fn note_end(&mut self, now: Instant) {
        if let Some(round) = &mut self.round {
            round.now = Some(now);
        }
    }

    /// Sets the time for the `Date` header, and whether answers carry `Connection: close`: while the server is draining, and if
    /// `others_wait`, see [`SessionBuffers::set_others_wait`]. To be called before each batch of [`Session::resume`],
    /// [`Session::time_out`] and [`Session::reject`].
    #[inline]
    pub fn refresh(&mut self, server: &ServerState, others_wait: bool) {
        let draining = server.shutdown.is_begun();
        // A time is used once: what follows it may have taken long.
        let known = self.round.as_mut().and_then(|round| round.now.take());
        self.http.refresh_at(known.unwrap_or_else(Instant::now), draining);
        // A drain answers every request that has begun.
        self.http.set_others_wait(others_wait && !draining);
    }

    /// Passes the first `count` bytes of [`input`](Self::input), which a read has filled, to `session`, with
    /// `others_wait` as in [`refresh`](Self::refresh).
    #[inline]
    pub fn receive(
        &mut self,
        count: usize,
        session: &mut Session,
        server: &ServerState,
        others_wait: bool,
    ) -> SessionStep {
        self.refresh(server, others_wait);
        self.http.input_is_full = count == self.input.len();
        let bytes = self.input.get(..count).unwrap_or_default();
        let step = session.receive(bytes, &mut server.http.turn(&mut self.http));
        self.note_read(count);
        step
    }

    /// Notes that a read has filled `count` bytes of [`input`](Self::input), which are not needed any more.
    #[inline]
    pub(crate) fn note_read(&mut self, count: usize) {
        if count == self.input.len() && count < LARGE_INPUT {
            self.enlarge(); // more is there, as a rule
        }
    }

    #[inline(never)]
    fn enlarge(&mut self) {
        self.input = zeroed(LARGE_INPUT);
    }

    /// Whether [`shrink`](Self::shrink) would release memory.
    #[inline]
    pub fn is_large(&self) -> bool {
        let is_large = self.input.len() > SMALL_INPUT || self.http.capacity() > MAX_IDLE_BYTES - SMALL_INPUT;
        is_large || self.tls.capacity() > MAX_IDLE_TLS_BYTES
    }

    /// The number of bytes that a thread keeps while it waits, without those that every thread keeps.
    pub fn kept_bytes(&self) -> usize {
        if !self.is_large() {
            return 0;
        }
        self.input.len().saturating_add(self.http.capacity()).saturating_add(self.tls.capacity())
    }

    /// Releases memory that a waiting thread does not need. Call it before a wait that may be long, when the session's
    /// output has been written.
    ///
    /// # Cost
    ///
    /// A few comparisons if the buffers are small.
    #[inline]
    pub fn shrink(&mut self) {
        if self.is_large() {
            self.release();
        }
    }

    #[inline(never)]
    fn release(&mut self) {
        if self.input.len() > SMALL_INPUT {
            self.input = zeroed(SMALL_INPUT);
        }
        self.http.trim(MAX_IDLE_BYTES - SMALL_INPUT);
        self.tls.trim(MAX_IDLE_TLS_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use polyserve_core::{Echo, ServerConfig};

    use super::*;

    fn size(buffers: &ThreadBuffers) -> usize {
        buffers.input.len() + buffers.http.capacity()
    }

    fn exchange(buffers: &mut ThreadBuffers, server: &ServerState, body: usize) {
        let mut session = Session::new();
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {body}\r\n\r\n");
        let mut request = head.into_bytes();
        request.resize(request.len() + body, b'a');
        while !request.is_empty() {
            let count = request.len().min(buffers.input.len());
            buffers.input[..count].copy_from_slice(&request[..count]);
            request.drain(..count);
            let _ = buffers.receive(count, &mut session, server, false);
        }
        let length = buffers.http.out().len();
        assert!(length > body);
        session.written(length, &mut buffers.http);
    }

    /// Regression test: every thread kept up to 512 KiB: 4 GB for 10 000 idle connections.
    #[test]
    fn a_thread_at_rest_keeps_at_most_16_kib() {
        let server = ServerState::new(Arc::new(Echo), &ServerConfig::default());
        let mut buffers = ThreadBuffers::new();
        assert!(!buffers.is_large());
        exchange(&mut buffers, &server, 200_000);
        assert!(buffers.is_large());
        buffers.shrink();
        assert!(!buffers.is_large());
        assert!(size(&buffers) <= MAX_IDLE_BYTES, "{} bytes", size(&buffers));
        with_buffers(|buffers| exchange(buffers, &server, 200_000));
        with_buffers(|buffers| assert!(size(buffers) <= MAX_IDLE_BYTES, "{} bytes", size(buffers)));
    }

    #[test]
    fn a_call_within_a_call_gets_buffers_of_its_own() {
        with_buffers(|outer| {
            outer.input[0] = 1;
            with_buffers(|inner| inner.input[0] = 2);
            assert_eq!(outer.input[0], 1);
        });
    }
}
