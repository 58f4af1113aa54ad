//! `null_uring`: one thread, one `io_uring(7)`. It accepts and receives by operations that go on, into buffers that the kernel selects,
//! and sends through the ring. The limit of an event loop on io_uring.
//!
//! Requests are counted, not read: one send has an answer for each head that has ended since the last send, so a connection has at most
//! one send in flight. The other rules are those of [`NullEpoll`](super::NullEpoll): `requests_per_connection`, `max_connections`,
//! `workers`, and what a shutdown does.
//!
//! Where the kernel lacks or forbids io_uring, it cannot be made, and the error says why.
//!
//! Cost: one `io_uring_enter` for each round of completions, and a `close` for each connection. A client that does not read its answers
//! costs a count of them.
//!
//! *Wins when* its rate is the limit that a comparison needs. *Loses when* an answer depends on its request.

use std::io::{self, PipeReader, Write as _};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use polyserve::percore::IoUring;
use polyserve::serving::net;
use polyserve::{ConfigError, Counters, Drain, ListenOn, Running, Server, ServerConfig, Service, Shape, Shutdown};
use polyserve_sys::ring::{Completion, ReceivedBytes, Ring, RingOperation, RingResult, SocketKey};

use super::answer::{Answers, Clock};
use super::heads::{Ends, Heads};
use super::validate;

/// The limit of an event loop on io_uring. It ignores its service.
#[derive(Clone, Debug)]
pub(crate) struct NullUring {
    config: ServerConfig,
}

impl NullUring {
    /// A server with the network settings and the `max_connections` of `config`. `requests_per_connection` must be 1 or `None`.
    pub(crate) fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        validate("null_uring", &config)?;
        let allowed = |error| format!("a server that the system allows: {error}");
        IoUring::check().map_err(|error| ConfigError::new("server", "null_uring", allowed(error)))?;
        Ok(Self { config })
    }
}

impl Server for NullUring {
    fn shape(&self) -> Shape {
        Shape::Multiplexed
    }

    fn start(&self, on: ListenOn, _service: Arc<dyn Service>) -> io::Result<Running> {
        let listener = net::listen(on, &self.config)?;
        listener.set_nonblocking(true)?;
        let local_addr = listener.local_addr()?;
        let shutdown = Shutdown::new();
        let (wake, wakes) = io::pipe()?;
        let clock = Clock::start(&shutdown)?;
        shutdown.on_begin(move || {
            let _ = (&wakes).write(&[1]); // a pipe that is full wakes too
        });
        // Only the thread that makes a ring may use it.
        let (config, (report, reports)) = (self.config.clone(), mpsc::channel());
        let main = move || {
            let made = UringLoop::new(listener, wake, clock, &config);
            let _ =
                report.send(made.as_ref().map(|_| ()).map_err(|error| io::Error::new(error.kind(), error.to_string())));
            made.map_or_else(|_| Drain::default(), UringLoop::run)
        };
        let running = Running::start(
            "null_uring",
            local_addr,
            self.config.drain_grace,
            shutdown.clone(),
            Counters::default,
            main,
        );
        let running = running.and_then(|running| {
            reports.recv().unwrap_or_else(|_| Err(io::Error::other("the thread of null_uring has panicked")))?;
            Ok(running)
        });
        running.inspect_err(|_| shutdown.begin(Instant::now())) // the clock ends with it
    }
}

/// The tag of a completion: one of these, or the place of a connection.
const LISTENER: usize = usize::MAX;
const WAKE: usize = usize::MAX - 1;

/// The number of buffers, and their size in bytes.
const BUFFERS: u16 = 1024;
const BUFFER_SIZE: u32 = 4096;

/// The max number of answers of one send.
const MAX_ANSWERS: usize = 1024;

struct UringLoop {
    ring: Ring<RingSocket>,
    listener: SocketKey,
    answers: Answers,
    ends: Ends,
    connections: Vec<Option<UringConnection>>,
    free: Vec<usize>,
    max_connections: usize,
    /// A connection closes after one answer.
    once: bool,
    answered: u64,
}

enum RingSocket {
    Listener(TcpListener),
    Wake(PipeReader),
    Connection(OwnedFd),
}

impl AsFd for RingSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Listener(listener) => listener.as_fd(),
            Self::Wake(wake) => wake.as_fd(),
            Self::Connection(socket) => socket.as_fd(),
        }
    }
}

struct UringConnection {
    key: SocketKey,
    heads: Heads,
    /// The answers that no send has taken.
    owed: usize,
    /// The bytes of the send in flight that are not sent yet.
    unsent: usize,
    /// The client sends no more.
    has_ended: bool,
}

