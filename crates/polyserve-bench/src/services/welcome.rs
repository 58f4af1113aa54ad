//! `welcome`: it answers `GET /welcome` with `Welcome!`, as in the published experiment on optimisations (`bench ladder`).

use polyserve::http::StatusCode;
use polyserve::{Answer, Body, Head, Reply, Request, Service, get_only};
use polyserve_load::{Exchange, LoadError, Traffic};

/// The service that answers `GET /welcome`.
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

/// The path of the request.
const TARGET: &str = "/welcome";
/// The body of the answer.
const BODY: &[u8] = b"Welcome!";

impl Welcome {
    /// The request, and its answer.
    ///
    /// # Errors
    ///
    /// Returns an error if the request is not valid, which never happens.
    pub fn traffic() -> Result<Traffic, LoadError> {
        Traffic::expecting(vec![Exchange::new("GET", TARGET).with(|welcome| welcome.answers = vec![BODY.to_vec()])])
    }
}

impl Service for Welcome {
    fn call(&self, request: Request<'_>, _body: &mut Vec<u8>) -> Answer<Reply> {
        let welcome = Reply::new(StatusCode::OK, "application/json", Body::Static(BODY));
        Answer::Now(get_only(&request.head, TARGET).unwrap_or(welcome))
    }

    fn head(&self, head: &Head<'_>) -> Option<Reply> {
        get_only(head, TARGET)
    }
}
