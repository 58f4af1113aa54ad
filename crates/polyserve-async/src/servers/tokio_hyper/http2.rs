//! HTTP/2 with prior knowledge. A connection is a future that polls hyper's connection. Its streams are tasks.
//!
//! Sockets, output and the drain work as for HTTP/1. A stream that has to wait creates a timer of this project's timer
//! thread.
//!
//! Invariants: a connection has at most [`MAX_STREAMS`] requests at a time. All its streams share one turn, so it holds a
//! worker no longer than a connection over HTTP/1. A drain sends GOAWAY, serves the requests that have begun, and closes idle
//! connections. So does an eviction, and the limit of requests. h2 takes further requests until the client acknowledges GOAWAY, but
//! those that come later than the linger timeout are not served. An answer counts once its last byte is in the kernel. If a client
//! does not take a waiting answer within the limit of a write, its connection is closed.
//!
//! Bounds: the streams of a connection together hold at most [`MAX_BODIES`] of request bodies, or one body of the largest
//! size if that is more. A body waits for its share in the order of arrival, and its time limit goes on. Unread bytes of
//! bodies lie in h2's buffers, at most [`STREAM_WINDOW`] for each stream, so at most [`CONNECTION_WINDOW`]. Those of a body that waits
//! for its share are reserved. A stream that
//! waits never takes the window of another stream. h2 itself closes a connection that floods it with resets or CONTINUATION
//! frames, refuses streams beyond [`MAX_STREAMS`], and stops reading while its answers to SETTINGS and PING are not taken.
//!
//! Cost: a task and two allocations for each stream, a clock read for each frame of an answer.
//!
//! Source: RFC 9113, as hyper implements it.

mod streams;

use std::convert::Infallible;
use std::future::{Future, IntoFuture as _, pending};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::header::{COOKIE, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Version};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use polyserve_core::sync::{Mutex, lock};
use polyserve_core::{
    Answer, AnswerReport, BoxFuture, Head, Reply, ReportedRequest, RequestNotes, ServerConfig, Service, timer,
};
use polyserve_serving::http1::refusal::{LATE_BODY, late_answer};
use polyserve_serving::http1::{AgentFields, OUTPUT_BOUND, TimeLimit, decode};
use polyserve_serving::memory::{MethodClass, Reservation};
use polyserve_serving::{ConnectionHandle as _, LingerWait, ServerState};
use tokio::runtime::Handle;

use self::streams::{CountedBody, OpenStream, Streams};
use super::answer_body::{finish, reserve};
use super::connection::{Close, NO_TIMEOUT};
use super::connection_state::{ConnectionState, Http2, PollEvents, Stage};
use super::error_response::{NO_HOST, NO_PATH, OTHER_HOST, SPACE_AROUND_VALUE, reply_to};
use super::io::HyperIo;
use crate::servers::toolkit::{AsyncSocket as _, TokioSocket};
use crate::tower::{AsTower, ReplyBody, caught, response};
use crate::types::head::{convert, too_many_fields};

/// The maximum number of concurrent requests of a connection.
const MAX_STREAMS: u32 = 128;

/// The request bodies that the streams of a connection may hold together, in bytes.
const MAX_BODIES: usize = 8 << 20;

/// The unread bytes of a request body that a client may send, in bytes. On a long way, a stream transfers one window in each
/// round trip.
const STREAM_WINDOW: u32 = 64 << 10;

/// The unread bytes of a connection's bodies, in bytes. It has room for all streams: otherwise bodies that wait for memory
/// would stop those that have it.
const CONNECTION_WINDOW: u32 = MAX_STREAMS * STREAM_WINDOW;

/// The maximum number of polls of hyper in one poll of the task, so that other tasks get their turn.
const MAX_POLLS: usize = 8;

/// Runs hyper's stream tasks on the runtime.
#[derive(Clone)]
struct SpawnOnRuntime(Handle);

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for SpawnOnRuntime {
    fn execute(&self, task: F) {
        drop(self.0.spawn(task));
    }
}

