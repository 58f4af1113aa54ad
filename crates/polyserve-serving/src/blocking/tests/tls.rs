//! TLS on a thread that may block.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_conformance::tls::{TestAuthority, TlsStream};
use polyserve_core::{Echo, ServerConfig};

use super::{Fixture, GET, MAX_WAIT, ago};
use crate::blocking::{Phase, Read, ReadWait, Transport, drive};
use crate::{ServerState, ThreadBuffers};

const HOUR: Duration = Duration::from_secs(3600);

fn client(stream: TcpStream, authority: &TestAuthority) -> TlsStream {
    TlsStream::new(stream, authority.client(rustls::DEFAULT_VERSIONS, None))
}

/// Regression test: the end of TLS was waited for like an answer. A client that read nothing held a thread for the write timeout after
/// it had been answered.
#[test]
fn the_end_of_a_session_is_not_waited_for() {
    let authority = TestAuthority::new();
    let fixture = Fixture::new(|config| *config = config.clone().write_timeout(HOUR).tls(authority.issue().server()));
    let (client, deadline) = (client(fixture.connect(), &authority), Instant::now() + MAX_WAIT);
    let stream = fixture.listener.accept().unwrap().0;
    stream.set_nonblocking(true).unwrap();
    let mut server_side = stream.try_clone().unwrap();
    let entry = fixture.pool.admit(stream, || false).unwrap();
    fixture.pool.queue(entry, Instant::now());
    let (pool, (sender, served)) = (Arc::clone(&fixture.pool), channel());
    thread::spawn(move || sender.send(pool.serve_next(MAX_WAIT, &()).is_some()));
    client.shake_hands(deadline).unwrap();
    client.send(GET, deadline).unwrap();
    assert!(client.read(&mut [0; 1024], deadline).unwrap() > 0);
    // Nothing fits in the socket any more, not even the end of TLS.
    while !matches!(server_side.write(&[0; 64 * 1024]), Err(error) if error.kind() == ErrorKind::WouldBlock) {}
    while !matches!(server_side.write(&[0]), Err(error) if error.kind() == ErrorKind::WouldBlock) {}
    fixture.pool.table.server.shutdown.begin(Instant::now() + HOUR);
    fixture.pool.table.wake_idle();
    assert_eq!(served.recv_timeout(MAX_WAIT), Ok(true), "the thread is free");
}

/// A socket that reports how each read waits: for which phase, and for how long at most.
struct ReportingSocket(TcpStream, Sender<(Phase, Duration)>);

impl Transport for ReportingSocket {
    fn read(&mut self, buffer: &mut [u8], wait: ReadWait) -> io::Result<Read> {
        let _ = self.1.send((wait.phase, wait.until.saturating_duration_since(Instant::now()))); // the test may have ended
        Ok(match self.0.read(buffer)? {
            0 => Read::End,
            count => Read::Bytes(count),
        })
    }

    fn read_now(&mut self, _: &mut [u8]) -> io::Result<Read> {
        Ok(Read::Empty)
    }

    fn is_evicted(&self) -> bool {
        false
    }

    fn leave(&mut self, _: &mut [u8]) {}

    fn write_some(&mut self, bytes: &[u8], _: bool, _: Option<Instant>) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.0.peer_addr().ok()
    }
}

/// Regression test: the time in the queue counted towards the timeout of the handshake, and then towards that of the first head too.
#[test]
fn the_time_in_a_queue_counts_once() {
    let authority = TestAuthority::new();
    let config =
        ServerConfig::default().head_timeout(HOUR * 2).first_byte_timeout(HOUR * 2).tls(authority.issue().server());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = client(TcpStream::connect(listener.local_addr().unwrap()).unwrap(), &authority);
    let (sender, reads) = channel();
    let mut socket = ReportingSocket(listener.accept().unwrap().0, sender);
    let serving = thread::spawn(move || {
        let server = ServerState::new(Arc::new(Echo), &config);
        drive(&mut socket, &server, &mut ThreadBuffers::new(), ago(HOUR))
    });
    let next = |expected| loop {
        let (phase, limit) = reads.recv_timeout(MAX_WAIT).unwrap();
        if phase == expected {
            return limit;
        }
    };
    let deadline = Instant::now() + MAX_WAIT;
    assert!(next(Phase::FirstByte) <= HOUR, "the time in the queue counts");
    client.shake_hands(deadline).unwrap();
    assert!(next(Phase::Head) <= HOUR, "it counts towards the handshake");
    next(Phase::FirstByte);
    client.send(b"GET / HTTP/1.1\r\n", deadline).unwrap();
    assert!(next(Phase::Head) > HOUR + HOUR / 2, "it counts once");
    client.send(b"Host: a\r\nConnection: close\r\n\r\n", deadline).unwrap();
    assert!(client.read(&mut [0; 1024], deadline).unwrap() > 0);
    serving.join().unwrap();
}
