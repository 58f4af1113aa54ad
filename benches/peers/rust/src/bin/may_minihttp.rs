//! may_minihttp: stackful coroutines. Its header fields must be static strings, so the answer to a PUT has no
//! `Location`. It does not set TCP_NODELAY, and has no way to close a connection.

use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener};

use may_minihttp::{HttpServer, HttpService, Request, Response};
use polyserve_peers::{Args, Entities, Put, announce};

#[derive(Clone)]
struct Peer(&'static Entities);

impl HttpService for Peer {
    fn call(&mut self, request: Request<'_, '_, '_>, response: &mut Response<'_>) -> io::Result<()> {
        let Self(entities) = self;
        let id = request.path().strip_prefix('/').map(str::parse);
        match (request.method(), request.path(), id) {
            ("GET", _, Some(Ok(id))) => match entities.get(id) {
                Some(json) => response.header("Content-Type: application/json").body_vec(json),
                None => status(response, 404, "Not Found"),
            },
            ("PUT", "/", _) => {
                let mut body = Vec::new();
                request.body().read_to_end(&mut body)?;
                match entities.put(&body) {
                    Ok(Put::Created(_)) => status(response, 201, "Created"),
                    Ok(Put::Replaced) => {}
                    Err(_) => status(response, 400, "Bad Request"),
                }
            }
            (_, "/", _) | (_, _, Some(Ok(_))) => status(response, 405, "Method Not Allowed"),
            _ => status(response, 400, "Bad Request"),
        }
        Ok(())
    }
}

fn status(response: &mut Response<'_>, code: usize, reason: &'static str) {
    response.status_code(code, reason);
}

/// The max number of attempts to find a free port. Another process may take the port before the server binds it.
const TRIES: usize = 10;

fn main() -> io::Result<()> {
    let Args { workers, listen, .. } = Args::without_tls()?;
    may::config().set_workers(workers);
    let peer = Peer(Entities::shared());
    let mut tries = 0;
    let server = loop {
        // The server does not report its port, so a free port is chosen first.
        let addr = if listen.port() == 0 { free_port(listen)? } else { listen };
        tries += 1;
        match HttpServer(peer.clone()).start(addr) {
            Ok(server) => {
                announce(addr)?;
                break server;
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && listen.port() == 0 && tries < TRIES => {}
            Err(error) => return Err(error),
        }
    };
    server.join().map_err(|_| io::Error::other("the server panicked"))
}

fn free_port(addr: SocketAddr) -> io::Result<SocketAddr> {
    TcpListener::bind(addr)?.local_addr()
}