/// Returns the function that serves a connection over HTTP/2 on `runtime`.
pub(super) fn serve(runtime: &Handle, config: &ServerConfig) -> Http2 {
    let mut builder = http2::Builder::new(SpawnOnRuntime(runtime.clone()));
    builder
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(u32::try_from(config.max_head).unwrap_or(u32::MAX))
        .max_send_buf_size(OUTPUT_BOUND);
    Box::new(move |connection| {
        let mut state = connection.state();
        (state.stage, state.events) = (Stage::Http2, PollEvents::default());
        drop(state);
        let streams = Streams::new(Arc::clone(&connection), MAX_BODIES);
        let service = StreamService { streams: Arc::clone(&streams) };
        let hyper = builder.serve_connection(HyperIo::new(Arc::clone(&connection)), service);
        let (is_blocked, state) = (false, Http2State::Open);
        let (lingering, waiting, deadline) = (None, None, Instant::now() + NO_TIMEOUT);
        Box::pin(Http2Connection { connection, streams, hyper, is_blocked, state, lingering, waiting, deadline })
    })
}

/// A connection, from its preface to its close.
struct Http2Connection {
    connection: Arc<ConnectionState>,
    streams: Arc<Streams>,
    hyper: http2::Connection<HyperIo, StreamService, SpawnOnRuntime>,
    /// The output waits for the client.
    is_blocked: bool,
    state: Http2State,
    /// The end of the connection, if it takes time.
    lingering: Option<BoxFuture<()>>,
    /// `None` while requests are open. A request has its own timers until its answer is complete. Then the client must take
    /// the answer within the limit of a write.
    waiting: Option<Http2Wait>,
    /// The end of the present wait.
    deadline: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Http2State {
    Open,
    /// GOAWAY was sent.
    Leaving,
    /// hyper is done.
    Over(Close),
}

/// A wait of the connection itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Http2Wait {
    /// No request is open.
    Idle,
    /// GOAWAY was sent, and no request is open.
    Left,
    /// The kernel takes no more output.
    Written,
}

impl Http2Connection {
    fn run(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let connection = Arc::clone(&self.connection);
        let server = connection.server();
        for _ in 0..MAX_POLLS {
            if server.is_over() {
                (0..self.streams.open.load(Ordering::SeqCst)).for_each(|_| server.count_cut());
                return Poll::Ready(());
            }
            if self.is_blocked {
                match connection.poll_send(cx, self.is_over()) {
                    Poll::Ready(true) => {
                        self.is_blocked = false;
                        // The next output has a wait of its own.
                        self.waiting = self.waiting.filter(|waiting| *waiting != Http2Wait::Written);
                    }
                    Poll::Ready(false) => return Poll::Ready(()),
                    Poll::Pending => return self.wait_for(Some(Http2Wait::Written)),
                }
            }
            if let Http2State::Over(close) = self.state {
                self.lingering = connection.close_socket(close);
                return self.lingering.as_mut().map_or(Poll::Ready(()), |lingering| lingering.as_mut().poll(cx));
            }
            if self.state == Http2State::Open && self.must_leave() {
                self.leave();
            }
            if let Poll::Ready(result) = Pin::new(&mut self.hyper).poll(cx) {
                // The client may be sending, and a reset would take GOAWAY from it, and answers.
                self.state = Http2State::Over(if result.is_ok() { Close::Leave } else { Close::Linger });
            } else if self.is_left() {
                self.state = Http2State::Over(Close::Linger); // nor the answer to a refused body, the rest of which may come
            }
            let mut state = connection.state();
            let events = std::mem::take(&mut state.events);
            state.send(&connection, self.is_over());
            self.is_blocked = !state.output.is_empty();
            drop(state);
            if self.is_blocked || events.output_full || self.is_over() {
                continue;
            }
            let waiting = match (self.streams.open.load(Ordering::SeqCst), self.state) {
                (0, Http2State::Open) => Some(Http2Wait::Idle),
                (0, _) => Some(Http2Wait::Left),
                _ => None,
            };
            return self.wait_for(waiting);
        }
        TokioSocket::yield_turn(cx);
        Poll::Pending
    }

    fn is_over(&self) -> bool {
        matches!(self.state, Http2State::Over(_))
    }

    /// Whether the connection is to begin no further request.
    fn must_leave(&self) -> bool {
        let has_had_all = || self.streams.begun.load(Ordering::Relaxed) >= self.connection.shared.max_requests;
        self.connection.must_leave(Stage::Http2) || has_had_all() || self.connection.state().has_worn_keys()
    }

