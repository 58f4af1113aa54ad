//! Closed connections that are still read from, so that the client reads the last answer and not a reset.
//!
//! The kernel resets a connection that is closed with unread bytes, and the reset may overtake the answer. So the writing
//! side is closed, and what comes is discarded until the client closes or the linger timeout has passed. It passes from the last byte
//! on, because a client may read its answer only after it has sent all of a body: see [`TimeLimit::Linger`]. Bytes that come slower than
//! those of a body may, or in a drain, change nothing.
//!
//! Bounded: [`MAX_LINGERING`] connections of a [`LingeringSet`] linger at once. The oldest is closed for a new one.
//!
//! A connection that is closed although it should linger, because too many do, has what has arrived [discarded](discard) first. So
//! its client reads the answer too, unless it goes on sending: bytes that come after the close are answered with a reset.
//!
//! Cost: a connection that is added, or rejected, costs a constant number of system calls. A [sweep](LingeringSet::sweep)
//! of n connections costs one `poll(2)` over them and at most n + 256 reads. The next one follows [`SWEEP_PAUSE`] later.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use super::{Connection, ServerState, Turn, net, wait, with_buffers};
use crate::http1::{Session, TimeLimit};

/// Max connections that linger at once. Up to this number, each rejected client can read its 503. Beyond it, a [`LingeringSet`]
/// closes the oldest, and a [`ConnectionTable`](crate::ConnectionTable) closes the new one: its client reads the 503 unless it goes
/// on sending.
pub const MAX_LINGERING: usize = 2048;

/// The time between two sweeps.
const SWEEP_PAUSE: Duration = Duration::from_millis(10);

/// The reads of one sweep, shared by the connections that have input. Each of them gets one at least.
const SWEEP_READS: usize = 256;

/// Buffers that are read from one connection at a time.
const MAX_READS: usize = 64;

/// Lingering connections. The set waits for nothing itself: its owner wakes at its [`deadline`](Self::deadline) and then
/// calls [`sweep`](Self::sweep).
#[derive(Debug)]
pub struct LingeringSet {
    /// In the order in which they began to linger.
    connections: VecDeque<LingeringStream>,
    server: Arc<ServerState>,
    next_sweep: Instant,
    ready: Vec<bool>,
}

/// A connection that lingers.
#[derive(Debug)]
struct LingeringStream {
    stream: TcpStream,
    wait: LingerWait,
}

impl LingeringSet {
    /// Creates an empty set. Its connections linger for the time that the configuration of `server` sets.
    pub fn new(server: Arc<ServerState>) -> Self {
        Self { connections: VecDeque::new(), server, next_sweep: Instant::now(), ready: Vec::new() }
    }

    /// Closes the writing side of `stream`, and lets it linger.
    pub fn add(&mut self, stream: TcpStream) {
        if net::end_output(&stream).is_ok() {
            self.push(stream);
        }
    }

    fn push(&mut self, stream: TcpStream) {
        let now = Instant::now();
        if self.connections.is_empty() {
            self.next_sweep = now + SWEEP_PAUSE;
        } else if self.connections.len() == MAX_LINGERING
            && let Some(oldest) = self.connections.pop_front()
        {
            discard(oldest.stream, &mut [0; 16 * 1024]);
        }
        self.connections.push_back(LingeringStream { stream, wait: LingerWait::new(now) });
    }

    /// Answers 503 on a new connection, and lets it linger. Counts the answer.
    pub fn reject(&mut self, stream: TcpStream, server: &ServerState) {
        if reject(server, &stream).is_ok() {
            self.push(stream);
        }
    }

