//! `null_epoll`: one thread, edge-triggered `epoll(7)`, one `recv` into 64 KiB and one `send` for each readiness. The
//! limit of an event loop.
//!
//! Requests are counted, not read: as many heads as have ended, as many answers leave in one `send`. With
//! `requests_per_connection` 1 a connection is closed after its one answer, without lingering; otherwise when the client
//! closes it. Beyond `max_connections` a connection is closed at once. `workers` is 1, the timeouts and the limits on
//! sizes are not looked at. A shutdown closes what is open after the present round of events; answers that a client had
//! not taken by then are cut.
//!
//! Cost: `epoll_wait` for a round of readinesses, `recvfrom` and `sendto` for each; `accept4`, one `epoll_ctl` and
//! `close` for a connection, and one more `accept4` for each burst of connections. Only a client that does not take its
//! answers at once costs more: they are kept, and nothing is read from it, until it does.
//!
//! *Wins when* it is the limit that is asked for. *Loses when* an answer is to depend on its request.

use std::io::{self, PipeReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use polyserve::{ConfigError, Connections, Drain, Running, Server, ServerConfig, Service, Shutdown, net};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};

use super::answer::{Answers, Clock};
use super::heads::{Ends, Heads};
use super::validate;

/// The limit of an event loop. It ignores its service.
#[derive(Clone, Debug)]
pub struct NullEpoll {
    config: ServerConfig,
}

impl NullEpoll {
    /// One that honours the address's side of `config`, its `max_connections`, and 0 or 1 `requests_per_connection`.
    ///
    /// # Errors
    ///
    /// Where a limit is none, more than one worker is asked for, or another number of requests.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        validate("null_epoll", &config)?;
        Ok(Self { config })
    }
}

impl Server for NullEpoll {
    fn connections(&self) -> Connections {
        Connections::Multiplexed
    }

    fn serve(&self, addr: SocketAddr, _service: Arc<dyn Service>) -> io::Result<Running> {
        let listener = net::listen(addr, &self.config)?;
        listener.set_nonblocking(true)?;
        let local_addr = listener.local_addr()?;
        let shutdown = Shutdown::new();
        let (wake, wakes) = io::pipe()?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN | EventFlags::ET)?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        let answers = Answers::new(self.config.requests_per_connection == 1, Clock::start(&shutdown)?);
        let events = Loop::new(epoll, listener, wake, answers, &self.config);
        shutdown.on_begin(move || {
            let _ = (&wakes).write(&[1]); // a pipe that is full wakes too
        });
        let running =
            Running::start("null_epoll", local_addr, self.config.drain_grace, shutdown.clone(), || events.run());
        running.inspect_err(|_| shutdown.begin(Instant::now())) // the clock ends with it
    }
}

/// What an event is about: these, or else a connection's descriptor.
const LISTENER: u64 = u64::MAX;
const WAKE: u64 = u64::MAX - 1;

/// Bytes that one `recv` may bring.
const INPUT: usize = 64 * 1024;

/// Readinesses of one round.
const ROUND: usize = 1024;

struct Loop {
    epoll: OwnedFd,
    listener: TcpListener,
    _wake: PipeReader,
    answers: Answers,
    ends: Ends,
    input: Box<[u8]>,
    /// By descriptor: the system gives the lowest that is free, so the list is as long as there are open at once.
    connections: Vec<Option<Connection>>,
    open: usize,
    max_connections: usize,
    /// A connection closes after one answer.
    once: bool,
    /// The system had no descriptor or memory left for the next connection.
    starved: bool,
    answered: u64,
}

struct Connection {
    socket: OwnedFd,
    heads: Heads,
    /// Answers that the client has not taken yet: empty, and without memory, for one that does.
    unsent: Vec<u8>,
}

/// How a turn of a connection ended.
#[derive(PartialEq, Eq)]
enum Turn {
    Wait,
    Close,
}

impl Loop {
    fn new(epoll: OwnedFd, listener: TcpListener, wake: PipeReader, answers: Answers, config: &ServerConfig) -> Self {
        Self {
            epoll,
            listener,
            _wake: wake,
            answers,
            ends: Ends::new(),
            input: vec![0; INPUT].into_boxed_slice(),
            connections: Vec::new(),
            open: 0,
            max_connections: config.max_connections,
            once: config.requests_per_connection == 1,
            starved: false,
            answered: 0,
        }
    }

