//! The service of a connection, as hyper calls it: a [`Service`](polyserve_core::Service) or a `tower::Service`.
//!
//! A [`Service`](polyserve_core::Service) is called when the body is complete, a `tower::Service` when the head is. Heads come here
//! only if the codec has accepted them: see [`Input`](super::input::Input).
//!
//! Invariant: a request that is refused before its body is complete closes the connection.
//!
//! Cost: nothing is allocated for the answer of a [`Service`](polyserve_core::Service) to a request that comes in one piece, unless it
//! is deferred: it reuses the request's header map. A box for each other request. For a `tower::Service` two more: its future and
//! its answer's body.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use polyserve_core::overload::AdmittedRequest;
use polyserve_core::{Answer, Body, BoxFuture, Head, Headers, Reply, Request, RequestNotes, reason_phrase};
use polyserve_serving::http1::decode::RequestLine;
use polyserve_serving::http1::refusal::{LATE_BODY, TOO_LARGE, late_answer};
use polyserve_serving::memory::MethodClass;

use super::answer_body::{AnswerBody, BodyPiece, BoxBody, Stream, finish, keep_spare, take_spare};
use super::connection_state::{ConnectionState, Stage};
use super::error_response::reply_to;
use super::request_body::RequestBody;
use crate::types::{BoxError, head, service_failed, upgrade_refused};

/// The service of one connection.
#[derive(Clone)]
pub(super) struct Adapter {
    pub(super) connection: Arc<ConnectionState>,
    /// `None`: the server's [`Service`](polyserve_core::Service) answers.
    pub(super) tower: Option<TowerCall>,
}

/// Calls a `tower::Service`.
pub(super) type TowerCall = Arc<dyn Fn(http::Request<RequestBody>) -> TowerFuture + Send + Sync>;

/// The future of a `tower::Service`.
pub(super) type TowerFuture = BoxFuture<Result<Response<BoxBody>, BoxError>>;

/// The future of one answer.
pub(super) enum ResponseFuture {
    /// `None` once hyper has the response.
    Now(Option<Response<AnswerBody>>),
    Later(BoxFuture<Response<AnswerBody>>),
}

impl Future for ResponseFuture {
    type Output = Result<Response<AnswerBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Now(response) => response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response))),
            Self::Later(future) => future.as_mut().poll(cx).map(Ok),
        }
    }
}

impl hyper::service::Service<http::Request<Incoming>> for Adapter {
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn call(&self, request: http::Request<Incoming>) -> ResponseFuture {
        let (mut parts, incoming) = request.into_parts();
        if let Some(call) = self.tower.clone() {
            return ResponseFuture::Later(Box::pin(self.clone().answer_tower(call, parts, incoming)));
        }
        let body = if incoming.is_end_stream() { Some(Vec::new()) } else { self.whole_body() };
        let Some(body) = body else {
            return ResponseFuture::Later(Box::pin(self.clone().answer(parts, incoming)));
        };
        drop(incoming); // hyper then skips the body, which it has
        let answered = self.call(&mut parts, &body);
        keep_spare(body);
        match answered {
            Ok(response) => ResponseFuture::Now(Some(response)),
            Err(future) => {
                let adapter = self.clone();
                ResponseFuture::Later(Box::pin(async move { adapter.await_reply(&mut parts, future).await }))
            }
        }
    }
}

/// The part of a body that has arrived. A body that comes in one piece is not copied.
#[derive(Default)]
struct BodyBuffer {
    single: Bytes,
    joined: Vec<u8>,
}

impl BodyBuffer {
    fn push(&mut self, bytes: Bytes) {
        if self.bytes().is_empty() {
            self.single = bytes;
        } else {
            self.joined.extend_from_slice(&std::mem::take(&mut self.single));
            self.joined.extend_from_slice(&bytes);
        }
    }

    fn bytes(&self) -> &[u8] {
        if self.joined.is_empty() { &self.single } else { &self.joined }
    }
}

impl Adapter {
    /// Takes the body of the present request. `None` if it did not come with the head, or is too large.
    fn whole_body(&self) -> Option<Vec<u8>> {
        self.connection.state().take_body(self.connection.server().http.limits.max_body)
    }

