//! One connection of a client thread, and the system calls on it.
//!
//! Invariant: `pending[next..]` are the requests without an answer that were sent or will be sent again. Cost: about 300
//! bytes. A connection has buffers only while a request or the head of an answer is incomplete.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with, sockopt,
};

use crate::answer::Reader;
use crate::request_stream::PlannedRequest;
use crate::tls::{ClientSession, ClientTls};

/// A request without an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) planned: PlannedRequest,
    /// The start of its latency.
    pub(crate) from: u64,
    /// The time at which this attempt was due: the same, unless it was sent before.
    pub(crate) due: u64,
    /// The number of this attempt, from 1.
    pub(crate) attempt: u32,
    /// Whether it was begun in the measured period.
    pub(crate) counts: bool,
    /// The number of times that the server closed the connection before an answer, without an announcement.
    pub(crate) retries: u8,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The connection has no requests. Its socket may be open.
    Free,
    /// The connection is being opened before the load.
    Opening,
    /// The connection waits for answers.
    Busy,
    /// The server has announced a close. Pending requests go to the next socket.
    Closing,
    /// All requests are answered, and the server has not announced a close: the client closes.
    Leaving,
    /// The connection has failed. It waits before the next attempt.
    BackingOff,
}

/// The state of a connection's end, as an event reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndHint {
    /// The connection is open.
    None,
    /// The server has closed the connection: no byte follows those in the socket.
    Closed,
    /// The socket has an error to read.
    Failed,
    /// A write has failed.
    WriteFailed,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    pub(crate) socket: Option<OwnedFd>,
    /// The TLS of the socket.
    tls: Option<ClientSession>,
    pub(crate) state: State,
    /// The number of the socket: an event with another number is stale.
    pub(crate) generation: u32,
    /// Whether the connect, or the handshake of TLS, may still be in progress.
    pub(crate) is_connecting: bool,
    /// Whether the socket is registered for readiness to write.
    pub(crate) waits_writable: bool,
    /// Whether an answer has arrived on this socket.
    pub(crate) is_proven: bool,
    /// Whether the server closed the last socket between requests.
    pub(crate) was_closed: bool,
    pub(crate) pending: Vec<Pending>,
    pub(crate) next: usize,
    /// Bytes that the socket has not taken yet.
    pub(crate) unsent: Vec<u8>,
    /// An incomplete head or line of an answer.
    pub(crate) partial: Vec<u8>,
    pub(crate) reader: Reader,
    /// The time of the last change of state or answer. The client's timeout counts from it.
    pub(crate) since: u64,
    /// The earliest time at which the connection may have been free: the last answer may have arrived then.
    pub(crate) free_since: u64,
    /// If every request has its own connection: the start and the end of the connect.
    pub(crate) connected: (u64, u64),
    /// The time of the first byte on this socket; 0 before.
    pub(crate) first_byte: u64,
    /// Consecutive failures.
    pub(crate) failures: u32,
    /// Whether the pending requests were not sent because this machine had no free port or descriptor.
    pub(crate) has_shortage: bool,
    /// The start of that shortage.
    pub(crate) shortage_since: Option<u64>,
}

impl ClientConnection {
    pub(crate) fn new() -> Self {
        Self {
            socket: None,
            tls: None,
            state: State::Free,
            generation: 0,
            is_connecting: false,
            waits_writable: false,
            is_proven: false,
            was_closed: false,
            pending: Vec::new(),
            next: 0,
            unsent: Vec::new(),
            partial: Vec::new(),
            reader: Reader::default(),
            since: 0,
            free_since: 0,
            connected: (0, 0),
            first_byte: 0,
            failures: 0,
            has_shortage: false,
            shortage_since: None,
        }
    }

    /// Returns the requests without an answer.
    pub(crate) fn waiting(&self) -> &[Pending] {
        self.pending.get(self.next..).unwrap_or_default()
    }

    /// Counts a retry for each request without an answer. Returns the number of requests with more than `max_retries` retries.
    /// A batch is sent in order, so these are the first ones.
    pub(crate) fn retry(&mut self, max_retries: u8) -> usize {
        let waiting = self.pending.get_mut(self.next..).unwrap_or_default();
        waiting.iter_mut().for_each(|pending| pending.retries = pending.retries.saturating_add(1));
        waiting.iter().take_while(|pending| pending.retries > max_retries).count()
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.next >= self.pending.len()
    }

