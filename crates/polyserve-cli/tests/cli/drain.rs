//! SIGINT under load: the server reports the number of whole answers that its clients received.
//!
//! `POLYSERVE_DRAIN_ROUNDS=50 cargo test --release -p polyserve-cli --test cli drain` is the long form.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::{MAX_WAIT, array, json, serve, texts};

/// How a client goes on after an answer.
#[derive(Clone, Copy)]
enum ClientKind {
    /// This number of requests at once.
    Pipeline(usize),
    /// A connection for each request.
    Reconnect,
}

const CLIENTS: [ClientKind; 6] = [
    ClientKind::Pipeline(1),
    ClientKind::Pipeline(1),
    ClientKind::Pipeline(4),
    ClientKind::Pipeline(16),
    ClientKind::Reconnect,
    ClientKind::Reconnect,
];

#[test]
fn no_answer_is_lost_torn_or_miscounted() {
    let rounds: u64 = std::env::var("POLYSERVE_DRAIN_ROUNDS").map_or(3, |rounds| rounds.parse().expect("a number"));
    for server in texts(array(&json("list")["servers"]), "name") {
        for round in 0..rounds {
            drain(server, 50 + 977 * round % 5000);
        }
    }
}

/// Loads `server`, interrupts it after about `answers` answers, and compares the counts.
fn drain(server: &str, answers: u64) {
    let serving = serve(&format!("--server {server}"));
    let answered = Arc::new(AtomicU64::new(0));
    let clients = CLIENTS.map(|kind| {
        let (addr, answered) = (serving.addr, Arc::clone(&answered));
        thread::spawn(move || while converse(addr, kind, &answered) {})
    });
    while answered.load(Ordering::SeqCst) < answers {
        thread::sleep(Duration::from_millis(1));
        assert!(clients.iter().any(|client| !client.is_finished()), "{server}: every client has ended");
    }
    serving.signal(Signal::INT);
    for client in clients {
        client.join().expect("every answer is whole");
    }
    let (status, output) = serving.end();
    let answered = answered.load(Ordering::SeqCst);
    assert_eq!(output.trim_end(), format!("answered {answered}, cut 0, stuck 0"), "{server}");
    assert_eq!(status.code(), Some(0), "{server}");
}

/// Runs one connection and counts whole answers; false if the server no longer listens.
fn converse(addr: SocketAddr, kind: ClientKind, answered: &AtomicU64) -> bool {
    let Ok(mut stream) = TcpStream::connect(addr) else { return false };
    stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
    let (request, count) = match kind {
        ClientKind::Pipeline(count) => ("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n".repeat(count), count),
        ClientKind::Reconnect => ("GET /1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_owned(), 1),
    };
    let mut received = Vec::new();
    loop {
        if stream.write_all(request.as_bytes()).is_err() {
            return true;
        }
        for _ in 0..count {
            match answer(&mut stream, &mut received) {
                Some(last) => {
                    answered.fetch_add(1, Ordering::SeqCst);
                    if last {
                        assert!(received.is_empty(), "nothing follows the last answer");
                        return true;
                    }
                }
                None => return true,
            }
        }
    }
}

/// Reads one answer. Returns whether it is the connection's last, or `None` if the connection ended before its first
/// byte.
fn answer(stream: &mut TcpStream, received: &mut Vec<u8>) -> Option<bool> {
    let mut buffer = [0; 16 * 1024];
    loop {
        let text = std::str::from_utf8(received).expect("answers are text");
        if let Some((head, rest)) = text.split_once("\r\n\r\n") {
            assert!(head.starts_with("HTTP/1.1 404 Not Found\r\n"), "{head}");
            let fields = || head.lines().filter_map(|line| line.split_once(": "));
            let field = |name: &str| fields().find(|(any, _)| any.eq_ignore_ascii_case(name)).map(|(_, value)| value);
            let length: usize = field("Content-Length").and_then(|length| length.parse().ok()).expect("a length");
            if rest.len() >= length {
                let last = field("Connection") == Some("close");
                let end = head.len() + 4 + length;
                received.drain(..end);
                return Some(last);
            }
        }
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => received.extend_from_slice(&buffer[..count]),
            ended => {
                assert!(received.is_empty(), "an answer was torn by {ended:?}: {received:?}");
                return None;
            }
        }
    }
}