    /// Whether the client, which was told to leave, has no request any more, and its time is over.
    fn is_left(&self) -> bool {
        self.waiting == Some(Http2Wait::Left)
            && self.streams.open.load(Ordering::SeqCst) == 0
            && self.deadline <= Instant::now()
    }

    fn leave(&mut self) {
        Pin::new(&mut self.hyper).graceful_shutdown();
        self.state = Http2State::Leaving;
        let config = &self.connection.server().config;
        self.streams.begin_until.get_or_init(|| Instant::now() + TimeLimit::Linger { sent: Duration::ZERO }.of(config));
        self.connection.entry.handle().wake(); // hyper is to be polled
    }

    fn wait_for(&mut self, waiting: Option<Http2Wait>) -> Poll<()> {
        let now = Instant::now();
        if self.waiting != waiting {
            self.waiting = waiting;
            self.deadline = self.deadline_of(waiting, now);
        } else if self.deadline <= now {
            match waiting {
                Some(Http2Wait::Idle) => self.leave(),
                Some(Http2Wait::Left) => {} // the next look ends it
                _ => return Poll::Ready(()),
            }
        }
        let untaken = self.streams.deadline();
        if untaken.is_some_and(|untaken| untaken <= now) {
            return Poll::Ready(());
        }
        let (table, entry) = (&self.connection.shared.table, &self.connection.entry);
        table.set_deadline(entry, untaken.map_or(self.deadline, |untaken| self.deadline.min(untaken)));
        match waiting {
            None | Some(Http2Wait::Written) => table.set_busy(entry),
            // One that was evicted counts as open again if a request comes.
            Some(Http2Wait::Idle | Http2Wait::Left) => {
                self.streams.turn.begin(); // the next request comes after a look at the sockets
                entry.set_idle(|| table.idle_since(now, true));
            }
        }
        Poll::Pending
    }

    /// The end of a wait that begins at `now`.
    fn deadline_of(&self, waiting: Option<Http2Wait>, now: Instant) -> Instant {
        let config = &self.connection.server().config;
        match waiting {
            None => now + NO_TIMEOUT,
            Some(Http2Wait::Idle) => now + config.idle_timeout,
            // It is not moved by requests that come after GOAWAY.
            Some(Http2Wait::Left) => self.streams.begin_until.get().copied().unwrap_or(now),
            Some(Http2Wait::Written) => {
                let unsent = self.connection.state().output.unsent();
                now + TimeLimit::Write { unsent }.of(config)
            }
        }
    }
}

impl Future for Http2Connection {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let connection = self.get_mut();
        match &mut connection.lingering {
            Some(lingering) => lingering.as_mut().poll(cx),
            None => connection.run(cx),
        }
    }
}

/// The service of one connection's streams.
struct StreamService {
    streams: Arc<Streams>,
}

impl hyper::service::Service<Request<Incoming>> for StreamService {
    type Response = Response<CountedBody>;
    type Error = Infallible;
    type Future = BoxFuture<Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let begun = Instant::now();
        if self.streams.begin_until.get().is_some_and(|until| *until <= begun) {
            return Box::pin(pending()); // the connection ends once the earlier requests are answered
        }
        let open = OpenStream::new(&self.streams);
        Box::pin(async move {
            let connection = Arc::clone(open.connection());
            let (method, uri) = (request.method().clone(), request.uri().clone());
            let client = connection.client(request.headers());
            let agent = connection.server().http.reports_agents.then(|| {
                let mut agent = AgentFields::default();
                agent.set(|name| request.headers().get(name).map(HeaderValue::as_bytes));
                agent
            });
            let mut notes = RequestNotes::new();
            let answered = answer(open.streams(), request, &mut notes).await;
            let mut response = answered.unwrap_or_else(|reply| response(reply, Vec::new(), &method));
            if method == Method::HEAD {
                *response.body_mut() = ReplyBody::default();
            }
            let (class, length) = (Some(MethodClass::of(&method)), response.body().len() as u64);
            let reservation = reserve(&connection, class, length).unwrap_or_else(|| {
                response = crate::tower::response(connection.server().http.memory.refuse(), Vec::new(), &method);
                Reservation::default()
            });
            finish(&connection.shared, response.headers_mut(), false);
            let target = uri.path_and_query().map_or("", |target| target.as_str());
            let line = Some(ReportedRequest { method: &method, target, version: Version::HTTP_2 });
            let (status, bytes) = (response.status(), response.body().len());
            connection.report_answer(|| {
                let mut report = AnswerReport::new(status, bytes, Some(begun), client).noted(&notes).to(line);
                if let Some(agent) = &agent {
                    agent.report(&mut report);
                }
                report
            });
            Ok(response.map(|body| CountedBody::new(body, open, reservation)))
        })
    }
}

