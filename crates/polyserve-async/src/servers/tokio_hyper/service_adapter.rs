//! A [`Service`](polyserve_core::Service), as hyper calls it. The service is called when the body is complete.
//!
//! Requests that hyper accepts and the contract forbids are refused here.
//!
//! Invariant: a request that is answered before its body is complete closes the connection. Cost: nothing is
//! allocated for an answer that is not deferred. It reuses the request's header map.

use std::borrow::Cow;
use std::convert::Infallible;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use polyserve_core::{Answer, Body, BoxFuture, Head, Headers, Method, Reply, Request, Status, Version};
use polyserve_serving::http1::decode::{Framing, Refusal};
use polyserve_serving::memory::{Reservation, out_of_memory_reply};

use super::connection_state::{ConnectionState, Stage};
use super::error_response::{INVALID_BODY, TOO_LARGE, reply_to};
use super::response::{self, FullBody, TrackedBody};
use super::validate::{ValidRequest, validate, validate_head};
use crate::types::head;

/// The service of one connection.
#[derive(Clone)]
pub(crate) struct ServiceAdapter(pub(super) Arc<ConnectionState>);

impl hyper::service::Service<http::Request<Incoming>> for ServiceAdapter {
    type Response = Response<TrackedBody<FullBody>>;
    type Error = Infallible;
    type Future = ServiceFuture;

    fn call(&self, request: http::Request<Incoming>) -> ServiceFuture {
        let (parts, body) = request.into_parts();
        let mut future = ServiceFuture {
            connection: Arc::clone(&self.0),
            close: false,
            is_safe: parts.method.is_safe(),
            state: ServiceState::Taken,
        };
        if body.is_end_stream() {
            future.validate_and_call(parts);
            return future;
        }
        match validate(&future.connection, &parts, false) {
            Err(refusal) => future.refuse(refusal, parts.headers),
            Ok(valid) => {
                future.close = valid.is_last;
                future.await_body(parts, valid, body);
            }
        }
        future
    }
}

/// The future of one answer.
pub(crate) struct ServiceFuture {
    connection: Arc<ConnectionState>,
    /// The connection is closed after the answer.
    close: bool,
    /// The request changes nothing, so its answer may be refused.
    is_safe: bool,
    state: ServiceState,
}

enum ServiceState {
    Ready(Response<TrackedBody<FullBody>>),
    Body(Box<PendingRequest>),
    Later(BoxFuture<Reply>, HeaderMap),
    /// hyper has the response.
    Taken,
}

/// A request with an incomplete body.
struct PendingRequest {
    parts: Parts,
    method: Method,
    incoming: Incoming,
    body: BodyBuffer,
    /// The memory of `body`.
    reservation: Reservation,
    /// hyper was asked for the body. It passes on what it has after that.
    is_asked_for: bool,
    /// `Service::head` was called, and did not refuse the request.
    head_shown: bool,
}

/// The part of a body that has arrived.
enum BodyBuffer {
    Empty,
    Single(Bytes),
    Joined(Vec<u8>),
}

impl BodyBuffer {
    fn push(&mut self, bytes: Bytes) {
        *self = match std::mem::replace(self, Self::Empty) {
            Self::Empty => Self::Single(bytes),
            Self::Single(first) => Self::Joined([first, bytes].concat()),
            Self::Joined(mut all) => {
                all.extend_from_slice(&bytes);
                Self::Joined(all)
            }
        };
    }

    fn capacity(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Single(bytes) => bytes.len(),
            Self::Joined(bytes) => bytes.capacity(),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Empty => &[],
            Self::Single(bytes) => bytes,
            Self::Joined(bytes) => bytes,
        }
    }
}

impl ServiceFuture {
    fn refuse(&mut self, refusal: Refusal, mut headers: HeaderMap) {
        headers.clear();
        self.connection.state().must_linger = true;
        self.close = true;
        self.respond(Reply::problem(refusal.status, refusal.detail), Vec::new(), headers);
    }

