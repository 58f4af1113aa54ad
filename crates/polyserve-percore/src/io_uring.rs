//! `io_uring`: one thread for each core, with its own listener and its own `io_uring(7)`. A thread serves the connections that it has
//! accepted.
//!
//! ```text
//!   io_uring_enter ──► completions: connections, bytes in buffers that the kernel selects, ends
//!       ▲              each connection that has one has a turn: read all, call the service, answer all with one write
//!       └──────────────┘
//!   main thread: deadlines and shutdown of all connections
//! ```
//!
//! Connections are accepted, and bytes are received, by operations that go on until they are cancelled. The first turn of a connection
//! reads its socket, because usually its first request has arrived when it is accepted. So a connection that is answered and closed at
//! once is never given to the ring. Answers are written by plain system calls: a socket usually takes them at once, and what it does not
//! take stays with the connection, which waits for room.
//!
//! Invariants:
//!
//! * A connection is served by one thread: the one that accepted it, or with `spread` the one with the fewest connections.
//! * The buffers of the ring are given back in the round in which they were filled. If a connection leaves bytes unread, because it has to
//!   wait for its answer or its client, they are copied, and its receive is cancelled. So no connection keeps buffers from others. If
//!   all are in use, a receive ends, and the turn of its connection reads the socket.
//! * Completions come from `io_uring_enter` only. So what is in a socket after the completions were taken comes after their bytes, and
//!   a turn that must know whether the socket is empty reads it.
//! * A connection that waits has no buffer, unless its client is late with a request or with reading an answer.
//!
//! Cost: for a request on a kept connection a write, and its share of one `io_uring_enter`; for a connection its share of an accept, a
//! read, a close, and an allocation. The buffers of a thread have 1 MiB. A connection that leaves bytes unread keeps at most these.
//!
//! Source: `io_uring_multishot(7)`, `io_uring_provided_buffers(7)`.
//!
//! *Wins when* connections are many, or each request has a connection of its own: receives and accepts come in batches. *Loses when* the
//! server is hardly used: then a receive through the ring costs as much as the call that it saves. And if a container or a setting forbids
//! io_uring: then the start fails with an error. Records: `percore`, `percore-hold`.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::{ConfigError, ListenOn, Running, Server, ServerConfig, Service, Shape, Supports};
use polyserve_serving::{
    ACCEPT_BACKOFF, Connection, ConnectionTable, EventListener, TableEntry, ThreadBuffers, TurnEnd, TurnSocket,
    WokenList, WriteKind, net,
};
use polyserve_sys::ring::{Completion, ReceivedBytes, Ring, RingOperation, RingResult, SocketKey};
use rustix::event::{EventfdFlags, eventfd};

use crate::loop_socket::{AnswerWaker, LoopSocket};
use crate::slots::Slots;
use crate::spread::{GIVEN, LoopShare, NewConnection};
use crate::threads::{self, EventLoop, LISTENER, MAX_ACCEPTED, WAKE};

/// A server with an `io_uring(7)` for each core. It needs Linux 6.1.
///
/// ```no_run
/// use polyserve_core::{Reply, Request, ServerConfig, ServerExt};
/// use polyserve_percore::IoUring;
///
/// let server = IoUring::new(ServerConfig::default().workers(1))?;
/// let running = server.serve("127.0.0.1:0", |_: Request<'_>| Reply::text("hello"))?;
/// assert_eq!(running.shutdown()?.answered, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct IoUring {
    config: ServerConfig,
}

const SUPPORTS: Supports = Supports::new("io_uring").loops();

impl IoUring {
    /// A server within the limits of `config`. `workers` is the number of its threads, by default the number of available cores. If the
    /// kernel lacks or forbids io_uring, [`serve`](polyserve_core::ServerExt::serve) returns an error that says so.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        SUPPORTS.check(&config)?;
        Ok(Self { config })
    }

    /// Finds out whether this process may use io_uring as the server does.
    ///
    /// # Errors
    ///
    /// Returns an error that names what is missing or forbidden.
    ///
    /// # Cost
    ///
    /// The first call of the process makes a ring on a thread of its own, and drops it.
    pub fn check() -> io::Result<()> {
        static CHECKED: OnceLock<Result<(), (ErrorKind, String)>> = OnceLock::new();
        // The kernel ends a ring a moment later, on the thread that made it, and interrupts the system call in which that thread waits
        // then.
        let ring = || {
            let thread = thread::Builder::new().spawn(|| Ring::<RingSocket>::new(1, BUFFER_SIZE).map(drop))?;
            thread.join().unwrap_or_else(|_| Err(io::Error::other("making a ring has panicked")))
        };
        let checked = CHECKED.get_or_init(|| ring().map_err(|error: io::Error| (error.kind(), error.to_string())));
        checked.clone().map_err(|(kind, text)| io::Error::new(kind, text))
    }
}

