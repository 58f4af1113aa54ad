//! A `tower::Service` of requests, as the [`Adapter`](super::adapter::Adapter) calls it.

use std::future::poll_fn;
use std::sync::Arc;

use http::Request;
use http_body_util::BodyExt as _;
use tower_service::Service as _;

use super::adapter::TowerCall;
use super::answer_body::BoxBody;
use super::connection_state::{ConnectionState, client};
use super::request_body::RequestBody;
use crate::tower::{DrainBegun, TowerTarget};

/// Returns the function that calls `target` with the requests of a connection.
pub(super) fn call<S, Kind>(target: &S, connection: &ConnectionState) -> TowerCall
where
    S: TowerTarget<RequestBody, Kind>,
{
    let (peer, server) = (connection.peer, Arc::clone(&connection.shared.table.server));
    let service = target.for_peer(peer);
    Arc::new(move |mut request: Request<RequestBody>| {
        let client = client(&server, peer, request.headers());
        let extensions = request.extensions_mut();
        extensions.remove::<hyper::upgrade::OnUpgrade>();
        if let Some(client) = client {
            extensions.insert(client);
        }
        if server.shutdown.is_begun() {
            extensions.insert(DrainBegun);
        }
        let mut service = service.clone();
        Box::pin(async move {
            let answered = async {
                poll_fn(|cx| service.poll_ready(cx)).await?;
                service.call(request).await
            };
            let response = answered.await.map_err(Into::into)?;
            Ok(response.map(|body| Box::pin(body.map_err(Into::into)) as BoxBody))
        })
    })
}
