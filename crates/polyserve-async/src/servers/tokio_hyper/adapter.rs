//! The service of a connection, as hyper calls it: a [`Service`](polyserve_core::Service) or a `tower::Service`.
//!
//! A [`Service`](polyserve_core::Service) is called when the body is complete, a `tower::Service` when the head is. Requests that
//! hyper accepts and the contract forbids are refused here.
//!
//! Invariants:
//!
//! * A request is passed on only while the connection's [turn](polyserve_serving::http1::turn) is not over. Otherwise it waits for
//!   the next turn.
//! * A request that is answered before its body is complete closes the connection.
//!
//! Cost: nothing is allocated for an answer of a [`Service`](polyserve_core::Service) that is not deferred: it reuses the
//! request's header map. For a `tower::Service` two boxes for each request: its future and its answer's body.

use std::borrow::Cow;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use polyserve_core::{Answer, Body, BoxFuture, Head, Headers, Reply, Request};
use polyserve_serving::http1::decode::{self, Framing, Refusal, RequestLine};
use polyserve_serving::memory::{MethodClass, Reservation, out_of_memory_reply};

use super::answer_body::{self, AnswerBody, BodyContent, BoxBody};
use super::connection_state::{ConnectionState, Stage};
use super::error_response::{INVALID_BODY, TOO_LARGE, reply_to};
use super::output::{HyperBuffers, with_buffers};
use super::request_body::RequestBody;
use crate::types::{head, upgrade_refused};

/// The service of one connection.
#[derive(Clone)]
pub(super) struct Adapter {
    pub(super) connection: Arc<ConnectionState>,
    /// `None`: the server's [`Service`](polyserve_core::Service) answers.
    pub(super) tower: Option<TowerCall>,
}

/// Calls a `tower::Service`.
pub(super) type TowerCall = Arc<dyn Fn(http::Request<RequestBody>) -> TowerFuture + Send + Sync>;

/// Its error is the answer in place of that of a service that failed.
pub(super) type TowerFuture = BoxFuture<Result<Response<BoxBody>, Reply>>;

impl hyper::service::Service<http::Request<Incoming>> for Adapter {
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = AdapterFuture;

    fn call(&self, request: http::Request<Incoming>) -> AdapterFuture {
        let mut future = AdapterFuture { adapter: self.clone(), close: false, method: None, state: AnswerState::Taken };
        if with_buffers(HyperBuffers::take_place_in_turn) {
            future.begin(request);
        } else {
            self.connection.state().waits_for_turn = true;
            future.state = AnswerState::NextTurn(Box::new(request));
        }
        future
    }
}

/// The future of one answer.
pub(super) struct AdapterFuture {
    adapter: Adapter,
    /// The connection is closed after the answer.
    close: bool,
    /// The method, once the request is valid. The answer to a safe method may be refused.
    method: Option<MethodClass>,
    state: AnswerState,
}

enum AnswerState {
    /// The turn is over.
    NextTurn(Box<http::Request<Incoming>>),
    Body(Box<PendingRequest>),
    Later(Later),
    Ready(Response<AnswerBody>),
    /// hyper has the response.
    Taken,
}

/// An answer that is awaited.
enum Later {
    /// The header map is reused for the answer.
    Reply(BoxFuture<Reply>, HeaderMap),
    Tower(TowerFuture),
}

/// A request with an incomplete body.
struct PendingRequest {
    parts: Parts,
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

/// The properties of a valid request.
#[derive(Clone, Copy)]
struct ValidRequest {
    framing: Framing,
    expects_continue: bool,
    /// The connection is closed after the answer.
    is_last: bool,
}

/// Begins a request: counts it, and checks what hyper does not check of its head.
///
/// # Errors
///
/// Returns the refusal if the head is not valid.
fn validate(
    connection: &ConnectionState,
    line: &RequestLine<'_>,
    headers: Headers<'_>,
    fields: usize,
    is_bodiless: bool,
) -> Result<ValidRequest, Refusal> {
    let parsed = decode::validate_head(0, line, headers);
    let mut state = connection.state();
    state.begin_request(is_bodiless);
    let parsed = parsed?;
    let (body, is_chunked) = match parsed.framing {
        Framing::Length(length) => (length, false),
        Framing::Chunked => (0, true),
    };
    state.input.passed_on(line, headers, body);
    state.must_linger = parsed.keep_alive;
    if fields > connection.server().env.limits.max_headers {
        let detail = "There are more header fields than this server takes.";
        return Err(Refusal { status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, detail });
    }
    // hyper alone has judged the end of a chunked body. Another peer may disagree, so nothing after it is a request.
    let is_last = is_chunked || state.requests >= connection.shared.max_requests;
    Ok(ValidRequest { framing: parsed.framing, expects_continue: parsed.expects_continue, is_last })
}

impl AdapterFuture {
    fn connection(&self) -> &Arc<ConnectionState> {
        &self.adapter.connection
    }

