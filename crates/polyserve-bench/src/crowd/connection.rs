//! One place of a crowd: a connection, those that take its place after it, and what they send.
//!
//! Invariant: a connection is closed by a reset, so that its port is free at once; it keeps at most
//! [`MAX_KEPT_BYTES`] bytes of its answers. Cost: a task, and a system call for each turn.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::select;
use tokio::time::{Interval, MissedTickBehavior, interval_at};

use super::{CrowdKind, CrowdShared, Event};

/// The steps of each connection: `first` at once, then one step at each turn.
#[derive(Clone, Debug)]
pub(super) struct ConnectionSteps {
    /// The bytes that are sent once the connection is open.
    pub(super) first: Vec<u8>,
    /// The steps that follow.
    pub(super) then: Then,
}

/// The step of a connection at its turn.
#[derive(Clone, Debug)]
pub(super) enum Then {
    /// No turns. The connection waits for an answer with status 200 that ends with these bytes, and stays idle.
    Idle(Vec<u8>),
    /// Sends the next byte of this text at each turn. After the end of the text, sends its last byte again.
    Write(Vec<u8>),
    /// Reads a few bytes.
    Read,
}

/// The ids of the small entity, and of the large entity for slow readers.
pub(crate) const SMALL_ID: i64 = 0;
pub(crate) const LARGE_ID: i64 = 1;

/// The number of requests that a slow reader pipelines.
const PIPELINED_REQUESTS: usize = 16;

/// The content length of a body that never ends, in bytes.
const CONTENT_LENGTH: usize = 60_000;

impl ConnectionSteps {
    /// The steps of `kind` for `host`. The answer to an idle connection ends with `body`.
    pub(super) fn of(kind: CrowdKind, host: &str, body: &str) -> Self {
        let get = |id| format!("GET /{id} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let (first, then) = match kind {
            CrowdKind::Idle => (get(SMALL_ID), Then::Idle(body.into())),
            CrowdKind::SlowHeads => {
                let rest = format!("ET /{SMALL_ID} HTTP/1.1\r\nHost: {host}\r\nX-Slow: a");
                ("G".into(), Then::Write(rest.into()))
            }
            CrowdKind::SlowBodies => {
                let fields =
                    format!("Host: {host}\r\nContent-Type: application/json\r\nContent-Length: {CONTENT_LENGTH}");
                (format!("PUT /{SMALL_ID} HTTP/1.1\r\n{fields}\r\n\r\n"), Then::Write(b"{ ".to_vec()))
            }
            CrowdKind::SlowReaders => (get(LARGE_ID).repeat(PIPELINED_REQUESTS), Then::Read),
        };
        Self { first: first.into_bytes(), then }
    }
}

/// How a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionEnd {
    /// Answered 503.
    Refused,
    /// Answered 408.
    TimedOut,
    /// Closed by the server without an answer, or with another status.
    Cut,
    /// Closed by the crowd, to be opened again.
    Left,
    /// The connection was never established.
    Unreachable,
}

/// The max number of bytes that are kept of the answers.
const MAX_KEPT_BYTES: usize = 512;

/// The max bytes that a slow reader reads in a turn, and the size of its receive buffer. The system may use a larger buffer.
const READ_SIZE: usize = 16;
const RECEIVE_BUFFER_SIZE: usize = 4096;

/// The max segment size of a slow reader, as on an Ethernet. With the loopback's 64 KiB the system would buffer megabytes for
/// each connection, and the server would not notice that the client does not read.
const MAX_SEGMENT_SIZE: u32 = 1460;

/// Opens the connections of a place, one after the other. An idle connection is opened once. Others are opened again at the turn
/// after their end.
pub(super) async fn hold(shared: &CrowdShared, place: usize) {
    let mut turns = turns(shared.plan.interval, place, shared.plan.connections);
    loop {
        let end = connect_and_stay(shared, place, &mut turns).await;
        shared.note(place, Event::Ended(end));
        if matches!(shared.steps.then, Then::Idle(_)) {
            return;
        }
        turns.tick().await;
    }
}

/// The turns of a place. The turns of all places are spread evenly over the interval; late turns are skipped.
fn turns(interval: Duration, place: usize, places: usize) -> Interval {
    let own = interval.mul_f64((place + 1) as f64 / places as f64);
    let mut turns = interval_at(tokio::time::Instant::now() + own, interval.max(Duration::from_millis(1)));
    turns.set_missed_tick_behavior(MissedTickBehavior::Skip);
    turns
}

async fn connect_and_stay(shared: &CrowdShared, place: usize, turns: &mut Interval) -> ConnectionEnd {
    // Held until the connection has begun. The semaphore is never closed.
    let opening = shared.opening.acquire().await;
    shared.note(place, Event::Opened);
    let connected = match socket(shared, place) {
        Ok(socket) => socket.connect(shared.plan.target).await,
        Err(error) => Err(error),
    };
    let stream = match connected {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, "a connection of the crowd cannot be opened");
            return ConnectionEnd::Unreachable;
        }
    };
    let mut connection = CrowdConnection { stream, received: Vec::new() };
    // A send buffer holds more than the first bytes. An error means that the server has closed already.
    if connection.stream.write_all(&shared.steps.first).await.is_err() {
        return connection.closed().await;
    }
    let begin = || {
        drop(opening);
        shared.note(place, Event::Begun);
        Instant::now()
    };
    match &shared.steps.then {
        Then::Idle(body) => connection.idle(body, begin).await,
        Then::Write(text) => {
            begin();
            connection.write(text, turns).await
        }
        Then::Read => {
            // The first bytes of an answer: the server has accepted the connection.
            if connection.stream.readable().await.is_err() {
                return connection.closed().await;
            }
            let begun = begin();
            let is_over = || shared.plan.stay.is_some_and(|stay| begun.elapsed() >= stay);
            connection.read(turns, is_over).await
        }
    }
}

