//! The client's address.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::extract::ConnectInfo;
use axum::routing::get;
use axum::{Extension, Router};
use polyserve_async::AsTower;
use polyserve_conformance::client::Client;
use polyserve_core::{Answer, Reply, Request, Service};

use super::support::{MAX_WAIT, client, serve};

/// Answers with the address of the client.
struct ShowPeer;

impl Service for ShowPeer {
    fn call(&self, request: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
        Reply::text(request.peer.map_or_else(String::new, |peer| peer.to_string())).into()
    }
}

/// Asks for `path` on a new connection. Returns the answer, and the client's address.
fn address_shown(addr: SocketAddr, path: &str) -> (String, String) {
    let mut client = Client::connect(addr, MAX_WAIT).expect("the server accepts connections");
    let own = client.local_addr().expect("the connection stands").to_string();
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let shown = client.ask(request.as_bytes(), 200).text();
    assert_eq!(client.ask(request.as_bytes(), 200).text(), shown, "for each request");
    (shown, own)
}

/// A service and a router get the address of the client, the service as the peer of its request.
#[test]
fn the_clients_address_is_passed_on() {
    let shows = |Extension(peer): Extension<SocketAddr>| async move { peer.to_string() };
    let running = serve(Router::new().route("/", get(shows)).nest_service("/nested", AsTower::new(ShowPeer)), |_| ());
    for path in ["/", "/nested"] {
        let (shown, own) = address_shown(running.local_addr(), path);
        assert_eq!(shown, own, "{path}");
    }
}

/// Regression test: axum's `ConnectInfo` was not there, and each such handler was answered with 500.
#[test]
fn axum_handlers_get_connect_info() {
    let shows = |ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.to_string() };
    let router = Router::new().route("/", get(shows)).nest_service("/nested", AsTower::new(ShowPeer));
    let running = serve(router.into_make_service_with_connect_info::<SocketAddr>(), |_| ());
    for path in ["/", "/nested"] {
        let (shown, own) = address_shown(running.local_addr(), path);
        assert_eq!(shown, own, "{path}");
    }
}

/// A make-service that counts its calls. It fails while it is told to, and is pending at first.
#[derive(Clone)]
struct CountedMake {
    calls: Arc<AtomicUsize>,
    fails: Arc<AtomicBool>,
}

impl tower_service::Service<SocketAddr> for CountedMake {
    type Response = AsTower;
    type Error = &'static str;
    type Future = Pin<Box<dyn Future<Output = Result<AsTower, &'static str>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: SocketAddr) -> Self::Future {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let fails = self.fails.load(Ordering::SeqCst);
        Box::pin(async move {
            tokio::task::yield_now().await;
            if fails { Err("told to") } else { Ok(AsTower::new(ShowPeer)) }
        })
    }
}

#[test]
fn a_make_service_is_called_once_for_a_connection() {
    let make = CountedMake { calls: Arc::default(), fails: Arc::default() };
    let running = serve(make.clone(), |_| ());
    for calls in 1..=3 {
        let (shown, own) = address_shown(running.local_addr(), "/");
        assert_eq!((shown, make.calls.load(Ordering::SeqCst)), (own, calls));
    }
    make.fails.store(true, Ordering::SeqCst);
    let mut client = client(&running);
    client.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 500);
    make.fails.store(false, Ordering::SeqCst);
    client.ask(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200);
}

/// The peer of a service inside `axum::serve`.
#[test]
fn a_service_sees_its_peer_under_axums_own_server() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("it listens");
    let addr = listener.local_addr().expect("it is bound");
    let shows = AsTower::new(ShowPeer).with_peer(|extensions| extensions.get().map(|info: &ConnectInfo<_>| info.0));
    let router = Router::new().fallback_service(shows);
    let _server = runtime
        .spawn(async { axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>()).await });
    let (shown, own) = address_shown(addr, "/");
    assert_eq!(shown, own);
}