    /// Begins with a request. The turn is not over.
    fn begin(&mut self, request: http::Request<Incoming>) {
        let (parts, incoming) = request.into_parts();
        let is_bodiless = incoming.is_end_stream();
        if is_bodiless && self.adapter.tower.is_none() {
            return self.validate_and_call(parts);
        }
        let valid = head::convert(&parts, |line, headers| {
            validate(self.connection(), &line, headers, parts.headers.len(), is_bodiless)
        });
        let valid = match valid {
            Ok(valid) => valid,
            Err(refusal) => return self.refuse(refusal, parts.headers),
        };
        (self.close, self.method) = (valid.is_last, Some(MethodClass::of(&parts.method)));
        match self.adapter.tower.clone() {
            Some(call) => self.call_tower(&call, valid, parts, incoming),
            None => self.await_body(parts, valid, incoming),
        }
    }

    fn refuse(&mut self, refusal: Refusal, headers: HeaderMap) {
        self.connection().state().must_linger = true;
        self.close = true;
        self.respond(Reply::problem(refusal.status, refusal.detail), Vec::new(), headers);
    }

    /// Answers before the body is complete. The end of the request is then unknown, so the connection is closed.
    fn reply_early(&mut self, reply: Reply, headers: HeaderMap) {
        self.connection().state().reply_early();
        self.close = true;
        self.respond(reply, Vec::new(), headers);
    }

    /// Makes the response, in the map `headers`.
    fn respond(&mut self, reply: Reply, in_place: Vec<u8>, mut headers: HeaderMap) {
        headers.clear();
        let close = self.close || self.connection().is_last();
        let (answer, body) = answer_body::head(&self.connection().shared, reply, close, headers);
        let content = match body {
            Body::InPlace => BodyContent::Buffer(in_place),
            body => {
                answer_body::keep_spare(in_place);
                match body.into_bytes(Vec::new()) {
                    Cow::Borrowed(bytes) => BodyContent::Pieces(Bytes::from_static(bytes), None),
                    Cow::Owned(bytes) => BodyContent::Buffer(bytes),
                }
            }
        };
        let method = self.method.take();
        let Some(body) = AnswerBody::new(self.connection(), content, method) else {
            return self.respond(out_of_memory_reply(), Vec::new(), HeaderMap::new());
        };
        self.state = AnswerState::Ready(Response::from_parts(answer, body));
        self.note_begin();
    }

    /// Notes that hyper gets the head of an answer. Not needed for an answer in one piece, unless a hook sees it.
    fn note_begin(&self) {
        let AnswerState::Ready(response) = &self.state else { return };
        if response.body().is_large() {
            with_buffers(|buffers| buffers.turn.note_large());
        }
        if !response.body().is_one_piece() || self.connection().server().env.on_answer.is_some() {
            self.connection().begin_sending(response.status());
        }
    }

    /// Handles a request without a body. Its head is converted once, for the validation and for the service.
    fn validate_and_call(&mut self, mut parts: Parts) {
        let mut in_place = answer_body::take_spare();
        let asked = head::convert(&parts, |line, headers| {
            let valid = validate(self.connection(), &line, headers, parts.headers.len(), true)?;
            let head = complete_head(&parts, &line, headers);
            Ok((valid, self.call(Request::new(head, &[]), &mut in_place)))
        });
        let headers = std::mem::take(&mut parts.headers);
        match asked {
            Err(refusal) => {
                answer_body::keep_spare(in_place);
                self.refuse(refusal, headers);
            }
            Ok((valid, answer)) => {
                (self.close, self.method) = (valid.is_last, Some(MethodClass::of(&parts.method)));
                self.take(answer, in_place, headers);
            }
        }
    }

    /// Handles a request with its complete body.
    fn call_with_body(&mut self, mut parts: Parts, body: &[u8]) {
        let mut in_place = answer_body::take_spare();
        let answer = head::convert(&parts, |line, headers| {
            let head = complete_head(&parts, &line, headers);
            self.call(Request::new(head, body), &mut in_place)
        });
        self.take(answer, in_place, std::mem::take(&mut parts.headers));
    }

    /// Calls the service, without a lock. A panic becomes an answer. Does not call it if its answer, which could not be refused, may
    /// not fit into memory.
    fn call(&self, request: Request<'_>, in_place: &mut Vec<u8>) -> Answer<Reply> {
        let server = self.connection().server();
        if !server.env.memory.admits(MethodClass::of(request.head.method)) {
            return Answer::Now(out_of_memory_reply());
        }
        let (service, draining) = (&server.env.service, server.shutdown.is_begun());
        let request = request.with_peer(self.connection().peer).with_draining(draining);
        self.connection().calling(|| service.call(request, in_place)).unwrap_or_else(Answer::Now)
    }

