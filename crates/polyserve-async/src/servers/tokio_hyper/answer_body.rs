//! An answer, as hyper takes it: a head, and a body that notes when hyper has its last byte.
//!
//! A service writes into the thread's spare buffer. hyper copies the buffer into the output, after the head, and drops it.
//! The drop returns the buffer to the thread.
//!
//! Invariant: a panic in a service's body is caught, also in its hints and its destructor.
//!
//! Cost: no allocation for a body that is written in place; one for a body of several pieces.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::header::{CONNECTION, SERVER};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::ext::ReasonPhrase;
use polyserve_core::{Body as ReplyBody, Reply, reason_phrase};
use polyserve_serving::memory::{MethodClass, Reservation};

use super::connection_state::{ConnectionState, HyperShared};
use crate::types::BoxError;

/// Converts `reply` into a head, which uses the empty map `headers`, and a body.
pub(super) fn head(shared: &HyperShared, reply: Reply, close: bool, mut headers: HeaderMap) -> (Parts, ReplyBody) {
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.status = reply.status();
    let body = reply.move_headers(&mut headers);
    finish(shared, &mut headers, close);
    parts.headers = headers;
    let reason = reason_phrase(parts.status);
    if parts.status.canonical_reason() != Some(reason) {
        parts.extensions.insert(ReasonPhrase::from_static(reason.as_bytes())); // the http crate has the names of older RFCs
    }
    (parts, body)
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

/// Reserves memory for a body of known length, until the client has taken it. Returns `None` if there is none, and the answer
/// may be refused because its request is safe. `method`: `None` for an answer of the server in place of the service.
pub(super) fn reserve(connection: &ConnectionState, method: Option<MethodClass>, length: u64) -> Option<Reservation> {
    let (memory, mut reservation) = (&connection.server().env.memory, Reservation::default());
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

/// Clears `buffer`, and makes it the thread's spare buffer.
pub(super) fn keep_spare(mut buffer: Vec<u8>) {
    if buffer.capacity() <= KEPT_CAPACITY {
        buffer.clear();
        SPARE.set(buffer);
    }
}

/// The body of a `tower::Service`'s answer.
pub(super) type BoxBody = Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>;

/// What a body is made of.
pub(super) enum BodyContent {
    /// A buffer that becomes the thread's spare buffer after use.
    Buffer(Vec<u8>),
    /// Other memory, and then what a service still makes.
    Pieces(Bytes, Option<Box<Stream>>),
}

/// A body that a service makes in pieces. Its hints are kept, so that hyper does not call the service for them.
pub(super) struct Stream {
    body: BoxBody,
    size_hint: SizeHint,
    is_end: bool,
}

impl BodyContent {
    /// The body of a service's answer.
    ///
    /// # Errors
    ///
    /// Returns an answer in place of that of the service if the body panics.
    pub(super) fn stream(connection: &ConnectionState, body: BoxBody) -> Result<Self, Reply> {
        match connection.calling(|| (body.size_hint(), body.is_end_stream())) {
            Ok((size_hint, is_end)) => {
                Ok(Self::Pieces(Bytes::new(), Some(Box::new(Stream { body, size_hint, is_end }))))
            }
            Err(reply) => {
                connection.abandon(body);
                Err(reply)
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Buffer(bytes) => bytes.len(),
            Self::Pieces(bytes, _) => bytes.len(),
        }
    }

    fn is_end(&self) -> bool {
        self.len() == 0 && !matches!(self, Self::Pieces(_, Some(stream)) if !stream.is_end)
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.len() as u64;
        match self {
            Self::Pieces(_, Some(stream)) => match stream.size_hint.exact() {
                Some(unread) => SizeHint::with_exact(unread.saturating_add(length)),
                None if length == 0 => stream.size_hint,
                None => SizeHint::default(),
            },
            _ => SizeHint::with_exact(length),
        }
    }

    /// Takes the next piece of what is there, of at most [`MAX_PIECE`] bytes.
    fn next(&mut self) -> Option<BodyPiece> {
        if self.len() == 0 {
            return None;
        }
        if let Self::Buffer(bytes) = self {
            let bytes = std::mem::take(bytes);
            if bytes.len() <= MAX_PIECE {
                return Some(BodyPiece::Buffer { bytes, offset: 0 });
            }
            *self = Self::Pieces(bytes.into(), None);
        }
        let Self::Pieces(bytes, _) = self else { return None };
        Some(first_piece(bytes))
    }
}

fn first_piece(bytes: &mut Bytes) -> BodyPiece {
    BodyPiece::Shared(bytes.split_to(bytes.len().min(MAX_PIECE)))
}

impl Stream {
    /// Polls the service for a piece. `None`: the body has ended.
    fn poll_piece(
        &mut self,
        connection: &ConnectionState,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = connection.calling(|| {
            let polled = self.body.as_mut().poll_frame(cx);
            (polled, self.body.size_hint(), self.body.is_end_stream())
        });
        match polled {
            Ok((polled, size_hint, is_end)) => {
                (self.size_hint, self.is_end) = (size_hint, is_end);
                polled
            }
            Err(_) => Poll::Ready(Some(Err("the answer's body panicked".into()))), // the head is sent
        }
    }
}

/// A piece of a body.
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
pub(crate) struct AnswerBody {
    connection: Arc<ConnectionState>,
    content: BodyContent,
    /// The body has several pieces.
    in_pieces: bool,
    /// The memory of a body of known length, until hyper has taken the whole body.
    _reservation: Reservation,
}

impl AnswerBody {
    /// Returns `None` if there is no memory for the body, and its request is safe. `method`: as for [`reserve`].
    pub(super) fn new(
        connection: &Arc<ConnectionState>,
        content: BodyContent,
        method: Option<MethodClass>,
    ) -> Option<Self> {
        let Some(reservation) = reserve(connection, method, content.size_hint().lower()) else {
            connection.abandon(content);
            return None;
        };
        Some(Self { connection: Arc::clone(connection), content, in_pieces: false, _reservation: reservation })
    }

    /// Whether more bytes are there than hyper takes at once.
    pub(super) fn is_large(&self) -> bool {
        self.content.len() > MAX_PIECE
    }

    /// Whether hyper takes the body in one piece.
    pub(super) fn is_one_piece(&self) -> bool {
        !matches!(self.content, BodyContent::Pieces(_, Some(_))) && self.content.len() <= MAX_PIECE
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<BodyPiece>, BoxError>>> {
        if let Some(piece) = self.content.next() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let BodyContent::Pieces(rest, Some(stream)) = &mut self.content else { return Poll::Ready(None) };
        stream.poll_piece(&self.connection, cx).map(|polled| {
            polled.map(|frame| {
                frame.map(|frame| match frame.into_data() {
                    Ok(data) => {
                        *rest = data;
                        Frame::data(first_piece(rest))
                    }
                    Err(frame) => frame.map_data(BodyPiece::Shared),
                })
            })
        })
    }
}

impl Body for AnswerBody {
    type Data = BodyPiece;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<BodyPiece>, BoxError>>> {
        let this = self.get_mut();
        let frame = this.poll_piece(cx);
        this.in_pieces |= !this.content.is_end();
        if this.in_pieces {
            this.connection.state().untaken = this.content.size_hint().exact().unwrap_or(0);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_end()
    }

    fn size_hint(&self) -> SizeHint {
        self.content.size_hint()
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        if let BodyContent::Pieces(_, stream @ Some(_)) = &mut self.content {
            self.connection.abandon(stream.take());
        }
        self.connection.end_answer();
    }
}
