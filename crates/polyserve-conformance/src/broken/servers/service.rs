//! Flaws between a server and its service.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use polyserve_core::http::{Method, StatusCode};
use polyserve_core::sync::lock;
use polyserve_core::{Answer, Body, Head, Reply, Request, Service};

use super::Flaw;

/// A service that a flawed server asks in a wrong way.
pub(super) struct FlawedService {
    pub(super) inner: Arc<dyn Service>,
    pub(super) flaw: Flaw,
    /// The last answer to a GET of each target.
    bodies: Mutex<HashMap<String, Vec<u8>>>,
    patches: AtomicUsize,
}

impl FlawedService {
    pub(super) fn new(inner: Arc<dyn Service>, flaw: Flaw) -> Self {
        Self { inner, flaw, bodies: Mutex::default(), patches: AtomicUsize::new(0) }
    }

    fn repeat(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        let target = request.head.target;
        if request.head.method != Method::GET {
            return self.inner.call(request, body);
        }
        if let Some(previous) = lock(&self.bodies).remove(target) {
            return Answer::Now(Reply::new(StatusCode::OK, "application/json", Body::Owned(previous)));
        }
        let answer = self.inner.call(request, body);
        if !body.is_empty() && matches!(&answer, Answer::Now(reply) if reply.status() == StatusCode::OK) {
            lock(&self.bodies).insert(target.to_owned(), body.clone());
        }
        answer
    }

    fn lose_patches(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        let is_lost = request.head.method == Method::PATCH && self.patches.fetch_add(1, Ordering::SeqCst) % 4 == 3;
        let ask = |method, asked: &[u8]| {
            let (head, mut written) = (Head { method, ..request.head }, Vec::new());
            let reply = self.inner.call(Request::new(head, asked), &mut written).wait();
            reply.body_bytes(&written).to_vec()
        };
        let before = is_lost.then(|| ask(&Method::GET, b""));
        let answer = Answer::Now(self.inner.call(request, body).wait());
        before.map(|before| ask(&Method::PUT, &before));
        answer
    }
}

impl Service for FlawedService {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        let levels = || request.body.iter().filter(|byte| b"[{".contains(byte)).count();
        match self.flaw {
            Flaw::RepeatsThePreviousAnswer => self.repeat(request, body),
            Flaw::LosesPatches => self.lose_patches(request, body),
            Flaw::LimitsNesting if levels() > 64 => refused("The body has too many levels."),
            Flaw::HidesTheDrain => self.inner.call(request.with_draining(false), body),
            Flaw::HidesTheLimitOfBodies => self.inner.call(request.with_max_body(usize::MAX), body),
            Flaw::ShowsItsOwnAddress => {
                let own = SocketAddr::from(([127, 0, 0, 1], 1));
                self.inner.call(request.with_peer(Some(own)), body)
            }
            Flaw::IgnoresWakes | Flaw::SpinsWhileItWaits => match self.inner.call(request, body) {
                now @ Answer::Now(_) => now,
                later @ Answer::Later(_) => polled(later, self.flaw == Flaw::IgnoresWakes),
            },
            _ => self.inner.call(request, body),
        }
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        self.inner.head(head)
    }
}

fn refused(detail: &'static str) -> Answer<Reply> {
    Answer::Now(Reply::problem(StatusCode::BAD_REQUEST, detail))
}

/// An answer that is polled all the time, or never.
fn polled(answer: Answer<Reply>, never: bool) -> Answer<Reply> {
    let mut future = answer.into_future();
    Answer::later(poll_fn(move |cx| {
        if never {
            return Poll::Pending;
        }
        cx.waker().wake_by_ref();
        Pin::new(&mut future).poll(cx)
    }))
}
