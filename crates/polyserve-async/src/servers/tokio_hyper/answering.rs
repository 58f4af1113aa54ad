//! A [`Service`](polyserve_core::Service), as hyper calls it: once the body is whole.
//!
//! What hyper lets pass and the contract does not is refused here. Cost: an answer that is there now takes the request's
//! own header map, so that it allocates nothing.

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
use polyserve_core::answer::{Answer, BoxFuture};
use polyserve_core::http1::decode::{Framing, Refusal};
use polyserve_core::http1::session::panicked;
use polyserve_core::server::panic_text;
use polyserve_core::service::Body;
use polyserve_core::{Head, Headers, Method, Reply, Request, Status, Version};

use super::body::{self, Marked, Whole};
use super::judging::{self, Judged};
use super::line::{Line, Stage};
use super::response;
use crate::types::head;

/// The service of one connection.
#[derive(Clone)]
pub(crate) struct Answering(pub(super) Arc<Line>);

impl hyper::service::Service<http::Request<Incoming>> for Answering {
    type Response = Response<Marked<Whole>>;
    type Error = Infallible;
    type Future = Work;

    fn call(&self, request: http::Request<Incoming>) -> Work {
        let (parts, body) = request.into_parts();
        let mut work = Work { line: Arc::clone(&self.0), close: false, state: State::Gone };
        if body.is_end_stream() {
            work.judge_and_ask(parts);
            return work;
        }
        match judging::judge(&work.line, &parts, false) {
            Err(refusal) => work.refuse(refusal, parts.headers),
            Ok(judged) => {
                work.close = judged.is_last;
                work.await_body(parts, judged, body);
            }
        }
        work
    }
}

/// A request's answer, in the making.
pub(crate) struct Work {
    line: Arc<Line>,
    /// The connection is closed after it.
    close: bool,
    state: State,
}

enum State {
    Ready(Response<Marked<Whole>>),
    Body(Box<Held>),
    Later(BoxFuture<Reply>, HeaderMap),
    Gone,
}

/// A request whose body is incomplete.
struct Held {
    parts: Parts,
    method: Method,
    incoming: Incoming,
    body: Gathered,
    /// The service was asked whether it wants the body.
    asked: bool,
}

/// What is here of it.
enum Gathered {
    None,
    One(Bytes),
    Many(Vec<u8>),
}

impl Gathered {
    fn push(&mut self, bytes: Bytes) {
        *self = match std::mem::replace(self, Self::None) {
            Self::None => Self::One(bytes),
            Self::One(first) => Self::Many([first, bytes].concat()),
            Self::Many(mut all) => {
                all.extend_from_slice(&bytes);
                Self::Many(all)
            }
        };
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::None => &[],
            Self::One(bytes) => bytes,
            Self::Many(bytes) => bytes,
        }
    }
}

impl Work {
    fn refuse(&mut self, refusal: Refusal, mut headers: HeaderMap) {
        headers.clear();
        self.line.state().client_stays = true;
        self.close = true;
        self.give(Reply::problem(refusal.status, refusal.detail), Vec::new(), headers);
    }

    /// The answer is here.
    fn give(&mut self, reply: Reply, in_place: Vec<u8>, headers: HeaderMap) {
        let close = self.close || self.line.is_last();
        self.line.state().stage = Stage::Sending;
        let (answer, body) = response::head(&self.line.shared, reply, close, headers);
        let body = match body {
            Body::InPlace => Whole::Buffer(in_place),
            Body::Static(bytes) => {
                body::give_back(in_place);
                Whole::Shared(Bytes::from_static(bytes))
            }
            Body::Owned(bytes) => {
                body::give_back(in_place);
                Whole::Buffer(bytes)
            }
        };
        self.state = State::Ready(Response::from_parts(answer, Marked::new(Arc::clone(&self.line), body)));
    }

    /// A request without a body: its head is shown once, to the judge and to the service.
    fn judge_and_ask(&mut self, mut parts: Parts) {
        let mut in_place = body::spare();
        let asked = head::show(&parts, |line, headers| {
            let judged = judging::judge_shown(&self.line, &parts, &line, headers, true)?;
            let head = whole(judged.method, line.target, line.version, headers);
            Ok((judged.is_last, self.call(Request { head, body: &[] }, &mut in_place)))
        });
        let headers = std::mem::take(&mut parts.headers);
        match asked {
            Err(refusal) => {
                body::give_back(in_place);
                self.refuse(refusal, headers);
            }
            Ok((is_last, answer)) => {
                self.close = is_last;
                self.take(answer, in_place, headers);
            }
        }
    }

    /// A request whose body is whole.
    fn ask(&mut self, mut parts: Parts, method: Method, body: &[u8]) {
        let mut in_place = body::spare();
        let answer = head::show(&parts, |line, headers| {
            let head = whole(method, line.target, line.version, headers);
            self.call(Request { head, body }, &mut in_place)
        });
        self.take(answer, in_place, std::mem::take(&mut parts.headers));
    }

    /// Calls the service, outside of any lock.
    fn call(&self, request: Request<'_>, in_place: &mut Vec<u8>) -> thread::Result<Answer<Reply>> {
        self.line.place.set_calling(true);
        let service = &self.line.shared.roll.server.env.service;
        let answer = catch_unwind(AssertUnwindSafe(|| service.call(request, in_place)));
        self.line.place.set_calling(false);
        answer
    }

