//! The body of a request, as a `tower::Service` reads it: it comes in pieces.
//!
//! Invariant: if a body is malformed or too large, the server answers instead of the service, unless a part of the service's
//! answer was sent.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use polyserve_serving::memory::Reservation;

use super::connection_state::{ConnectionState, RequestState, Stage};
use super::error_response::{INVALID_BODY, OUT_OF_MEMORY, TOO_LARGE};
use crate::types::BoxError;

/// A request's body, as `TokioHyper::serve_tower` passes it to a `tower::Service`. It ends with an error if it is larger than
/// `max_body`, malformed, or not complete in time.
pub struct RequestBody {
    incoming: Incoming,
    /// The number of bytes that the limit still allows.
    remaining: usize,
    connection: Arc<ConnectionState>,
    /// The number of the request. A service may keep a body after its answer, while the next request is served.
    request: u64,
    ended: bool,
    /// The number of bytes that the service has received.
    received: usize,
    /// The memory of these bytes, until the body ends: a service may collect them.
    reservation: Reservation,
}

impl RequestBody {
    /// The body of the connection's present request, of at most `max` bytes.
    pub(super) fn new(connection: &Arc<ConnectionState>, incoming: Incoming, max: usize) -> Self {
        let ended = incoming.is_end_stream();
        let mut state = connection.state();
        (state.body_is_open, state.body_refusal) = (!ended, None);
        let request = state.requests;
        drop(state);
        Self {
            incoming,
            remaining: max,
            connection: Arc::clone(connection),
            request,
            ended,
            received: 0,
            reservation: Reservation::default(),
        }
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.reservation = Reservation::default();
            self.note(|state| {
                state.body_is_open = false;
                if state.stage == Stage::Body {
                    state.stage = Stage::Answer;
                }
            });
        }
    }

    /// Changes the state of the connection, if this is the body of its present request.
    fn note(&self, change: impl FnOnce(&mut RequestState)) {
        let mut state = self.connection.state();
        if state.requests == self.request {
            change(&mut state);
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let body = self.get_mut();
        if body.ended {
            return Poll::Ready(None);
        }
        let polled = Pin::new(&mut body.incoming).poll_frame(cx);
        Poll::Ready(match polled {
            Poll::Pending if body.connection.state().timed_out => Some(Err("the body did not come in time".into())),
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, Bytes::len);
                body.received += length;
                body.note(|state| state.body_received = body.received as u64);
                if !body.reservation.try_set(&body.connection.server().env.memory, body.received) {
                    body.note(|state| state.body_refusal = Some(OUT_OF_MEMORY));
                    return Poll::Ready(Some(Err("the memory of the server is used up".into())));
                }
                if let Some(remaining) = body.remaining.checked_sub(length) {
                    body.remaining = remaining;
                    if body.incoming.is_end_stream() {
                        body.end();
                    }
                    return Poll::Ready(Some(Ok(frame)));
                }
                body.note(|state| state.body_refusal = Some(TOO_LARGE));
                Some(Err("the body is larger than this server takes".into()))
            }
            Poll::Ready(Some(Err(error))) => {
                body.note(|state| state.body_refusal = (!state.input_ended).then_some(INVALID_BODY));
                Some(Err(error.into()))
            }
            Poll::Ready(None) => {
                body.end();
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.ended {
            self.note(RequestState::reply_early);
        }
        self.end();
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").field("remaining", &self.remaining).finish_non_exhaustive()
    }
}
