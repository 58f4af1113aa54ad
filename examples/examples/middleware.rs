//! tower's middleware around a service on `TokioHyper`: authorisation, compression and tracing, by tower-http.
//!
//! ```sh
//! cargo run --release --example middleware --features axum
//! ```
#![forbid(unsafe_code)]

use axum::http::{Request, Response, StatusCode, header};
use polyserve::async_::AsTower;
use polyserve::env::Settings;
use polyserve::prelude::{EntityService, ServerConfig, Sharded, Signals, TokioHyper};
use tower::ServiceBuilder;
use tower_http::compression::CompressionLayer;
use tower_http::trace::TraceLayer;
use tower_http::validate_request::ValidateRequestHeaderLayer;

/// Refuses a request without the token. A real program checks a signed token.
fn authorise<B, R: Default>(request: &mut Request<B>) -> Result<(), Response<R>> {
    if request.headers().get(header::AUTHORIZATION).is_some_and(|value| value == "Bearer open-sesame") {
        return Ok(());
    }
    let refusal = Response::builder().status(StatusCode::UNAUTHORIZED).header(header::WWW_AUTHENTICATE, "Bearer");
    Err(refusal.body(R::default()).expect("a valid response"))
}

fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::DEBUG).init();
    let signals = Signals::register()?;
    // The first layer is the outermost: refused requests are traced too.
    let service = ServiceBuilder::new()
        .layer(TraceLayer::new_for_http())
        .layer(ValidateRequestHeaderLayer::custom(authorise))
        .layer(CompressionLayer::new())
        .service(AsTower::new(EntityService::new(Sharded::new())));
    let server = TokioHyper::new(ServerConfig::default())?;
    let running = server.serve_tower(Settings::from_env()?.listen, service)?;
    println!("listening on http://{}", running.local_addr());
    println!("{}", signals.drain(running)?);
    Ok(())
}

// $ curl -i http://127.0.0.1:8001/1
// HTTP/1.1 401 Unauthorized
// www-authenticate: Bearer
// content-length: 0
// date: Mon, 23 Nov 2026 16:32:53 GMT
//
// $ curl -i http://127.0.0.1:8001/ -H 'Authorization: Bearer open-sesame' -X PUT -d '{"id":1,"description":"a first entity","value":60.750847}'
// HTTP/1.1 201 Created
// location: /1
// content-length: 0
// date: Mon, 23 Nov 2026 16:32:53 GMT
//
// $ curl -i --compressed http://127.0.0.1:8001/1 -H 'Authorization: Bearer open-sesame'
// HTTP/1.1 200 OK
// content-type: application/json
// vary: accept-encoding
// content-encoding: gzip
// transfer-encoding: chunked
// date: Mon, 23 Nov 2026 16:32:53 GMT
//
// {"id":1,"description":"a first entity","value":60.750847}
