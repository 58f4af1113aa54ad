//! What `serve_tower` takes, and the `tower::Service` of one connection.
//!
//! Cost: a clone for a service. For a make-service, an allocation for each connection and one more for each request.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tokio::sync::OnceCell;
use tower_service::Service;

use super::tower_adapter::{BoxError, RequestBody};

/// The argument of `TokioHyper::serve_tower`: a `tower::Service` of requests, or a make-service.
///
/// A make-service is a `tower::Service<SocketAddr>` that answers with a `tower::Service` of requests. It is called once for
/// each connection, with the client's address. axum's `Router::into_make_service_with_connect_info::<SocketAddr>()` is one.
///
/// The compiler infers `Kind`: [`OfRequests`] or [`OfPeers`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a `tower::Service` of requests nor a make-service of a `SocketAddr`",
    note = "a service is a `tower::Service<http::Request<RequestBody>, Response = http::Response<_>>`, such as axum's \
            `Router` after `with_state`, or this project's `AsTower::new(service)`",
    note = "a make-service is a `tower::Service<SocketAddr>`, such as axum's \
            `router.into_make_service_with_connect_info::<SocketAddr>()`",
    note = "it and its futures must be `Send`, and it must be `Clone`, `Sync` and `'static`"
)]
pub trait TowerTarget<Kind>: Send + Sync + 'static {
    /// The body of an answer.
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;
    /// The service of one connection.
    type Service: Service<Request<RequestBody>, Response = Response<Self::Body>, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + Unpin
        + 'static;

    /// Returns the service of a new connection. `peer` is the client's address, if it is known.
    fn for_connection(&self, peer: Option<SocketAddr>) -> Self::Service;
}

/// The [`TowerTarget`] is a service of requests.
#[derive(Debug)]
pub enum OfRequests {}

/// The [`TowerTarget`] is a make-service of the clients' addresses.
#[derive(Debug)]
pub enum OfPeers {}

impl<S, B> TowerTarget<OfRequests> for S
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + Sync
        + Unpin
        + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Body = B;
    type Service = S;

    fn for_connection(&self, _: Option<SocketAddr>) -> S {
        self.clone()
    }
}

impl<M, S, B> TowerTarget<OfPeers> for M
where
    M: Service<SocketAddr, Response = S, Error: Into<BoxError>, Future: Send> + Clone + Send + Sync + Unpin + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Body = B;
    type Service = PeerService<M, S>;

    fn for_connection(&self, peer: Option<SocketAddr>) -> PeerService<M, S> {
        PeerService { make: self.clone(), peer, made: Arc::default() }
    }
}

/// The service of one connection, which `make` makes at the first request.
#[derive(Debug)]
pub struct PeerService<M, S> {
    make: M,
    peer: Option<SocketAddr>,
    made: Arc<OnceCell<S>>,
}

impl<M: Clone, S> Clone for PeerService<M, S> {
    fn clone(&self) -> Self {
        Self { make: self.make.clone(), peer: self.peer, made: Arc::clone(&self.made) }
    }
}

impl<M, S> PeerService<M, S>
where
    M: Service<SocketAddr, Response = S, Error: Into<BoxError>>,
{
    async fn make(mut self) -> Result<S, BoxError> {
        let peer = self.peer.ok_or("the client's address is not known")?;
        poll_fn(|cx| self.make.poll_ready(cx)).await.map_err(Into::into)?;
        self.make.call(peer).await.map_err(Into::into)
    }
}

impl<M, S> Service<Request<RequestBody>> for PeerService<M, S>
where
    M: Service<SocketAddr, Response = S, Error: Into<BoxError>, Future: Send> + Clone + Send + Sync + 'static,
    S: Service<Request<RequestBody>, Error: Into<BoxError>, Future: Send> + Clone + Send + Sync + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let own = self.clone();
        Box::pin(async move {
            let made = Arc::clone(&own.made);
            let mut service = made.get_or_try_init(|| own.make()).await?.clone();
            poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
            service.call(request).await.map_err(Into::into)
        })
    }
}
