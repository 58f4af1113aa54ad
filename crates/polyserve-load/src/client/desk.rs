//! What a thread's connections share, and how a batch is begun and sent.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::connection::{Connection, Pending, State};
use super::receiving::Ending;
use super::schedule::{Schedule, Times};
use super::tally::Tally;
use crate::answer::Heads;
use crate::clock;
use crate::draws::Draws;
use crate::load::{Load, Pace, Usage};
use crate::script::Script;

/// All that a thread's connections share.
#[derive(Debug)]
pub(crate) struct Desk {
    target: SocketAddr,
    /// Requests of a batch.
    depth: usize,
    /// Whether every request has its own connection.
    pub(super) closes: bool,
    /// Whether a server must say that it closes such a connection.
    pub(super) must_close: bool,
    pub(super) is_open_loop: bool,
    pub(super) patience: u64,
    pub(super) script: Script,
    draws: Draws,
    pub(super) schedule: Schedule,
    pub(super) heads: Heads,
    pub(super) tally: Tally,
    pub(super) epoll: OwnedFd,
    pub(super) buffer: Vec<u8>,
    out: Vec<u8>,
    /// Connections that can take a batch.
    pub(super) free: VecDeque<u32>,
    /// Connections that rest, and until when.
    pub(super) resting: BinaryHeap<Reverse<(u64, u32)>>,
    /// Connections that could not be written to: what they have received is read to its end.
    pub(super) suspects: Vec<(usize, u32)>,
    /// The clock, as it was read last.
    pub(super) now: u64,
    /// Open loop: since when what is being read may have been there.
    pub(super) arrived: u64,
    /// Open loop: when it was last seen that nothing is due; never, where something was sent then.
    pub(super) dispatched: u64,
    /// Open loop: since when this thread has been awake with nothing to do, if it is.
    pub(super) idle_from: Option<u64>,
    /// Whether it is within the counted span.
    pub(super) is_counting: bool,
    /// Connections with requests that have no answer.
    pub(super) busy: usize,
    /// Connections that are opened before the load.
    pub(super) opening: usize,
    /// Right answers, those of the warm-up too.
    pub(super) right: u64,
    /// Failures of the whole run.
    pub(super) wrong: u64,
    /// When the last right answer came, or the load began.
    pub(super) last_right: u64,
}

/// Larger than the largest head that is kept, and than what a socket usually has.
const BUFFER: usize = 192 << 10;

/// The longest that one turn with nothing to do takes: what is beyond this, somebody else had the core.
const LONGEST_IDLE: u64 = 5_000;

