//! `null_epoll`: one thread, edge-triggered `epoll(7)`, one `recv` into 64 KiB and one `send` for each readiness. The
//! limit of an event loop.
//!
//! Requests are counted, not read: one `send` has an answer for each head that has ended. With `requests_per_connection` 1,
//! the server closes a connection after its answer, without lingering; otherwise the client closes it. A connection above
//! `max_connections` is closed at once. `workers` must be 1. The timeouts and the limits on sizes are ignored.
//!
//! `null_deferred` is the same with `TCP_DEFER_ACCEPT`: a connection is accepted once its first request is there. So its first turn comes
//! before the registration, and a connection that closes after one answer is never registered.
//!
//! A shutdown closes all connections after the present round of events; answers that a client has not received are cut.
//!
//! Cost: one `epoll_wait` for each round of ready sockets; one `recvfrom` and `sendto` for each ready socket; one `accept4`,
//! `epoll_ctl` and `close` for each connection, and one more `accept4` for each burst of connections. A client that does not
//! read its answers at once costs more: the server keeps the answers, and reads nothing from this client until they are sent.
//!
//! *Wins when* its rate is the limit that a comparison needs. *Loses when* an answer depends on its request.

use std::io::{self, PipeReader, Write as _};
use std::net::TcpListener;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use polyserve::serving::net;
use polyserve::{ConfigError, Counters, Drain, ListenOn, Running, Server, ServerConfig, Service, Shape, Shutdown};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};

use super::answer::{Answers, Clock};
use super::heads::{Ends, Heads};
use super::validate;

/// The limit of an event loop. It ignores its service.
#[derive(Clone, Debug)]
pub(crate) struct NullEpoll {
    name: &'static str,
    config: ServerConfig,
}

impl NullEpoll {
    /// A server with the network settings and the `max_connections` of `config`. `requests_per_connection` must be 1 or `None`.
    pub(crate) fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        let name = "null_epoll";
        validate(name, &config)?;
        Ok(Self { name, config })
    }

    /// The same with deferred accept: `null_deferred`.
    pub(crate) fn deferred(config: ServerConfig) -> Result<Self, ConfigError> {
        let name = "null_deferred";
        validate(name, &config)?;
        Ok(Self { name, config: config.defer_accept(true) })
    }
}

impl Server for NullEpoll {
    fn shape(&self) -> Shape {
        Shape::Multiplexed
    }

    fn start(&self, on: ListenOn, _service: Arc<dyn Service>) -> io::Result<Running> {
        let listener = net::listen(on, &self.config)?;
        listener.set_nonblocking(true)?;
        let local_addr = listener.local_addr()?;
        let shutdown = Shutdown::new();
        let (wake, wakes) = io::pipe()?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN | EventFlags::ET)?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        let (clock, config) = (Clock::start(&shutdown)?, self.config.clone());
        shutdown.on_begin(move || {
            let _ = (&wakes).write(&[1]); // a pipe that is full wakes too
        });
        let main = move || Loop::new(epoll, listener, wake, clock, &config).run();
        let (grace, begun) = (self.config.drain_grace, shutdown.clone());
        let running = Running::start(self.name, local_addr, grace, begun, Counters::default, main);
        running.inspect_err(|_| shutdown.begin(Instant::now())) // the clock ends with it
    }
}

/// The data of an event: one of these, or else a connection's descriptor.
const LISTENER: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;

/// The events of a connection; and if it has answers that its client has not taken.
const READABLE: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);
const WRITABLE: EventFlags = READABLE.union(EventFlags::OUT);

/// The max number of bytes of one `recv`.
const INPUT_BYTES: usize = 64 * 1024;

/// The max number of events of one round.
const MAX_EVENTS: usize = 1024;

struct Loop {
    epoll: OwnedFd,
    listener: TcpListener,
    _wake: PipeReader,
    answers: Answers,
    ends: Ends,
    input: Box<[u8]>,
    /// By descriptor. The system assigns the lowest free descriptor, so the list is as long as the max of concurrent connections.
    connections: Vec<Option<EpollConnection>>,
    open: usize,
    max_connections: usize,
    /// A connection closes after one answer.
    once: bool,
    /// A request is there when its connection is accepted.
    is_deferred: bool,
    /// The system had no descriptor or memory left for the next connection.
    starved: bool,
    answered: u64,
}

struct EpollConnection {
    socket: OwnedFd,
    heads: Heads,
    /// The bytes of answers that are not sent yet. If the client reads its answers at once, this is empty, without memory.
    unsent: Vec<u8>,
}

/// How a turn of a connection ended.
#[derive(PartialEq, Eq)]
enum TurnOutcome {
    Wait,
    Close,
}

impl Loop {
    fn new(epoll: OwnedFd, listener: TcpListener, wake: PipeReader, clock: Clock, config: &ServerConfig) -> Self {
        let once = config.requests_per_connection == Some(1);
        Self {
            epoll,
            listener,
            _wake: wake,
            answers: Answers::new(once, clock),
            ends: Ends::new(),
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            connections: Vec::new(),
            open: 0,
            max_connections: config.max_connections,
            once,
            is_deferred: config.defer_accept,
            starved: false,
            answered: 0,
        }
    }

