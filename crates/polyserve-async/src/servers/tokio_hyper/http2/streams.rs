//! The state that the streams of a connection share: their turn, and the body of an answer until the client has taken it.
//!
//! Invariants: a request is open until hyper's codec has written the last byte of its answer. The client's window may delay
//! that for long. The streams of a connection together call the service as often as the turn of a connection over HTTP/1
//! allows. The next turn begins after the runtime has looked at its sockets. No stream overtakes one that waits.
//!
//! Cost: two uncontended locks, an atomic exchange and two clock reads for each call of the service, a lock for each frame of an
//! answer's body, and a clock read for each answer.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use polyserve_core::Reply;
use polyserve_core::sync::lock;
use polyserve_serving::http1::TimeLimit;
use polyserve_serving::http1::turn::{MAX_TURN_REQUESTS, MAX_TURN_TIME};
use polyserve_serving::memory::Reservation;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::super::connection_state::ConnectionState;
use crate::servers::toolkit::{AsyncSocket as _, TokioSocket};
use crate::tower::ReplyBody;

/// The number of streams that may call the service between two looks at the turn's budget.
const PERMITS: usize = 4;

/// The unit in which memory for bodies is shared out, in bytes.
const SHARE_UNIT: usize = 1 << 10;

/// The turn of a connection's streams. A stream needs a permit when its head has arrived, and if it has a body, another one for the
/// call of the service. If the turn is over, streams wait in
/// the order in which they came. Waking a turn begins the next one.
pub(super) struct StreamTurn {
    /// The permits that are left until the budget is looked at again.
    permits: Semaphore,
    state: Mutex<TurnState>,
}

#[derive(Default)]
struct TurnState {
    /// The number of requests of this turn.
    requests: u32,
    /// The time for which the service ran in this turn.
    busy: Duration,
    /// The number of permits that were taken since the budget was looked at.
    taken: usize,
    is_over: bool,
    /// The number of streams that wait for a permit.
    waiting: usize,
    /// The next turn begins when the runtime has looked at its sockets.
    is_yielding: bool,
}

impl StreamTurn {
    fn new() -> Arc<Self> {
        Arc::new(Self { permits: Semaphore::new(PERMITS), state: Mutex::default() })
    }

    /// Takes a permit of this turn, or waits for one of a later turn. To be polled in a task of the runtime.
    pub(super) async fn admitted(self: &Arc<Self>) {
        let permit = match self.permits.try_acquire() {
            Ok(permit) => Ok(permit),
            Err(_) => {
                let _waiting = WaitingStream::new(self);
                self.permits.acquire().await
            }
        };
        // The semaphore is never closed.
        permit.into_iter().for_each(SemaphorePermit::forget);
        let mut state = lock(&self.state);
        state.requests += 1;
        state.taken += 1;
        if state.taken < PERMITS {
            return;
        }
        state.taken = 0;
        state.is_over = state.requests >= MAX_TURN_REQUESTS || state.busy >= MAX_TURN_TIME;
        if state.is_over {
            self.yield_if_awaited(state);
        } else {
            self.permits.add_permits(PERMITS);
        }
    }

    /// Adds the time of a call of the service.
    pub(super) fn add_time(&self, time: Duration) {
        lock(&self.state).busy += time;
    }

    /// Lets the runtime look at its sockets before the next turn, if a stream waits for it.
    fn yield_if_awaited(self: &Arc<Self>, mut state: MutexGuard<'_, TurnState>) {
        if state.is_over && state.waiting > 0 && !std::mem::replace(&mut state.is_yielding, true) {
            drop(state); // the runtime may begin the next turn at once
            TokioSocket::yield_turn(&mut Context::from_waker(&Waker::from(Arc::clone(self))));
        }
    }

    /// Begins a new turn.
    pub(super) fn begin(&self) {
        let mut state = lock(&self.state);
        (state.requests, state.busy, state.is_yielding) = (0, Duration::ZERO, false);
        if std::mem::take(&mut state.is_over) {
            self.permits.add_permits(PERMITS);
        }
    }
}