    /// Continues with the result of the service.
    fn take(&mut self, answer: Answer<Reply>, in_place: Vec<u8>, headers: HeaderMap) {
        match answer {
            Answer::Now(reply) => self.respond(reply, in_place, headers),
            Answer::Later(future) => {
                answer_body::keep_spare(in_place); // a deferred answer does not use it
                self.connection().state().stage = Stage::Answer;
                self.state = AnswerState::Later(Later::Reply(future, headers));
            }
        }
    }

    fn call_tower(&mut self, call: &TowerCall, valid: ValidRequest, parts: Parts, incoming: Incoming) {
        let limit = self.connection().server().env.limits.max_body;
        if matches!(valid.framing, Framing::Length(length) if length > limit as u64) {
            return self.reply_early(reply_to(TOO_LARGE), parts.headers);
        }
        if !self.connection().server().env.memory.admits(MethodClass::of(&parts.method)) {
            return self.reply_early(out_of_memory_reply(), parts.headers);
        }
        let body = RequestBody::new(self.connection(), incoming, limit);
        self.state = AnswerState::Later(Later::Tower(call(http::Request::from_parts(parts, body))));
    }

    fn await_body(&mut self, parts: Parts, valid: ValidRequest, incoming: Incoming) {
        let mut pending = Box::new(PendingRequest {
            parts,
            incoming,
            body: BodyBuffer::Empty,
            reservation: Reservation::default(),
            is_asked_for: false,
            head_shown: false,
        });
        let limit = self.connection().server().env.limits.max_body as u64;
        let too_large = matches!(valid.framing, Framing::Length(length) if length > limit);
        // These requests are refused by their head, if at all, before hyper reads the body. So a client that waits for
        // `100 Continue` gets the refusal instead, and a malformed chunked body does not change the answer.
        if too_large || valid.expects_continue || valid.framing == Framing::Chunked {
            let refused = self.call_head(&mut pending).or_else(|| too_large.then(|| reply_to(TOO_LARGE)));
            if let Some(reply) = refused {
                return self.reply_early(reply, pending.parts.headers);
            }
        }
        self.state = AnswerState::Body(pending);
    }

    /// Calls `Service::head`, which may refuse the request.
    fn call_head(&self, pending: &mut PendingRequest) -> Option<Reply> {
        pending.head_shown = true;
        let service = &self.connection().server().env.service;
        head::convert(&pending.parts, |line, headers| {
            let head = complete_head(&pending.parts, &line, headers);
            self.connection().calling(|| service.head(&head)).unwrap_or_else(Some)
        })
    }

    /// Does what can be done now, unless the response is ready.
    fn advance(&mut self, cx: &mut Context<'_>) {
        if matches!(self.state, AnswerState::NextTurn(_)) {
            if !with_buffers(HyperBuffers::take_place_in_turn) {
                return; // the connection's loop polls again
            }
            if let AnswerState::NextTurn(request) = self.take_state() {
                self.begin(*request);
            }
        }
        if matches!(self.state, AnswerState::Body(_))
            && let AnswerState::Body(pending) = self.take_state()
        {
            self.poll_body(cx, pending);
        }
        if matches!(self.state, AnswerState::Later(_))
            && let AnswerState::Later(later) = self.take_state()
        {
            self.poll_later(cx, later);
        }
    }

    fn take_state(&mut self) -> AnswerState {
        std::mem::replace(&mut self.state, AnswerState::Taken)
    }

