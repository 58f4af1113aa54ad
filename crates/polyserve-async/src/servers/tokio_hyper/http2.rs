//! HTTP/2 with prior knowledge: one connection as a future that polls hyper's, its streams as tasks.
//!
//! The same socket, output and drain as for HTTP/1. A stream's deadlines are timers of this project's own thread, made
//! only where it has to wait.
//!
//! Invariants: at most [`STREAMS`] requests at once on a connection; a drain tells the client (GOAWAY), serves what has
//! begun, and closes who is idle. An answer counts when its last byte is with the kernel. A client whose windows hold
//! answers back, and which takes no byte of any for the write timeout, loses the connection. Cost: a task and two
//! allocations for a stream, a look at the clock for each frame of an answer.

mod streams;

use std::convert::Infallible;
use std::future::{Future, IntoFuture as _};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use polyserve_core::http1::session::OUTPUT_BOUND;
use polyserve_core::{Answer, BoxFuture, Head, Reply, ServerConfig, Service, Status, timer};
use tokio::runtime::Handle;

use self::streams::{Counted, Open, Streams};
use super::io::Io;
use super::line::{Http2, Line, Stage};
use super::output::{self, Output};
use super::response::finish;
use crate::tower::{AsTower, ReplyBody, caught, response};

/// Requests at once on a connection.
const STREAMS: u32 = 128;

/// Where nothing limits a wait.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Polls of hyper before other tasks have their turn.
const TURNS: usize = 8;

/// Has hyper run a stream's task on the runtime.
#[derive(Clone)]
struct Tasks(Handle);

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for Tasks {
    fn execute(&self, task: F) {
        drop(self.0.spawn(task));
    }
}

/// How connections of HTTP/2 are served on `runtime`.
pub(super) fn serve(runtime: &Handle, config: &ServerConfig) -> Http2 {
    let mut builder = http2::Builder::new(Tasks(runtime.clone()));
    builder
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(config.max_head).unwrap_or(u32::MAX))
        .max_send_buf_size(OUTPUT_BOUND);
    Box::new(move |line, before| {
        line.state().stage = Stage::Answer; // it has stages of its own
        let streams = Streams::new(Arc::clone(&line));
        let service = Streaming { streams: Arc::clone(&streams) };
        let hyper = builder.serve_connection(Io::new(Arc::clone(&line), before), service);
        let (waiting, deadline) = (Waiting::Streams, Instant::now());
        Box::pin(Connection { line, streams, hyper, unsent: None, state: State::Open, waker: None, waiting, deadline })
    })
}

/// A connection, from its preface to its close.
struct Connection<H> {
    line: Arc<Line>,
    streams: Arc<Streams>,
    hyper: H,
    unsent: Option<Box<Output>>,
    state: State,
    waker: Option<Waker>,
    waiting: Waiting,
    deadline: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// The client was told to begin nothing more.
    Leaving,
    /// hyper is done.
    Over,
}

/// What a deadline is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    /// Streams have deadlines of their own, until their answers are here; then the client has to take them.
    Streams,
    Idle,
    /// Told to leave, with nothing begun.
    Left,
    Written,
}

/// hyper's connection, of whatever type.
trait Serves: Future<Output = hyper::Result<()>> + Unpin + Send {
    fn leave(&mut self);
}

impl Serves for http2::Connection<Io, Streaming, Tasks> {
    fn leave(&mut self) {
        Pin::new(self).graceful_shutdown();
    }
}

