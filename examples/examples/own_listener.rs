//! A server on a listener that the program provides: a socket that systemd has bound (socket activation), or a free
//! port.
//!
//! ```sh
//! cargo run --release --example own_listener
//! systemd-socket-activate -l 8001 target/release/examples/own_listener
//! ```
//!
//! With socket activation, the port is open before the program runs, and clients wait during a restart. The program
//! needs no privileges for a port below 1024.
#![forbid(unsafe_code)]

use std::net::TcpListener;

use listenfd::ListenFd;
use polyserve::Request;
use polyserve::prelude::*;

fn main() -> anyhow::Result<()> {
    let signals = Signals::register()?;
    // `LISTEN_FDS` and `LISTEN_PID` describe the sockets that were passed to the program.
    let listener = match ListenFd::from_env().take_tcp_listener(0)? {
        Some(listener) => listener,
        None => TcpListener::bind("127.0.0.1:0")?,
    };
    let server = PoolServer::mpsc(ServerConfig::default())?;
    let running = server.serve(listener, |_: Request<'_>| Reply::text("Hello!\n"))?;
    println!("listening on http://{}", running.local_addr());
    println!("{}", signals.drain(running)?);
    Ok(())
}

// $ systemd-socket-activate -l 8001 target/release/examples/own_listener
//
// $ curl -i http://127.0.0.1:8001/
// HTTP/1.1 200 OK
// Content-Type: text/plain; charset=utf-8
// Content-Length: 7
// Date: Mon, 23 Nov 2026 16:29:39 GMT
//
// Hello!
