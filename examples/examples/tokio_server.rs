//! An entity server on tokio: connections are tasks, and a deferred answer blocks no thread.
//!
//! ```sh
//! cargo run --release --example tokio_server --features tokio
//! TCP_ADDRESS=localhost:8080 POLYSERVE_WORKERS=2 cargo run --release --example tokio_server --features tokio
//! ```
//!
//! Every limit has an environment variable: `POLYSERVE_LISTEN`, `POLYSERVE_WORKERS`, `POLYSERVE_HEAD_TIMEOUT` and so
//! on. The program needs no runtime of its own. A program with a runtime passes it to `TokioTcp::with_handle`, and
//! awaits `Running::drained`.
//!
//! Ctrl-C drains: no new connections, but every request that has begun is answered. A second Ctrl-C, at least a second later,
//! exits at once.
#![forbid(unsafe_code)]

use polyserve::env::Settings;
use polyserve::prelude::*;

fn main() -> anyhow::Result<()> {
    // First, so that an early Ctrl-C is not lost.
    let signals = Signals::register()?;
    let settings = Settings::from_env()?;

    // How connections become work: tasks of one runtime. Try `TokioPerCore`, a runtime for each core.
    let server = settings.make(|config| TokioTcp::new(config.clone()))?;
    // How data is shared.
    let service = EntityService::new(Sharded::new());

    let running = server.serve(settings.listen, service)?;
    let url = format!("http://{}", running.local_addr());
    println!("listening on {url}");
    println!("try:");
    println!("  curl -i -X PUT {url}/ -H 'Content-Type: application/json' \\");
    println!("    -d '{{\"id\":1,\"description\":\"a first entity\",\"value\":60.750847}}'");
    println!("  curl -i {url}/1");
    println!("and Ctrl-C to drain");

    println!("{}", signals.drain(running)?);
    Ok(())
}

// $ curl -i -X PUT http://127.0.0.1:8001/1 -d '{"id":1,"description":"a first entity","value":60.750847}'
// HTTP/1.1 201 Created
// Content-Length: 0
// Location: /1
// Date: Mon, 23 Nov 2026 16:32:52 GMT
//
// $ curl -i http://127.0.0.1:8001/1
// HTTP/1.1 200 OK
// Content-Type: application/json
// Content-Length: 57
// Date: Mon, 23 Nov 2026 16:32:52 GMT
//
// {"id":1,"description":"a first entity","value":60.750847}
