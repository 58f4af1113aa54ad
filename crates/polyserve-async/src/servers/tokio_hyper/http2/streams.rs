//! The state that the streams of a connection share, and the body of an answer until the client has taken it.
//!
//! Invariant: a request is open until hyper's codec has written the last byte of its answer. The client's window may delay
//! that for long. Cost: an uncontended lock for each frame of an answer's body, and a clock read for each answer.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use polyserve_core::sync::lock;
use polyserve_serving::http1::TimeLimit;
use polyserve_serving::memory::Reservation;

use super::super::connection_state::ConnectionState;
use crate::tower::ReplyBody;

/// The state that a connection's streams share.
pub(super) struct Streams {
    pub(super) connection: Arc<ConnectionState>,
    /// The number of requests that are not completely answered.
    pub(super) open: AtomicUsize,
    /// The number of threads that run the service's code.
    pub(super) calls: AtomicUsize,
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
    pub(super) fn new(connection: Arc<ConnectionState>) -> Arc<Self> {
        Arc::new(Self { connection, open: AtomicUsize::new(0), calls: AtomicUsize::new(0), held: Mutex::default() })
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
        let length = body.size_hint().exact().and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
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
