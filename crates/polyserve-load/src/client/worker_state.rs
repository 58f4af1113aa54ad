//! The state that the connections of a thread share, and the sending of batches.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::connection::{ClientConnection, EndHint, Pending, State};
use super::retrying::Retrying;
use super::schedule::{Schedule, Times};
use super::tally::Tally;
use crate::answer::Heads;
use crate::clock;
use crate::encoded_requests::EncodedRequests;
use crate::load::{Load, Pace, Usage};
use crate::request_stream::{PlannedRequest, RequestStream};
use crate::tls::ClientTls;

/// The state that the connections of a thread share.
#[derive(Debug)]
pub(crate) struct WorkerState {
    pub(super) target: SocketAddr,
    tls: Option<ClientTls>,
    /// The number of requests of a batch.
    depth: usize,
    /// Whether every request has its own connection.
    pub(super) closes: bool,
    /// Whether the server must announce the close of such a connection.
    pub(super) must_close: bool,
    pub(super) is_open_loop: bool,
    pub(super) timeout: u64,
    pub(super) requests: EncodedRequests,
    stream: RequestStream,
    pub(super) schedule: Schedule,
    /// The requests that wait for their next attempt; `None` if the clients do not retry.
    pub(super) retrying: Option<Retrying>,
    pub(super) heads: Heads,
    pub(super) tally: Tally,
    pub(super) epoll: OwnedFd,
    pub(super) buffer: Vec<u8>,
    out: Vec<u8>,
    /// Connections that can take a batch.
    pub(super) free: VecDeque<u32>,
    /// The ends of the pauses of failed connections.
    pub(super) backing_off: BinaryHeap<Reverse<(u64, u32)>>,
    /// Connections on which a write has failed: their received bytes are still to be read.
    pub(super) write_failed: Vec<(usize, u32)>,
    /// The last reading of the clock.
    pub(super) now: u64,
    /// Open loop: the earliest time at which the bytes being read may have arrived.
    pub(super) arrived: u64,
    /// Open loop: the last time at which no request was due; `u64::MAX` if a request was sent then.
    pub(super) dispatched: u64,
    /// Open loop: the start of the present time without work. `None` if this thread sleeps or has work.
    pub(super) idle_from: Option<u64>,
    /// Whether `now` is within the measured period.
    pub(super) is_counting: bool,
    /// The number of connections with unanswered requests.
    pub(super) busy: usize,
    /// The number of connections that are being opened before the load.
    pub(super) opening: usize,
    /// Right answers, including the warm-up.
    pub(super) right: u64,
    /// Failures of the whole run.
    pub(super) wrong: u64,
    /// The time of the last right answer, or of the start.
    pub(super) last_right: u64,
}

/// Larger than the longest head, and than the usual content of a socket.
const BUFFER_SIZE: usize = 192 << 10;

/// The max time of one turn without work. In the rest of a longer turn, another thread had the core.
const MAX_IDLE_TURN: u64 = 5_000;

impl WorkerState {
    pub(super) fn new(load: &Load, requests: EncodedRequests, thread: usize, epoll: OwnedFd) -> Self {
        let (depth, closes) = match load.usage {
            Usage::KeepAlive { pipeline } => (pipeline, false),
            Usage::Close => (1, true),
        };
        Self {
            target: load.target,
            tls: load.tls.clone(),
            depth,
            closes,
            must_close: load.must_close,
            is_open_loop: matches!(load.pace, Pace::Rate(_)),
            timeout: clock::nanos(load.timeout),
            stream: load.traffic.request_stream(thread, load.threads),
            requests,
            schedule: Schedule::new(load, thread, Times { start: 0, counted: 0, end: 0 }),
            retrying: Retrying::new(load, thread),
            heads: Heads::default(),
            tally: Tally::new(load),
            epoll,
            buffer: vec![0; BUFFER_SIZE],
            out: Vec::new(),
            free: VecDeque::new(),
            backing_off: BinaryHeap::new(),
            write_failed: Vec::new(),
            now: 0,
            arrived: 0,
            dispatched: u64::MAX,
            idle_from: None,
            is_counting: false,
            busy: 0,
            opening: 0,
            right: 0,
            wrong: 0,
            last_right: 0,
        }
    }

    pub(super) fn start(&mut self, schedule: Schedule) {
        self.last_right = schedule.times.start;
        self.schedule = schedule;
        self.set_now(clock::now());
    }

    pub(super) fn set_now(&mut self, now: u64) {
        let Times { counted, end, .. } = self.schedule.times;
        self.now = now;
        self.is_counting = now >= counted && now < end;
    }

    /// Sends due requests on free connections, and resumes connections after their pause.
    pub(super) fn dispatch(&mut self, connections: &mut [ClientConnection]) {
        while let Some(Reverse((until, index))) = self.backing_off.peek().copied() {
            if until > self.now {
                break;
            }
            self.backing_off.pop();
            let connection = &mut connections[index as usize];
            self.resume(connection, index as usize);
            connection.free_since = until;
        }
        if self.is_open_loop {
            self.set_now(clock::now());
            if let Some(from) = self.idle_from.take().filter(|_| self.is_counting) {
                self.tally.spinning += self.now.saturating_sub(from).min(MAX_IDLE_TURN);
            }
            self.dispatched = self.now;
        }
        while let Some(&index) = self.free.front() {
            let Some(first) = self.take_due() else { return };
            self.free.pop_front();
            if self.is_open_loop {
                (self.dispatched, self.schedule.last_sent) = (u64::MAX, self.now);
            }
            self.begin(&mut connections[index as usize], index as usize, first);
        }
    }