    /// Answers a request with a body. This is a block because an `async fn` would keep its arguments twice.
    #[expect(clippy::manual_async_fn)]
    fn answer(self, mut parts: Parts, incoming: Incoming) -> impl Future<Output = Response<AnswerBody>> + Send {
        async move {
            let answered = match self.read(&parts, incoming).await {
                Ok(body) => self.call(&mut parts, body.bytes()),
                Err(reply) => Ok(self.refuse(reply, std::mem::take(&mut parts.headers))),
            };
            match answered {
                Ok(response) => response,
                Err(future) => self.await_reply(&mut parts, future).await,
            }
        }
    }

    /// Reads the body of a request. If it has not arrived, the service may refuse the request by its head: a client that waits for
    /// `100 Continue` then gets the refusal instead, and a malformed body does not change the answer.
    ///
    /// # Errors
    ///
    /// Returns the answer if the request is refused before its body is complete.
    async fn read(&self, parts: &Parts, incoming: Incoming) -> Result<BodyBuffer, Reply> {
        let (has_arrived, incoming) = self.request_body(parts, incoming);
        if !has_arrived || incoming.is_err() {
            self.show_head(parts)?;
        }
        let mut incoming = incoming?;
        let mut body = BodyBuffer::default();
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut incoming).poll_frame(cx)).await {
            match frame {
                Ok(frame) => frame.into_data().into_iter().for_each(|data| body.push(data)),
                Err(_) => {
                    let refusal = self.connection.state().present.body_refusal.take();
                    return Err(reply_to(refusal.unwrap_or(LATE_BODY), self.connection.server()));
                }
            }
        }
        Ok(body)
    }

    /// Returns whether the body of the present request arrived with its head, and the body, or the answer if it is too large.
    fn request_body(&self, parts: &Parts, incoming: Incoming) -> (bool, Result<RequestBody, Reply>) {
        let state = self.connection.state();
        let fits = state.present.body_length <= self.connection.server().http.limits.max_body as u64;
        let body = || RequestBody::new(&self.connection, &state, parts, incoming);
        (state.present.body_has_arrived, fits.then(body).ok_or_else(|| reply_to(TOO_LARGE, self.connection.server())))
    }

    /// Calls `Service::head`. Returns its answer as an error if it refuses the request.
    fn show_head(&self, parts: &Parts) -> Result<(), Reply> {
        let service = &self.connection.server().http.service;
        let refused = head::convert(parts, |line, headers| {
            let head = self.complete_head(parts, &line, headers);
            self.connection.calling(|| service.head(&head)).unwrap_or_else(Some)
        })?;
        refused.map_or(Ok(()), Err)
    }

    /// Calls the service with a complete request. Returns a deferred answer as an error.
    fn call(&self, parts: &mut Parts, body: &[u8]) -> Result<Response<AnswerBody>, BoxFuture<Reply>> {
        let mut in_place = take_spare();
        let asked = head::convert(parts, |line, headers| {
            self.ask(Request::new(self.complete_head(parts, &line, headers), body), &mut in_place)
        });
        match asked.unwrap_or_else(Answer::Now) {
            Answer::Now(reply) => Ok(self.respond_to(parts, reply, in_place)),
            Answer::Later(future) => {
                keep_spare(in_place); // a deferred answer does not use it
                Err(future)
            }
        }
    }

    /// Calls the service, without a lock. A panic becomes an answer. Does not call it if its answer, which could not be refused, may
    /// not fit into memory.
    fn ask(&self, request: Request<'_>, in_place: &mut Vec<u8>) -> Answer<Reply> {
        let server = self.connection.server();
        if !server.http.memory.admits(MethodClass::of(request.head.method)) {
            return Answer::Now(server.http.memory.refuse());
        }
        let (service, draining) = (&server.http.service, server.shutdown.is_begun());
        let client = server.http.client(self.connection.peer, request.head.headers);
        let mut request = request.with_peer(client).with_draining(draining).with_max_body(server.http.limits.max_body);
        if server.http.admission.is_some() {
            request = request.with_arrived(self.connection.state().arrived);
        }
        let mut call =
            |request| self.connection.calling(|| service.call(request, in_place)).unwrap_or_else(Answer::Now);
        if server.http.on_answer.is_none() {
            return call(request);
        }
        let notes = RequestNotes::new();
        let answer = call(request.with_notes(Some(&notes)));
        self.connection.state().report.notes = notes;
        answer
    }

    /// Waits for a deferred answer.
    async fn await_reply(&self, parts: &mut Parts, future: BoxFuture<Reply>) -> Response<AnswerBody> {
        {
            let mut state = self.connection.state();
            // A body that came together with its timeout was not late.
            (state.stage, state.present.timed_out) = (Stage::Answer, false);
        }
        let reply = ServiceFuture::new(&self.connection, future).await.unwrap_or_else(|reply| reply);
        self.respond_to(parts, reply, Vec::new())
    }

    /// Admits a request to a `tower::Service`. Any other service is called behind its admission.
    fn admit(&self, parts: &Parts) -> Result<Option<AdmittedRequest>, Reply> {
        let Some(admission) = &self.connection.server().http.admission else { return Ok(None) };
        let arrived = self.connection.state().arrived;
        head::convert(parts, |line, headers| admission.admit(&self.complete_head(parts, &line, headers), arrived))?
            .map(Some)
    }

    /// Calls a `tower::Service`, and waits for the head of its answer.
    async fn answer_tower(self, call: TowerCall, parts: Parts, incoming: Incoming) -> Response<AnswerBody> {
        let (state, method) = (&self.connection.server().http, MethodClass::of(&parts.method));
        let is_head = parts.method == Method::HEAD;
        let has_body = !incoming.is_end_stream();
        let (_, body) = self.request_body(&parts, incoming);
        let _permit = match self.admit(&parts) {
            Ok(permit) => permit,
            Err(reply) if has_body => return self.refuse(reply, parts.headers),
            Err(reply) => return self.respond(reply, Vec::new(), parts.headers, None),
        };
        let body = match body {
            Ok(_) if !state.memory.admits(method) => return self.refuse(state.memory.refuse(), parts.headers),
            Ok(body) => body,
            Err(reply) => return self.refuse(reply, parts.headers),
        };
        let future = call(http::Request::from_parts(parts, body));
        let answered = ServiceFuture::new(&self.connection, future).await;
        let refusal = self.connection.state().present.body_refusal.take();
        if let Some(refusal) = refusal {
            self.connection.abandon(answered);
            return self.refuse(reply_to(refusal, self.connection.server()), HeaderMap::new());
        }
        let reply = match answered {
            Ok(Ok(response)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                self.connection.abandon(response);
                return self.refuse(upgrade_refused(), HeaderMap::new());
            }
            Ok(Ok(response)) => return self.respond_stream(response, method, is_head),
            Ok(Err(error)) => {
                self.connection.calling(move || service_failed(&state.failures, &*error)).unwrap_or_else(|reply| reply)
            }
            Err(reply) => reply,
        };
        self.respond(reply, Vec::new(), HeaderMap::new(), None)
    }

    /// Makes the response of the service.
    fn respond_to(&self, parts: &mut Parts, reply: Reply, in_place: Vec<u8>) -> Response<AnswerBody> {
        let is_head = parts.method == Method::HEAD;
        let reply = reply.correction(is_head).unwrap_or(reply);
        let has_length = is_head && !reply.is_bodiless() && !matches!(reply.body(), Body::Omitted(_));
        let method = Some(MethodClass::of(&parts.method));
        let mut response = self.respond(reply, in_place, std::mem::take(&mut parts.headers), method);
        if has_length && response.body().is_end_stream() {
            // hyper says the length of an empty body to GET only.
            response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        response
    }

    /// Makes a response that is the last one of its connection, because the end of its request is not known.
    fn refuse(&self, reply: Reply, headers: HeaderMap) -> Response<AnswerBody> {
        self.connection.state().refuse();
        self.respond(reply, Vec::new(), headers, None)
    }

    /// Makes the response, in the map `headers`. `method`: `None` for an answer of the server in place of the service.
    fn respond(
        &self,
        reply: Reply,
        in_place: Vec<u8>,
        mut headers: HeaderMap,
        method: Option<MethodClass>,
    ) -> Response<AnswerBody> {
        headers.clear();
        let status = reply.status();
        let bytes: BodyPiece = match reply.move_headers(&mut headers) {
            Body::InPlace => in_place.into(),
            body => {
                keep_spare(in_place);
                body.into_bytes(Vec::new()).into()
            }
        };
        let Some(body) = AnswerBody::new(&self.connection, bytes, None, method) else {
            return self.respond(self.connection.server().http.memory.refuse(), Vec::new(), HeaderMap::new(), None);
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        let reason = reason_phrase(status);
        if status != StatusCode::OK && status.canonical_reason() != Some(reason) {
            // The http crate has the names of older RFCs.
            response.extensions_mut().insert(ReasonPhrase::from_static(reason.as_bytes()));
        }
        self.finish(&mut response);
        response
    }

    fn complete_head<'a>(&'a self, parts: &'a Parts, line: &RequestLine<'a>, headers: Headers<'a>) -> Head<'a> {
        let certificate = self.connection.certificate.get();
        Head { method: &parts.method, target: line.target, version: line.version, headers, certificate }
    }

    /// Makes the response of a `tower::Service`.
    fn respond_stream(&self, response: Response<BoxBody>, method: MethodClass, is_head: bool) -> Response<AnswerBody> {
        let (mut parts, body) = response.into_parts();
        parts.headers.remove(TRANSFER_ENCODING); // hyper frames the body
        let stream = if matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT) {
            // These have no body, and hyper would send the length of one to HEAD.
            parts.headers.remove(CONTENT_LENGTH);
            self.connection.abandon(body);
            None
        } else {
            match Stream::new(&self.connection, body) {
                Ok(stream) => Some(stream),
                Err(reply) => return self.respond(reply, Vec::new(), HeaderMap::new(), None),
            }
        };
        let Some(body) = AnswerBody::new(&self.connection, BodyPiece::EMPTY, stream, Some(method)) else {
            return self.respond(self.connection.server().http.memory.refuse(), Vec::new(), HeaderMap::new(), None);
        };
        let length = body.size_hint().exact();
        // The length of an empty body to HEAD is that of the answer to GET.
        if length.is_some_and(|length| length > 0 || !is_head) || !has_valid_length(&parts.headers) {
            parts.headers.remove(CONTENT_LENGTH);
        }
        if length.is_none() && !is_head && !body.is_end_stream() && !parts.headers.contains_key(CONTENT_LENGTH) {
            // To a client of HTTP/1.0 such a body ends with the connection.
            let mut state = self.connection.state();
            state.present.is_last |= state.present.is_1_0;
        }
        let mut response = Response::from_parts(parts, body);
        self.finish(&mut response);
        response
    }

    /// Completes the head of an answer, which hyper gets next.
    fn finish(&self, response: &mut Response<AnswerBody>) {
        let close = self.connection.is_last();
        finish(&self.connection.shared, response.headers_mut(), close);
        // To a client of HTTP/1.0 that asked to keep its connection, hyper says `keep-alive` also in an answer with `close`, unless
        // the answer is of HTTP/1.0 too.
        let is_1_0 = close && self.connection.state().present.is_1_0;
        *response.version_mut() = if is_1_0 { Version::HTTP_10 } else { Version::HTTP_11 };
        let body = response.body();
        if !body.is_one_piece() || self.connection.server().http.on_answer.is_some() {
            self.connection.state().begin_sending(response.status(), body.is_large());
        }
    }
}

