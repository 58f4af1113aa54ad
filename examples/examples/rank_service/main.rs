//! Your own handler on every server: an axum `Router` as a service of the `polyserve` command. The command then serves it on any
//! server, and ranks the servers by it:
//!
//! ```sh
//! cd examples/examples/rank_service
//! cargo run --release --example rank_service --features rank -- compare --service shop --requests shop.requests --rounds 10
//! cargo run --release --example rank_service --features rank -- recommend --service shop --requests shop.requests
//! ```
//!
//! `shop.requests` has the requests, their weights and the expected statuses. `FromTower` has a tokio runtime for the handlers, so
//! that they run on servers without one too.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::{get, post};
use polyserve::async_::FromTower;
use polyserve::catalog::{Catalog, Entry};

/// The price of a product in cents.
async fn price(Path(product): Path<u64>) -> Result<String, StatusCode> {
    if product == 0 {
        return Err(StatusCode::NOT_FOUND);
    }
    // The work of the handler: a thousand steps of a random sequence.
    let price = (0..1000).fold(product, |state, _| state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    Ok(format!("{}\n", price >> 50))
}

/// Takes an order: the body is the number of a product.
async fn order(product: String) -> (StatusCode, String) {
    match product.trim().parse::<u64>() {
        Ok(product) => (StatusCode::CREATED, format!("ordered {product}\n")),
        Err(_) => (StatusCode::BAD_REQUEST, String::from("the body is no number\n")),
    }
}

fn main() -> ExitCode {
    let shop = Entry::service("shop", "prices and orders, on axum", &[], |_| {
        let router = Router::new().route("/prices/{product}", get(price)).route("/orders", post(order));
        Arc::new(FromTower::new(router).expect("the runtime starts"))
    });
    polyserve_cli::main(Catalog::builtin().with_service(shop))
}

// $ cargo run --release --example rank_service --features rank -- serve --service shop
// listening on http://127.0.0.1:8001
//
// $ curl http://127.0.0.1:8001/prices/7
// 10289
//
// $ curl http://127.0.0.1:8001/orders -d 7
// ordered 7
