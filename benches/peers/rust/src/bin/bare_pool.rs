//! A bare thread pool: threads that receive connections from one channel, and blocking reads and writes. It has no
//! timeout, no limit and no drain: what remains of a thread pool server without them. A connection holds its thread
//! until it closes, so the pool needs a thread for each kept connection.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use polyserve_peers::{Args, Entities, Put, announce};

fn main() -> io::Result<()> {
    let Args { workers, listen } = Args::read()?;
    let entities = Entities::shared();
    let listener = TcpListener::bind(listen)?;
    let (connections, received) = mpsc::channel();
    let received = Arc::new(Mutex::new(received));
    for _ in 0..workers {
        let received = Arc::clone(&received);
        thread::spawn(move || {
            while let Some(stream) = next(&received) {
                let _ = serve(stream, entities); // the client has gone
            }
        });
    }
    announce(listener.local_addr()?)?;
    for stream in listener.incoming() {
        connections.send(stream?).map_err(io::Error::other)?;
    }
    Ok(())
}

fn next(received: &Mutex<mpsc::Receiver<TcpStream>>) -> Option<TcpStream> {
    received.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

/// Serves one connection until one side closes it.
fn serve(mut stream: TcpStream, entities: &Entities) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut read, mut buffer) = (Vec::new(), [0; 8192]);
    loop {
        let (answer, used, keep) = match answer(&read, entities)? {
            Some(answered) => answered,
            None => match stream.read(&mut buffer)? {
                0 => return Ok(()),
                count => {
                    read.extend(&buffer[..count]);
                    continue;
                }
            },
        };
        read.drain(..used);
        stream.write_all(&answer)?;
        if !keep {
            return Ok(());
        }
    }
}

/// Returns the answer to the first request in `read`, the request's length, and whether the connection stays open. `None`
/// if the request is not complete.
fn answer(read: &[u8], entities: &Entities) -> io::Result<Option<(Vec<u8>, usize, bool)>> {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut fields);
    let httparse::Status::Complete(head) = request.parse(read).map_err(io::Error::other)? else { return Ok(None) };
    let field = |name: &str| request.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
    let length = field("content-length").and_then(|field| str::from_utf8(field.value).ok()?.parse().ok()).unwrap_or(0);
    let Some(body) = read.get(head..).and_then(|rest| rest.get(..length)) else { return Ok(None) };
    let connection = field("connection").map_or(&[][..], |field| field.value);
    let keep = if request.version == Some(1) {
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
    let connection = if keep { "keep-alive" } else { "close" };
    let mut answer =
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: {connection}\r\n{extra}\r\n", body.len())
            .into_bytes();
    answer.extend(body);
    Ok(Some((answer, head + length, keep)))
}
