//! axum with its own `serve`.

use std::io;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::response::{IntoResponse, Response};
use axum::routing;
use axum::serve::ListenerExt as _;
use polyserve_peers::{Entities, Put, on_tokio};

fn main() -> io::Result<()> {
    let app =
        Router::new().route("/", routing::put(put)).route("/{id}", routing::get(get)).with_state(Entities::shared());
    on_tokio(|listener, _| async {
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true); // fails if the client has disconnected
        });
        axum::serve(listener, app).await
    })
}

async fn get(State(entities): State<&'static Entities>, Path(id): Path<i64>) -> Response {
    match entities.get(id) {
        Some(json) => ([(CONTENT_TYPE, "application/json")], json).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn put(State(entities): State<&'static Entities>, body: Bytes) -> Response {
    match entities.put(&body) {
        Ok(Put::Created(path)) => (StatusCode::CREATED, [(LOCATION, path)]).into_response(),
        Ok(Put::Replaced) => StatusCode::OK.into_response(),
        Err(_) => StatusCode::BAD_REQUEST.into_response(),
    }
}
