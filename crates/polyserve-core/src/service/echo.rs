//! `echo`, a service for testing: it answers any method and any path with 200 and the request's body.

use super::{Body, Reply, Request, Service};
use crate::answer::Answer;
use http::{HeaderValue, StatusCode};

/// Answers every request with its own body.
///
/// ```
/// use polyserve_core::{Echo, Running, Server, ServerExt};
/// fn serve(server: &dyn Server) -> std::io::Result<Running> {
///     server.serve("127.0.0.1:0", Echo)
/// }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Service for Echo {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        body.extend_from_slice(request.body);
        let octets = const { HeaderValue::from_static("application/octet-stream") };
        Answer::Now(Reply::of_type(StatusCode::OK, octets, Body::InPlace))
    }
}
