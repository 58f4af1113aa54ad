//! An entity server that keeps its entities on disk. A PUT is answered after its fsync, so a crash loses no answered
//! write.
//!
//! ```sh
//! cargo run --release --example durable_server --features durable   # keeps its entities in polyserve-data
//! cargo run --release --example durable_server --features durable -- DIRECTORY
//! ```
//!
//! Reads come from memory. Writes that arrive during one fsync share the next. `polyserve durable check`, `repair` and
//! `backup` maintain the directory.
#![forbid(unsafe_code)]

use polyserve::durable::Durable;
use polyserve::env::Settings;
use polyserve::prelude::*;

fn main() -> anyhow::Result<()> {
    // First, so that an early Ctrl-C is not lost.
    let signals = Signals::register()?;
    let settings = Settings::from_env()?;
    let directory = std::env::args().nth(1).unwrap_or_else(|| String::from("polyserve-data"));

    // Writes have deferred answers, which block no thread of a server on an async runtime.
    let server = settings.make(|config| TokioTcp::new(config.clone()))?;
    // Any repo in memory can be made durable.
    let store = Durable::open(&directory, Sharded::new())?;
    let recovery = store.recovery();
    println!("{} entities in {directory}, read in {:?}", recovery.entities, recovery.elapsed);

    let running = server.serve(settings.listen, EntityService::new(store))?;
    println!("listening on http://{}", running.local_addr());
    println!("{}", signals.drain(running)?);
    Ok(())
}

// $ cargo run --release --example durable_server --features durable -- target/example-data
//
// $ curl -i -X PUT http://127.0.0.1:8001/1 -d '{"id":1,"description":"on the disk","value":60.750847}'
// HTTP/1.1 201 Created
// Content-Length: 0
// Location: /1
// Date: Tue, 24 Nov 2026 16:32:52 GMT
//
// $ curl -i http://127.0.0.1:8001/1
// HTTP/1.1 200 OK
// Content-Type: application/json
// Content-Length: 54
// Date: Tue, 24 Nov 2026 16:32:52 GMT
//
// {"id":1,"description":"on the disk","value":60.750847}
//
// $ curl -i -X DELETE http://127.0.0.1:8001/1
// HTTP/1.1 204 No Content
// Date: Tue, 24 Nov 2026 16:32:52 GMT