/// Whether `Content-Length` comes once and is a number. hyper sends no answer with another one.
fn has_valid_length(headers: &HeaderMap) -> bool {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let first = lengths.next().and_then(|length| length.to_str().ok());
    lengths.next().is_none()
        && first.is_some_and(|first| first.bytes().all(|byte| byte.is_ascii_digit()) && first.parse::<u64>().is_ok())
}

/// A future of the service. A panic becomes an answer, also one of its destructor. So does the end of its time.
struct ServiceFuture<T> {
    connection: Arc<ConnectionState>,
    /// `None` while it is dropped.
    future: Option<BoxFuture<T>>,
}

impl<T> ServiceFuture<T> {
    fn new(connection: &Arc<ConnectionState>, future: BoxFuture<T>) -> Self {
        Self { connection: Arc::clone(connection), future: Some(future) }
    }
}

impl<T> Future for ServiceFuture<T> {
    type Output = Result<T, Reply>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { connection, future } = self.get_mut();
        let mut state = connection.state();
        if state.present.timed_out {
            let is_reading = state.stage == Stage::Body && !state.input.is_between_requests();
            state.refuse();
            let late = if is_reading { reply_to(LATE_BODY, connection.server()) } else { late_answer() };
            return Poll::Ready(Err(late));
        }
        drop(state);
        let Some(future) = future else { return Poll::Pending };
        match connection.calling(|| future.as_mut().poll(cx)) {
            Ok(polled) => polled.map(Ok),
            Err(reply) => Poll::Ready(Err(reply)),
        }
    }
}

impl<T> Drop for ServiceFuture<T> {
    fn drop(&mut self) {
        self.connection.abandon(self.future.take());
    }
}
