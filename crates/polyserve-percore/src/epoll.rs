//! `epoll`: one thread for each core, with its own listener and its own `epoll(7)`. A thread serves the connections that it has accepted.
//!
//! ```text
//!   epoll_wait ──► each ready connection has a turn: read all, call the service, answer all with one write
//!       ▲          then the connections that others have woken, that are new, and that have yielded
//!       └──────────────┘
//!   main thread: deadlines and shutdown of all connections
//! ```
//!
//! The first turn of a connection comes before it is registered: usually its first request has arrived when it is accepted. So a
//! connection that is answered and closed at once is never registered.
//!
//! Invariants:
//!
//! * A connection is served by one thread: the one that accepted it, or with `spread` the one with the fewest connections. It has at most
//!   one turn in each round of the loop.
//! * Sockets are watched at the edge. A read that did not fill the buffer has emptied the socket, unless its end was reported: bytes
//!   that come later cause an edge. So a request costs one read.
//! * A connection that waits has no buffer, unless its client is late with a request or with reading an answer.
//!
//! Cost: for a request on a kept connection a read, a write, and its share of one `epoll_wait`; for a connection an accept, a close, an
//! allocation, and a registration unless it closes before it has to wait. A deferred answer costs a wake-up of the loop, which is one
//! write for all answers that arrive together.
//!
//! Source: `SO_REUSEPORT` as in `socket(7)`; the loop is that of nginx and of libreactor.
//!
//! *Wins when* requests are short, because no task, queue or lock is between a socket and its answer. *Loses when* connections are few,
//! because the kernel may give most of them to one core, unless `spread` is set; and if a service blocks inside `call`, because every
//! connection of that core waits. Records: `percore`, `percore-hold`.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use polyserve_core::{ConfigError, ListenOn, Running, Server, ServerConfig, Service, Shape, Supports};
use polyserve_serving::{
    Connection, ConnectionTable, EventListener, TableEntry, ThreadBuffers, TurnEnd, TurnSocket, WokenList, WriteKind,
    net,
};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

use crate::loop_socket::{AnswerWaker, LoopSocket};
use crate::slots::Slots;
use crate::spread::{GIVEN, LoopShare, NewConnection};
use crate::threads::{self, EventLoop, LISTENER, MAX_ACCEPTED, WAKE};

/// A server with an `epoll(7)` loop for each core.
///
/// ```
/// use polyserve_core::{Reply, Request, ServerConfig, ServerExt};
/// use polyserve_percore::Epoll;
///
/// let server = Epoll::new(ServerConfig::default().workers(1))?;
/// let running = server.serve("127.0.0.1:0", |_: Request<'_>| Reply::text("hello"))?;
/// assert_eq!(running.shutdown()?.answered, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Epoll {
    config: ServerConfig,
}

const SUPPORTS: Supports = Supports::new("epoll").loops();

impl Epoll {
    /// A server within the limits of `config`. `workers` is the number of its threads, by default the number of available cores.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        SUPPORTS.check(&config)?;
        Ok(Self { config })
    }
}

impl Server for Epoll {
    fn shape(&self) -> Shape {
        Shape::Multiplexed
    }

    fn start(&self, on: ListenOn, service: Arc<dyn Service>) -> io::Result<Running> {
        threads::start::<EpollLoop>("epoll", on, &self.config, service)
    }
}

/// The max number of events of one round.
const MAX_EVENTS: usize = 1024;

/// The events of a connection that waits for bytes.
const READABLE: EventFlags = EventFlags::IN.union(EventFlags::RDHUP).union(EventFlags::ET);

/// The events of a client that has been slow to read.
const WRITABLE: EventFlags = READABLE.union(EventFlags::OUT);

/// The input of the socket has ended, or the connection is lost.
const ENDED: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

/// The loop of a thread.
struct EpollLoop {
    table: Arc<ConnectionTable<LoopSocket>>,
    share: LoopShare,
    acceptor: EventListener,
    epoll: OwnedFd,
    /// The connections that have been woken for an answer, a deadline or a shutdown.
    woken: WokenList,
    clients: Slots<EpollClient>,
    /// The connections that have yielded.
    yielded: Vec<usize>,
    /// When the last wait has ended, and since when what it has reported was ready. Noted for an overload policy only.
    waited_until: Option<Instant>,
    ready_since: Option<Instant>,
    buffers: ThreadBuffers,
}

