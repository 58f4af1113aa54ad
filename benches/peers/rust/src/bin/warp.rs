//! warp's filters on hyper's connections. warp's own server does not set TCP_NODELAY, so every batch of pipelined
//! answers would wait for 40 ms.

use std::io;

use hyper_util::service::TowerToHyperService;
use polyserve_peers::{Entities, Put, on_tokio, tokio_http1};
use warp::Filter as _;
use warp::http::StatusCode;
use warp::hyper::body::Bytes;
use warp::reply::{Reply as _, Response, with_header};

fn main() -> io::Result<()> {
    let entities = Entities::shared();
    let get = warp::path!(i64).and(warp::get().or(warp::head()).unify()).map(|id| get(entities, id));
    let put = warp::path::end().and(warp::put()).and(warp::body::bytes()).map(|body| put(entities, &body));
    let service = TowerToHyperService::new(warp::service(get.or(put).unify()));
    on_tokio(|listener, tls| tokio_http1::serve(listener, tls, service))
}

fn get(entities: &Entities, id: i64) -> Response {
    match entities.get(id) {
        Some(json) => with_header(json, "Content-Type", "application/json").into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn put(entities: &Entities, body: &Bytes) -> Response {
    match entities.put(body) {
        Ok(Put::Created(path)) => with_header(StatusCode::CREATED, "Location", path).into_response(),
        Ok(Put::Replaced) => StatusCode::OK.into_response(),
        Err(_) => StatusCode::BAD_REQUEST.into_response(),
    }
}
