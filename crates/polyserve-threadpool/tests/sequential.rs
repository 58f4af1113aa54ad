//! What a server of one connection does for the others.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::{Echo, ServerConfig, ServerExt as _};
use polyserve_threadpool::Sequential;

const MAX_WAIT: Duration = Duration::from_secs(60);

/// Regression test: a connection that had not sent a byte stayed open for as long as another one was served.
#[test]
fn a_silent_connection_has_its_timeout_while_another_is_kept() {
    let config = ServerConfig::default().first_byte_timeout(Duration::from_millis(100)).idle_timeout(MAX_WAIT);
    let running = Sequential::new(config).unwrap().serve("127.0.0.1:0", Echo).unwrap();
    let connect = || {
        let client = TcpStream::connect(running.local_addr()).unwrap();
        client.set_read_timeout(Some(MAX_WAIT)).unwrap();
        client
    };
    let (mut silent, mut kept) = (connect(), connect());
    let (closed, end) = channel();
    thread::spawn(move || closed.send(silent.read(&mut [0]).unwrap()));
    let started = Instant::now();
    // The pauses let the server wait for its connection.
    while end.recv_timeout(Duration::from_millis(20)).is_err() {
        assert!(started.elapsed() < MAX_WAIT, "the silent connection stays open");
        kept.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut answer = [0; 1024];
        let count = kept.read(&mut answer).unwrap();
        assert!(answer[..count].starts_with(b"HTTP/1.1 200 "), "the connection is kept");
    }
    drop(kept);
    running.shutdown().unwrap();
}