/// Returns the response of the service. An answer that comes later, or in place of the service's, is returned as an error.
/// Sets what the service has noted.
async fn answer(
    streams: &Arc<Streams>,
    request: Request<Incoming>,
    notes: &mut RequestNotes,
) -> Result<Response<ReplyBody>, Reply> {
    let (mut parts, mut body) = request.into_parts();
    let answered = answer_to(streams, &mut parts, &mut body, notes).await;
    if !body.is_end_stream() {
        discard(body, Arc::clone(&streams.connection.shared.table.server));
    }
    answered
}

/// Reads the rest of a refused body, as a connection of HTTP/1 does that lingers. Without a reader, h2 resets the stream after the
/// answer (RFC 9113, 8.1), and some clients then drop the answer: curl 7.88 does.
fn discard(mut body: Incoming, server: Arc<ServerState>) {
    drop(tokio::spawn(async move {
        let mut wait = LingerWait::new(Instant::now());
        while let Some(Some(Ok(frame))) = within(|| wait.until(&server), body.frame()).await {
            wait.received(frame.data_ref().map_or(0, bytes::Bytes::len), Instant::now(), &server);
        }
    }));
}

/// Answers the request with this head and body.
async fn answer_to(
    streams: &Arc<Streams>,
    parts: &mut Parts,
    body: &mut Incoming,
    notes: &mut RequestNotes,
) -> Result<Response<ReplyBody>, Reply> {
    let server = streams.connection.server();
    let mut arrived = server.http.admission.as_ref().map(|_| Instant::now());
    streams.turn.admitted().await;
    // Over HTTP/1 the space around a value is left out, so no service expects any.
    if parts.headers.values().any(|value| value.as_bytes() != value.as_bytes().trim_ascii()) {
        return Err(reply_to(SPACE_AROUND_VALUE, server));
    }
    join_cookies(&mut parts.headers);
    if parts.headers.len() > server.http.limits.max_headers {
        return Err(too_many_fields());
    }
    check_head(parts, server)?;
    let tracked =
        Arc::new(TrackedService { streams: Arc::clone(streams), notes: Mutex::default(), arrived: OnceLock::new() });
    let service = AsTower::of_server(Arc::clone(&tracked) as Arc<dyn Service>, &server.http);
    let (begun, received) = (Instant::now(), AtomicU64::new(0));
    let has_body = !body.is_end_stream();
    let note = |bytes: usize| received.store(bytes as u64, Ordering::Relaxed);
    let deadline = || begun + TimeLimit::Body { received: received.load(Ordering::Relaxed) }.of(&server.config);
    let read = async {
        let length = if has_body { body.size_hint().upper().unwrap_or(u64::MAX) } else { 0 };
        let share = streams.body_share(length).await?;
        service.read(parts, body, note).await.map(|(body, reservation)| (body, (reservation, share)))
    };
    let (body, reservation) = match within(deadline, read).await {
        Some(Ok(read)) => read,
        Some(Err(reply)) => return Err(reply),
        None => return Err(reply_to(LATE_BODY, server)),
    };
    if has_body {
        arrived = arrived.map(|_| Instant::now()); // the time of a body is the client's
        streams.turn.admitted().await;
    }
    if let Some(arrived) = arrived {
        tracked.arrived.get_or_init(|| arrived);
    }
    if !server.http.memory.admits(MethodClass::of(&parts.method)) {
        return Err(server.http.memory.refuse());
    }
    let called = service.call_with(parts, &body);
    *notes = lock(&tracked.notes).take();
    drop((body, reservation)); // the answer may come much later
    let later = match called {
        Ok(response) => return Ok(response),
        Err(later) => later,
    };
    let deadline = Instant::now() + TimeLimit::Answer.of(&server.config);
    let reply = within(|| deadline, caught(later, |panic| streams.connection.panicked(panic))).await;
    Err(reply.unwrap_or_else(late_answer))
}