    /// Goes on with what the service said; the map `headers` is used again.
    fn take(&mut self, answer: thread::Result<Answer<Reply>>, in_place: Vec<u8>, mut headers: HeaderMap) {
        headers.clear();
        match answer {
            Ok(Answer::Now(reply)) => self.give(reply, in_place, headers),
            Ok(Answer::Later(future)) => {
                body::give_back(in_place); // what was written beside a later answer is nobody's
                self.line.state().stage = Stage::Answer;
                self.state = State::Later(future, headers);
            }
            Err(panic) => self.give(panicked(panic), Vec::new(), headers),
        }
    }

    fn await_body(&mut self, parts: Parts, judged: Judged, incoming: Incoming) {
        let mut held = Box::new(Held { parts, method: judged.method, incoming, body: Gathered::None, asked: false });
        let limit = self.line.shared.roll.server.env.limits.max_body as u64;
        let too_large = matches!(judged.framing, Framing::Length(length) if length > limit);
        // A client that waits to be asked for its body is told off instead.
        if too_large || judged.expects_continue {
            let refused = self.ask_head(&mut held).or_else(|| too_large.then(too_large_reply));
            if let Some(reply) = refused {
                self.turn_down(reply, *held);
                return;
            }
        }
        self.state = State::Body(held);
    }

    /// Asks the service for an early refusal.
    fn ask_head(&self, held: &mut Held) -> Option<Reply> {
        held.asked = true;
        let service = &self.line.shared.roll.server.env.service;
        self.line.place.set_calling(true);
        let refused = head::show(&held.parts, |line, headers| {
            let head = whole(held.method, line.target, line.version, headers);
            catch_unwind(AssertUnwindSafe(|| service.head(&head)))
        });
        self.line.place.set_calling(false);
        refused.unwrap_or_else(|panic| Some(panicked(panic)))
    }

    /// Answers before the body has come, of which the rest is doubt.
    fn turn_down(&mut self, reply: Reply, held: Held) {
        self.line.state().turn_down();
        self.close = true;
        let mut headers = held.parts.headers;
        headers.clear();
        self.give(reply, Vec::new(), headers);
    }

    /// Takes what has come of the body; calls the service once all of it has.
    fn poll_body(&mut self, cx: &mut Context<'_>, mut held: Box<Held>) {
        if held.asked && self.line.state().late {
            return self.turn_down(Reply::problem(Status::REQUEST_TIMEOUT, "The body did not come in time."), *held);
        }
        let limit = self.line.shared.roll.server.env.limits.max_body;
        loop {
            match Pin::new(&mut held.incoming).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let Ok(bytes) = frame.into_data() else { continue };
                    if held.body.bytes().len() + bytes.len() > limit {
                        return self.turn_down(too_large_reply(), *held);
                    }
                    held.body.push(bytes);
                    if held.incoming.is_end_stream() {
                        break;
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    tracing::debug!(%error, "a body is not one");
                    let mut state = self.line.state();
                    state.gone = state.input_ended;
                    drop(state);
                    let reply = Reply::problem(Status::BAD_REQUEST, "The body is not valid, or not whole.");
                    return self.turn_down(reply, *held);
                }
                Poll::Ready(None) => break,
                Poll::Pending => {
                    if !held.asked
                        && let Some(reply) = self.ask_head(&mut held)
                    {
                        return self.turn_down(reply, *held);
                    }
                    self.line.state().missing = held.incoming.size_hint().exact().unwrap_or(0);
                    self.state = State::Body(held);
                    return;
                }
            }
        }
        let Held { parts, method, body, .. } = *held;
        self.ask(parts, method, body.bytes());
    }

    fn poll_later(&mut self, cx: &mut Context<'_>, mut future: BoxFuture<Reply>, headers: HeaderMap) {
        if self.line.state().late {
            abandon(future);
            self.line.state().client_stays = true;
            self.close = true;
            let reply = Reply::problem(Status::SERVICE_UNAVAILABLE, "The answer did not come in time.");
            return self.give(reply, Vec::new(), headers);
        }
        self.line.place.set_calling(true);
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
        self.line.place.set_calling(false);
        let reply = match polled {
            Ok(Poll::Pending) => {
                self.state = State::Later(future, headers);
                return;
            }
            Ok(Poll::Ready(reply)) => reply,
            Err(panic) => panicked(panic),
        };
        abandon(future);
        self.give(reply, Vec::new(), headers);
    }
}

fn whole<'a>(method: Method, target: &'a str, version: Version, headers: Headers<'a>) -> Head<'a> {
    Head { method, target, version, headers }
}

fn too_large_reply() -> Reply {
    Reply::problem(Status::CONTENT_TOO_LARGE, "The body is larger than this server takes.")
}

/// Drops a service's future, which is foreign code.
fn abandon(future: BoxFuture<Reply>) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(future))) {
        tracing::warn!(text = panic_text(panic.as_ref()), "an answer panicked as it was dropped");
    }
}

impl Future for Work {
    type Output = Result<Response<Marked<Whole>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let work = self.get_mut();
        if !matches!(work.state, State::Ready(_)) {
            match std::mem::replace(&mut work.state, State::Gone) {
                State::Body(held) => work.poll_body(cx, held),
                State::Later(future, headers) => work.poll_later(cx, future, headers),
                other => work.state = other,
            }
        }
        match std::mem::replace(&mut work.state, State::Gone) {
            State::Ready(response) => Poll::Ready(Ok(response)),
            other => {
                work.state = other;
                Poll::Pending
            }
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if let State::Later(future, _) = std::mem::replace(&mut self.state, State::Gone) {
            abandon(future);
        }
    }
}