/// A connection of a loop.
struct EpollClient {
    entry: Arc<TableEntry<LoopSocket>>,
    connection: Connection,
    reported: Reported,
    answer_waker: AnswerWaker,
    /// What the socket is watched for; empty until it is registered.
    watched: EventFlags,
    /// The connection is among those that have yielded.
    has_yielded: bool,
}

/// What is known about a socket.
struct Reported {
    /// Bytes may be there, or their end.
    is_readable: bool,
    has_ended: bool,
}

impl EventLoop for EpollLoop {
    fn new(table: &Arc<ConnectionTable<LoopSocket>>, listener: TcpListener, share: LoopShare) -> io::Result<Self> {
        let (table, listener) = (Arc::clone(table), Arc::new(listener));
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &listener, data(LISTENER), EventFlags::IN | EventFlags::ET)?;
        epoll::add(&epoll, &wake, data(WAKE), EventFlags::IN | EventFlags::ET)?;
        let (acceptor, woken) = threads::listen(&table, listener, wake);
        share.begin(&woken);
        let (clients, yielded, buffers) = (Slots::new(), Vec::new(), ThreadBuffers::new());
        Ok(Self {
            table,
            share,
            acceptor,
            epoll,
            woken,
            clients,
            yielded,
            waited_until: None,
            ready_since: None,
            buffers,
        })
    }

    fn run(mut self) {
        let mut events: Vec<Event> = Vec::with_capacity(MAX_EVENTS);
        let (mut woken, mut yielded) = (Vec::new(), Vec::new());
        while !self.try_end() {
            self.wait(&mut events);
            let mut is_woken = false;
            for event in &events {
                match event.data.u64() as usize {
                    LISTENER => self.acceptor.notify(),
                    WAKE => is_woken = true,
                    number => self.serve(number, event.flags),
                }
            }
            if is_woken {
                self.woken.take(&mut woken);
                woken.drain(..).for_each(|number| self.serve_woken(number));
            }
            self.accept();
            if !self.yielded.is_empty() {
                self.serve_yielded(&mut yielded);
            }
        }
        self.table.accept_loop_ended();
    }
}

impl EpollLoop {
    /// Ends the loop, if it accepts no more, and has no connections and is given none. Returns whether it has ended.
    fn try_end(&self) -> bool {
        if self.acceptor.is_open() || !self.clients.is_empty() {
            return false;
        }
        self.share.try_end()
    }

    /// Waits for events, unless a connection has more to do.
    fn wait(&mut self, events: &mut Vec<Event>) {
        events.clear();
        let timeout = if self.yielded.is_empty() { self.acceptor.until_attempt() } else { Some(Duration::ZERO) };
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        self.buffers.end_round();
        self.buffers.shrink();
        let began = self.table.server.http.admission.as_ref().map(|_| Instant::now());
        // An error: a signal has interrupted it.
        let _ = epoll::wait(&self.epoll, spare_capacity(events), timeout.as_ref());
        let now = Instant::now();
        self.buffers.begin_round(now);
        if let Some(began) = began {
            self.ready_since = Some(threads::ready_since(self.waited_until, [began, now]));
            self.waited_until = Some(now);
        }
    }

    fn serve_woken(&mut self, number: usize) {
        if number == LISTENER {
            self.acceptor.notify();
        } else if number == GIVEN {
            self.add_given();
        } else {
            self.serve(number, EventFlags::empty());
        }
    }

    /// Serves a turn of each connection that has yielded. `numbers` is empty before and after.
    #[inline(never)]
    fn serve_yielded(&mut self, numbers: &mut Vec<usize>) {
        std::mem::swap(&mut self.yielded, numbers);
        for number in numbers.drain(..) {
            if let Some(client) = self.clients.get_mut(number) {
                client.has_yielded = false;
                self.serve(number, EventFlags::empty());
            }
        }
    }

    /// Accepts the connections that wait, and serves each a turn.
    fn accept(&mut self) {
        if self.acceptor.until_attempt().is_none() {
            return;
        }
        for _ in 0..MAX_ACCEPTED {
            let Some(accepted) = self.acceptor.accept_from(&self.table.server) else { return };
            self.add_accepted(accepted);
        }
    }

    /// Adds a connection that this loop has accepted, unless another loop gets it.
    fn add_accepted(&mut self, accepted: (TcpStream, Option<SocketAddr>)) {
        if let Some(accepted) = self.share.keep(NewConnection::counted(accepted, &self.table)) {
            self.add(accepted);
        }
    }

    /// Adds the connections that other loops have given to this one.
    fn add_given(&mut self) {
        self.share.take().into_iter().for_each(|accepted| self.add(accepted));
    }

