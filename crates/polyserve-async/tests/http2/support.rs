//! A server with HTTP/2, and its clients.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use polyserve_async::TokioHyper;
use polyserve_core::{Answer, Body, Completer, Reply, Running, ServerConfig, ServerExt as _, Service, promise};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);

pub(crate) fn serve(service: Arc<dyn Service>, change: impl FnOnce(&mut ServerConfig)) -> Running {
    let mut config = ServerConfig::default().http2(true).drain_grace(10 * MAX_WAIT);
    change(&mut config);
    let server = TokioHyper::new(config).expect("every setting is supported");
    server.serve(([127, 0, 0, 1], 0), service).expect("it serves")
}

pub(crate) fn client_runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

type Sender = SendRequest<Full<Bytes>>;

pub(crate) async fn connect(addr: SocketAddr) -> (Sender, JoinHandle<hyper::Result<()>>) {
    let stream = tokio::net::TcpStream::connect(addr).await.expect("the server accepts connections");
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("it speaks HTTP/2");
    (sender, tokio::spawn(connection))
}

pub(crate) fn request(method: Method, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let uri = format!("http://a{path}");
    Request::builder().method(method).uri(uri).body(Full::new(body.into())).expect("a request")
}

pub(crate) async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.expect("the answer is whole").to_bytes();
    String::from_utf8(body.to_vec()).expect("text")
}

/// A service with answers that wait until the test releases them. It panics at `/panic`.
pub(crate) struct HeldReplies {
    waiting: Mutex<Vec<Completer<Reply>>>,
    pub(crate) asked: Semaphore,
}

impl HeldReplies {
    pub(crate) fn shared() -> Arc<Self> {
        Arc::new(Self { waiting: Mutex::default(), asked: Semaphore::new(0) })
    }

    pub(crate) fn open(&self) -> usize {
        let waiting = std::mem::take(&mut *self.waiting.lock().expect("no thread panics with this lock"));
        let given = |completer: Completer<Reply>| {
            completer.complete(Reply::new(StatusCode::OK, "text/plain", Body::Static(b"given")))
        };
        waiting.into_iter().map(given).filter(Result::is_ok).count()
    }
}

impl Service for HeldReplies {
    fn call(&self, request: polyserve_core::Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        assert_ne!(request.head.path(), "/panic", "told to");
        let (completer, answer) = promise(Reply::empty(StatusCode::SERVICE_UNAVAILABLE));
        self.waiting.lock().expect("no thread panics with this lock").push(completer);
        self.asked.add_permits(1);
        answer
    }
}

/// Connects with a window of `window` bytes for each stream.
pub(crate) async fn connect_with(addr: SocketAddr, window: u32) -> (Sender, JoinHandle<hyper::Result<()>>) {
    try_connect_with(addr, window).await.expect("it speaks HTTP/2")
}

/// As [`connect_with`], for a server that may close the connection at once.
pub(crate) async fn try_connect_with(
    addr: SocketAddr,
    window: u32,
) -> hyper::Result<(Sender, JoinHandle<hyper::Result<()>>)> {
    let stream = tokio::net::TcpStream::connect(addr).await.expect("the server accepts connections");
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    Ok((sender, tokio::spawn(connection)))
}
