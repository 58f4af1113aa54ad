//! axum and this project, nested both ways: an axum `Router` on `TokioHyper`, and in it the entity service under a path.
//!
//! ```sh
//! cargo run --release --example axum_nested
//! TCP_ADDRESS=localhost:8080 POLYSERVE_MAX_BODY=4096 cargo run --release --example axum_nested
//! ```
//!
//! axum routes; the server's limits, timeouts and drain hold for every route, and the service under `/entities` answers as
//! it does on any other server. Ctrl-C drains: no new connections, but every request that has begun is answered, streamed
//! answers to their end. A second one exits at once.
#![forbid(unsafe_code)]

use axum::Router;
use axum::body::Bytes;
use axum::routing::{get, post};
use polyserve::env::Settings;
use polyserve::prelude::*;
use polyserve::runtimes::tower::AsTower;

fn main() -> anyhow::Result<()> {
    // Before anything else, so that not even an early Ctrl-C is lost.
    let signals = Signals::register()?;
    let settings = Settings::from_env()?;
    let server = settings.make(|config| TokioHyper::new(config.clone()))?;

    // Any service of this project is a `tower::Service`. axum strips the path: an entity's `Location` has it put back.
    let entities = AsTower::new(EntityService::shared(TwoLevel::default())).under("/entities")?;
    let router = Router::new()
        .route("/", get(|| async { "Entities are under /entities.\n" }))
        .route("/length", post(|body: Bytes| async move { format!("{}\n", body.len()) }))
        .nest_service("/entities", entities);

    // And any `tower::Service` can be served.
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
