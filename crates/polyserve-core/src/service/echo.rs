//! `echo`: any method and any path answers 200 with the request's body. For testing servers.

use super::{Body, Reply, Request, Service, Status};
use crate::answer::Answer;

/// Answers every request with its own body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Service for Echo {
    fn call(&self, request: Request<'_>, body: &mut Vec<u8>) -> Answer<Reply> {
        body.extend_from_slice(request.body);
        Answer::Now(Reply::new(Status::OK, "application/octet-stream", Body::InPlace))
    }
}
