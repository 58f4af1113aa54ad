//! The body of a request, as it is read: it comes in pieces. A `tower::Service` reads it itself.
//!
//! Invariant: if a body is malformed or too large, the server answers instead of the service, unless a part of the service's
//! answer was sent. If the client has left, no answer is sent.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::EXPECT;
use http::request::Parts;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use polyserve_serving::http1::encode::CONTINUE;
use polyserve_serving::http1::refusal::TOO_LARGE;
use polyserve_serving::memory::Reservation;

use super::connection_state::{ConnectionState, RequestState, Stage};
use super::error_response::{INVALID_BODY, OUT_OF_MEMORY};
use crate::types::BoxError;

/// A request's body, as `TokioHyper::serve_tower` passes it to a `tower::Service`. It ends with an error if it is larger than
/// `max_body`, malformed, or not complete in time.
#[cfg_attr(not(feature = "tower"), expect(unreachable_pub, reason = "only a `tower::Service` gets it"))]
pub struct RequestBody {
    incoming: Incoming,
    connection: Arc<ConnectionState>,
    /// The number of the request. A service may keep a body after its answer, while the next request is served.
    request: u64,
    ended: bool,
    /// The client waits for `100 Continue`, and hyper does not know that.
    must_ask: bool,
    /// The number of bytes that the service has received.
    received: usize,
    /// The memory of these bytes, until the body ends: a service may collect them.
    reservation: Reservation,
}

impl RequestBody {
    /// The body of the present request of `connection`, which is in `state`, with the head `parts`.
    pub(super) fn new(
        connection: &Arc<ConnectionState>,
        state: &RequestState,
        parts: &Parts,
        incoming: Incoming,
    ) -> Self {
        // hyper sends a 100 by itself if the last `Expect` field has exactly this value.
        let last = || parts.headers.get_all(EXPECT).iter().next_back();
        let hyper_asks = || last().is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        Self {
            ended: incoming.is_end_stream(),
            must_ask: state.present.expects_continue && !state.present.body_has_arrived && !hyper_asks(),
            incoming,
            connection: Arc::clone(connection),
            request: state.requests,
            received: 0,
            reservation: Reservation::default(),
        }
    }

    /// Notes the bytes that were received. `ends`: they are all.
    fn note_received(&mut self, ends: bool) {
        let received = self.received as u64;
        self.note(|state| {
            state.present.body_received = received;
            if ends {
                state.present.body_is_open = false;
                if state.stage == Stage::Body {
                    state.stage = Stage::Answer;
                }
            }
        });
        if ends {
            (self.ended, self.reservation) = (true, Reservation::default());
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
            Poll::Pending if body.connection.state().present.timed_out => {
                Some(Err("the body did not come in time".into()))
            }
            Poll::Pending => {
                if std::mem::take(&mut body.must_ask) {
                    // All earlier answers are in the output: hyper reads a head after that.
                    body.note(|state| {
                        if state.stage == Stage::Body {
                            state.output.push(CONTINUE);
                            // The service may read the body on another task, while that of the connection waits.
                            state.task.iter().for_each(Waker::wake_by_ref);
                        }
                    });
                }
                return Poll::Pending;
            }
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, Bytes::len);
                body.received += length;
                let is_too_large = body.received > body.connection.server().http.limits.max_body;
                body.note_received(!is_too_large && body.incoming.is_end_stream());
                if is_too_large {
                    body.note(|state| state.present.body_refusal = Some(TOO_LARGE));
                    return Poll::Ready(Some(Err("the body is larger than this server takes".into())));
                }
                if !body.ended && !body.reservation.try_set(&body.connection.server().http.memory, body.received) {
                    body.note(|state| state.present.body_refusal = Some(OUT_OF_MEMORY));
                    return Poll::Ready(Some(Err("the memory of the server is used up".into())));
                }
                Some(Ok(frame))
            }
            Poll::Ready(Some(Err(error))) => {
                tracing::debug!(%error, "a body is malformed or incomplete");
                body.note(|state| {
                    state.present.body_refusal.get_or_insert(state.present.body_fault.unwrap_or(INVALID_BODY));
                    state.client_left = state.input_ended;
                });
                Some(Err(error.into()))
            }
            Poll::Ready(None) => {
                body.note_received(true);
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
            self.note(RequestState::drop_body);
            self.note_received(true);
        }
    }
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").field("received", &self.received).finish_non_exhaustive()
    }
}