    fn add(&mut self, NewConnection { stream, peer, place }: NewConnection) {
        let Some(number) = self.clients.next_number() else {
            place.into_iter().for_each(|place| self.table.release(place)); // there are no numbers left
            return self.share.close();
        };
        let socket = LoopSocket { stream, woken: self.woken.clone(), number };
        if let Some((entry, connection)) = self.table.admit_at(place, peer, socket, self.share.shard) {
            let reported = Reported { is_readable: true, has_ended: false };
            let (answer_waker, watched) = (AnswerWaker::default(), EventFlags::empty());
            let client = EpollClient { entry, connection, reported, answer_waker, watched, has_yielded: false };
            self.clients.insert(number, client);
            self.serve(number, EventFlags::empty());
        } else {
            self.share.close();
        }
    }

    /// Serves a turn of a connection, unless its next turn follows anyway. `events`: what its socket has reported.
    fn serve(&mut self, number: usize, events: EventFlags) {
        let Some(client) = self.clients.get_mut(number) else { return };
        let EpollClient { entry, connection, reported, answer_waker, .. } = client;
        reported.is_readable |= events.intersects(EventFlags::IN | ENDED);
        reported.has_ended |= events.intersects(ENDED);
        if client.has_yielded {
            return;
        }
        let mut cx = Context::from_waker(Waker::noop()); // `poll_answer` has a waker
        let mut socket = EpollSocket { socket: entry, reported, answer_waker };
        let end = self.table.serve_since(self.ready_since, entry, connection, &mut socket, &mut cx, &mut self.buffers);
        match end {
            TurnEnd::Wait if client.watch(&self.epoll, number).is_ok() => {}
            TurnEnd::Yield => {
                client.has_yielded = true;
                self.yielded.push(number);
            }
            TurnEnd::Wait | TurnEnd::Close => self.close(number),
        }
    }

    fn close(&mut self, number: usize) {
        if let Some(client) = self.clients.get_mut(number) {
            self.table.close(&client.entry, &mut client.connection);
            self.share.close();
            self.clients.remove(number);
        }
    }
}

impl EpollClient {
    /// Watches the socket for what the connection waits for, unless it is watched for that already.
    ///
    /// # Errors
    ///
    /// Returns an error if the system has no memory for it. The connection is to be closed.
    #[inline]
    fn watch(&mut self, epoll: &OwnedFd, number: usize) -> io::Result<()> {
        let events = if self.connection.is_new_output() { READABLE } else { WRITABLE };
        if self.watched.contains(events) { Ok(()) } else { self.register(epoll, number, events) }
    }

    #[inline(never)]
    fn register(&mut self, epoll: &OwnedFd, number: usize, events: EventFlags) -> io::Result<()> {
        let stream = &self.entry.stream;
        // What is there already is reported as an edge, in both cases.
        let result = match self.watched.is_empty() {
            true => epoll::add(epoll, stream, data(number), events),
            false => epoll::modify(epoll, stream, data(number), events),
        };
        result.inspect_err(|error| polyserve_core::throttled!(warn, %error, "a connection cannot be watched"))?;
        self.watched = events;
        Ok(())
    }
}

fn data(number: usize) -> EventData {
    EventData::new_u64(number as u64)
}

/// The socket of a connection in a turn.
struct EpollSocket<'a> {
    socket: &'a LoopSocket,
    reported: &'a mut Reported,
    answer_waker: &'a mut AnswerWaker,
}

impl TurnSocket for EpollSocket<'_> {
    #[inline]
    fn poll_read(&mut self, _: &mut Context<'_>, buffer: &mut [u8], past_report: bool) -> Poll<io::Result<usize>> {
        if !self.reported.is_readable && !past_report {
            return Poll::Pending;
        }
        match net::receive(&self.socket.stream, buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.reported.is_readable = false;
                Poll::Pending
            }
            result => {
                let is_emptied = result.as_ref().is_ok_and(|count| *count < buffer.len()) && !self.reported.has_ended;
                self.reported.is_readable &= !is_emptied;
                Poll::Ready(result)
            }
        }
    }

    #[inline]
    fn poll_write(&mut self, _: &mut Context<'_>, bytes: &[u8], how: WriteKind) -> Poll<io::Result<usize>> {
        match net::send(&self.socket.stream, bytes, how.last) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
            result => Poll::Ready(result),
        }
    }

    fn poll_answer(&mut self, _: &mut Context<'_>, connection: &mut Connection) -> Poll<()> {
        self.answer_waker.poll_answer(self.socket, connection)
    }
}
