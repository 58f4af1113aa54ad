//! `welcome`: it answers `GET /welcome` with `Welcome!`, as in the published experiment on optimisations (`ladder`).

use super::{Body, Head, Method, Reply, Request, Service, Status};
use crate::answer::Answer;

/// The service that answers `GET /welcome`.
///
/// ```
/// use polyserve_core::service::Welcome;
/// use polyserve_core::{Running, Server, ServerExt};
/// fn serve(server: &dyn Server) -> std::io::Result<Running> {
///     server.serve("127.0.0.1:0", Welcome)
/// }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Welcome;

impl Service for Welcome {
    fn call(&self, request: Request<'_>, _body: &mut Vec<u8>) -> Answer<Reply> {
        let welcome = Reply::new(Status::OK, "application/json", Body::Static(b"Welcome!"));
        Answer::Now(refuse(&request.head, "/welcome").unwrap_or(welcome))
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        refuse(head, "/welcome")
    }
}

/// Returns the answer of a service with one page to any other request than `GET` or `HEAD` of that page.
pub(super) fn refuse(head: &Head<'_>, path: &str) -> Option<Reply> {
    const ALLOW: &str = "GET, HEAD, OPTIONS";
    let allow = |reply: Reply| reply.with_header("Allow", ALLOW).expect("Allow is a valid header field");
    match (head.method, head.path()) {
        (Method::Options, "*") => Some(allow(Reply::empty(Status::NO_CONTENT))),
        (_, other) if other != path => Some(Reply::problem(Status::NOT_FOUND, "There is nothing at this path.")),
        (Method::Get | Method::Head, _) => None,
        (Method::Options, _) => Some(allow(Reply::empty(Status::NO_CONTENT))),
        _ => Some(allow(Reply::problem(Status::METHOD_NOT_ALLOWED, "This path answers GET and HEAD."))),
    }
}