/// A socket for a place, which is not connected yet.
fn socket(shared: &CrowdShared, place: usize) -> io::Result<TcpSocket> {
    let target = shared.plan.target;
    let socket = Socket::new(Domain::for_address(target), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_linger(Some(Duration::ZERO))?;
    socket.set_tcp_nodelay(true)?;
    if matches!(shared.steps.then, Then::Read) {
        socket.set_recv_buffer_size(RECEIVE_BUFFER_SIZE)?;
        socket.set_tcp_mss(MAX_SEGMENT_SIZE)?;
    }
    if let Some(source) = source(place / shared.plan.ports.max(1), target.ip()) {
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    Ok(TcpSocket::from_std_stream(socket.into()))
}

/// The `nth` source address; the loopback has many. `None` is the default address.
fn source(nth: usize, target: IpAddr) -> Option<IpAddr> {
    match target {
        IpAddr::V4(target) if target.is_loopback() && nth > 0 => {
            let first = u32::from(Ipv4Addr::LOCALHOST);
            Some(Ipv4Addr::from(first + u32::try_from(nth).ok().filter(|nth| *nth < 1 << 16)?).into())
        }
        _ => None,
    }
}

/// An open connection.
struct CrowdConnection {
    stream: TcpStream,
    /// The received bytes, at most [`MAX_KEPT_BYTES`].
    received: Vec<u8>,
}

impl CrowdConnection {
    /// Waits for an answer with status 200 that ends with `body`, then for the end.
    async fn idle(&mut self, body: &[u8], begin: impl FnOnce() -> Instant) -> ConnectionEnd {
        let mut begin = Some(begin);
        while self.receive::<MAX_KEPT_BYTES>().await {
            if status(&self.received) == Some(200)
                && self.received.ends_with(body)
                && let Some(begin) = begin.take()
            {
                begin();
                self.received = Vec::new();
            }
        }
        self.end()
    }

    /// Sends a byte of `text` at each turn, and its last byte again after its end.
    async fn write(&mut self, text: &[u8], turns: &mut Interval) -> ConnectionEnd {
        let mut next = 0;
        loop {
            select! {
                is_open = self.receive::<MAX_KEPT_BYTES>() => if !is_open {
                    return self.end();
                },
                _ = turns.tick() => match self.stream.try_write(&text[next..=next]) {
                    Ok(sent) => next = (next + sent).min(text.len() - 1),
                    Err(error) if is_temporary(&error) => {}
                    Err(_) => return self.closed().await,
                },
            }
        }
    }

    /// Reads a few bytes at each turn, until the connection stays no longer.
    async fn read(&mut self, turns: &mut Interval, is_over: impl Fn() -> bool) -> ConnectionEnd {
        loop {
            turns.tick().await;
            if is_over() {
                return ConnectionEnd::Left;
            }
            let mut bytes = [0; READ_SIZE];
            match self.stream.try_read(&mut bytes) {
                Ok(0) => return self.end(),
                Ok(count) => self.keep(&bytes[..count]),
                Err(error) if is_temporary(&error) => {}
                Err(_) => return self.end(),
            }
        }
    }

    /// Receives bytes. Returns false at the end. It may be dropped while it waits.
    async fn receive<const SIZE: usize>(&mut self) -> bool {
        let mut bytes = [0; SIZE];
        let count = self.stream.read(&mut bytes).await.unwrap_or(0);
        self.keep(&bytes[..count]);
        count > 0
    }

    /// Reads the last bytes of a server that has closed.
    async fn closed(&mut self) -> ConnectionEnd {
        while self.received.len() < READ_SIZE && self.receive::<READ_SIZE>().await {}
        self.end()
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(&bytes[..bytes.len().min(MAX_KEPT_BYTES.saturating_sub(self.received.len()))]);
    }

    fn end(&self) -> ConnectionEnd {
        match status(&self.received) {
            Some(503) => ConnectionEnd::Refused,
            Some(408) => ConnectionEnd::TimedOut,
            _ => ConnectionEnd::Cut,
        }
    }
}

fn status(received: &[u8]) -> Option<u16> {
    let digits = received.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns true if the call may be repeated.
fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses() {
        for (received, number) in [
            (&b"HTTP/1.1 503 Service Unavailable\r\n"[..], Some(503)),
            (b"HTTP/1.1 408", Some(408)),
            (b"HTTP/1.1 40", None),
            (b"HTTP/1.0 200 OK", None),
            (b"", None),
        ] {
            assert_eq!(status(received), number);
        }
    }
}
