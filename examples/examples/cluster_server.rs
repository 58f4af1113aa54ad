//! An entity server over PostgreSQL. Any number of these processes, on any number of machines, serve the same entities.
//!
//! ```sh
//! cargo run --release --example cluster_server --features postgres -- postgres://user@127.0.0.1:5432/database
//! TCP_ADDRESS=127.0.0.1:8002 cargo run --release --example cluster_server --features postgres -- postgres://user@127.0.0.1:5432/database
//! ```
//!
//! To try it without a database, run `cargo run --release -p polyserve-engines postgres`: it starts one, and prints
//! `postgres:` and its URL. `polyserve::cluster` also has `Etcd` and `RedisCluster`, with the features `etcd` and
//! `redis`.
#![forbid(unsafe_code)]

use anyhow::Context as _;
use polyserve::cluster::{Postgres, PostgresOptions};
use polyserve::env::Settings;
use polyserve::prelude::*;

fn main() -> anyhow::Result<()> {
    // First, so that an early Ctrl-C is not lost.
    let signals = Signals::register()?;
    let settings = Settings::from_env()?;
    let url = std::env::args().nth(1).context("the argument is a URL: postgres://user@127.0.0.1:5432/database")?;

    // The store answers each request later, from its own I/O thread, so the server's threads never wait for the
    // database.
    let server = settings.make(|config| TokioTcp::new(config.clone()))?;
    let store = Postgres::<Entity>::connect(&url, PostgresOptions::default().table("cluster_server"))?;
    // The database stores what the tag is computed from, so the tags of all processes agree.
    let service = EntityService::new(store).etags(true);

    let running = server.serve(settings.listen, service)?;
    println!("listening on http://{}", running.local_addr());
    println!("{}", signals.drain(running)?);
    Ok(())
}

// $ cargo run --release --example cluster_server --features postgres -- postgres://user@127.0.0.1:5432/database
//
// $ curl -i -X PUT http://127.0.0.1:8001/1 -d '{"id":1,"description":"in the database","value":60.750847}'
// HTTP/1.1 201 Created
// Content-Length: 0
// ETag: "aa940a2753857f80b5884ed9f0435c72"
// Location: /1
// Date: Tue, 24 Nov 2026 16:32:52 GMT
//
// $ curl -i http://127.0.0.1:8001/1
// HTTP/1.1 200 OK
// Content-Type: application/json
// Content-Length: 58
// ETag: "aa940a2753857f80b5884ed9f0435c72"
// Date: Tue, 24 Nov 2026 16:32:52 GMT
//
// {"id":1,"description":"in the database","value":60.750847}
// $ curl -i -X PUT http://127.0.0.1:8001/1 -H 'If-None-Match: *' -d '{"id":1,"description":"too late","value":0.5}'
// HTTP/1.1 412 Precondition Failed
// Content-Type: application/problem+json
// Content-Length: 164
// Date: Tue, 24 Nov 2026 16:32:52 GMT
//
// {"type":"about:blank","title":"Precondition Failed","status":412,"detail":"The entity is not in the state that the request's condition names: nothing was changed."}
