//! The body of an answer, as hyper takes it. It notes when hyper has its last byte.
//!
//! A service writes into the thread's spare buffer. hyper copies the buffer into the output, after the head, and drops it.
//! The drop returns the buffer to the thread.
//!
//! Invariant: a panic in a service's body is caught, also in its hints and its destructor.
//!
//! Cost: no allocation for a body that is written in place; one for a body of several pieces.

use std::borrow::Cow;
use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::header::{CONNECTION, SERVER};
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use polyserve_core::Reply;
use polyserve_serving::memory::{MethodClass, Reservation};

use super::connection_state::{ConnectionState, HyperShared};
use crate::types::BoxError;

/// Adds the header fields of the server.
pub(super) fn finish(shared: &HyperShared, headers: &mut HeaderMap, close: bool) {
    if let Some(server_header) = &shared.server_header {
        headers.insert(SERVER, server_header.clone());
    }
    if close {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Reserves memory for a body of known length, until the client has taken it. Returns `None` if there is none, and the answer
/// may be refused because its request is safe. `method`: `None` for an answer of the server in place of the service.
pub(super) fn reserve(connection: &ConnectionState, method: Option<MethodClass>, length: u64) -> Option<Reservation> {
    let (memory, mut reservation) = (&connection.server().http.memory, Reservation::default());
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    match method {
        Some(method) if method.is_safe() => return reservation.try_set(memory, length).then_some(reservation),
        Some(method) => reservation.set_unsafe(memory, length, method),
        None => reservation.set(memory, length),
    }
    Some(reservation)
}

/// The maximum size of a piece of a body. hyper copies each piece into the output, so this bounds the copy.
const MAX_PIECE: usize = 64 * 1024;

/// A spare buffer with a larger capacity is freed.
const KEPT_CAPACITY: usize = 256 * 1024;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Takes the thread's spare buffer, which is empty. [`keep_spare`] returns it.
pub(super) fn take_spare() -> Vec<u8> {
    SPARE.take()
}

/// Clears `buffer`, and makes it the thread's spare buffer, if it has memory.
pub(super) fn keep_spare(mut buffer: Vec<u8>) {
    if (1..=KEPT_CAPACITY).contains(&buffer.capacity()) {
        buffer.clear();
        SPARE.set(buffer);
    }
}

/// The body of a `tower::Service`'s answer.
pub(super) type BoxBody = Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>;

/// A body that a service makes in pieces. Its hints are kept, so that hyper does not call the service for them.
pub(super) struct Stream {
    body: BoxBody,
    size_hint: SizeHint,
    is_end: bool,
}

impl Stream {
    /// # Errors
    ///
    /// Returns an answer in place of that of the service if the body panics.
    pub(super) fn new(connection: &ConnectionState, body: BoxBody) -> Result<Box<Self>, Reply> {
        match connection.calling(|| (body.size_hint(), body.is_end_stream())) {
            Ok((size_hint, is_end)) => Ok(Box::new(Self { body, size_hint, is_end })),
            Err(reply) => {
                connection.abandon(body);
                Err(reply)
            }
        }
    }
}

/// A piece of a body.
pub(crate) enum BodyPiece {
    /// A buffer that becomes the thread's spare buffer after use.
    Buffer {
        bytes: Vec<u8>,
        offset: usize,
    },
    Shared(Bytes),
}

impl From<Vec<u8>> for BodyPiece {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Buffer { bytes, offset: 0 }
    }
}

impl From<Cow<'static, [u8]>> for BodyPiece {
    fn from(bytes: Cow<'static, [u8]>) -> Self {
        match bytes {
            Cow::Borrowed(bytes) => Self::Shared(Bytes::from_static(bytes)),
            Cow::Owned(bytes) => bytes.into(),
        }
    }
}

impl BodyPiece {
    pub(super) const EMPTY: Self = Self::Shared(Bytes::new());

    /// Takes the first bytes, at most [`MAX_PIECE`].
    fn split_first(&mut self) -> Self {
        if self.remaining() <= MAX_PIECE {
            return std::mem::replace(self, Self::EMPTY);
        }
        if let Self::Buffer { bytes, .. } = self {
            *self = Self::Shared(std::mem::take(bytes).into());
        }
        match self {
            Self::Shared(bytes) => Self::Shared(bytes.split_to(MAX_PIECE)),
            Self::Buffer { .. } => Self::EMPTY,
        }
    }
}

