//! hyper without a framework: one async function answers the requests.

use std::convert::Infallible;
use std::io;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, LOCATION};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use polyserve_peers::{Entities, Put, on_tokio, tokio_http1};

fn main() -> io::Result<()> {
    let entities = Entities::shared();
    on_tokio(|listener, tls| tokio_http1::serve(listener, tls, service_fn(|request| answer(entities, request))))
}

async fn answer(entities: &Entities, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let id = request.uri().path().strip_prefix('/').map(str::parse);
    Ok(match (request.method(), request.uri().path(), id) {
        (&Method::GET | &Method::HEAD, _, Some(Ok(id))) => match entities.get(id) {
            Some(json) => with(StatusCode::OK, CONTENT_TYPE, "application/json", json),
            None => empty(StatusCode::NOT_FOUND),
        },
        (&Method::PUT, "/", _) => match request.into_body().collect().await {
            Ok(body) => match entities.put(&body.to_bytes()) {
                Ok(Put::Created(path)) => with(StatusCode::CREATED, LOCATION, &path, Vec::new()),
                Ok(Put::Replaced) => empty(StatusCode::OK),
                Err(_) => empty(StatusCode::BAD_REQUEST),
            },
            Err(_) => empty(StatusCode::BAD_REQUEST),
        },
        (_, "/", _) => with(StatusCode::METHOD_NOT_ALLOWED, ALLOW, "PUT", Vec::new()),
        (_, _, Some(Ok(_))) => with(StatusCode::METHOD_NOT_ALLOWED, ALLOW, "GET, HEAD", Vec::new()),
        _ => empty(StatusCode::BAD_REQUEST),
    })
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

fn with(status: StatusCode, name: hyper::header::HeaderName, value: &str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    if let Ok(value) = value.parse() {
        response.headers_mut().insert(name, value);
    }
    response
}