    /// Discards the bytes that have arrived, and closes a connection if its client has closed or its time is up. Does
    /// nothing if the last sweep ended less than 10 ms ago.
    pub fn sweep(&mut self) {
        let now = Instant::now();
        if self.connections.is_empty() || now < self.next_sweep {
            return;
        }
        let sockets = self.connections.iter().map(|lingering| (lingering.stream.as_fd(), PollFlags::IN));
        if wait(sockets, Some(now), &mut self.ready).is_err() {
            self.ready.clear(); // no memory: the next sweep tries again
        }
        let mut buffer = [0; 16 * 1024];
        let count = self.ready.iter().filter(|is_ready| **is_ready).count();
        let reads = (SWEEP_READS / count.max(1)).clamp(1, MAX_READS);
        let mut ready = self.ready.iter();
        self.connections.retain_mut(|LingeringStream { stream, wait }| {
            let is_ready = ready.next().copied().unwrap_or(false);
            let (left, count) = match is_ready {
                true => discard_input(&*stream, &mut buffer, reads),
                false => (Discarded::Empty, 0),
            };
            wait.received(count, now, &self.server);
            lingers_on(left, now, wait.until(&self.server))
        });
        // Counted from the end of this sweep, so that sweeping does not take all of the thread's time.
        self.next_sweep = Instant::now() + SWEEP_PAUSE;
    }

    /// The time of the next sweep; `None` if no connection lingers.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.connections.is_empty()).then_some(self.next_sweep)
    }

    /// Whether no connection lingers.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// The number of connections that linger.
    pub fn len(&self) -> usize {
        self.connections.len()
    }

    /// Sweeps until no connection lingers, or the shutdown's deadline has passed. For the end of a drain.
    pub fn finish(&mut self, server: &ServerState) {
        while let Some(next) = self.deadline().filter(|_| !server.is_over()) {
            std::thread::park_timeout(server.within(next).saturating_duration_since(Instant::now()));
            self.sweep();
        }
    }
}

/// Rejects a new connection: answers 503, counts the answer, closes the writing side, and discards what has arrived. The connection
/// lingers next, or is closed if too many linger. Never blocks.
///
/// # Errors
///
/// Returns an error if the client is gone.
pub fn reject(server: &ServerState, socket: impl AsFd) -> io::Result<()> {
    with_buffers(|buffers| {
        // Only a hook needs the address of the client.
        let peer = server.http.on_answer.as_ref().and_then(|_| net::peer(&socket));
        let (mut connection, mut turn) = (Connection::new(Session::from_peer(peer)), Turn::new(server, buffers));
        let _ = connection.reject(&mut turn);
        let sent = net::send(&socket, connection.output(turn.buffers), true);
        connection.note_written(&mut turn, *sent.as_ref().unwrap_or(&0));
        let _ = connection.abandon(server);
        if connection.take_cut() {
            server.count_cut();
        }
        net::leave(&socket, &mut turn.buffers.input)?;
        sent.map(drop)
    })
}

/// Lets a connection linger on the calling thread: closes the writing side, and waits until the client closes or the linger
/// timeout has passed.
pub fn linger(stream: &TcpStream, server: &ServerState, buffer: &mut [u8]) {
    if net::end_output(stream).is_err() {
        return;
    }
    let (mut lingering, mut ready) = (LingerWait::new(Instant::now()), Vec::new());
    loop {
        let (left, count) = discard_input(stream, buffer, MAX_READS);
        let now = Instant::now();
        lingering.received(count, now, server);
        let until = server.within(lingering.until(server));
        let socket = (stream.as_fd(), PollFlags::IN);
        // An error of the wait: no memory.
        if !lingers_on(left, now, until) || wait([socket], Some(until), &mut ready).is_err() {
            return;
        }
    }
}

/// How long a closed connection lingers. What comes moves the end.
#[derive(Clone, Copy, Debug)]
pub struct LingerWait {
    begun: Instant,
    /// The time from `begun` to the last bytes that let the connection linger on.
    sent: Duration,
}

impl LingerWait {
    /// The wait of a connection that lingers from `begun` on.
    pub fn new(begun: Instant) -> Self {
        Self { begun, sent: Duration::ZERO }
    }