    /// Makes the response.
    fn respond(&mut self, reply: Reply, in_place: Vec<u8>, headers: HeaderMap) {
        let close = self.close || self.connection.is_last();
        let (answer, body) = response::head(&self.connection.shared, reply, close, headers);
        let body = match body {
            Body::InPlace => FullBody::Buffer(in_place),
            body => {
                response::keep_spare(in_place);
                match body.into_bytes(Vec::new()) {
                    Cow::Borrowed(bytes) => FullBody::Shared(Bytes::from_static(bytes)),
                    Cow::Owned(bytes) => FullBody::Buffer(bytes),
                }
            }
        };
        let Some(reservation) = response::reserve(&self.connection, std::mem::take(&mut self.is_safe), &body) else {
            return self.respond(out_of_memory_reply(), Vec::new(), HeaderMap::new());
        };
        if !body.is_one_piece() || self.connection.server().env.on_answer.is_some() {
            self.connection.begin_sending(answer.status);
        }
        self.state = ServiceState::Ready(Response::from_parts(
            answer,
            TrackedBody::new(Arc::clone(&self.connection), body, reservation),
        ));
    }

    /// Handles a request without a body. Its head is converted once, for the validation and for the service.
    fn validate_and_call(&mut self, mut parts: Parts) {
        let mut in_place = response::take_spare();
        let asked = head::convert(&parts, |line, headers| {
            let valid = validate_head(&self.connection, &parts, &line, headers, true)?;
            let head = complete_head(valid.method, line.target, line.version, headers);
            Ok((valid.is_last, self.catch_call(Request::new(head, &[]), &mut in_place)))
        });
        let headers = std::mem::take(&mut parts.headers);
        match asked {
            Err(refusal) => {
                response::keep_spare(in_place);
                self.refuse(refusal, headers);
            }
            Ok((is_last, answer)) => {
                self.close = is_last;
                self.take(answer, in_place, headers);
            }
        }
    }

    /// Handles a request with its complete body.
    fn call_service(&mut self, mut parts: Parts, method: Method, body: &[u8]) {
        let mut in_place = response::take_spare();
        let answer = head::convert(&parts, |line, headers| {
            let head = complete_head(method, line.target, line.version, headers);
            self.catch_call(Request::new(head, body), &mut in_place)
        });
        self.take(answer, in_place, std::mem::take(&mut parts.headers));
    }

    /// Calls the service, without a lock. Catches a panic.
    fn catch_call(&self, request: Request<'_>, in_place: &mut Vec<u8>) -> thread::Result<Answer<Reply>> {
        self.connection.entry.set_calling(true);
        let server = self.connection.server();
        let (service, draining) = (&server.env.service, server.shutdown.is_begun());
        let request = request.with_peer(self.connection.peer).with_draining(draining);
        let answer = catch_unwind(AssertUnwindSafe(|| service.call(request, in_place)));
        self.connection.entry.set_calling(false);
        answer
    }

    /// Continues with the result of the service. Reuses the map `headers` for the answer.
    fn take(&mut self, answer: thread::Result<Answer<Reply>>, in_place: Vec<u8>, mut headers: HeaderMap) {
        headers.clear();
        match answer {
            Ok(Answer::Now(reply)) => self.respond(reply, in_place, headers),
            Ok(Answer::Later(future)) => {
                response::keep_spare(in_place); // a deferred answer does not use it
                self.connection.state().stage = Stage::Answer;
                self.state = ServiceState::Later(future, headers);
            }
            Err(panic) => self.respond(self.connection.panicked(panic), Vec::new(), headers),
        }
    }

    fn await_body(&mut self, parts: Parts, valid: ValidRequest, incoming: Incoming) {
        let mut pending = Box::new(PendingRequest {
            parts,
            method: valid.method,
            incoming,
            body: BodyBuffer::Empty,
            reservation: Reservation::default(),
            is_asked_for: false,
            head_shown: false,
        });
        let limit = self.connection.server().env.limits.max_body as u64;
        let too_large = matches!(valid.framing, Framing::Length(length) if length > limit);
        // These requests are refused by their head, if at all, before hyper reads the body. So a client that waits for
        // `100 Continue` gets the refusal instead, and a malformed chunked body does not change the answer.
        if too_large || valid.expects_continue || valid.framing == Framing::Chunked {
            let refused = self
                .call_head(&mut pending)
                .or_else(|| too_large.then(|| Reply::problem(TOO_LARGE.status, TOO_LARGE.detail)));
            if let Some(reply) = refused {
                self.reply_early(reply, *pending);
                return;
            }
        }
        self.state = ServiceState::Body(pending);
    }

    /// Calls `Service::head`, which may refuse the request.
    fn call_head(&self, pending: &mut PendingRequest) -> Option<Reply> {
        pending.head_shown = true;
        let service = &self.connection.server().env.service;
        self.connection.entry.set_calling(true);
        let refused = head::convert(&pending.parts, |line, headers| {
            let head = complete_head(pending.method, line.target, line.version, headers);
            catch_unwind(AssertUnwindSafe(|| service.head(&head)))
        });
        self.connection.entry.set_calling(false);
        refused.unwrap_or_else(|panic| Some(self.connection.panicked(panic)))
    }