    /// Reads the body, and calls the service once it is complete.
    fn poll_body(&mut self, cx: &mut Context<'_>, mut pending: Box<PendingRequest>) {
        if pending.head_shown && self.connection().state().timed_out {
            return self.reply_early(late_body(), pending.parts.headers);
        }
        let limit = self.connection().server().env.limits.max_body;
        loop {
            match Pin::new(&mut pending.incoming).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let Ok(bytes) = frame.into_data() else { continue };
                    if pending.body.bytes().len() + bytes.len() > limit {
                        return self.reply_early(reply_to(TOO_LARGE), pending.parts.headers);
                    }
                    pending.body.push(bytes);
                    let memory = &self.connection().server().env.memory;
                    if !pending.reservation.try_set(memory, pending.body.capacity()) {
                        return self.reply_early(out_of_memory_reply(), pending.parts.headers);
                    }
                    if pending.incoming.is_end_stream() {
                        break;
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    tracing::debug!(%error, "a body is malformed or incomplete");
                    let mut state = self.connection().state();
                    state.client_left = state.input_ended;
                    drop(state);
                    return self.reply_early(reply_to(INVALID_BODY), pending.parts.headers);
                }
                Poll::Ready(None) => break,
                Poll::Pending => {
                    if std::mem::replace(&mut pending.is_asked_for, true)
                        && !pending.head_shown
                        && let Some(reply) = self.call_head(&mut pending)
                    {
                        return self.reply_early(reply, pending.parts.headers);
                    }
                    let mut state = self.connection().state();
                    state.missing_bytes = pending.incoming.size_hint().exact().unwrap_or(0);
                    state.body_received = pending.body.bytes().len() as u64;
                    drop(state);
                    self.state = AnswerState::Body(pending);
                    return;
                }
            }
        }
        let PendingRequest { parts, body, reservation: _reservation, .. } = *pending;
        self.call_with_body(parts, body.bytes());
    }

    /// Polls an answer that is awaited.
    fn poll_later(&mut self, cx: &mut Context<'_>, later: Later) {
        if self.connection().state().timed_out {
            return self.give_up(later);
        }
        match later {
            Later::Reply(mut future, headers) => {
                match self.connection().calling(|| future.as_mut().poll(cx)).unwrap_or_else(Poll::Ready) {
                    Poll::Pending => self.state = AnswerState::Later(Later::Reply(future, headers)),
                    Poll::Ready(reply) => {
                        self.connection().abandon(future);
                        self.respond(reply, Vec::new(), headers);
                    }
                }
            }
            Later::Tower(mut future) => {
                let polled = self.connection().calling(|| future.as_mut().poll(cx));
                match polled.unwrap_or_else(|reply| Poll::Ready(Err(reply))) {
                    Poll::Pending => self.state = AnswerState::Later(Later::Tower(future)),
                    Poll::Ready(answered) => {
                        self.connection().abandon(future);
                        self.respond_tower(answered);
                    }
                }
            }
        }
    }

    /// Answers because the answer of the service did not come in time.
    fn give_up(&mut self, later: Later) {
        let is_reading = self.connection().state().stage == Stage::Body;
        self.connection().abandon(later);
        let late_answer = || Reply::problem(StatusCode::SERVICE_UNAVAILABLE, "The answer did not come in time.");
        self.reply_early(if is_reading { late_body() } else { late_answer() }, HeaderMap::new());
    }

    /// Makes the response of a `tower::Service`, or an answer of the server if the service failed or the body was refused.
    fn respond_tower(&mut self, answered: Result<Response<BoxBody>, Reply>) {
        let refusal = self.connection().state().body_refusal.take();
        if let Some(refusal) = refusal {
            self.connection().abandon(answered);
            self.close = true;
            return self.respond(reply_to(refusal), Vec::new(), HeaderMap::new());
        }
        let (mut parts, body) = match answered {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                self.connection().abandon(response);
                self.close = true;
                return self.respond(upgrade_refused(), Vec::new(), HeaderMap::new());
            }
            Ok(response) => response.into_parts(),
            Err(reply) => return self.respond(reply, Vec::new(), HeaderMap::new()),
        };
        let close = self.close || self.connection().is_last();
        let content = match BodyContent::stream(self.connection(), body) {
            Ok(content) => content,
            Err(reply) => return self.respond(reply, Vec::new(), HeaderMap::new()),
        };
        let Some(body) = AnswerBody::new(self.connection(), content, self.method) else {
            return self.respond(out_of_memory_reply(), Vec::new(), HeaderMap::new());
        };
        answer_body::finish(&self.connection().shared, &mut parts.headers, close);
        self.state = AnswerState::Ready(Response::from_parts(parts, body));
        self.note_begin();
    }
}

fn late_body() -> Reply {
    Reply::problem(StatusCode::REQUEST_TIMEOUT, "The body did not come in time.")
}

fn complete_head<'a>(parts: &'a Parts, line: &RequestLine<'a>, headers: Headers<'a>) -> Head<'a> {
    Head { method: &parts.method, target: line.target, version: line.version, headers }
}

impl Future for AdapterFuture {
    type Output = Result<Response<AnswerBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if !matches!(this.state, AnswerState::Ready(_)) {
            this.advance(cx);
        }
        if matches!(this.state, AnswerState::Ready(_))
            && let AnswerState::Ready(response) = this.take_state()
        {
            return Poll::Ready(Ok(response));
        }
        Poll::Pending
    }
}

impl Drop for AdapterFuture {
    fn drop(&mut self) {
        if let AnswerState::Later(later) = self.take_state() {
            self.connection().abandon(later);
        }
    }
}