    /// Opens a socket and starts the connect.
    pub(crate) fn open(&mut self, target: SocketAddr, tls: Option<&ClientTls>, no_delay: bool) -> Result<(), Errno> {
        self.tls = tls.map(ClientSession::new).transpose()?;
        let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        if no_delay {
            sockopt::set_tcp_nodelay(&socket, true)?;
            // BBR would pace the requests, which must leave when they are due. If the system has no Reno, its default stays.
            let _ = sockopt::set_tcp_congestion(&socket, "reno");
        }
        self.is_connecting = match connect(&socket, &target) {
            Ok(()) => self.tls.is_some(),
            Err(Errno::INPROGRESS | Errno::INTR) => true,
            Err(error) => return Err(error),
        };
        self.socket = Some(socket);
        (self.has_shortage, self.shortage_since) = (false, None);
        Ok(())
    }

    /// Closes the socket, if any. If the client closes first, the close is a reset, which frees the port at once. Otherwise
    /// thousands of connections in TIME_WAIT would use up the ports.
    pub(crate) fn close(&mut self, is_first: bool) {
        let Some(socket) = self.socket.take() else { return };
        if is_first {
            // If this fails, the port is free a minute later.
            let _ = sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
        }
        drop(socket);
        self.tls = None;
        self.generation = self.generation.wrapping_add(1);
        self.is_connecting = false;
        self.waits_writable = false;
        self.is_proven = false;
        self.first_byte = 0;
        self.unsent.clear();
        self.partial.clear();
        self.reader.reset();
    }

    /// Registers the socket, edge-triggered.
    pub(crate) fn register(&mut self, epoll: &OwnedFd, index: usize, writable: bool) -> Result<(), Errno> {
        let Some(socket) = &self.socket else { return Ok(()) };
        self.waits_writable = writable;
        epoll::add(epoll, socket, token(index, self.generation), interest(writable))
    }

    /// Registers the socket for readiness to write.
    pub(crate) fn watch_writable(&mut self, epoll: &OwnedFd, index: usize) -> Result<(), Errno> {
        let Some(socket) = &self.socket else { return Ok(()) };
        if self.waits_writable {
            return Ok(());
        }
        self.waits_writable = true;
        epoll::modify(epoll, socket, token(index, self.generation), interest(true))
    }

    /// Sends as many bytes as the socket takes. Returns their number.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let Some(socket) = &self.socket else { return Err(Errno::NOTCONN) };
        if let Some(tls) = &mut self.tls {
            return tls.send(socket.as_fd(), bytes).map(|()| bytes.len());
        }
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

    /// Receives into `buffer`. Returns the number of bytes, 0 at the end, or `None` if the socket has no bytes.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
        let Some(socket) = &self.socket else { return Ok(None) };
        if let Some(tls) = &mut self.tls {
            return tls.receive(socket.as_fd(), buffer);
        }
        loop {
            match recv(socket, &mut *buffer, RecvFlags::empty()) {
                Ok((_, received)) => return Ok(Some(received)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends the bytes that TLS keeps, as many as the socket takes.
    pub(crate) fn flush_tls(&mut self) -> Result<(), Errno> {
        match (&self.socket, &mut self.tls) {
            (Some(socket), Some(tls)) => tls.flush(socket.as_fd()),
            _ => Ok(()),
        }
    }

    /// Whether the socket is connected to the server, given that its connect has ended: the handshake of TLS has ended too.
    pub(crate) fn is_established(&self) -> bool {
        self.tls.as_ref().is_none_or(ClientSession::is_established)
    }

    /// Whether the connection has TLS.
    pub(crate) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether the connection has something to do once its socket is ready to write.
    #[inline]
    pub(crate) fn waits_to_write(&self) -> bool {
        self.is_connecting || !self.unsent.is_empty() || self.tls.as_ref().is_some_and(ClientSession::has_unsent)
    }

    /// Returns the error of the socket, if any.
    pub(crate) fn socket_error(&self) -> Option<Errno> {
        let socket = self.socket.as_ref()?;
        sockopt::socket_error(socket).unwrap_or_else(Err).err()
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.close(true);
    }
}

fn interest(writable: bool) -> epoll::EventFlags {
    let read = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
    if writable { read | epoll::EventFlags::OUT } else { read }
}

/// The data of an event: the connection, and the number of its socket.
fn token(index: usize, generation: u32) -> epoll::EventData {
    epoll::EventData::new_u64(index as u64 | u64::from(generation) << 32)
}

/// Returns the connection and the socket number of an event.
pub(crate) fn read_token(token: u64) -> (usize, u32) {
    ((token & 0xffff_ffff) as usize, (token >> 32) as u32)
}
