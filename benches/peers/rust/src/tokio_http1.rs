//! hyper's HTTP/1.1 connections on tokio: the accept loop of the peers `hyper` and `warp`.

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
use tokio_rustls::TlsAcceptor;

/// hyper's default, which it applies only if a timer is set.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves every connection of `listener`. Pipelined answers are flushed together, TCP_NODELAY is set, and a head that
/// does not arrive in time ends the connection. None of these is the default.
///
/// # Errors
///
/// Never returns an error. If `accept` fails, it is retried.
pub async fn serve<S, B>(listener: TcpListener, tls: Option<TlsAcceptor>, service: S) -> io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>, Data: Send> + Send + 'static,
{
    let mut http1 = http1::Builder::new();
    http1.pipeline_flush(true).timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await; // probably out of file descriptors
            continue;
        };
        let _ = stream.set_nodelay(true); // fails if the client has disconnected
        let (http1, service, tls) = (http1.clone(), service.clone(), tls.clone());
        // Errors concern only this client.
        tokio::spawn(async move {
            match tls {
                None => drop(http1.serve_connection(TokioIo::new(stream), service).await),
                Some(tls) => match tls.accept(stream).await {
                    Ok(stream) => drop(http1.serve_connection(TokioIo::new(stream), service).await),
                    Err(_) => {}
                },
            }
        });
    }
}
