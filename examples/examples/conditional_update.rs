//! No lost updates: eight threads increment one counter over HTTP. Each thread reads the counter, and writes the next
//! number if nothing has changed since (`If-Match`). Otherwise it reads again.
//!
//! ```sh
//! cargo run --release --example conditional_update
//! ```
#![forbid(unsafe_code)]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;

use anyhow::{Context as _, bail, ensure};
use polyserve::env::Settings;
use polyserve::prelude::*;

const THREADS: u64 = 8;
const INCREMENTS: u64 = 100;

fn main() -> anyhow::Result<()> {
    let signals = Signals::register()?;
    // With tags, the service answers with `ETag`, which a client sends back in `If-Match`.
    let service = EntityService::new(Sharded::new()).etags(true);
    let server = PoolServer::mpsc(ServerConfig::default())?;
    let running = server.serve(Settings::from_env()?.listen, service)?;
    let addr = running.local_addr();

    ensure!(write(addr, 0, "If-None-Match: *")?, "the counter already exists");
    let threads: Vec<_> = (0..THREADS).map(|_| thread::spawn(move || increment(addr))).collect();
    let mut retries = 0;
    for thread in threads {
        retries += thread.join().expect("a thread does not panic")?;
    }
    let (count, _) = read(addr)?;
    ensure!(count == THREADS * INCREMENTS, "{count} increments of {} are left", THREADS * INCREMENTS);
    println!("{THREADS} threads made {count} increments, with {retries} retries");

    println!("listening on http://{addr}");
    println!("{}", signals.drain(running)?);
    Ok(())
}

/// Increments the counter `INCREMENTS` times. Returns the number of retries.
fn increment(addr: SocketAddr) -> anyhow::Result<u64> {
    let (mut done, mut retries) = (0, 0);
    while done < INCREMENTS {
        let (count, etag) = read(addr)?;
        if write(addr, count + 1, &format!("If-Match: {etag}"))? {
            done += 1;
        } else {
            retries += 1; // another thread was faster
        }
    }
    Ok(retries)
}

/// Returns the counter and its tag.
fn read(addr: SocketAddr) -> anyhow::Result<(u64, String)> {
    let answer = ask(addr, "GET /1", "Accept: application/json", "")?;
    let etag = answer.lines().find_map(|line| line.strip_prefix("ETag: ")).context("an answer without a tag")?;
    let value = answer.split_once("\"value\":").and_then(|(_, rest)| rest.strip_suffix('}'));
    Ok((value.context("not the counter")?.parse::<f64>()? as u64, etag.to_owned()))
}

/// Stores the counter if the condition holds. Returns whether it was stored.
fn write(addr: SocketAddr, count: u64, condition: &str) -> anyhow::Result<bool> {
    let answer = ask(addr, "PUT /1", condition, &format!(r#"{{"id":1,"description":"a counter","value":{count}.0}}"#))?;
    match answer.split(' ').nth(1) {
        Some("200" | "201") => Ok(true),
        Some("412") => Ok(false), // Precondition Failed: nothing was changed
        _ => bail!("an answer that was not expected: {answer}"),
    }
}

/// Sends one request on a new connection. A real program would use an HTTP client.
fn ask(addr: SocketAddr, line: &str, field: &str, body: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(addr)?;
    let length = body.len();
    let head =
        format!("{line} HTTP/1.1\r\nHost: {addr}\r\n{field}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

// $ curl -i http://127.0.0.1:8001/1
// HTTP/1.1 200 OK
// Content-Type: application/json
// Content-Length: 48
// ETag: "a1bc2a726865268fd86140e3ed2e4199"
// Date: Mon, 23 Nov 2026 16:30:14 GMT
//
// {"id":1,"description":"a counter","value":800.0}
//
// $ curl -i -X PUT http://127.0.0.1:8001/1 -H 'If-Match: "an-older-tag"' -d '{"id":1,"description":"lost","value":0}'
// HTTP/1.1 412 Precondition Failed
// Content-Type: application/problem+json
// Content-Length: 164
// Date: Mon, 23 Nov 2026 16:30:14 GMT
//
// {"type":"about:blank","title":"Precondition Failed","status":412,"detail":"The entity is not in the state that the request's condition names: nothing was changed."}
