//! Everything that is stored, page by page: the program exports its store as lines of JSON while it is written to, and the server lists
//! the entities over HTTP.
//!
//! ```sh
//! cargo run --release --example export
//! ```
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use polyserve::env::Settings;
use polyserve::memory::Ordered;
use polyserve::prelude::*;

const ENTITIES: i64 = 10_000;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let signals = Signals::register()?;
    // Any store in memory can be below. A durable one is opened over it: `Durable::open(directory, Ordered::new(Sharded::new()))`.
    let store = Arc::new(Ordered::new(Sharded::new()));
    for id in 0..ENTITIES {
        store.put(Entity::new(id, "to be exported", 0.5)).wait()?;
    }

    let written = Arc::clone(&store);
    let writer = thread::spawn(move || -> Result<(), RepoError> {
        for id in 0..ENTITIES {
            written.put(Entity::new(id, "changed meanwhile", 1.5)).wait()?;
        }
        Ok(())
    });
    let exported = export(&*store, &mut io::sink())?;
    writer.join().expect("the writer does not panic")?;
    println!("exported {exported} entities while they were written");
    assert_eq!(exported, ENTITIES as usize, "each entity that stays is exported once");

    let server = PoolServer::mpsc(ServerConfig::default())?;
    let running = server.serve(Settings::from_env()?.listen, EntityService::new(store))?;
    println!("listening on http://{}", running.local_addr());
    println!("{}", signals.drain(running)?);
    Ok(())
}

/// Writes all entities of a store as lines of JSON, and returns their number.
fn export(store: &impl EntityRepo, out: &mut impl Write) -> Result<usize, Box<dyn Error + Send + Sync>> {
    const PAGE: usize = 1000;
    let (mut exported, mut after) = (0, None);
    loop {
        let (mut json, mut last, mut written) = (Vec::new(), None, Ok(()));
        let page = store.scan(after.as_ref(), PAGE, &mut |id, entity| {
            written = entity.write_json(&mut json);
            json.push(b'\n');
            last = Some(*id);
            exported += 1;
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let has_more = page.wait()?.has_more;
        written?;
        out.write_all(&json)?;
        if !has_more {
            return Ok(exported);
        }
        after = last;
    }
}

// $ curl -i 'http://127.0.0.1:8001/?limit=2'
// HTTP/1.1 200 OK
// Content-Type: application/json
// Content-Length: 132
// Date: Mon, 23 Nov 2026 16:30:14 GMT
//
// {"items":[{"id":0,"description":"changed meanwhile","value":1.5},{"id":1,"description":"changed meanwhile","value":1.5}],"next":"1"}
//
// $ curl -i 'http://127.0.0.1:8001/?limit=2&after=9998'
// HTTP/1.1 200 OK
// Content-Type: application/json
// Content-Length: 81
// Date: Mon, 23 Nov 2026 16:30:14 GMT
//
// {"items":[{"id":9999,"description":"changed meanwhile","value":1.5}],"next":null}