impl Desk {
    pub(super) fn new(load: &Load, script: Script, thread: usize, epoll: OwnedFd) -> Self {
        let (depth, closes) = match load.usage {
            Usage::KeepAlive { pipeline } => (pipeline, false),
            Usage::Close => (1, true),
        };
        Self {
            target: load.target,
            depth,
            closes,
            must_close: load.must_close,
            is_open_loop: matches!(load.pace, Pace::Rate(_)),
            patience: clock::of(load.patience),
            draws: load.traffic.draws(thread, load.threads),
            script,
            schedule: Schedule::new(load, thread, Times { start: 0, counted: 0, end: 0 }),
            heads: Heads::default(),
            tally: Tally::new(load),
            epoll,
            buffer: vec![0; BUFFER],
            out: Vec::new(),
            free: VecDeque::new(),
            resting: BinaryHeap::new(),
            suspects: Vec::new(),
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

    /// Sends what is due on the connections that are free, and wakes those that have rested.
    pub(super) fn dispatch(&mut self, connections: &mut [Connection]) {
        while let Some(Reverse((until, index))) = self.resting.peek().copied() {
            if until > self.now {
                break;
            }
            self.resting.pop();
            let connection = &mut connections[index as usize];
            self.wake(connection, index as usize);
            connection.free_since = until;
        }
        if self.is_open_loop {
            self.set_now(clock::now());
            if let Some(from) = self.idle_from.take().filter(|_| self.is_counting) {
                self.tally.spinning += self.now.saturating_sub(from).min(LONGEST_IDLE);
            }
            self.dispatched = self.now;
        }
        while let Some(&index) = self.free.front() {
            if self.schedule.peek(self.now).is_none() {
                return;
            }
            self.free.pop_front();
            if self.is_open_loop {
                (self.dispatched, self.schedule.last_sent) = (u64::MAX, self.now);
            }
            self.begin(&mut connections[index as usize], index as usize);
        }
    }

    /// Draws a batch for a free connection, and sends it.
    fn begin(&mut self, connection: &mut Connection, index: usize) {
        connection.pending.clear();
        connection.next = 0;
        self.out.clear();
        while connection.pending.len() < self.depth {
            let Some(from) = self.schedule.peek(self.now) else { break };
            let (counts, ask) = (self.schedule.take(from), self.script.sent_now(self.draws.next()));
            self.script.write(ask, &mut self.out);
            if counts && let Some(lateness) = &mut self.tally.lateness {
                // Before this connection was free none was: that wait is the server's.
                lateness.saturating_record(self.now.saturating_sub(from.max(connection.free_since)));
            }
            connection.pending.push(Pending { ask, from, counts, retries: 0 });
        }
        connection.since = self.now;
        connection.state = State::Busy;
        self.busy += 1;
        self.send(connection, index);
    }

    /// Sends the pending requests again, on a new socket.
    pub(super) fn again(&mut self, connection: &mut Connection, index: usize) {
        self.out.clear();
        for pending in connection.waiting() {
            self.script.write(pending.ask, &mut self.out);
        }
        connection.since = self.now;
        connection.state = State::Busy;
        self.send(connection, index);
    }

    /// Sends `out`, on a new socket where there is none.
    fn send(&mut self, connection: &mut Connection, index: usize) {
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
                    connection.connected.1 = clock::now(); // it has taken the request, so it is
                }
            }
            Err(error) if connection.is_connecting => return self.cannot_open(connection, index, error),
            Err(_) => self.suspects.push((index, connection.generation)),
        }
        // The request is on its way before the socket is registered: one that is answered at once is one event.
        let writable = !connection.unsent.is_empty();
        let registered = match (is_new, writable) {
            (true, _) => connection.register(&self.epoll, index, writable),
            (false, true) => connection.hear_writable(&self.epoll, index),
            (false, false) => Ok(()),
        };
        if let Err(error) = registered {
            self.cannot_open(connection, index, error);
        }
    }

    fn open(&mut self, connection: &mut Connection) -> Result<(), Errno> {
        // One small request on a new connection is never held back.
        connection.open(self.target, !self.closes || self.out.len() > 1024)?;
        self.tally.opened += 1;
        self.tally.reconnects += u64::from(std::mem::take(&mut connection.was_closed));
        Ok(())
    }

    /// Opens a connection for later use.
    pub(super) fn open_idle(&mut self, connection: &mut Connection, index: usize) {
        connection.since = self.now;
        if self.open(connection).is_err() || connection.register(&self.epoll, index, true).is_err() {
            return connection.close(true);
        }
        if connection.is_connecting {
            connection.state = State::Opening;
            self.opening += 1;
        }
    }

    /// Something has happened to a connection.
    #[inline]
    pub(super) fn ready(&mut self, connection: &mut Connection, index: usize, flags: EventFlags) {
        let waits_to_write = connection.is_connecting || !connection.unsent.is_empty();
        if waits_to_write && flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP) {
            self.writable(connection, index);
        }
        let ending = match flags {
            flags if flags.intersects(EventFlags::ERR | EventFlags::HUP) => Ending::Failed,
            flags if flags.contains(EventFlags::RDHUP) => Ending::Closed,
            _ => Ending::No,
        };
        if ending != Ending::No || flags.contains(EventFlags::IN) {
            self.receive(connection, index, ending);
        }
    }

    fn writable(&mut self, connection: &mut Connection, index: usize) {
        if connection.is_connecting {
            if let Some(error) = connection.socket_error() {
                return self.cannot_open(connection, index, error);
            }
            connection.is_connecting = false;
            if self.closes {
                connection.connected.1 = clock::now();
            }
            if connection.state == State::Opening {
                connection.state = State::Free;
                self.opening -= 1;
            }
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
            Err(_) => self.suspects.push((index, connection.generation)),
        }
    }

    fn count_sent(&mut self, sent: usize) {
        if self.is_counting {
            self.tally.sent += sent as u64;
        }
    }
}
