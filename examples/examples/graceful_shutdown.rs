//! A shutdown under load loses no request: a client receives every answer that the server counts, complete.
//!
//! ```sh
//! cargo run --release --example graceful_shutdown
//! ```
#![forbid(unsafe_code)]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use polyserve::prelude::*;

const CLIENTS: usize = 8;
const WARM: u64 = 2_000;

fn main() -> anyhow::Result<()> {
    let repo = Sharded::new();
    let _ = repo.put(Entity::new(1, "asked for again and again", 60.750847)).wait()?;
    let server = PoolServer::mpsc(ServerConfig::default())?;
    let running = server.serve(([127, 0, 0, 1], 0), EntityService::new(repo))?;
    let addr = running.local_addr();

    // Clients send requests without a pause until the port is closed. Answer number `WARM` starts the shutdown.
    let answered = Arc::new(AtomicU64::new(0));
    let (warm, is_warm) = mpsc::channel();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (answered, warm) = (Arc::clone(&answered), warm.clone());
            thread::spawn(move || {
                while ask(addr)? {
                    if answered.fetch_add(1, Ordering::SeqCst) + 1 == WARM {
                        let _ = warm.send(());
                    }
                }
                anyhow::Ok(())
            })
        })
        .collect();
    drop(warm);
    is_warm.recv()?;

    // Under load: no new connections, every accepted request is answered, every thread is joined, the port is free.
    let drain = running.shutdown()?;
    for client in clients {
        client.join().expect("a client does not panic")?;
    }
    let complete = answered.load(Ordering::SeqCst);
    println!("the server:  {drain}");
    println!("the clients: {complete} complete answers");
    anyhow::ensure!((drain.answered, drain.cut, drain.stuck) == (complete, 0, 0), "an answer was lost");
    Ok(())
}

/// Sends one request on a new connection. Returns false if the server has ended and had not begun an answer.
fn ask(addr: SocketAddr) -> anyhow::Result<bool> {
    let mut answer = String::new();
    let asked = TcpStream::connect(addr).and_then(|mut stream| {
        stream.write_all(b"GET /1 HTTP/1.1\r\nHost: example\r\nConnection: close\r\n\r\n")?;
        stream.read_to_string(&mut answer)
    });
    match asked {
        Ok(0) => Ok(false),
        Ok(_) => {
            anyhow::ensure!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "not the answer: {answer}");
            anyhow::ensure!(answer.ends_with("\"value\":60.750847}"), "an incomplete answer: {answer}");
            Ok(true)
        }
        // The port is closed, or the connection was still in the kernel's queue when the listener closed.
        Err(error) if is_end(error.kind()) && answer.is_empty() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn is_end(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

// $ cargo run --release --example graceful_shutdown
// the server:  answered 2024, cut 0, stuck 0
// the clients: 2024 complete answers