/// Counts a stream as waiting for a permit, for as long as it lives.
struct WaitingStream<'a>(&'a StreamTurn);

impl<'a> WaitingStream<'a> {
    fn new(turn: &'a Arc<StreamTurn>) -> Self {
        let mut state = lock(&turn.state);
        state.waiting += 1;
        turn.yield_if_awaited(state);
        Self(turn)
    }
}

impl Drop for WaitingStream<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).waiting -= 1;
    }
}

impl Wake for StreamTurn {
    fn wake(self: Arc<Self>) {
        self.begin();
    }
}

/// The state that a connection's streams share.
pub(super) struct Streams {
    pub(super) connection: Arc<ConnectionState>,
    /// The number of requests that have begun.
    pub(super) begun: AtomicU64,
    /// The number of requests that are not completely answered.
    pub(super) open: AtomicUsize,
    /// The time from which on no request begins: a linger timeout after GOAWAY. Not set before GOAWAY.
    pub(super) begin_until: OnceLock<Instant>,
    /// The number of threads that run the service's code.
    pub(super) calls: AtomicUsize,
    pub(super) turn: Arc<StreamTurn>,
    /// The memory that is left for request bodies, in units of [`SHARE_UNIT`].
    bodies: Semaphore,
    held: Mutex<UntakenAnswers>,
}

/// Answers that wait for the client to take them.
#[derive(Default)]
struct UntakenAnswers {
    /// The deadline of each answer.
    deadlines: BTreeMap<u64, Instant>,
    /// The number of the next answer.
    next: u64,
    /// The number of bytes of these answers.
    bytes: usize,
}

impl Streams {
    /// `max_bodies`: the request bodies that the streams may hold together, in bytes. One body of the largest size always fits.
    pub(super) fn new(connection: Arc<ConnectionState>, max_bodies: usize) -> Arc<Self> {
        let (begun, open, calls) = (AtomicU64::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let max_bodies = max_bodies.max(connection.server().config.max_body);
        let bodies = Semaphore::new(max_bodies.div_ceil(SHARE_UNIT));
        let (turn, begin_until, held) = (StreamTurn::new(), OnceLock::new(), Mutex::default());
        Arc::new(Self { connection, begun, open, begin_until, calls, turn, bodies, held })
    }

    /// Waits until a body of at most `length` bytes has its share of the memory for bodies. A body beyond the server's limit
    /// takes the share of the largest, and is refused when it is read. The share is free again when it is dropped.
    ///
    /// While the body waits, the client may send the first bytes of its window, which lie unread. They count towards the memory of the server.
    ///
    /// # Errors
    ///
    /// Returns the answer if the body has to wait, and there is no memory for that.
    pub(super) async fn body_share(&self, length: u64) -> Result<Option<SemaphorePermit<'_>>, Reply> {
        let server = self.connection.server();
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(server.config.max_body);
        let units = u32::try_from(length.div_ceil(SHARE_UNIT)).unwrap_or(u32::MAX);
        if let Ok(share) = self.bodies.try_acquire_many(units) {
            return Ok(Some(share)); // no body waits: what is free would be that body's
        }
        let (memory, mut unread) = (&server.http.memory, Reservation::default());
        if !unread.try_set(memory, length.min(super::STREAM_WINDOW as usize)) {
            return Err(memory.refuse());
        }
        Ok(self.bodies.acquire_many(units).await.ok()) // the semaphore is never closed
    }

    /// Returns the time by which the client must have taken an answer that waits, or `None` if no answer waits. Its limit
    /// counts the bytes that waited when the answer was added.
    pub(super) fn deadline(&self) -> Option<Instant> {
        lock(&self.held).deadlines.values().min().copied()
    }
}

/// A request that is not completely answered.
pub(super) struct OpenStream {
    streams: Arc<Streams>,
    /// The number of the answer, if it waits for the client, and the number of bytes that it has left.
    held: Option<(u64, usize)>,
    /// The memory of the answer.
    _reservation: Reservation,
}