    /// The next request of the stream.
    pub(super) fn next_planned(&mut self) -> PlannedRequest {
        self.stream.next()
    }

    /// Takes a batch of requests for a free connection, `first` and those that are due after it, and sends it.
    fn begin(&mut self, connection: &mut ClientConnection, index: usize, first: Pending) {
        connection.pending.clear();
        connection.next = 0;
        self.out.clear();
        let mut next = Some(first);
        while let Some(pending) = next {
            self.requests.write(pending.planned, &mut self.out);
            if pending.counts
                && let Some(lateness) = &mut self.tally.lateness
            {
                // No connection was free earlier than this one: the server caused the wait until `free_since`.
                lateness.saturating_record(self.now.saturating_sub(pending.due.max(connection.free_since)));
            }
            connection.pending.push(pending);
            next = if connection.pending.len() < self.depth { self.take_due() } else { None };
        }
        connection.since = self.now;
        connection.state = State::Busy;
        self.busy += 1;
        self.send(connection, index);
    }

    /// Sends the pending requests again, on a new socket.
    pub(super) fn resend(&mut self, connection: &mut ClientConnection, index: usize) {
        self.out.clear();
        for pending in connection.waiting() {
            self.requests.write(pending.planned, &mut self.out);
        }
        connection.since = self.now;
        connection.state = State::Busy;
        self.send(connection, index);
    }

    /// Sends `out`. Opens a socket if the connection has none.
    fn send(&mut self, connection: &mut ClientConnection, index: usize) {
        let is_new = connection.socket.is_none();
        if is_new {
            if self.closes {
                connection.connected.0 = clock::now();
            }
            if let Err(error) = self.open(connection) {
                return self.cannot_open(connection, index, error);
            }
        }
        match connection.send(&self.out) {
            Ok(sent) => {
                self.count_sent(sent);
                connection.unsent.extend_from_slice(self.out.get(sent..).unwrap_or_default());
                if is_new && self.closes && !connection.is_connecting {
                    connection.connected.1 = clock::now(); // the socket has taken the request, so it is connected
                }
            }
            Err(error) if connection.is_connecting => return self.cannot_open(connection, index, error),
            Err(_) => self.write_failed.push((index, connection.generation)),
        }
        // The request is sent before the socket is registered: a fast answer is then one event.
        let writable = connection.has_tls() || !connection.unsent.is_empty();
        let registered = match (is_new, writable) {
            (true, _) => connection.register(&self.epoll, index, writable),
            (false, true) => connection.watch_writable(&self.epoll, index),
            (false, false) => Ok(()),
        };
        if let Err(error) = registered {
            self.cannot_open(connection, index, error);
        }
    }

    fn open(&mut self, connection: &mut ClientConnection) -> Result<(), Errno> {
        // A short request on a new connection is one packet. The end of a handshake is one more, which it must not wait for.
        let no_delay = !self.closes || self.tls.is_some() || self.out.len() > 1024;
        connection.open(self.target, self.tls.as_ref(), no_delay)?;
        self.tally.opened += 1;
        self.tally.reconnects += u64::from(std::mem::take(&mut connection.was_closed));
        Ok(())
    }

    /// Opens a connection before the load.
    pub(super) fn open_idle(&mut self, connection: &mut ClientConnection, index: usize) {
        connection.since = self.now;
        if self.open(connection).is_err() || connection.register(&self.epoll, index, true).is_err() {
            return connection.close(true);
        }
        if connection.is_connecting {
            connection.state = State::Opening;
            self.opening += 1;
        }
    }

    /// Handles an event of a connection.
    #[inline]
    pub(super) fn ready(&mut self, connection: &mut ClientConnection, index: usize, flags: EventFlags) {
        if connection.waits_to_write() && flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP) {
            self.writable(connection, index);
        }
        let ending = match flags {
            flags if flags.intersects(EventFlags::ERR | EventFlags::HUP) => EndHint::Failed,
            flags if flags.contains(EventFlags::RDHUP) => EndHint::Closed,
            _ => EndHint::None,
        };
        if ending != EndHint::None || flags.contains(EventFlags::IN) {
            self.receive(connection, index, ending);
        }
    }

    fn writable(&mut self, connection: &mut ClientConnection, index: usize) {
        if connection.is_connecting {
            if let Some(error) = connection.socket_error() {
                return self.cannot_open(connection, index, error);
            }
            if connection.is_established() {
                self.established(connection);
            }
        }
        if connection.has_tls() {
            if connection.flush_tls().is_err() {
                self.write_failed.push((index, connection.generation));
            }
            return;
        }
        if connection.unsent.is_empty() {
            return;
        }
        let unsent = std::mem::take(&mut connection.unsent);
        match connection.send(&unsent) {
            Ok(sent) => {
                self.count_sent(sent);
                connection.unsent.extend_from_slice(unsent.get(sent..).unwrap_or_default());
            }
            Err(_) => self.write_failed.push((index, connection.generation)),
        }
    }

    /// The connect has ended, and the handshake of TLS.
    pub(super) fn established(&mut self, connection: &mut ClientConnection) {
        connection.is_connecting = false;
        if self.closes {
            connection.connected.1 = clock::now();
        }
        if connection.state == State::Opening {
            connection.state = State::Free;
            self.opening -= 1;
        }
    }

    fn count_sent(&mut self, sent: usize) {
        if self.is_counting {
            self.tally.sent += sent as u64;
        }
    }
}
