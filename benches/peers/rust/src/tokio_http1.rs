//! hyper's HTTP/1.1 connections on tokio: the accept loop that `hyper` and `warp` share.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

/// As long as hyper waits for a head once it has a timer.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves every connection of `listener`. Pipelined answers leave together, small ones at once, and a head that does not
/// come is given up; all three have to be asked for.
///
/// # Errors
///
/// None: whatever the system refuses, it tries again.
pub async fn serve<S, B>(listener: TcpListener, service: S) -> io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>, Data: Send> + Send + 'static,
{
    let mut http1 = http1::Builder::new();
    http1.pipeline_flush(true).timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await; // out of descriptors, most likely
            continue;
        };
        let _ = stream.set_nodelay(true); // a client that has gone already
        let connection = http1.serve_connection(TokioIo::new(stream), service.clone());
        tokio::spawn(async move { drop(connection.await) }); // what goes wrong there is the client's affair
    }
}