impl UringLoop {
    fn new(listener: TcpListener, wake: PipeReader, clock: Clock, config: &ServerConfig) -> io::Result<Self> {
        let once = config.requests_per_connection == Some(1);
        let answers = Answers::new(once, clock);
        let mut ring = Ring::new(BUFFERS, BUFFER_SIZE)?;
        let wake = ring.add(RingSocket::Wake(wake), WAKE);
        ring.arm(wake, RingOperation::AwaitInput);
        let listener = ring.add(RingSocket::Listener(listener), LISTENER);
        ring.arm(listener, RingOperation::Accept);
        Ok(Self {
            ring,
            listener,
            answers,
            ends: Ends::new(),
            connections: Vec::new(),
            free: Vec::new(),
            max_connections: config.max_connections,
            once,
            answered: 0,
        })
    }

    fn run(mut self) -> Drain {
        let (mut completions, mut ended) = (Vec::new(), false);
        while !ended {
            if let Err(error) = self.ring.enter(true, None) {
                panic!("io_uring_enter failed: {error}");
            }
            self.ring.completions(&mut completions);
            // If accepting has failed in an earlier round, something may have been closed since.
            self.ring.arm(self.listener, RingOperation::Accept);
            for completion in completions.drain(..) {
                ended |= completion.tag == WAKE;
                self.note(completion);
            }
        }
        let open = self.connections.iter().flatten();
        let cut = open.map(|connection| connection.owed as u64 + self.answers.owed(connection.unsent)).sum();
        self.ring.end();
        self.answers.end();
        Drain::new(self.answered, cut, 0)
    }

    fn note(&mut self, completion: Completion) {
        let Completion { tag, outcome, is_last } = completion;
        match outcome {
            RingResult::Accepted(socket) => self.admit(socket),
            RingResult::Received(bytes) => self.received(tag, bytes, is_last),
            RingResult::Sent(count) => self.sent(tag, count),
            RingResult::Ended => self.ended(tag),
            RingResult::Failed(RingOperation::Accept, error) => {
                if !net::is_connection_error(&error) {
                    tracing::warn!(%error, "cannot accept");
                }
            }
            RingResult::Failed(RingOperation::Receive, error) if is_without_buffers(&error) => self.receive(tag),
            RingResult::Failed(..) => self.close(tag),
            RingResult::Ready => {}
        }
    }

    fn admit(&mut self, socket: OwnedFd) {
        if self.connections.len() - self.free.len() >= self.max_connections {
            return; // it is closed
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let key = self.ring.add(RingSocket::Connection(socket), place);
        self.connections[place] =
            Some(UringConnection { key, heads: Heads::default(), owed: 0, unsent: 0, has_ended: false });
        self.ring.arm(key, RingOperation::Receive);
    }

    fn received(&mut self, place: usize, bytes: ReceivedBytes, is_last: bool) {
        if let Some(Some(connection)) = self.connections.get_mut(place) {
            let heads = self.ends.count(&mut connection.heads, self.ring.bytes(&bytes));
            connection.owed = if self.once { (connection.owed + heads).min(1) } else { connection.owed + heads };
        }
        self.ring.release(bytes);
        if is_last {
            self.receive(place);
        }
        self.answer(place);
    }

    fn receive(&mut self, place: usize) {
        if let Some(Some(connection)) = self.connections.get(place) {
            self.ring.arm(connection.key, RingOperation::Receive);
        }
    }

    /// Sends the answers that are owed, unless a send is in flight.
    fn answer(&mut self, place: usize) {
        let Some(Some(connection)) = self.connections.get_mut(place) else { return };
        if connection.owed > 0 && connection.unsent == 0 {
            let count = connection.owed.min(MAX_ANSWERS);
            let (bytes, length) = self.answers.share(count);
            (connection.owed, connection.unsent) = (connection.owed - count, length);
            self.ring.send(connection.key, bytes, 0..length, self.once);
        }
    }

    fn sent(&mut self, place: usize, count: usize) {
        let Some(Some(connection)) = self.connections.get_mut(place) else { return };
        let owed = self.answers.owed(connection.unsent);
        connection.unsent = connection.unsent.saturating_sub(count);
        self.answered += owed - self.answers.owed(connection.unsent);
        if connection.unsent > 0 {
            // All copies are alike, so the last ones of another series have the same bytes, but for a new second.
            let (bytes, length) = self.answers.share(MAX_ANSWERS);
            self.ring.send(connection.key, bytes, length - connection.unsent..length, self.once);
        } else if self.once || (connection.has_ended && connection.owed == 0) {
            self.close(place);
        } else {
            self.answer(place);
        }
    }

    fn ended(&mut self, place: usize) {
        let Some(Some(connection)) = self.connections.get_mut(place) else { return };
        connection.has_ended = true;
        if connection.unsent == 0 && connection.owed == 0 {
            self.close(place);
        }
    }

    fn close(&mut self, place: usize) {
        if let Some(connection) = self.connections.get_mut(place).and_then(Option::take) {
            self.ring.remove(connection.key);
            self.free.push(place);
        }
    }
}

/// All buffers were in use. They are free once the round's completions were looked at.
fn is_without_buffers(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error())
}