impl Server for IoUring {
    fn shape(&self) -> Shape {
        Shape::Multiplexed
    }

    fn start(&self, on: ListenOn, service: Arc<dyn Service>) -> io::Result<Running> {
        threads::start::<UringLoop>("io_uring", on, &self.config, service)
    }
}

/// The number of buffers of a thread, and their size in bytes.
const BUFFERS: u16 = 256;
const BUFFER_SIZE: u32 = 4096;

/// The loop of a thread.
struct UringLoop {
    table: Arc<ConnectionTable<LoopSocket>>,
    share: LoopShare,
    ring: Ring<RingSocket>,
    /// Accepts without the ring: after an error, and in a drain.
    acceptor: EventListener,
    listener: SocketKey,
    wake: SocketKey,
    /// The connections that have been woken for an answer, a deadline or a shutdown.
    woken: WokenList,
    clients: Slots<UringClient>,
    /// The connections that the ring has accepted in this round.
    accepted: Vec<TcpStream>,
    /// Other loops have given connections to this one in this round.
    has_been_given: bool,
    /// The connections that have a turn in this round.
    ready: Vec<usize>,
    /// The connections that have a turn in the next round.
    yielded: Vec<usize>,
    /// When the last wait has ended, and since when what it has reported was ready. Noted for an overload policy only.
    waited_until: Option<Instant>,
    ready_since: Option<Instant>,
    buffers: ThreadBuffers,
}

/// A socket of the ring.
enum RingSocket {
    Listener(Arc<TcpListener>),
    Wake(Arc<OwnedFd>),
    Connection(Arc<TableEntry<LoopSocket>>),
}

impl AsFd for RingSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Listener(listener) => listener.as_fd(),
            Self::Wake(wake) => wake.as_fd(),
            Self::Connection(entry) => entry.stream.as_fd(),
        }
    }
}

/// A connection of a loop.
struct UringClient {
    entry: Arc<TableEntry<LoopSocket>>,
    connection: Connection,
    /// `None` until it has to wait.
    key: Option<SocketKey>,
    input: Input,
    answer_waker: AnswerWaker,
    /// It is among those that have a turn in this round, or in the next.
    has_turn: bool,
}

/// The input of a connection. Its parts are read in this order.
#[derive(Default)]
struct Input {
    /// Copies of the bytes that were left unread in earlier rounds.
    kept: VecDeque<u8>,
    /// What the ring has received in this round.
    received: Vec<ReceivedBytes>,
    /// The number of bytes of the first of `received` that were read.
    read_of_first: usize,
    later: LaterInput,
}

/// What is known about the input that the ring has not reported.
///
/// ```text
///              a read finds no more
///   Unknown ─────────────────────────► Empty
///     │  ▲                               │
///     │  │ the receive ends before       │
///     ▼  │                               ▼
///   Reported ◄───────────────────────────┘
///     │        the connection waits: a receive is armed
///     ▼
///   Ended      the client has sent all
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum LaterInput {
    /// The socket may have bytes: a turn reads it.
    #[default]
    Unknown,
    /// The socket was found empty, and is not read again before the connection waits.
    Empty,
    /// A receive of the ring is in flight, and reports all that comes.
    Reported,
    /// The client sends no more.
    Ended,
}

impl EventLoop for UringLoop {
    fn new(table: &Arc<ConnectionTable<LoopSocket>>, listener: TcpListener, share: LoopShare) -> io::Result<Self> {
        let (table, listener) = (Arc::clone(table), Arc::new(listener));
        let mut ring = Ring::new(BUFFERS, BUFFER_SIZE)?;
        let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let wake = ring.add(RingSocket::Wake(Arc::clone(&event)), WAKE);
        ring.arm(wake, RingOperation::AwaitInput);
        let (acceptor, woken) = threads::listen(&table, Arc::clone(&listener), event);
        let listener = ring.add(RingSocket::Listener(listener), LISTENER);
        share.begin(&woken);
        let (clients, buffers) = (Slots::new(), ThreadBuffers::new());
        let (accepted, ready, yielded) = (Vec::new(), Vec::new(), Vec::new());
        let (waited_until, ready_since) = (None, None);
        Ok(Self {
            table,
            share,
            ring,
            acceptor,
            listener,
            wake,
            woken,
            clients,
            accepted,
            has_been_given: false,
            ready,
            yielded,
            waited_until,
            ready_since,
            buffers,
        })
    }