impl Buf for BodyPiece {
    fn remaining(&self) -> usize {
        self.chunk().len()
    }

    fn chunk(&self) -> &[u8] {
        match self {
            Self::Buffer { bytes, offset } => bytes.get(*offset..).unwrap_or_default(),
            Self::Shared(bytes) => bytes,
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Self::Buffer { offset, .. } => *offset += count,
            Self::Shared(bytes) => bytes.advance(count),
        }
    }
}

impl Drop for BodyPiece {
    fn drop(&mut self) {
        if let Self::Buffer { bytes, .. } = self {
            keep_spare(std::mem::take(bytes));
        }
    }
}

/// A body that notes in its connection when hyper drops it. hyper then has the body's last byte.
pub(crate) struct AnswerBody {
    connection: Arc<ConnectionState>,
    /// What is there.
    bytes: BodyPiece,
    /// What the service still makes.
    stream: Option<Box<Stream>>,
    /// The body has several pieces.
    in_pieces: bool,
    /// The memory of a body of known length, until hyper has taken the whole body.
    _reservation: Reservation,
}

impl AnswerBody {
    /// A body of `bytes`, or of a stream. Returns `None` if there is no memory for the body, and its request is safe. `method`: as
    /// for [`reserve`].
    pub(super) fn new(
        connection: &Arc<ConnectionState>,
        bytes: BodyPiece,
        stream: Option<Box<Stream>>,
        method: Option<MethodClass>,
    ) -> Option<Self> {
        let length = stream.as_ref().map_or(bytes.remaining() as u64, |stream| stream.size_hint.lower());
        let Some(_reservation) = reserve(connection, method, length) else {
            connection.abandon(stream);
            return None;
        };
        Some(Self { connection: Arc::clone(connection), bytes, stream, in_pieces: false, _reservation })
    }

    /// Whether more bytes are there than hyper takes at once.
    pub(super) fn is_large(&self) -> bool {
        self.bytes.remaining() > MAX_PIECE
    }

    /// Whether hyper takes the body in one piece.
    pub(super) fn is_one_piece(&self) -> bool {
        self.stream.is_none() && !self.is_large()
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<BodyPiece>, BoxError>>> {
        if self.bytes.has_remaining() {
            return Poll::Ready(Some(Ok(Frame::data(self.bytes.split_first()))));
        }
        let Some(stream) = &mut self.stream else { return Poll::Ready(None) };
        let polled = self.connection.calling(|| {
            let polled = stream.body.as_mut().poll_frame(cx);
            (polled, stream.body.size_hint(), stream.body.is_end_stream())
        });
        let Ok((polled, size_hint, is_end)) = polled else {
            return Poll::Ready(Some(Err("the answer's body panicked".into()))); // the head is sent
        };
        (stream.size_hint, stream.is_end) = (size_hint, is_end);
        polled.map_ok(|frame| match frame.into_data() {
            Ok(data) => {
                self.bytes = BodyPiece::Shared(data);
                Frame::data(self.bytes.split_first())
            }
            Err(frame) => frame.map_data(BodyPiece::Shared),
        })
    }
}

impl Body for AnswerBody {
    type Data = BodyPiece;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<BodyPiece>, BoxError>>> {
        let this = self.get_mut();
        let frame = this.poll_piece(cx);
        this.in_pieces |= !this.is_end_stream();
        if this.in_pieces {
            this.connection.state().untaken = this.size_hint().exact().unwrap_or(0);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        !self.bytes.has_remaining() && self.stream.as_ref().is_none_or(|stream| stream.is_end)
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.bytes.remaining() as u64;
        let Some(stream) = &self.stream else { return SizeHint::with_exact(length) };
        match stream.size_hint.exact() {
            Some(unread) => SizeHint::with_exact(unread.saturating_add(length)),
            None if length == 0 => stream.size_hint,
            None => SizeHint::default(),
        }
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        if let stream @ Some(_) = &mut self.stream {
            self.connection.abandon(stream.take());
        }
        self.connection.end_answer();
    }
}
