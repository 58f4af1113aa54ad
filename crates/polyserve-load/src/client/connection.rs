//! One connection of a client thread, and the system calls on it.
//!
//! Invariant: `pending[next..]` are the requests that were sent, or are to be sent again, and have no answer yet. Cost:
//! about 300 bytes; buffers of its own only while a request or an answer's head is torn.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with, sockopt,
};

use crate::answer::Reader;
use crate::draws::Ask;

/// A request on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) ask: Ask,
    /// From when its latency counts.
    pub(crate) from: u64,
    /// Whether it was begun in the counted span.
    pub(crate) counts: bool,
    /// How often it has met a connection that was closed unannounced.
    pub(crate) retries: u8,
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing; its socket may be open.
    Free,
    /// It is being opened, for later use.
    Opening,
    /// It waits for answers.
    Busy,
    /// The server has said that it closes; requests that are pending go on the next socket.
    Closing,
    /// All is answered, and the server has not said that it closes: this end does.
    Leaving,
    /// It failed, and waits before it tries again.
    Resting,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) state: State,
    /// Which of its sockets this is: an event of an earlier one is stale.
    pub(crate) generation: u32,
    /// Whether the socket is not known to be connected.
    pub(crate) is_connecting: bool,
    /// Whether readiness for writing is asked for.
    pub(crate) hears_writable: bool,
    /// Whether an answer has come on this socket.
    pub(crate) is_proven: bool,
    /// Whether the server closed the last socket between requests.
    pub(crate) was_closed: bool,
    pub(crate) pending: Vec<Pending>,
    pub(crate) next: usize,
    /// What the socket did not take yet.
    pub(crate) unsent: Vec<u8>,
    /// An incomplete head or line of an answer.
    pub(crate) kept: Vec<u8>,
    pub(crate) reader: Reader,
    /// Since when it is as it is, or the last answer came: patience counts from here.
    pub(crate) since: u64,
    /// Since when it may have been free: what it had to wait for can have been there from then on.
    pub(crate) free_since: u64,
    /// Where every request has its own connection: when connecting began, and when it was over.
    pub(crate) connected: (u64, u64),
    /// Failures in a row.
    pub(crate) failures: u32,
    /// Whether the pending requests were not sent, because this machine had no port or descriptor.
    pub(crate) is_short: bool,
    /// Since when.
    pub(crate) short_since: Option<u64>,
}

impl Connection {
    pub(crate) fn new() -> Self {
        Self {
            socket: None,
            state: State::Free,
            generation: 0,
            is_connecting: false,
            hears_writable: false,
            is_proven: false,
            was_closed: false,
            pending: Vec::new(),
            next: 0,
            unsent: Vec::new(),
            kept: Vec::new(),
            reader: Reader::default(),
            since: 0,
            free_since: 0,
            connected: (0, 0),
            failures: 0,
            is_short: false,
            short_since: None,
        }
    }

    /// The requests without an answer.
    pub(crate) fn waiting(&self) -> &[Pending] {
        self.pending.get(self.next..).unwrap_or_default()
    }

    /// The requests without an answer have met a closed connection. Answers how many of them have done so more than `most`
    /// times: as a batch is sent in order, these are the first.
    pub(crate) fn retry(&mut self, most: u8) -> usize {
        let waiting = self.pending.get_mut(self.next..).unwrap_or_default();
        waiting.iter_mut().for_each(|pending| pending.retries = pending.retries.saturating_add(1));
        waiting.iter().take_while(|pending| pending.retries > most).count()
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.next >= self.pending.len()
    }

    /// Makes a socket and begins to connect it.
    pub(crate) fn open(&mut self, target: SocketAddr, no_delay: bool) -> Result<(), Errno> {
        let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        if no_delay {
            sockopt::set_tcp_nodelay(&socket, true)?;
            // Requests are to leave when they are due: no pacing, as BBR has it. Where the system has no other, so be it.
            let _ = sockopt::set_tcp_congestion(&socket, "reno");
        }
        self.is_connecting = match connect(&socket, &target) {
            Ok(()) => false,
            Err(Errno::INPROGRESS | Errno::INTR) => true,
            Err(error) => return Err(error),
        };
        self.socket = Some(socket);
        (self.is_short, self.short_since) = (false, None);
        Ok(())
    }

    /// Closes the socket where it is open. Where this end is the first to close, the port is free at once: no
    /// connection is left in TIME_WAIT, of which thousands would use up the ports.
    pub(crate) fn close(&mut self, is_first: bool) {
        let Some(socket) = self.socket.take() else { return };
        if is_first {
            // Where this fails the port is free a minute later.
            let _ = sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
        }
        drop(socket);
        self.generation = self.generation.wrapping_add(1);
        self.is_connecting = false;
        self.hears_writable = false;
        self.is_proven = false;
        self.unsent.clear();
        self.kept.clear();
        self.reader.reset();
    }

    /// Registers the socket for edges.
    pub(crate) fn register(&mut self, epoll: &OwnedFd, index: usize, writable: bool) -> Result<(), Errno> {
        let Some(socket) = &self.socket else { return Ok(()) };
        self.hears_writable = writable;
        epoll::add(epoll, socket, token(index, self.generation), interest(writable))
    }

    /// Asks to hear when the socket takes more.
    pub(crate) fn hear_writable(&mut self, epoll: &OwnedFd, index: usize) -> Result<(), Errno> {
        let Some(socket) = &self.socket else { return Ok(()) };
        if self.hears_writable {
            return Ok(());
        }
        self.hears_writable = true;
        epoll::modify(epoll, socket, token(index, self.generation), interest(true))
    }

    /// Sends as much as the socket takes: how much that was.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let Some(socket) = &self.socket else { return Err(Errno::NOTCONN) };
        loop {
            match send(socket, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    self.is_connecting = false;
                    return Ok(sent);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                Err(error) => return Err(error),
            }
        }
    }

    /// Receives into `room`: how much that was, 0 at the end, `None` where nothing is there.
    pub(crate) fn receive(&mut self, room: &mut [u8]) -> Result<Option<usize>, Errno> {
        let Some(socket) = &self.socket else { return Ok(None) };
        loop {
            match recv(socket, &mut *room, RecvFlags::empty()) {
                Ok((_, received)) => return Ok(Some(received)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether connecting has failed.
    pub(crate) fn socket_error(&self) -> Option<Errno> {
        let socket = self.socket.as_ref()?;
        sockopt::socket_error(socket).unwrap_or_else(Err).err()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close(true);
    }
}

fn interest(writable: bool) -> epoll::EventFlags {
    let read = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
    if writable { read | epoll::EventFlags::OUT } else { read }
}

/// What an event carries: the connection, and which of its sockets.
fn token(index: usize, generation: u32) -> epoll::EventData {
    epoll::EventData::new_u64(index as u64 | u64::from(generation) << 32)
}

/// The connection and the generation of a token.
pub(crate) fn read_token(token: u64) -> (usize, u32) {
    ((token & 0xffff_ffff) as usize, (token >> 32) as u32)
}
