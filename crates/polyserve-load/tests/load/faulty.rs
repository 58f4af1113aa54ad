//! A small server with one fault.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// The response to request `number`, counted from 0 over the whole server: the bytes, and whether the connection stays
/// open.
pub(crate) type Respond = dyn Fn(u64, &mut TcpStream) -> bool + Send + Sync;

/// Answers each request by `respond`, on a thread for each connection, until the test's process ends.
pub(crate) fn serve(respond: impl Fn(u64, &mut TcpStream) -> bool + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (respond, number): (Arc<Respond>, _) = (Arc::new(respond), Arc::new(AtomicU64::new(0)));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (respond, number) = (Arc::clone(&respond), Arc::clone(&number));
            thread::spawn(move || connection(stream.unwrap(), &*respond, &number));
        }
    });
    addr
}

/// Requests have no body: each ends with an empty line.
fn connection(mut stream: TcpStream, respond: &Respond, number: &AtomicU64) {
    let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        while let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") {
            received.drain(..end + 4);
            if !respond(number.fetch_add(1, Ordering::SeqCst), &mut stream) {
                let _ = stream.shutdown(Shutdown::Write);
                // The requests are read, because unread bytes would cause a reset that loses the answer.
                while matches!(stream.read(&mut buffer), Ok(1..)) {}
                return;
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(read) => received.extend_from_slice(&buffer[..read]),
        }
    }
}

pub(crate) const BODY: &str = "hello";

/// A right answer.
pub(crate) fn right() -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{BODY}", BODY.len())
}

pub(crate) fn send(stream: &mut TcpStream, text: &str) -> bool {
    stream.write_all(text.as_bytes()).is_ok()
}

/// Sends `text`, then closes the connection.
pub(crate) fn last(stream: &mut TcpStream, text: &str) -> bool {
    send(stream, text);
    false
}