    fn run(mut self) {
        let (mut completions, mut woken) = (Vec::new(), Vec::new());
        while !self.try_end() {
            self.wait();
            self.ring.completions(&mut completions);
            // Those that have yielded come before those that have an event, and have one turn.
            std::mem::swap(&mut self.ready, &mut self.yielded);
            let mut is_woken = false;
            for completion in completions.drain(..) {
                is_woken |= self.note(completion);
            }
            if is_woken {
                self.woken.take(&mut woken);
                woken.drain(..).for_each(|number| self.note_woken(number));
            }
            let mut ready = std::mem::take(&mut self.ready);
            for number in ready.drain(..) {
                self.serve(number);
            }
            self.ready = ready;
            self.accept();
        }
        self.ring.end();
        self.table.accept_loop_ended();
    }
}

impl UringLoop {
    /// Ends the loop, if it accepts no more, and has no connections and is given none. Returns whether it has ended.
    fn try_end(&self) -> bool {
        if self.acceptor.is_open() || !self.clients.is_empty() {
            return false;
        }
        self.share.try_end()
    }

    /// Waits for completions, unless a connection has more to do.
    fn wait(&mut self) {
        let timeout = if self.yielded.is_empty() { self.acceptor.until_attempt() } else { Some(Duration::ZERO) };
        self.buffers.end_round();
        self.buffers.shrink();
        let began = self.table.server.http.admission.as_ref().map(|_| Instant::now());
        if let Err(error) = self.ring.enter(true, timeout) {
            polyserve_core::throttled!(warn, %error, "io_uring_enter has failed");
            thread::park_timeout(ACCEPT_BACKOFF);
        }
        let now = Instant::now();
        self.buffers.begin_round(now);
        if let Some(began) = began {
            self.ready_since = Some(threads::ready_since(self.waited_until, [began, now]));
            self.waited_until = Some(now);
        }
    }

    /// Notes what the ring reports. Returns whether other threads have woken connections.
    fn note(&mut self, completion: Completion) -> bool {
        let Completion { tag, outcome, is_last } = completion;
        match outcome {
            RingResult::Accepted(socket) => self.accepted.push(socket.into()),
            RingResult::Ready if tag == WAKE => {
                if is_last {
                    self.ring.arm(self.wake, RingOperation::AwaitInput);
                }
                return true;
            }
            _ if tag == LISTENER => {}
            outcome => self.note_input(tag, outcome, is_last),
        }
        if tag == LISTENER && is_last {
            self.acceptor.notify(); // it finds out what has ended the operation
        }
        false
    }

    /// Notes what the ring reports about a connection. Its turn follows.
    #[inline]
    fn note_input(&mut self, number: usize, outcome: RingResult, is_last: bool) {
        let Some(client) = self.clients.get_mut(number) else {
            if let RingResult::Received(bytes) = outcome {
                self.ring.release(bytes);
            }
            return;
        };
        let input = &mut client.input;
        match outcome {
            RingResult::Received(bytes) => {
                input.received.push(bytes);
                input.later = if is_last { LaterInput::Unknown } else { LaterInput::Reported };
            }
            RingResult::Ended => input.later = LaterInput::Ended,
            // No buffer is left, or it was cancelled, or the connection is lost: the turn reads the socket.
            RingResult::Failed(RingOperation::Receive, _) => input.later = LaterInput::Unknown,
            _ => {}
        }
        if !client.has_turn {
            client.has_turn = true;
            self.ready.push(number);
        }
    }

    fn note_woken(&mut self, number: usize) {
        if number == LISTENER {
            self.acceptor.notify();
        } else if number == GIVEN {
            self.has_been_given = true;
        } else if let Some(client) = self.clients.get_mut(number).filter(|client| !client.has_turn) {
            client.has_turn = true;
            self.ready.push(number);
        }
    }

    /// Adds the new connections. The turns of the others come first: a request that has arrived protects its connection from eviction.
    fn accept(&mut self) {
        let mut accepted = std::mem::take(&mut self.accepted);
        for stream in accepted.drain(..) {
            // An accept that goes on has no room for it.
            let peer = if self.table.server.http.needs_peers { net::peer(&stream) } else { None };
            self.add_accepted((stream, peer));
        }
        self.accepted = accepted;
        if std::mem::take(&mut self.has_been_given) {
            self.add_given();
        }
        if !self.ring.is_armed(self.listener, RingOperation::Accept) {
            self.accept_by_calls();
        } else if self.table.server.shutdown.is_begun() {
            self.ring.cancel(self.listener, RingOperation::Accept); // what it has accepted is reported before it ends
        }
    }