impl OpenStream {
    pub(super) fn new(streams: &Arc<Streams>) -> Self {
        streams.begun.fetch_add(1, Ordering::Relaxed);
        streams.open.fetch_add(1, Ordering::SeqCst);
        Self { streams: Arc::clone(streams), held: None, _reservation: Reservation::default() }
    }

    pub(super) fn streams(&self) -> &Arc<Streams> {
        &self.streams
    }

    pub(super) fn connection(&self) -> &Arc<ConnectionState> {
        &self.streams.connection
    }

    /// Marks the answer, a body of `length` bytes, as waiting for the client. `reservation`: the memory of the answer.
    fn hold(mut self, length: usize, reservation: Reservation) -> Self {
        self._reservation = reservation;
        let mut held = lock(&self.streams.held);
        held.bytes += length;
        let number = held.next;
        held.next += 1;
        let limit = TimeLimit::Write { unsent: held.bytes }.of(&self.streams.connection.server().config);
        held.deadlines.insert(number, Instant::now() + limit);
        drop(held);
        self.held = Some((number, length));
        self
    }

    /// Notes that the client took `count` bytes.
    fn taken(&mut self, count: usize) {
        if let Some((_, left)) = &mut self.held {
            let count = count.min(*left);
            *left -= count;
            lock(&self.streams.held).bytes -= count;
        }
    }

    /// Counts the answer as complete.
    fn end(self) {
        self.streams.connection.end_answer();
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        if let Some((number, left)) = self.held {
            let mut held = lock(&self.streams.held);
            held.deadlines.remove(&number);
            held.bytes -= left;
        }
        self.streams.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An answer's body, in one piece. The answer is counted before hyper flushes its last byte, because the connection's task
/// may end with that flush.
pub(super) struct CountedBody {
    body: ReplyBody,
    open: Option<OpenStream>,
}

impl CountedBody {
    /// `reservation`: the memory of `body`.
    pub(super) fn new(body: ReplyBody, open: OpenStream, reservation: Reservation) -> Self {
        if body.is_end_stream() {
            open.end();
            return Self { body, open: None };
        }
        let length = body.len();
        Self { body, open: Some(open.hold(length, reservation)) }
    }
}

impl Body for CountedBody {
    type Data = HeldBytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<HeldBytes>, Infallible>>> {
        let Self { body, open } = self.get_mut();
        let polled = Pin::new(body).poll_frame(cx);
        polled.map(|frame| {
            frame.map(|frame| frame.map(|frame| frame.map_data(|bytes| HeldBytes { bytes, open: open.take() })))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The bytes of a body. hyper's codec writes them when the client's window has room.
pub(super) struct HeldBytes {
    bytes: Bytes,
    open: Option<OpenStream>,
}

impl Buf for HeldBytes {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.open.iter_mut().for_each(|open| open.taken(count));
        if self.bytes.is_empty()
            && let Some(open) = self.open.take()
        {
            open.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: a turn of 1 ms also counted the time in which no stream called the service. So the streams of a connection with
    /// few requests waited for a next turn.
    #[test]
    fn a_turn_counts_the_time_of_the_service() {
        let turn = StreamTurn::new();
        let admit = || {
            let mut admitted = std::pin::pin!(turn.admitted());
            assert!(admitted.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready(), "it waits");
        };
        for _ in 0..2 * PERMITS {
            admit();
            let until = Instant::now() + 2 * MAX_TURN_TIME;
            while Instant::now() < until {}
        }
        assert_eq!(turn.permits.available_permits(), PERMITS, "the turn is over");
        turn.add_time(MAX_TURN_TIME);
        (0..PERMITS).for_each(|_| admit());
        assert_eq!(turn.permits.available_permits(), 0, "the turn goes on");
        turn.begin();
        assert_eq!(turn.permits.available_permits(), PERMITS);
    }
}