    /// Notes `count` bytes that came at once.
    pub fn received(&mut self, count: usize, now: Instant, server: &ServerState) {
        if extends_linger(count, server) {
            self.sent = now.saturating_duration_since(self.begun);
        }
    }

    /// The end of the wait.
    pub fn until(&self, server: &ServerState) -> Instant {
        self.begun + TimeLimit::Linger { sent: self.sent }.of(&server.config)
    }
}

/// Whether `count` bytes that came at once let a closed connection linger on: they are as many as a body has at least in the linger
/// timeout, and there is no drain. So a client that goes on with a body keeps its connection, and one that drips does not.
pub(crate) fn extends_linger(count: usize, server: &ServerState) -> bool {
    let least = server.config.linger_timeout.as_secs_f64() * f64::from(server.config.min_body_rate);
    count > 0 && count as f64 >= least && !server.shutdown.is_begun()
}

/// Whether a connection goes on lingering at `now`, after what had come was discarded.
pub(crate) fn lingers_on(left: Discarded, now: Instant, until: Instant) -> bool {
    left != Discarded::End && now < until
}

/// What is left after some input was discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discarded {
    /// Nothing more will come.
    End,
    /// Nothing for now.
    Empty,
    /// More has arrived, maybe. A poller that reports only changes does not report it.
    More,
}

/// Reads and discards up to 64 buffers, without waiting.
pub fn discard(stream: impl AsFd, buffer: &mut [u8]) -> Discarded {
    discard_input(stream, buffer, MAX_READS).0
}

/// Reads and discards up to `max` buffers. Returns the number of bytes too.
fn discard_input(stream: impl AsFd, buffer: &mut [u8], max: usize) -> (Discarded, usize) {
    let mut count: usize = 0;
    for _ in 0..max {
        match net::receive(&stream, buffer) {
            Ok(0) => return (Discarded::End, count),
            Ok(more) => count = count.saturating_add(more),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return (Discarded::Empty, count),
            Err(_) => return (Discarded::End, count),
        }
    }
    (Discarded::More, count)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use polyserve_core::{Echo, ServerConfig};

    use super::*;

    /// Regression test: at most 256 connections lingered at a time. If more clients were rejected at once, the first
    /// were reset before they read their 503.
    #[test]
    fn more_than_a_thousand_rejected_clients_read_their_503() {
        const CLIENTS: usize = 1100;
        let server = patient_server();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut lingering = LingeringSet::new(Arc::clone(&server));
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            lingering.reject(listener.accept().unwrap().0, &server);
            clients.push(client);
        }
        assert_eq!(lingering.len(), CLIENTS);
        for mut client in clients {
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After"), "{answer}");
        }
        server.shutdown.begin(Instant::now() + Duration::from_secs(60));
        lingering.finish(&server);
        assert!(lingering.is_empty());
        assert_eq!(server.drained(0).answered, CLIENTS as u64);
    }

    /// Regression test: every rejection read from every lingering socket.
    #[test]
    fn a_rejection_does_not_sweep() {
        let server = patient_server();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut lingering = LingeringSet::new(Arc::clone(&server));
        let clients: Vec<_> = (0..3)
            .map(|_| {
                let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                lingering.reject(listener.accept().unwrap().0, &server);
                client
            })
            .collect();
        let next = lingering.deadline();
        drop(clients);
        lingering.reject(accepted(&listener).0, &server);
        assert_eq!(
            (lingering.len(), lingering.deadline()),
            (4, next),
            "only a sweep forgets the clients that have gone"
        );
        lingering.next_sweep = Instant::now() + Duration::from_secs(60);
        lingering.sweep();
        assert_eq!(lingering.len(), 4, "a sweep that is not due does nothing");
    }

    /// A server of which connections linger for a minute.
    fn patient_server() -> Arc<ServerState> {
        let config = ServerConfig::default().linger_timeout(Duration::from_secs(60));
        Arc::new(ServerState::new(Arc::new(Echo), &config))
    }

    fn accepted(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, client)
    }
}