    fn run(mut self) -> Drain {
        let mut events: Vec<Event> = Vec::with_capacity(MAX_EVENTS);
        let mut ended = false;
        while !ended {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => panic!("epoll_wait failed: {error}"),
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    WAKE => ended = true,
                    socket => self.turn(socket, event.flags),
                }
            }
            if self.starved {
                self.accept();
            }
        }
        let open = self.connections.iter().flatten();
        let cut = open.map(|connection| self.answers.owed(connection.unsent.len())).sum();
        self.answers.end();
        Drain::new(self.answered, cut, 0)
    }

    /// Accepts all pending connections: an edge is reported once.
    fn accept(&mut self) {
        self.starved = false;
        loop {
            match accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) if self.open < self.max_connections => self.admit(socket),
                Ok(_) => {} // it is closed
                Err(Errno::AGAIN) => return,
                Err(error) if net::is_connection_error(&error.into()) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept");
                    self.starved = true; // tried again after the next round, which may have closed something
                    return;
                }
            }
        }
    }

    fn admit(&mut self, socket: OwnedFd) {
        let Ok(index) = usize::try_from(socket.as_raw_fd()) else { return };
        let descriptor = index as u64;
        let mut connection = EpollConnection { socket, heads: Heads::default(), unsent: Vec::new() };
        if self.is_deferred {
            let Self { epoll, answers, answered, .. } = self;
            let mut turn = ConnectionTurn { epoll, answers, answered, descriptor, is_watched: false };
            if turn.serve(&mut connection, &self.ends, &mut self.input, self.once) == TurnOutcome::Close {
                return;
            }
        }
        let flags = if connection.unsent.is_empty() { READABLE } else { WRITABLE };
        if let Err(error) = epoll::add(&self.epoll, &connection.socket, EventData::new_u64(descriptor), flags) {
            tracing::warn!(%error, "cannot watch a connection");
            return;
        }
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, || None);
        }
        self.connections[index] = Some(connection);
        self.open += 1;
    }

    fn turn(&mut self, descriptor: u64, flags: EventFlags) {
        let Ok(index) = usize::try_from(descriptor) else { return };
        let Some(Some(connection)) = self.connections.get_mut(index) else { return };
        let Self { epoll, answers, answered, .. } = self;
        let mut turn = ConnectionTurn { epoll, answers, answered, descriptor, is_watched: true };
        let outcome = turn.serve(connection, &self.ends, &mut self.input, self.once);
        let ended = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        // The bytes before the end have been read: the last read did not fill the buffer.
        if outcome == TurnOutcome::Close || (ended && connection.unsent.is_empty()) {
            self.connections[index] = None;
            self.open -= 1;
        }
    }
}

/// The parts of the loop that a connection's turn uses.
struct ConnectionTurn<'a> {
    epoll: &'a OwnedFd,
    answers: &'a mut Answers,
    answered: &'a mut u64,
    descriptor: u64,
    is_watched: bool,
}

impl ConnectionTurn<'_> {
    fn serve(&mut self, connection: &mut EpollConnection, ends: &Ends, input: &mut [u8], once: bool) -> TurnOutcome {
        if !connection.unsent.is_empty() {
            match self.flush(connection) {
                Ok(true) => {}
                Ok(false) => return TurnOutcome::Wait,
                Err(_) => return TurnOutcome::Close,
            }
        }
        loop {
            let count = match recv(&connection.socket, &mut *input, RecvFlags::empty()) {
                Ok((0, _)) => return TurnOutcome::Close,
                Ok((count, _)) => count,
                Err(Errno::AGAIN) => return TurnOutcome::Wait,
                Err(Errno::INTR) => continue,
                Err(_) => return TurnOutcome::Close,
            };
            let heads = ends.count(&mut connection.heads, &input[..count]);
            if heads > 0 {
                match self.answer(connection, if once { 1 } else { heads }) {
                    Ok(_) if once => return TurnOutcome::Close,
                    Ok(true) => {}
                    Ok(false) => return TurnOutcome::Wait,
                    Err(_) => return TurnOutcome::Close,
                }
            }
            // A read that did not fill the buffer has emptied the socket. Later bytes cause a new edge.
            if count < input.len() {
                return TurnOutcome::Wait;
            }
        }
    }

    /// Sends `count` answers, and keeps the unsent bytes. Returns true if all bytes were sent.
    fn answer(&mut self, connection: &mut EpollConnection, count: usize) -> Result<bool, Errno> {
        let bytes = self.answers.take(count);
        let sent = send_now(&connection.socket, bytes)?;
        if sent == bytes.len() {
            *self.answered += count as u64;
            return Ok(true);
        }
        connection.unsent = bytes[sent..].to_vec();
        *self.answered += count as u64 - self.answers.owed(connection.unsent.len());
        if self.is_watched {
            // From now on, the loop gets an event if the socket has room. If it has room already, the event comes at once.
            epoll::modify(self.epoll, &connection.socket, EventData::new_u64(self.descriptor), WRITABLE)?;
        }
        Ok(false)
    }

    /// Sends the kept bytes. Returns true if all were sent.
    #[cold]
    fn flush(&mut self, connection: &mut EpollConnection) -> Result<bool, Errno> {
        let owed = self.answers.owed(connection.unsent.len());
        let sent = send_now(&connection.socket, &connection.unsent)?;
        connection.unsent.drain(..sent);
        *self.answered += owed - self.answers.owed(connection.unsent.len());
        Ok(connection.unsent.is_empty())
    }
}

/// Sends without blocking. Returns the number of bytes that the socket accepted.
fn send_now(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    loop {
        match send(socket, bytes, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(0),
            sent => return sent,
        }
    }
}