    /// Accepts without the ring: at the start, after an error, and in a drain. Once no connection waits, the ring accepts; in a drain,
    /// the listener is closed then.
    fn accept_by_calls(&mut self) {
        for _ in 0..MAX_ACCEPTED {
            let Some(accepted) = self.acceptor.accept_from(&self.table.server) else { break };
            self.add_accepted(accepted);
        }
        if !self.acceptor.is_open() {
            self.ring.remove(self.listener); // which closes it
        } else if self.acceptor.until_attempt().is_none() {
            self.ring.arm(self.listener, RingOperation::Accept);
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

    /// Adds a connection. Its first turn follows in this round.
    fn add(&mut self, NewConnection { stream, peer, place }: NewConnection) {
        let Some(number) = self.clients.next_number() else {
            place.into_iter().for_each(|place| self.table.release(place)); // there are no numbers left
            return self.share.close();
        };
        let socket = LoopSocket { stream, woken: self.woken.clone(), number };
        if let Some((entry, connection)) = self.table.admit_at(place, peer, socket, self.share.shard) {
            let (input, answer_waker) = (Input::default(), AnswerWaker::default());
            let client = UringClient { entry, connection, key: None, input, answer_waker, has_turn: false };
            self.clients.insert(number, client);
            self.serve(number);
        } else {
            self.share.close();
        }
    }

    /// Serves a turn of a connection.
    fn serve(&mut self, number: usize) {
        let Some(client) = self.clients.get_mut(number) else { return };
        client.has_turn = false;
        let UringClient { entry, connection, input, answer_waker, .. } = client;
        let mut cx = Context::from_waker(Waker::noop()); // `poll_answer` has a waker
        let mut socket = UringSocket { socket: entry, input, answer_waker, ring: &mut self.ring };
        let end = self.table.serve_since(self.ready_since, entry, connection, &mut socket, &mut cx, &mut self.buffers);
        match end {
            TurnEnd::Wait => client.watch(&mut self.ring, number),
            TurnEnd::Yield => {
                client.has_turn = true;
                self.yielded.push(number);
            }
            TurnEnd::Close => return self.close(number),
        }
        client.keep_input(&mut self.ring);
    }

    fn close(&mut self, number: usize) {
        if let Some(client) = self.clients.get_mut(number) {
            client.input.release(&mut self.ring);
            self.table.close(&client.entry, &mut client.connection);
            self.share.close();
            let key = client.key;
            self.clients.remove(number);
            if let Some(key) = key {
                self.ring.remove(key);
            }
        }
    }
}

impl UringClient {
    /// Makes the ring report what the connection waits for.
    #[inline]
    fn watch(&mut self, ring: &mut Ring<RingSocket>, number: usize) {
        let awaits_room = !self.connection.is_new_output();
        let is_watched = !awaits_room && self.input.later == LaterInput::Reported;
        if is_watched || self.connection.awaits_answer() {
            return;
        }
        let entry = &self.entry;
        let key = *self.key.get_or_insert_with(|| ring.add(RingSocket::Connection(Arc::clone(entry)), number));
        if awaits_room {
            ring.arm(key, RingOperation::AwaitRoom);
        } else {
            ring.arm(key, RingOperation::Receive);
            self.input.later = LaterInput::Reported;
        }
    }

    /// Gives the buffers of the ring back, and receives no more until what is there was read.
    #[inline]
    fn keep_input(&mut self, ring: &mut Ring<RingSocket>) {
        if !self.input.received.is_empty() {
            self.input.keep(ring);
            if let Some(key) = self.key {
                ring.cancel(key, RingOperation::Receive);
            }
        }
    }
}

impl Input {
    /// Reads into `buffer` what the ring has reported, as much as there is room for. Fewer bytes than that tell the connection that no
    /// request follows. Returns 0 if nothing is left.
    fn read(&mut self, ring: &mut Ring<RingSocket>, buffer: &mut [u8]) -> usize {
        if self.kept.is_empty() {
            return self.read_received(ring, buffer);
        }
        let count = self.read_kept(buffer);
        count + self.read_received(ring, buffer.get_mut(count..).unwrap_or_default())
    }

    fn read_received(&mut self, ring: &mut Ring<RingSocket>, buffer: &mut [u8]) -> usize {
        let (mut count, mut released) = (0, 0);
        for received in &self.received {
            let bytes = ring.bytes(received).get(self.read_of_first..).unwrap_or_default();
            let length = copy(bytes, buffer.get_mut(count..).unwrap_or_default());
            count += length;
            if length < bytes.len() {
                self.read_of_first += length;
                break;
            }
            (self.read_of_first, released) = (0, released + 1);
        }
        self.received.drain(..released).for_each(|received| ring.release(received));
        count
    }

    #[inline(never)]
    fn read_kept(&mut self, buffer: &mut [u8]) -> usize {
        let (first, second) = self.kept.as_slices();
        let mut length = copy(first, buffer);
        length += copy(second, buffer.get_mut(length..).unwrap_or_default());
        self.kept.drain(..length);
        if self.kept.is_empty() {
            self.kept = VecDeque::new(); // its memory is free
        }
        length
    }

    /// Copies what was received and not read, and gives the buffers back.
    #[inline(never)]
    fn keep(&mut self, ring: &mut Ring<RingSocket>) {
        for received in &self.received {
            let read = std::mem::take(&mut self.read_of_first); // 0 from the second on
            self.kept.extend(ring.bytes(received).get(read..).unwrap_or_default());
        }
        self.release(ring);
    }

    fn release(&mut self, ring: &mut Ring<RingSocket>) {
        self.received.drain(..).for_each(|received| ring.release(received));
    }
}

/// Copies as many bytes as there is room for. Returns their number.
fn copy(from: &[u8], to: &mut [u8]) -> usize {
    let length = from.len().min(to.len());
    if let (Some(from), Some(to)) = (from.get(..length), to.get_mut(..length)) {
        to.copy_from_slice(from);
    }
    length
}

/// The socket of a connection in a turn.
struct UringSocket<'a> {
    socket: &'a LoopSocket,
    input: &'a mut Input,
    answer_waker: &'a mut AnswerWaker,
    ring: &'a mut Ring<RingSocket>,
}

impl TurnSocket for UringSocket<'_> {
    #[inline]
    fn poll_read(&mut self, _: &mut Context<'_>, buffer: &mut [u8], past_report: bool) -> Poll<io::Result<usize>> {
        let input = &mut *self.input;
        let count = input.read(self.ring, buffer);
        if count > 0 {
            return Poll::Ready(Ok(count));
        }
        match input.later {
            LaterInput::Ended => return Poll::Ready(Ok(0)),
            LaterInput::Empty | LaterInput::Reported if !past_report => return Poll::Pending,
            _ => {}
        }
        let result = net::receive(&self.socket.stream, buffer);
        let is_blocked = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        if input.later != LaterInput::Reported {
            let is_empty = is_blocked || result.as_ref().is_ok_and(|count| *count < buffer.len());
            input.later = if is_empty { LaterInput::Empty } else { LaterInput::Unknown };
        }
        if is_blocked { Poll::Pending } else { Poll::Ready(result) }
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Regression test: a read ended with the bytes that were kept, or with the first part of them. It had room left, so its connection
    /// took the last request among them for the last one, and a drain left those that the ring had received.
    #[test]
    fn a_read_takes_all_that_there_is_room_for() {
        for size in [32, 4, 1] {
            let mut ring = Ring::new(2, 8).expect("the system allows a ring");
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
            let mut client = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
            let server = OwnedFd::from(listener.accept().expect("a client has connected").0);
            let key = ring.add(RingSocket::Listener(Arc::new(server.into())), 0);
            ring.arm(key, RingOperation::Receive);
            client.write_all(b"ghi").expect("there is room for it");
            let mut completions = Vec::new();
            while completions.is_empty() {
                ring.enter(true, Some(Duration::from_secs(60))).expect("it waits");
                ring.completions(&mut completions);
            }
            let mut input = Input { kept: VecDeque::with_capacity(8), ..Input::default() };
            input.kept.extend(b"xxxxxa");
            input.kept.drain(..5);
            input.kept.extend(b"bcdef");
            for completion in completions {
                let RingResult::Received(bytes) = completion.outcome else { panic!("{completion:?}") };
                input.received.push(bytes);
            }
            let (mut read, mut buffer) = (Vec::new(), vec![0; size]);
            loop {
                let count = input.read(&mut ring, &mut buffer);
                read.extend_from_slice(&buffer[..count]);
                if count < size {
                    break;
                }
            }
            assert_eq!(read, b"abcdefghi", "with room for {size} bytes");
        }
    }
}
