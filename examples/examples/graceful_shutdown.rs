//! A shutdown under load loses no request: clients receive every answer that the server counts, complete. Eight clients
//! of this program send requests until Ctrl-C begins the shutdown.
//!
//! ```sh
//! cargo run --release --example graceful_shutdown
//! ```
#![forbid(unsafe_code)]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use polyserve::Request;
use polyserve::env::Settings;
use polyserve::prelude::*;

const CLIENTS: usize = 8;
/// The end of each answer.
const END: &[u8] = b"\"value\":60.750847}";

fn main() -> anyhow::Result<()> {
    let signals = Signals::register()?;
    let repo = Sharded::new();
    let _ = repo.put(Entity::new(1, "asked for again and again", 60.750847)).wait()?;
    // The clients of this program request an entity. The service counts all other requests.
    let others = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&others);
    let service =
        Routes::new().entities(EntityService::new(repo).at("/entities")?)?.otherwise(move |_: Request<'_>| {
            count.fetch_add(1, Ordering::SeqCst);
            Reply::text("Hello, under load!\n")
        });
    let server = PoolServer::mpsc(ServerConfig::default())?;
    let running = server.serve(Settings::from_env()?.listen, service)?;
    let addr = running.local_addr();
    let clients: Vec<_> = (0..CLIENTS).map(|_| thread::spawn(move || send_until_closed(addr))).collect();
    println!("listening on http://{addr}");

    // The drain accepts no new connections, answers every accepted request, joins every thread and frees the port.
    let drain = signals.drain(running)?;
    let mut complete = 0;
    for client in clients {
        complete += client.join().expect("a client does not panic")?;
    }
    let others = others.load(Ordering::SeqCst);
    println!("the server:  {drain}");
    println!("the clients: {complete} complete answers, and {others} of other clients");
    anyhow::ensure!((drain.answered, drain.cut, drain.stuck) == (complete + others, 0, 0), "an answer was lost");
    Ok(())
}

/// Sends requests on one connection until the server closes it. Returns the number of answers.
fn send_until_closed(addr: SocketAddr) -> anyhow::Result<u64> {
    let mut stream = TcpStream::connect(addr)?;
    let mut answered = 0;
    while ask(&mut stream)? {
        answered += 1;
    }
    Ok(answered)
}

/// Sends one request. Returns false if the server closed the connection before it began an answer.
fn ask(stream: &mut TcpStream) -> anyhow::Result<bool> {
    let mut answer = Vec::new();
    match exchange(stream, &mut answer) {
        Ok(()) if answer.is_empty() => return Ok(false),
        Err(error) if is_end(error.kind()) && answer.is_empty() => return Ok(false),
        received => received?,
    }
    let is_complete = answer.starts_with(b"HTTP/1.1 200 OK\r\n") && answer.ends_with(END);
    anyhow::ensure!(is_complete, "not the answer: {}", String::from_utf8_lossy(&answer));
    Ok(true)
}

/// Sends a request, and reads until the end of the answer or of the connection.
fn exchange(stream: &mut TcpStream, answer: &mut Vec<u8>) -> std::io::Result<()> {
    stream.write_all(b"GET /entities/1 HTTP/1.1\r\nHost: example\r\n\r\n")?;
    let mut buffer = [0; 1024];
    while !answer.ends_with(END) {
        match stream.read(&mut buffer)? {
            0 => break,
            count => answer.extend_from_slice(&buffer[..count]),
        }
    }
    Ok(())
}

fn is_end(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

// $ cargo run --release --example graceful_shutdown
// listening on http://127.0.0.1:8001
// the server:  answered 134752, cut 0, stuck 0
// the clients: 134751 complete answers, and 1 of other clients
//
// $ curl -i http://127.0.0.1:8001/
// HTTP/1.1 200 OK
// Content-Type: text/plain; charset=utf-8
// Content-Length: 19
// Date: Tue, 24 Nov 2026 23:59:48 GMT
//
// Hello, under load!
