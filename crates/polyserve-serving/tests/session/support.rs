//! Shared by these tests: small services, a connection to one of them, and answers byte for byte.

use std::sync::{Arc, Mutex};

use polyserve_core::http::StatusCode;
use polyserve_core::sync::lock;
use polyserve_core::{
    Answer, Body, Completer, Head, Problem, Reply, Request, ServerConfig, Service, promise, reason_phrase,
};
use polyserve_serving::http1::{HttpState, SessionStep};

pub(crate) use crate::wire::{DATE, Wire};

/// The close after an answer if the client does not expect a close, so the connection lingers.
pub(crate) const LINGER: SessionStep = SessionStep::Close { linger: true };

/// The close without lingering: the client asked for the close, or does not read the answer.
pub(crate) const CLOSE: SessionStep = SessionStep::Close { linger: false };

/// A service made of two functions.
pub(crate) struct By<C, H> {
    call: C,
    head: H,
}

impl<C, H> Service for By<C, H>
where
    C: Fn(&Request<'_>, &mut Vec<u8>) -> Answer<Reply> + Send + Sync + 'static,
    H: Fn(&Head<'_>) -> Option<Reply> + Send + Sync + 'static,
{
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        (self.call)(&request, body)
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        (self.head)(head)
    }
}

/// Creates the shared state of a server with the service `call` and `head`. `change` edits its configuration.
pub(crate) fn server_by(
    change: impl FnOnce(&mut ServerConfig),
    call: impl Fn(&Request<'_>, &mut Vec<u8>) -> Answer<Reply> + Send + Sync + 'static,
    head: impl Fn(&Head<'_>) -> Option<Reply> + Send + Sync + 'static,
) -> HttpState {
    let mut config = ServerConfig::default();
    change(&mut config);
    config.validate().expect("the tests' limits are valid");
    HttpState::new(Arc::new(By { call, head }), &config)
}

/// Serves [`echo`] with a configuration changed by `change`.
pub(crate) fn server_with(change: impl FnOnce(&mut ServerConfig)) -> HttpState {
    server_by(change, echo, |_| None)
}

/// Serves [`echo`].
pub(crate) fn server() -> HttpState {
    server_with(|_| ())
}

/// Answers a request with [`echo_text`]: its method, target and body.
pub(crate) fn echo(request: &Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
    let text = echo_text(request.head.method.as_str(), request.head.target, &String::from_utf8_lossy(request.body));
    body.extend_from_slice(text.as_bytes());
    Answer::Now(Reply::new(StatusCode::OK, "text/plain", Body::InPlace))
}

/// The body of an answer of [`echo`].
pub(crate) fn echo_text(method: &str, target: &str, body: &str) -> String {
    format!("{method} {target} [{body}]")
}

/// A 200 byte for byte. `connection` is its `Connection` line, if it has one.
pub(crate) fn ok_with(connection: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n{connection}Date: {DATE}\r\n\r\n{body}"
    )
}

/// A 200 that keeps the connection open.
pub(crate) fn ok(body: &str) -> String {
    ok_with("", body)
}

/// The header line of an answer that closes the connection.
pub(crate) const CLOSES: &str = "Connection: close\r\n";

/// An error byte for byte.
pub(crate) fn problem_with(connection: &str, status: StatusCode, detail: &str) -> String {
    let body = Problem { status, detail }.to_json();
    let (code, reason, length) = (status.as_u16(), reason_phrase(status), body.len());
    let head = format!("HTTP/1.1 {code} {reason}\r\nContent-Type: application/problem+json\r\n");
    format!("{head}Content-Length: {length}\r\n{connection}Date: {DATE}\r\n\r\n{body}")
}

/// An error that closes the connection.
pub(crate) fn refusal(status: StatusCode, detail: &str) -> String {
    problem_with(CLOSES, status, detail)
}

/// Returns the statuses of answers, and the number of answers with `Connection: close`. No body may contain a status
/// line.
pub(crate) fn statuses(out: &[u8]) -> (Vec<u16>, usize) {
    let text = String::from_utf8_lossy(out);
    let codes = text.match_indices("HTTP/1.1 ").map(|(at, line)| text[at + line.len()..][..3].parse().unwrap());
    (codes.collect(), text.matches("\r\nConnection: close\r\n").count())
}

/// A GET of `path`.
pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// Sends `bytes` in one piece over a new connection, and ends it. Returns the output, and the session's `SessionStep` before
/// the end.
pub(crate) fn ask(server: &HttpState, bytes: &[u8]) -> (String, SessionStep) {
    let mut wire = Wire::new(server);
    let step = wire.send(bytes);
    let _ = wire.end();
    (wire.take_output(), step)
}

/// Does the same as [`ask`], but sends byte by byte.
pub(crate) fn ask_slowly(server: &HttpState, bytes: &[u8]) -> (String, SessionStep) {
    let mut wire = Wire::new(server);
    let mut step = wire.session.next_step();
    for byte in bytes.chunks(1) {
        step = wire.send(byte);
        if wire.is_closed() {
            break;
        }
    }
    let _ = wire.end();
    (wire.take_output(), step)
}

/// Does the same as [`ask`], and then byte by byte, which must give the same.
#[track_caller]
pub(crate) fn ask_twice(server: &HttpState, bytes: &[u8]) -> (String, SessionStep) {
    let asked = ask(server, bytes);
    assert_eq!(ask_slowly(server, bytes), asked, "b\"{}\" byte by byte", bytes.escape_ascii());
    asked
}

/// The completers of deferred answers, in the order of their requests.
#[derive(Clone, Default)]
pub(crate) struct Promised(Arc<Mutex<Vec<Completer<Reply>>>>);

impl Promised {
    /// Returns a deferred answer, which [`complete`](Self::complete) completes.
    pub(crate) fn answer(&self) -> Answer<Reply> {
        let (completer, answer) = promise(Reply::problem(StatusCode::SERVICE_UNAVAILABLE, "The promise was broken."));
        lock(&self.0).push(completer);
        answer
    }

    /// Completes the oldest promise. Returns false if its answer was abandoned.
    pub(crate) fn complete(&self, text: &str) -> bool {
        let completer = lock(&self.0).remove(0);
        completer.complete(Reply::new(StatusCode::OK, "text/plain", Body::Owned(text.into()))).is_ok()
    }

    /// Returns the number of open promises.
    pub(crate) fn open(&self) -> usize {
        lock(&self.0).len()
    }
}

/// Serves `/later...` with promises, and everything else with [`echo`].
pub(crate) fn server_later(change: impl FnOnce(&mut ServerConfig)) -> (HttpState, Promised) {
    let promised = Promised::default();
    let promises = promised.clone();
    let call = move |request: &Request<'_>, body: &mut Vec<u8>| {
        if request.head.target.starts_with("/later") { promises.answer() } else { echo(request, body) }
    };
    (server_by(change, call, |_| None), promised)
}
