//! `polyserve serve --handover SOCKET`.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{Dir, PATIENCE, Serving, ended, has, misused, polyserve, text};

/// A client that keeps its connection. A request on a connection that the server closes before any byte of an answer is sent once
/// more, on a new connection; every other failure is counted.
struct Client {
    addr: SocketAddr,
    stream: Option<TcpStream>,
}

impl Client {
    /// Sends a request, and returns its answer.
    fn send(&mut self, request: &str) -> io::Result<String> {
        if let Some(mut stream) = self.stream.take() {
            match answer(&mut stream, request) {
                Err(error)
                    if [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe]
                        .contains(&error.kind()) => {}
                answered => {
                    self.stream = Some(stream);
                    return answered;
                }
            }
        }
        let mut stream = TcpStream::connect(self.addr)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let answer = answer(&mut stream, request);
        self.stream = Some(stream);
        answer
    }
}

/// An answer with its whole body. The error is `UnexpectedEof` if no byte arrives.
fn answer(stream: &mut TcpStream, request: &str) -> io::Result<String> {
    stream.write_all(request.as_bytes())?;
    let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) if read.is_empty() => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(0) => return Err(io::Error::other("a part of an answer")),
            Ok(count) => read.extend_from_slice(&buffer[..count]),
            Err(error) if read.is_empty() => return Err(error),
            Err(error) => return Err(io::Error::other(error)),
        }
        let text = String::from_utf8_lossy(&read).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head
            .to_lowercase()
            .split("\r\ncontent-length: ")
            .nth(1)
            .map_or(0, |rest| rest.lines().next().and_then(|length| length.parse().ok()).expect("a length"));
        if body.len() == length {
            return Ok(text);
        }
    }
}

/// Puts and gets entities until the end, and checks each answer. Returns the number of puts.
fn load(addr: SocketAddr, client: u64, is_over: &AtomicBool) -> u64 {
    let (mut clients, mut puts) = (Client { addr, stream: None }, 0);
    while !is_over.load(Ordering::Relaxed) {
        let id = 1_000_000 * (client + 1) + puts;
        let entity = format!(r#"{{"id":{id},"description":"d{id}","value":1.5}}"#);
        let put = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{entity}", entity.len());
        let stored = clients.send(&put).unwrap_or_else(|error| panic!("put {id}: {error}"));
        // A put that is sent once more finds the entity of the first one.
        assert!(
            stored.starts_with("HTTP/1.1 201 ")
                || stored.starts_with("HTTP/1.1 204 ")
                || stored.starts_with("HTTP/1.1 200 "),
            "{stored}"
        );
        puts += 1;
        let read = clients.send(&format!("GET /{id} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let read = read.unwrap_or_else(|error| panic!("get {id}: {error}"));
        has(&read, &["HTTP/1.1 200 ", &entity]);
    }
    puts
}

/// For each server.
const RESTARTS: usize = 20;

#[test]
fn a_restart_loses_no_request() {
    for server in ["pool_server", "tokio_tcp", "thread_per_connection", "tokio_per_core", "tokio_hyper"] {
        let dir = Dir::new(&format!("handover-{server}"));
        let args = format!(
            "serve --server {server} --repo durable:{dir}/store --listen 127.0.0.1:0 --admin 127.0.0.1:0 --lame-duck 1h \
             --handover {dir}.sock"
        );
        let mut serving = Serving::start(polyserve(&args));
        let addr = serving.addr;
        let is_over = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = (0..4)
            .map(|client| {
                thread::spawn({
                    let is_over = Arc::clone(&is_over);
                    move || load(addr, client, &is_over)
                })
            })
            .collect();
        for _ in 0..RESTARTS {
            let next = Serving::start(polyserve(&args));
            assert_eq!(next.addr, addr, "{server}");
            let (status, rest) = serving.end();
            assert_eq!(status.code(), Some(0), "{server}: {rest}");
            has(&rest, &["answered ", ", stuck 0"]);
            serving = next;
        }
        is_over.store(true, Ordering::Relaxed);
        let puts: u64 = clients.into_iter().map(|client| client.join().expect("every answer is right")).sum();
        assert!(puts > 0, "{server}");
        drop(serving);
        std::fs::remove_file(dir.path("").with_extension("sock")).expect("a process offers its listeners");
    }
}

#[test]
fn a_process_that_cannot_start_takes_nothing_over() {
    let dir = Dir::new("handover-wrong");
    let args = format!("serve --listen 127.0.0.1:0 --handover {dir}/handover.sock");
    dir.write("file", "text");
    let serving = Serving::start(polyserve(&args));
    let mut client = Client { addr: serving.addr, stream: None };
    let is_served = |client: &mut Client| {
        has(&client.send("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is served"), &["HTTP/1.1 404 "]);
    };
    is_served(&mut client);
    misused(&format!("{args} --server nothing"));
    misused(&format!("{args} --service nothing"));
    misused(&format!("{args} --ready nothing"));
    is_served(&mut client);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let output =
        ended(1, &format!("{args} --listen {}", taken.local_addr().unwrap()).replacen("--listen 127.0.0.1:0", "", 1));
    has(&text(&output.stderr), &["cannot serve on 127.0.0.1:"]);
    is_served(&mut client);
    has(&misused(&format!("serve --handover {dir}/file")), &["the file is no socket"]);
}
