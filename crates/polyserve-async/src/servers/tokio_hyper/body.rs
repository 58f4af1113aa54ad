//! An answer's body, as hyper takes it.
//!
//! A service writes into the thread's spare buffer; hyper copies it behind the head and drops it, which gives the buffer
//! back. Cost: no allocation for a body that is written in place; one for a body of more than a piece.

use std::cell::Cell;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};

use super::line::Line;

/// hyper copies bodies behind heads: it is handed a large one in pieces of this many bytes, so that no copy is larger.
pub(super) const PIECE: usize = 64 * 1024;

/// A larger spare buffer is given back to the allocator.
const KEPT_CAPACITY: usize = 256 * 1024;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The thread's spare buffer, empty; to be given back by [`give_back`].
pub(super) fn spare() -> Vec<u8> {
    SPARE.take()
}

/// Keeps `buffer` as the thread's spare one.
pub(super) fn give_back(mut buffer: Vec<u8>) {
    if buffer.capacity() <= KEPT_CAPACITY {
        buffer.clear();
        SPARE.set(buffer);
    }
}

/// A body that is here whole.
pub(crate) enum Whole {
    /// In a buffer that was the thread's spare one.
    Buffer(Vec<u8>),
    /// Elsewhere.
    Shared(Bytes),
}

impl Whole {
    fn len(&self) -> usize {
        match self {
            Self::Buffer(bytes) => bytes.len(),
            Self::Shared(bytes) => bytes.len(),
        }
    }

    /// The next piece, at most [`PIECE`] bytes.
    fn next(&mut self) -> Option<Piece> {
        if self.len() == 0 {
            return None;
        }
        match std::mem::replace(self, Self::Shared(Bytes::new())) {
            Self::Buffer(bytes) if bytes.len() <= PIECE => Some(Piece::Buffer { bytes, at: 0 }),
            Self::Buffer(bytes) => {
                *self = Self::Shared(bytes.into());
                self.next()
            }
            Self::Shared(mut bytes) => {
                let piece = bytes.split_to(bytes.len().min(PIECE));
                *self = Self::Shared(bytes);
                Some(Piece::Shared(piece))
            }
        }
    }
}

impl Body for Whole {
    type Data = Piece;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, Infallible>>> {
        Poll::Ready(self.get_mut().next().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.len() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len() as u64)
    }
}

/// A piece of a [`Whole`].
pub(crate) enum Piece {
    Buffer { bytes: Vec<u8>, at: usize },
    Shared(Bytes),
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.chunk().len()
    }

    fn chunk(&self) -> &[u8] {
        match self {
            Self::Buffer { bytes, at } => bytes.get(*at..).unwrap_or_default(),
            Self::Shared(bytes) => bytes,
        }
    }

    fn advance(&mut self, count: usize) {
        match self {
            Self::Buffer { at, .. } => *at += count,
            Self::Shared(bytes) => bytes.advance(count),
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Self::Buffer { bytes, .. } = self {
            give_back(std::mem::take(bytes));
        }
    }
}

/// A body that tells its connection when hyper has the last of it.
pub(crate) struct Marked<B> {
    line: Arc<Line>,
    body: B,
}

impl<B> Marked<B> {
    pub(super) fn new(line: Arc<Line>, body: B) -> Self {
        Self { line, body }
    }
}

impl<B: Body + Unpin> Body for Marked<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Marked<B> {
    fn drop(&mut self) {
        self.line.end_answer();
    }
}