    fn run(mut self) -> Drain {
        let mut events: Vec<Event> = Vec::with_capacity(ROUND);
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
        Drain { answered: self.answered, cut, stuck: 0 }
    }

    /// Accepts all that wait: an edge is told once.
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
        let Ok(name) = usize::try_from(socket.as_raw_fd()) else { return };
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        if let Err(error) = epoll::add(&self.epoll, &socket, EventData::new_u64(name as u64), flags) {
            tracing::warn!(%error, "cannot watch a connection");
            return;
        }
        if self.connections.len() <= name {
            self.connections.resize_with(name + 1, || None);
        }
        self.connections[name] = Some(Connection { socket, heads: Heads::default(), unsent: Vec::new() });
        self.open += 1;
    }

    fn turn(&mut self, name: u64, flags: EventFlags) {
        let Ok(index) = usize::try_from(name) else { return };
        let Some(Some(connection)) = self.connections.get_mut(index) else { return };
        let mut desk = Desk { epoll: &self.epoll, answers: &mut self.answers, answered: &mut self.answered, name };
        let turn = desk.serve(connection, &self.ends, &mut self.input, self.once);
        let ended = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        // What came with the end has been read: the buffer was not full, or it was read again.
        if turn == Turn::Close || (ended && connection.unsent.is_empty()) {
            self.connections[index] = None;
            self.open -= 1;
        }
    }
}

/// What a connection's turn uses of the loop.
struct Desk<'a> {
    epoll: &'a OwnedFd,
    answers: &'a mut Answers,
    answered: &'a mut u64,
    name: u64,
}

impl Desk<'_> {
    fn serve(&mut self, connection: &mut Connection, ends: &Ends, input: &mut [u8], once: bool) -> Turn {
        if !connection.unsent.is_empty() {
            match self.flush(connection) {
                Ok(true) => {}
                Ok(false) => return Turn::Wait,
                Err(_) => return Turn::Close,
            }
        }
        loop {
            let count = match recv(&connection.socket, &mut *input, RecvFlags::empty()) {
                Ok((0, _)) => return Turn::Close,
                Ok((count, _)) => count,
                Err(Errno::AGAIN) => return Turn::Wait,
                Err(Errno::INTR) => continue,
                Err(_) => return Turn::Close,
            };
            let heads = ends.count(&mut connection.heads, &input[..count]);
            if heads > 0 {
                match self.answer(connection, if once { 1 } else { heads }) {
                    Ok(_) if once => return Turn::Close,
                    Ok(true) => {}
                    Ok(false) => return Turn::Wait,
                    Err(_) => return Turn::Close,
                }
            }
            // A read that did not fill the buffer has emptied the socket; what comes later is a new edge.
            if count < input.len() {
                return Turn::Wait;
            }
        }
    }

    /// Sends `count` answers; whether all have left. The rest is kept.
    fn answer(&mut self, connection: &mut Connection, count: usize) -> Result<bool, Errno> {
        let bytes = self.answers.take(count);
        let sent = send_now(&connection.socket, bytes)?;
        if sent == bytes.len() {
            *self.answered += count as u64;
            return Ok(true);
        }
        connection.unsent = bytes[sent..].to_vec();
        *self.answered += count as u64 - self.answers.owed(connection.unsent.len());
        // From now on it is told when there is room again. Room that came just now is told at once.
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::modify(self.epoll, &connection.socket, EventData::new_u64(self.name), flags)?;
        Ok(false)
    }

    /// Sends what is kept; whether all has left.
    #[cold]
    fn flush(&mut self, connection: &mut Connection) -> Result<bool, Errno> {
        let owed = self.answers.owed(connection.unsent.len());
        let sent = send_now(&connection.socket, &connection.unsent)?;
        connection.unsent.drain(..sent);
        *self.answered += owed - self.answers.owed(connection.unsent.len());
        Ok(connection.unsent.is_empty())
    }
}

/// How many bytes the socket takes at once.
fn send_now(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    loop {
        match send(socket, bytes, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(0),
            sent => return sent,
        }
    }
}
