//! axum with this project: an axum `Router` on `TokioHyper`, with the entity service nested under a path.
//!
//! ```sh
//! cargo run --release --example axum_nested --features axum
//! TCP_ADDRESS=localhost:8080 POLYSERVE_MAX_BODY=4096 cargo run --release --example axum_nested --features axum
//! ```
//!
//! axum does the routing. The server's limits, timeouts and drain apply to every route. The service under `/entities`
//! gives the same answers as on any other server. Ctrl-C drains: no new connections, but every request that has begun
//! is answered, including streamed answers. A second Ctrl-C, at least a second later,
//! exits at once.
#![forbid(unsafe_code)]

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use polyserve::async_::AsTower;
use polyserve::env::Settings;
use polyserve::prelude::*;

fn main() -> anyhow::Result<()> {
    // First, so that an early Ctrl-C is not lost.
    let signals = Signals::register()?;
    let settings = Settings::from_env()?;
    let server = settings.make(|config| TokioHyper::new(config.clone()))?;

    // Any service of this project is a `tower::Service`. axum strips the path; `under` adds it to the `Location`
    // header.
    let entities = AsTower::new(EntityService::new(Sharded::new())).under("/entities")?;
    let router = Router::new()
        .route("/", get(|| async { "Entities are under /entities.\n" }))
        .route("/length", post(|body: Bytes| async move { format!("{}\n", body.len()) }))
        .nest_service("/entities", entities);

    // The server serves any `tower::Service`.
    let running = server.serve_tower(settings.listen, router)?;
    let url = format!("http://{}", running.local_addr());
    println!("listening on {url}");
    println!("try:");
    println!("  curl -i {url}/");
    println!("  curl -i -X PUT {url}/entities/ -H 'Content-Type: application/json' \\");
    println!("    -d '{{\"id\":1,\"description\":\"a first entity\",\"value\":60.750847}}'");
    println!("  curl -i {url}/entities/1");
    println!("  curl -i -d hello {url}/length");
    println!("and Ctrl-C to drain");

    println!("{}", signals.drain(running)?);
    Ok(())
}

// $ curl -i -X PUT http://127.0.0.1:8001/entities -d '{"id":1,"description":"a first entity","value":60.750847}'
// HTTP/1.1 201 Created
// location: /entities/1
// content-length: 0
// date: Mon, 23 Nov 2026 16:32:52 GMT
//
// $ curl -i http://127.0.0.1:8001/entities/1
// HTTP/1.1 200 OK
// content-type: application/json
// content-length: 57
// date: Mon, 23 Nov 2026 16:32:52 GMT
//
// {"id":1,"description":"a first entity","value":60.750847}
//
// $ curl -i -d hello http://127.0.0.1:8001/length
// HTTP/1.1 200 OK
// content-type: text/plain; charset=utf-8
// content-length: 2
// date: Mon, 23 Nov 2026 16:32:52 GMT
//
// 5
