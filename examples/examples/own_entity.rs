//! A custom entity type with a text id, in a store and behind a server of this project.
//!
//! ```sh
//! cargo run --release --example own_entity
//! ```
#![forbid(unsafe_code)]

use polyserve::env::Settings;
use polyserve::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Account {
    name: String,
    balance: i64,
}
identifiable!(Account, name: String);

fn main() -> anyhow::Result<()> {
    let signals = Signals::register()?;
    let accounts = EntityService::new(Sharded::of::<Account>()).at("/accounts")?;
    let server = PoolServer::mpsc(ServerConfig::default())?;
    let running = server.serve(Settings::from_env()?.listen, accounts)?;
    println!("listening on http://{}", running.local_addr());
    println!("{}", signals.drain(running)?);
    Ok(())
}

// $ curl -i -X PUT http://127.0.0.1:8001/accounts -d '{"name":"a b","balance":7}'
// HTTP/1.1 201 Created
// Content-Length: 0
// Location: /accounts/a%20b
// Date: Mon, 23 Nov 2026 16:29:38 GMT
//
// $ curl -i http://127.0.0.1:8001/accounts/a%20b
// HTTP/1.1 200 OK
// Content-Type: application/json
// Content-Length: 26
// Date: Mon, 23 Nov 2026 16:29:38 GMT
//
// {"name":"a b","balance":7}
//
// $ curl -i -X PUT http://127.0.0.1:8001/accounts -d '{"name":"a b","balance":"7"}'
// HTTP/1.1 422 Unprocessable Content
// Content-Type: application/problem+json
// Content-Length: 176
// Date: Mon, 23 Nov 2026 16:29:38 GMT
//
// {"type":"about:blank","title":"Unprocessable Content","status":422,"detail":"The body is not an entity: balance: invalid type: string \"7\", expected i64 at line 1 column 27."}
