//! [`TowerTarget`]: a `tower::Service` of requests, or a make-service that makes one for a client's address.
//!
//! Cost: a clone for a service. For a make-service, an allocation for each service that it makes, and one for each request.

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

use crate::types::BoxError;

/// The argument of [`FromTower::new`](super::FromTower::new) and of `TokioHyper::serve_tower`: a `tower::Service` of requests, or
/// a make-service. `B` is the body of a request.
///
/// A make-service is a `tower::Service<SocketAddr>` that answers with a `tower::Service` of requests. It is called with the
/// client's address: once for each connection of `TokioHyper::serve_tower`, once for each request of `FromTower`. axum's
/// `Router::into_make_service_with_connect_info::<SocketAddr>()` is one.
///
/// The compiler infers `Kind`: [`OfRequests`] or [`OfPeers`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a `tower::Service` of requests nor a make-service of a `SocketAddr`",
    note = "a service is a `tower::Service<http::Request<{B}>, Response = http::Response<_>>`, such as axum's \
            `Router` after `with_state`, or this project's `AsTower::new(service)`",
    note = "a make-service is a `tower::Service<SocketAddr>`, such as axum's \
            `router.into_make_service_with_connect_info::<SocketAddr>()`",
    note = "it and its futures must be `Send`, and it must be `Clone`, `Sync` and `'static`"
)]
pub trait TowerTarget<B, Kind>: Send + Sync + 'static {
    /// The body of an answer.
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;
    /// The service of requests.
    type Service: Service<Request<B>, Response = Response<Self::Body>, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static;

    /// Returns the service of one client's requests. `peer` is the client's address, if it is known.
    fn for_peer(&self, peer: Option<SocketAddr>) -> Self::Service;
}

/// The [`TowerTarget`] is a service of requests.
#[derive(Debug)]
pub enum OfRequests {}

/// The [`TowerTarget`] is a make-service of the clients' addresses.
#[derive(Debug)]
pub enum OfPeers {}

impl<S, B, R> TowerTarget<B, OfRequests> for S
where
    S: Service<Request<B>, Response = Response<R>, Error: Into<BoxError>, Future: Send> + Clone + Send + Sync + 'static,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Body = R;
    type Service = S;

    fn for_peer(&self, _: Option<SocketAddr>) -> S {
        self.clone()
    }
}

impl<M, S, B, R> TowerTarget<B, OfPeers> for M
where
    M: Service<SocketAddr, Response = S, Error: Into<BoxError>, Future: Send> + Clone + Send + Sync + 'static,
    S: Service<Request<B>, Response = Response<R>, Error: Into<BoxError>, Future: Send> + Clone + Send + Sync + 'static,
    B: Send + 'static,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Body = R;
    type Service = PeerService<M, S>;

    fn for_peer(&self, peer: Option<SocketAddr>) -> PeerService<M, S> {
        PeerService { make: self.clone(), peer, made: Arc::default() }
    }
}

/// The service of one client, which `make` makes at the first request.
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

impl<M, S, B> Service<Request<B>> for PeerService<M, S>
where
    M: Service<SocketAddr, Response = S, Error: Into<BoxError>, Future: Send> + Clone + Send + Sync + 'static,
    S: Service<Request<B>, Error: Into<BoxError>, Future: Send> + Clone + Send + Sync + 'static,
    B: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let own = self.clone();
        Box::pin(async move {
            let made = Arc::clone(&own.made);
            let mut service = made.get_or_try_init(|| own.make()).await?.clone();
            poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
            service.call(request).await.map_err(Into::into)
        })
    }
}