    /// Answers before the body is complete. The end of the request is then unknown, so the connection is closed.
    fn reply_early(&mut self, reply: Reply, pending: PendingRequest) {
        self.connection.state().reply_early();
        self.close = true;
        let mut headers = pending.parts.headers;
        headers.clear();
        self.respond(reply, Vec::new(), headers);
    }

    /// Reads the body, and calls the service once it is complete.
    fn poll_body(&mut self, cx: &mut Context<'_>, mut pending: Box<PendingRequest>) {
        if pending.head_shown && self.connection.state().timed_out {
            return self
                .reply_early(Reply::problem(Status::REQUEST_TIMEOUT, "The body did not come in time."), *pending);
        }
        let limit = self.connection.server().env.limits.max_body;
        loop {
            match Pin::new(&mut pending.incoming).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let Ok(bytes) = frame.into_data() else { continue };
                    if pending.body.bytes().len() + bytes.len() > limit {
                        return self.reply_early(Reply::problem(TOO_LARGE.status, TOO_LARGE.detail), *pending);
                    }
                    pending.body.push(bytes);
                    let memory = &self.connection.server().env.memory;
                    if !pending.reservation.try_set(memory, pending.body.capacity()) {
                        return self.reply_early(out_of_memory_reply(), *pending);
                    }
                    if pending.incoming.is_end_stream() {
                        break;
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    tracing::debug!(%error, "a body is malformed or incomplete");
                    let mut state = self.connection.state();
                    state.client_left = state.input_ended;
                    drop(state);
                    return self.reply_early(reply_to(INVALID_BODY), *pending);
                }
                Poll::Ready(None) => break,
                Poll::Pending => {
                    if std::mem::replace(&mut pending.is_asked_for, true)
                        && !pending.head_shown
                        && let Some(reply) = self.call_head(&mut pending)
                    {
                        return self.reply_early(reply, *pending);
                    }
                    let mut state = self.connection.state();
                    state.missing_bytes = pending.incoming.size_hint().exact().unwrap_or(0);
                    state.body_received = pending.body.bytes().len() as u64;
                    drop(state);
                    self.state = ServiceState::Body(pending);
                    return;
                }
            }
        }
        let PendingRequest { parts, method, body, reservation: _reservation, .. } = *pending;
        self.call_service(parts, method, body.bytes());
    }

    fn poll_later(&mut self, cx: &mut Context<'_>, mut future: BoxFuture<Reply>, headers: HeaderMap) {
        if self.connection.state().timed_out {
            self.connection.abandon(future);
            self.connection.state().must_linger = true;
            self.close = true;
            let reply = Reply::problem(Status::SERVICE_UNAVAILABLE, "The answer did not come in time.");
            return self.respond(reply, Vec::new(), headers);
        }
        self.connection.entry.set_calling(true);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        self.connection.entry.set_calling(false);
        let reply = match polled {
            Ok(Poll::Pending) => {
                self.state = ServiceState::Later(future, headers);
                return;
            }
            Ok(Poll::Ready(reply)) => reply,
            Err(panic) => self.connection.panicked(panic),
        };
        self.connection.abandon(future);
        self.respond(reply, Vec::new(), headers);
    }
}

fn complete_head<'a>(method: Method, target: &'a str, version: Version, headers: Headers<'a>) -> Head<'a> {
    Head { method, target, version, headers }
}

impl Future for ServiceFuture {
    type Output = Result<Response<TrackedBody<FullBody>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if !matches!(this.state, ServiceState::Ready(_)) {
            match std::mem::replace(&mut this.state, ServiceState::Taken) {
                ServiceState::Body(pending) => this.poll_body(cx, pending),
                ServiceState::Later(future, headers) => this.poll_later(cx, future, headers),
                other => this.state = other,
            }
        }
        match std::mem::replace(&mut this.state, ServiceState::Taken) {
            ServiceState::Ready(response) => Poll::Ready(Ok(response)),
            other => {
                this.state = other;
                Poll::Pending
            }
        }
    }
}

impl Drop for ServiceFuture {
    fn drop(&mut self) {
        if let ServiceState::Later(future, _) = std::mem::replace(&mut self.state, ServiceState::Taken) {
            self.connection.abandon(future);
        }
    }
}
