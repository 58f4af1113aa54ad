//! `welcome`: it answers `GET /` with `Welcome!`, as in the published experiment on optimisations (`bench ladder`).

use polyserve::http::StatusCode;
use polyserve::{Answer, Body, Head, Reply, Request, Service, get_only};

/// The service that answers `GET /`.
///
/// ```
/// use polyserve::{Running, Server, ServerExt};
/// use polyserve_bench::services::Welcome;
/// fn serve(server: &dyn Server) -> std::io::Result<Running> {
///     server.serve("127.0.0.1:0", Welcome)
/// }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Welcome;

impl Service for Welcome {
    fn call(&self, request: Request<'_>, _body: &mut Vec<u8>) -> Answer<Reply> {
        let welcome = Reply::new(StatusCode::OK, "application/json", Body::Static(b"Welcome!"));
        Answer::Now(get_only(&request.head, "/").unwrap_or(welcome))
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        get_only(head, "/")
    }
}