impl<H: Serves> Connection<H> {
    fn run(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            self.line.place.set_waker(cx.waker());
            self.waker = Some(cx.waker().clone());
        }
        let line = Arc::clone(&self.line);
        let server = &line.shared.roll.server;
        for _ in 0..TURNS {
            if server.is_over() {
                (0..self.streams.open.load(Ordering::SeqCst)).for_each(|_| server.count_cut());
                return Poll::Ready(());
            }
            if let Some(unsent) = &mut self.unsent {
                match unsent.write_on(&line, cx, self.state == State::Over) {
                    Poll::Ready(true) => self.unsent = None,
                    Poll::Ready(false) => return Poll::Ready(()),
                    Poll::Pending => return self.wait_for(Waiting::Written),
                }
            }
            if self.state == State::Over {
                return Poll::Ready(());
            }
            if self.state == State::Open && server.shutdown.is_begun() {
                self.leave();
            }
            if Pin::new(&mut self.hyper).poll(cx).is_ready() {
                self.state = State::Over;
            }
            let mut state = line.state();
            let seen = state.take_seen();
            self.unsent = state.send(&line, self.state == State::Over);
            drop(state);
            if self.unsent.is_some() || seen.blocked || self.state == State::Over {
                continue;
            }
            let waiting = match (self.streams.open.load(Ordering::SeqCst), self.state) {
                (0, State::Open) => Waiting::Idle,
                (0, _) => Waiting::Left,
                _ => Waiting::Streams,
            };
            return self.wait_for(waiting);
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn leave(&mut self) {
        self.hyper.leave();
        self.state = State::Leaving;
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    fn wait_for(&mut self, waiting: Waiting) -> Poll<()> {
        let now = Instant::now();
        let config = &self.line.shared.roll.server.config;
        if waiting == Waiting::Streams {
            self.waiting = waiting;
            self.deadline = self.streams.held_since().map_or(now + FAR, |since| since + config.write_timeout);
            if self.deadline <= now {
                return Poll::Ready(());
            }
        } else if self.waiting != waiting {
            self.waiting = waiting;
            self.deadline = now
                + match waiting {
                    Waiting::Streams => FAR,
                    Waiting::Idle => config.idle_timeout,
                    Waiting::Left => config.linger_timeout,
                    Waiting::Written => config.write_timeout,
                };
        } else if self.deadline <= now {
            match waiting {
                Waiting::Idle => self.leave(),
                Waiting::Left | Waiting::Written => return Poll::Ready(()),
                Waiting::Streams => {}
            }
        }
        self.line.shared.roll.set_deadline(&self.line.place, self.deadline);
        self.line.place.set_busy(matches!(waiting, Waiting::Streams | Waiting::Written));
        Poll::Pending
    }
}

impl<H: Serves> Future for Connection<H> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let connection = self.get_mut();
        let line = Arc::clone(&connection.line);
        output::with_buffers(&line, || connection.run(cx))
    }
}

/// The service of one connection's streams.
struct Streaming {
    streams: Arc<Streams>,
}

impl hyper::service::Service<Request<Incoming>> for Streaming {
    type Response = Response<Counted>;
    type Error = Infallible;
    type Future = BoxFuture<Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let open = Open::new(&self.streams);
        Box::pin(async move {
            let line = Arc::clone(open.line());
            let head_only = request.method() == Method::HEAD;
            let mut response = answer(open.streams(), request).await;
            if head_only && let Some(length) = response.body().size_hint().exact() {
                *response.body_mut() = ReplyBody::of(Bytes::new());
                response.headers_mut().insert(CONTENT_LENGTH, length.into());
            }
            finish(&line.shared, response.headers_mut(), false);
            Ok(response.map(|body| Counted::new(body, open)))
        })
    }
}

async fn answer(streams: &Arc<Streams>, request: Request<Incoming>) -> Response<ReplyBody> {
    let server = &streams.line.shared.roll.server;
    let (parts, body) = request.into_parts();
    if parts.headers.len() > server.env.limits.max_headers {
        let detail = "There are more header fields than this server takes.";
        return response(Reply::problem(Status::HEADER_FIELDS_TOO_LARGE, detail), Vec::new());
    }
    let service = AsTower::new(Arc::new(Noted(Arc::clone(streams)))).with_max_body(server.env.limits.max_body);
    let (method, body) = match within(server.config.body_timeout, service.read(&parts, body)).await {
        Some(Ok(read)) => read,
        Some(Err(reply)) => return response(reply, Vec::new()),
        None => {
            return response(Reply::problem(Status::REQUEST_TIMEOUT, "The body did not come in time."), Vec::new());
        }
    };
    let later = match service.call_with(&parts, method, &body) {
        Ok(response) => return response,
        Err(later) => later,
    };
    let late = || Reply::problem(Status::SERVICE_UNAVAILABLE, "The answer did not come in time.");
    let reply = within(server.config.answer_timeout, caught(later)).await;
    response(reply.unwrap_or_else(late), Vec::new())
}

/// What `future` yields; `None` where it takes longer.
async fn within<T>(time: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut timer = None;
    std::future::poll_fn(|cx| {
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        let timer = timer.get_or_insert_with(|| timer::after(time).into_future());
        Pin::new(timer).poll(cx).map(|_| None)
    })
    .await
}

/// The service, and a note of the threads that are in it.
struct Noted(Arc<Streams>);

struct Call<'a>(&'a Streams);

impl<'a> Call<'a> {
    fn new(streams: &'a Streams) -> Self {
        streams.calls.fetch_add(1, Ordering::SeqCst);
        streams.line.place.set_calling(true);
        Self(streams)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if self.0.calls.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.line.place.set_calling(false);
        }
    }
}

impl Service for Noted {
    fn call(&self, request: polyserve_core::Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        let _call = Call::new(&self.0);
        self.0.line.shared.roll.server.env.service.call(request, body)
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        let _call = Call::new(&self.0);
        self.0.line.shared.roll.server.env.service.head(head)
    }
}
