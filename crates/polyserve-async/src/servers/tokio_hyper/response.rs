//! A response, as hyper takes it: a head, and a body that notes when hyper has its last byte.
//!
//! A service writes into the thread's spare buffer. hyper copies the buffer into the output, after the head, and drops it.
//! The drop returns the buffer to the thread.
//!
//! Cost: no allocation for a body that is written in place; one for a body of several pieces.

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::header::{CONNECTION, SERVER};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::ext::ReasonPhrase;
use polyserve_core::{Body as ReplyBody, Reply};
use polyserve_serving::memory::Reservation;

use super::connection_state::{ConnectionState, HyperShared};
use crate::types::reply::{fill, status};

/// Converts `reply` into a head, which uses the empty map `headers`, and a body.
pub(super) fn head(shared: &HyperShared, reply: Reply, close: bool, mut headers: HeaderMap) -> (Parts, ReplyBody) {
    fill(&mut headers, &reply);
    finish(shared, &mut headers, close);
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.status = status(&reply);
    parts.headers = headers;
    let reason = reply.status().reason();
    if parts.status.canonical_reason() != Some(reason) {
        parts.extensions.insert(ReasonPhrase::from_static(reason.as_bytes())); // the http crate has the names of older RFCs
    }
    (parts, reply.into_body())
}

/// Adds the header fields of the server.
pub(super) fn finish(shared: &HyperShared, headers: &mut HeaderMap, close: bool) {
    if let Some(server_header) = &shared.server_header {
        headers.insert(SERVER, server_header.clone());
    }
    if close {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// The maximum size of a piece of a body. hyper copies each piece into the output, so this bounds the copy.
pub(super) const MAX_PIECE: usize = 64 * 1024;

/// A spare buffer with a larger capacity is freed.
const KEPT_CAPACITY: usize = 256 * 1024;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Takes the thread's spare buffer, which is empty. [`keep_spare`] returns it.
pub(super) fn take_spare() -> Vec<u8> {
    SPARE.take()
}

/// Clears `buffer`, and makes it the thread's spare buffer.
pub(super) fn keep_spare(mut buffer: Vec<u8>) {
    if buffer.capacity() <= KEPT_CAPACITY {
        buffer.clear();
        SPARE.set(buffer);
    }
}

/// A complete body.
pub(crate) enum FullBody {
    /// A buffer that becomes the thread's spare buffer after use.
    Buffer(Vec<u8>),
    /// Other memory.
    Shared(Bytes),
}

impl FullBody {
    /// Whether hyper takes the body in one piece.
    pub(super) fn is_one_piece(&self) -> bool {
        self.len() <= MAX_PIECE
    }

    fn len(&self) -> usize {
        match self {
            Self::Buffer(bytes) => bytes.len(),
            Self::Shared(bytes) => bytes.len(),
        }
    }

    /// Takes the next piece, of at most [`MAX_PIECE`] bytes.
    fn next(&mut self) -> Option<BodyPiece> {
        if self.len() == 0 {
            return None;
        }
        match std::mem::replace(self, Self::Shared(Bytes::new())) {
            Self::Buffer(bytes) if bytes.len() <= MAX_PIECE => Some(BodyPiece::Buffer { bytes, offset: 0 }),
            Self::Buffer(bytes) => {
                *self = Self::Shared(bytes.into());
                self.next()
            }
            Self::Shared(mut bytes) => {
                let piece = bytes.split_to(bytes.len().min(MAX_PIECE));
                *self = Self::Shared(bytes);
                Some(BodyPiece::Shared(piece))
            }
        }
    }
}

impl Body for FullBody {
    type Data = BodyPiece;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<BodyPiece>, Infallible>>> {
        Poll::Ready(self.get_mut().next().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.len() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len() as u64)
    }
}

/// A piece of a [`FullBody`].
pub(crate) enum BodyPiece {
    Buffer { bytes: Vec<u8>, offset: usize },
    Shared(Bytes),
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
pub(crate) struct TrackedBody<B> {
    connection: Arc<ConnectionState>,
    body: B,
    /// The body has several pieces.
    in_pieces: bool,
    /// The memory of a body of known length, until hyper has taken the whole body.
    _reservation: Reservation,
}

impl<B> TrackedBody<B> {
    /// `reservation`: the memory that [`reserve`] has reserved for `body`.
    pub(super) fn new(connection: Arc<ConnectionState>, body: B, reservation: Reservation) -> Self {
        Self { connection, body, in_pieces: false, _reservation: reservation }
    }
}

/// Reserves memory for a body of known length, until the client has taken it. Returns `None` if there is none, and the answer
/// may be refused because its request `is_safe`.
pub(super) fn reserve(connection: &ConnectionState, is_safe: bool, body: &impl Body) -> Option<Reservation> {
    let (memory, mut reservation) = (&connection.server().env.memory, Reservation::default());
    let length = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if is_safe {
        return reservation.try_set(memory, length).then_some(reservation);
    }
    reservation.set(memory, length);
    Some(reservation)
}

impl<B: Body + Unpin> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        this.in_pieces |= !this.body.is_end_stream();
        if this.in_pieces {
            this.connection.state().untaken = this.body.size_hint().exact().unwrap_or(0);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for TrackedBody<B> {
    fn drop(&mut self) {
        self.connection.end_answer();
    }
}
