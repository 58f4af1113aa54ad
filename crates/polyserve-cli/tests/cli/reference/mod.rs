//! The references: what they answer, how they end, and the system calls that each request costs.
mod calls;
mod wire;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use polyserve::catalog::Catalog;
use polyserve::{Echo, Running, ServerConfig, ServerExt as _};
use polyserve_bench::reference::{BODY, with_references};

use super::MAX_WAIT;

const GET: &str = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n";

const NAMES: [&str; 4] = ["null_epoll", "null_deferred", "null_uring", "null_accept"];

/// The references that can run here. The others are printed with the reason.
fn runnable() -> impl Iterator<Item = &'static str> {
    let catalog = with_references(Catalog::new());
    NAMES.into_iter().filter(move |name| match catalog.reference(name).unwrap().build(&ServerConfig::default()) {
        Ok(_) => true,
        Err(error) => {
            // Past the harness's capture.
            let _ = writeln!(std::io::stderr(), "not run: {name}: {error}");
            assert!(*name == "null_uring" && error.to_string().contains("io_uring"), "{error}");
            false
        }
    })
}

/// Those that serve many connections at a time.
fn event_loops() -> impl Iterator<Item = &'static str> {
    runnable().filter(|name| *name != "null_accept")
}

fn start(name: &str, config: &ServerConfig) -> Running {
    let catalog = with_references(Catalog::new());
    let server = catalog.reference(name).unwrap().build(config).unwrap();
    server.serve(([127, 0, 0, 1], 0), Echo).unwrap()
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
    stream.set_write_timeout(Some(MAX_WAIT)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Reads one answer, and returns its length. Nothing may follow the answer.
fn exchange(stream: &mut TcpStream, request: &str) -> usize {
    stream.write_all(request.as_bytes()).unwrap();
    let (mut bytes, mut filled) = ([0; 4096], 0);
    while !bytes[..filled].ends_with(BODY.as_bytes()) {
        let count = stream.read(&mut bytes[filled..]).unwrap();
        assert_ne!(count, 0, "{}", String::from_utf8_lossy(&bytes[..filled]));
        filled += count;
    }
    assert_eq!(answers(&bytes[..filled]), 1);
    filled
}

/// Reads until the server closes the connection.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

/// The number of answers in `bytes`, which must contain nothing else.
fn answers(bytes: &[u8]) -> usize {
    let text = std::str::from_utf8(bytes).unwrap();
    let mut count = 0;
    let mut left = text;
    while !left.is_empty() {
        let (head, after) = left.split_once("\r\n\r\n").expect("a whole head");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}", BODY.len())), "{head}");
        left = after.strip_prefix(BODY).unwrap_or_else(|| panic!("another body: {after}"));
        count += 1;
    }
    count
}
