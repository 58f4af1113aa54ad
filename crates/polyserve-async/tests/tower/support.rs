//! Routers on `tokio_hyper`, and their clients.

use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use http_body::Frame;
use polyserve_async::{RequestBody, TokioHyper, TowerTarget};
use polyserve_conformance::client::Client;
use polyserve_core::{Running, ServerConfig};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);

pub(crate) fn serve<S: TowerTarget<RequestBody, Kind>, Kind>(
    service: S,
    change: impl FnOnce(&mut ServerConfig),
) -> Running {
    let mut config = ServerConfig::default().drain_grace(10 * MAX_WAIT);
    change(&mut config);
    let server = TokioHyper::new(config).expect("every setting is supported");
    server.serve_tower(([127, 0, 0, 1], 0), service).expect("it serves")
}

pub(crate) fn client(running: &Running) -> Client {
    Client::connect(running.local_addr(), MAX_WAIT).expect("the server accepts connections")
}

/// A client that keeps all bytes that it receives.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    pub(crate) received: Vec<u8>,
}

impl Raw {
    pub(crate) fn new(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).expect("the server accepts connections");
        stream.set_read_timeout(Some(MAX_WAIT)).expect("a time that is valid");
        Self { stream, received: Vec::new() }
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).expect("the server takes the request");
    }

    /// Reads until `text` has arrived.
    #[track_caller]
    pub(crate) fn until(&mut self, text: &str) {
        while !self.text().contains(text) {
            let mut piece = [0; 4096];
            match self.stream.read(&mut piece).expect("something comes") {
                0 => panic!("it ended before {text:?}: {}", self.text()),
                count => self.received.extend_from_slice(&piece[..count]),
            }
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.received).into_owned()
    }
}

/// A body in pieces, which the test sends through a channel.
pub(crate) struct ByHand(UnboundedReceiver<&'static str>);

impl http_body::Body for ByHand {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| {
            assert_ne!(piece, Some("panic"), "told to");
            piece.map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes()))))
        })
    }
}

/// A route, and a sender for the parts of its answer's body.
pub(crate) fn by_hand() -> (Router, UnboundedSender<&'static str>) {
    let (sender, receiver) = unbounded_channel();
    let body = Arc::new(Mutex::new(Some(ByHand(receiver))));
    let answer = move || {
        let body = body.lock().expect("no thread panics with this lock").take();
        async move { body.map_or_else(Body::empty, Body::new) }
    };
    (Router::new().route("/by-hand", get(answer)), sender)
}
