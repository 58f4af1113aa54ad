//! The state that the streams of a connection share, and the body of an answer until the client has taken it.
//!
//! Invariant: a request is open until hyper's codec has written the last byte of its answer. The client's window may delay
//! that for long. Cost: an uncontended lock and a clock read for each frame of an answer's body.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use polyserve_core::sync::lock;

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
struct UntakenAnswers {
    answers: usize,
    /// The time at which the client last took bytes, or at which the first of these answers was added if that was later.
    since: Instant,
}

impl Streams {
    pub(super) fn new(connection: Arc<ConnectionState>) -> Arc<Self> {
        let held = Mutex::new(UntakenAnswers { answers: 0, since: Instant::now() });
        Arc::new(Self { connection, open: AtomicUsize::new(0), calls: AtomicUsize::new(0), held })
    }

    /// Returns the time at which the client last took bytes of any waiting answer, or `None` if no answer waits. One time for
    /// all streams is enough: an answer may wait long while a slow client takes other answers.
    pub(super) fn held_since(&self) -> Option<Instant> {
        let held = lock(&self.held);
        (held.answers > 0).then_some(held.since)
    }
}

/// A request that is not completely answered.
pub(super) struct OpenStream {
    streams: Arc<Streams>,
    /// The answer waits for the client.
    is_held: bool,
}

impl OpenStream {
    pub(super) fn new(streams: &Arc<Streams>) -> Self {
        streams.open.fetch_add(1, Ordering::SeqCst);
        Self { streams: Arc::clone(streams), is_held: false }
    }

    pub(super) fn streams(&self) -> &Arc<Streams> {
        &self.streams
    }

    pub(super) fn connection(&self) -> &Arc<ConnectionState> {
        &self.streams.connection
    }

    /// Marks the answer as waiting for the client.
    fn hold(mut self) -> Self {
        self.is_held = true;
        let mut held = lock(&self.streams.held);
        if held.answers == 0 {
            held.since = Instant::now();
        }
        held.answers += 1;
        drop(held);
        self
    }

    /// Notes that the client took bytes.
    fn taken(&self) {
        lock(&self.streams.held).since = Instant::now();
    }

    /// Counts the answer as complete.
    fn end(self) {
        self.streams.connection.end_answer();
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        if self.is_held {
            lock(&self.streams.held).answers -= 1;
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
    pub(super) fn new(body: ReplyBody, open: OpenStream) -> Self {
        if body.is_end_stream() {
            open.end();
            return Self { body, open: None };
        }
        Self { body, open: Some(open.hold()) }
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
        self.open.iter().for_each(OpenStream::taken);
        if self.bytes.is_empty()
            && let Some(open) = self.open.take()
        {
            open.end();
        }
    }
}
