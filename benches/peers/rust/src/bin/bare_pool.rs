//! A bare thread pool: threads receive connections from one channel, and use blocking reads and writes. It has no
//! timeouts, no limits and no drain, so it shows what these cost.
//!
//! A connection holds its thread until it closes, so the pool needs a thread per kept-alive connection.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use polyserve_peers::{Args, Entities, Put, announce};

fn main() -> io::Result<()> {
    let Args { workers, listen, .. } = Args::without_tls()?;
    let entities = Entities::shared();
    let listener = TcpListener::bind(listen)?;
    let (connections, receiver) = mpsc::channel();
    let receiver = Arc::new(Mutex::new(receiver));
    for _ in 0..workers {
        let receiver = Arc::clone(&receiver);
        thread::spawn(move || {
            while let Some(stream) = next_connection(&receiver) {
                let _ = serve(stream, entities); // the client has disconnected
            }
        });
    }
    announce(listener.local_addr()?)?;
    for stream in listener.incoming() {
        connections.send(stream?).map_err(io::Error::other)?;
    }
    Ok(())
}

fn next_connection(receiver: &Mutex<mpsc::Receiver<TcpStream>>) -> Option<TcpStream> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

/// Serves one connection until one side closes it.
fn serve(mut stream: TcpStream, entities: &Entities) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut read, mut buffer) = (Vec::new(), [0; 8192]);
    loop {
        let answer = match answer(&read, entities)? {
            Some(answer) => answer,
            None => match stream.read(&mut buffer)? {
                0 => return Ok(()),
                count => {
                    read.extend(&buffer[..count]);
                    continue;
                }
            },
        };
        read.drain(..answer.request_length);
        stream.write_all(&answer.bytes)?;
        if !answer.keep_alive {
            return Ok(());
        }
    }
}

/// The answer to a request.
struct Answer {
    bytes: Vec<u8>,
    /// The length of the request.
    request_length: usize,
    /// Whether the connection stays open after the answer.
    keep_alive: bool,
}

/// Returns the answer to the first request in `read`, or `None` if the request is not complete.
fn answer(read: &[u8], entities: &Entities) -> io::Result<Option<Answer>> {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut fields);
    let httparse::Status::Complete(head) = request.parse(read).map_err(io::Error::other)? else { return Ok(None) };
    let field = |name: &str| request.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
    let length = field("content-length").and_then(|field| str::from_utf8(field.value).ok()?.parse().ok()).unwrap_or(0);
    let Some(body) = read.get(head..).and_then(|rest| rest.get(..length)) else { return Ok(None) };
    let connection = field("connection").map_or(&[][..], |field| field.value);
    let keep_alive = if request.version == Some(1) {
        !connection.eq_ignore_ascii_case(b"close")
    } else {
        connection.eq_ignore_ascii_case(b"keep-alive")
    };
    let (status, extra, body) = match (request.method, request.path.and_then(|path| path.strip_prefix('/'))) {
        (Some("PUT"), Some("")) => match entities.put(body) {
            Ok(Put::Created(path)) => ("201 Created", format!("Location: {path}\r\n"), Vec::new()),
            Ok(Put::Replaced) => ("200 OK", String::new(), Vec::new()),
            Err(_) => ("400 Bad Request", String::new(), Vec::new()),
        },
        (Some("GET"), Some(id)) => match id.parse().ok().and_then(|id| entities.get(id)) {
            Some(json) => ("200 OK", "Content-Type: application/json\r\n".to_owned(), json),
            None => ("404 Not Found", String::new(), Vec::new()),
        },
        _ => ("405 Method Not Allowed", String::new(), Vec::new()),
    };
    let connection = if keep_alive { "keep-alive" } else { "close" };
    let mut bytes =
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: {connection}\r\n{extra}\r\n", body.len())
            .into_bytes();
    bytes.extend(body);
    Ok(Some(Answer { bytes, request_length: head + length, keep_alive }))
}