/// Joins the cookies that a client has sent in fields of their own (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut cookies = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
    if let (Some(first), Some(second)) = (cookies.next(), cookies.next()) {
        let joined = [first, second].into_iter().chain(cookies).collect::<Vec<_>>().join(&b"; "[..]);
        // It is valid, as its parts are.
        HeaderValue::from_bytes(&joined).into_iter().for_each(|joined| drop(headers.insert(COOKIE, joined)));
    }
}

/// Applies the rules for a head of HTTP/1.1, and those of RFC 9113 for its authority and its path (8.3.1). h2 and hyper take any target,
/// any `Host` and any expectation.
///
/// # Errors
///
/// Returns the answer to a request that is refused.
fn check_head(parts: &Parts, server: &ServerState) -> Result<(), Reply> {
    convert(parts, |line, headers| decode::check_parts(&line, headers))?
        .map_err(|refusal| reply_to(refusal, server))?;
    // A query alone would pass for that of the root.
    if !parts.uri.path_and_query().is_none_or(|path| path.as_str().starts_with('/') || path == "*") {
        return Err(reply_to(NO_PATH, server));
    }
    let authority = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    match (authority, parts.headers.get(HOST)) {
        (None, None) => Err(reply_to(NO_HOST, server)),
        (Some(authority), Some(host)) if !authority.eq_ignore_ascii_case(host.as_bytes()) => {
            Err(reply_to(OTHER_HOST, server))
        }
        _ => Ok(()),
    }
}

/// Returns the output of `future`, or `None` if it is not ready at `deadline`, which may move to a later time.
async fn within<T>(deadline: impl Fn() -> Instant, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut timer = None;
    std::future::poll_fn(|cx| {
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(value));
            }
            let timer_future = timer.get_or_insert_with(|| timer::at(deadline()).into_future());
            if Pin::new(timer_future).poll(cx).is_pending() {
                return Poll::Pending;
            }
            if deadline() <= Instant::now() {
                return Poll::Ready(None);
            }
            timer = None;
        }
    })
    .await
}

/// The service, which counts the threads that run its code.
struct TrackedService {
    streams: Arc<Streams>,
    /// What the service has noted.
    notes: Mutex<RequestNotes>,
    /// When the whole request was there. Set for an overload policy.
    arrived: OnceLock<Instant>,
}

struct ServiceCallCount<'a> {
    streams: &'a Streams,
    begun: Instant,
}

impl<'a> ServiceCallCount<'a> {
    fn new(streams: &'a Streams) -> Self {
        streams.calls.fetch_add(1, Ordering::SeqCst);
        streams.connection.entry.set_calling(true);
        Self { streams, begun: Instant::now() }
    }
}

impl Drop for ServiceCallCount<'_> {
    fn drop(&mut self) {
        self.streams.turn.add_time(self.begun.elapsed());
        if self.streams.calls.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.streams.connection.entry.set_calling(false);
        }
    }
}

impl Service for TrackedService {
    fn call(&self, request: polyserve_core::Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        let _call = ServiceCallCount::new(&self.streams);
        let connection = &self.streams.connection;
        let draining = connection.server().shutdown.is_begun();
        let client = connection.server().http.client(connection.peer, request.head.headers);
        let mut request = request.with_peer(client).with_draining(draining).with_arrived(self.arrived.get().copied());
        request.head.certificate = connection.certificate.get();
        let notes = RequestNotes::new();
        let call = || connection.server().http.service.call(request.with_notes(Some(&notes)), body);
        let called = catch_unwind(AssertUnwindSafe(call));
        *lock(&self.notes) = notes;
        called.unwrap_or_else(|panic| Answer::Now(connection.panicked(panic)))
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        let _call = ServiceCallCount::new(&self.streams);
        let connection = &self.streams.connection;
        let shown = Head { certificate: connection.certificate.get(), ..*head };
        let asked = catch_unwind(AssertUnwindSafe(|| connection.server().http.service.head(&shown)));
        asked.unwrap_or_else(|panic| Some(connection.panicked(panic)))
    }
}
