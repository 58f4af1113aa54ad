//! One connection of a crowd: a non-blocking socket, and the state of its steps.
//!
//! Invariant: a connection is closed by a reset, so that its port is free at once; it keeps at most
//! [`MAX_KEPT_BYTES`] bytes of its answers. Cost: a system call for each step.

use std::io::{self, ErrorKind, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use super::steps::{ConnectionSteps, Then};

/// An open connection of a crowd.
#[derive(Debug)]
pub(super) struct CrowdConnection {
    socket: Socket,
    is_connected: bool,
    /// The number of sent bytes of the first step.
    sent: usize,
    /// The received bytes, at most [`MAX_KEPT_BYTES`].
    received: Vec<u8>,
    /// Whether `Begun` or `Answered` was returned.
    has_begun: bool,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepResult {
    /// No change.
    Nothing,
    /// The first bytes are sent, or there is something to read. The connection takes turns from now on.
    Begun,
    /// The answer has arrived. The connection is idle from now on.
    Answered,
    /// The connection has ended.
    Ended(ConnectionEnd),
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

impl CrowdConnection {
    /// Begins to connect, from `source` if it is given. Events of the socket are reported by `epoll` with `data`.
    pub(super) fn open(
        target: SocketAddr,
        source: Option<IpAddr>,
        steps: &ConnectionSteps,
        epoll: impl std::os::fd::AsFd,
        data: EventData,
    ) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(target), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_linger(Some(Duration::ZERO))?;
        socket.set_tcp_nodelay(true)?;
        if matches!(steps.then, Then::Read) {
            socket.set_recv_buffer_size(RECEIVE_BUFFER_SIZE)?;
            socket.set_tcp_mss(MAX_SEGMENT_SIZE)?;
        }
        if let Some(source) = source {
            socket.bind(&SocketAddr::new(source, 0).into())?;
        }
        match socket.connect(&target.into()) {
            Err(error) if Errno::from_io_error(&error) != Some(Errno::INPROGRESS) => return Err(error),
            _ => {}
        }
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(epoll, socket.as_fd(), data, flags)?;
        Ok(Self { socket, is_connected: false, sent: 0, received: Vec::new(), has_begun: false })
    }

    /// Handles an event with these flags.
    pub(super) fn ready(&mut self, flags: EventFlags, steps: &ConnectionSteps) -> StepResult {
        let mut step = StepResult::Nothing;
        if !self.is_connected {
            if flags.intersects(EventFlags::ERR | EventFlags::HUP) {
                return StepResult::Ended(ConnectionEnd::Unreachable);
            }
            if !flags.contains(EventFlags::OUT) {
                return StepResult::Nothing;
            }
            self.is_connected = true;
            match self.socket.send(&steps.first) {
                Ok(sent) if sent == steps.first.len() => {
                    if matches!(steps.then, Then::Write(_)) {
                        step = StepResult::Begun;
                    }
                }
                // A send buffer holds more than the first bytes. An error means that the server has closed already.
                Ok(_) => return StepResult::Ended(ConnectionEnd::Cut),
                Err(_) => return self.closed(),
            }
        }
        let is_over = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        match &steps.then {
            Then::Read if is_over => self.closed(),
            // The first bytes of an answer: the server has accepted the connection.
            Then::Read if flags.contains(EventFlags::IN) && !self.has_begun => {
                self.has_begun = true;
                StepResult::Begun
            }
            Then::Read => step,
            Then::Idle(_) | Then::Write(_) if flags.contains(EventFlags::IN) || is_over => {
                let received = self.receive(steps);
                if received == StepResult::Nothing { step } else { received }
            }
            Then::Idle(_) | Then::Write(_) => step,
        }
    }

    /// Takes a turn. Only for a connection that has begun.
    pub(super) fn turn(&mut self, steps: &ConnectionSteps) -> StepResult {
        let result = match &steps.then {
            Then::Idle(_) => return StepResult::Nothing,
            Then::Write(text) => {
                let at = self.sent.min(text.len().saturating_sub(1));
                self.socket.send(&text[at..(at + 1).min(text.len())]).inspect(|count| self.sent += count)
            }
            Then::Read => match self.read_some() {
                Ok(0) => return StepResult::Ended(self.end()),
                result => result,
            },
        };
        match result {
            Err(error) if !is_temporary(&error) => self.closed(),
            _ => StepResult::Nothing,
        }
    }

    /// Reads all available bytes.
    fn receive(&mut self, steps: &ConnectionSteps) -> StepResult {
        let mut bytes = [0; MAX_KEPT_BYTES];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => return StepResult::Ended(self.end()),
                Ok(count) => self.keep(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_temporary(&error) => break,
                Err(_) => return StepResult::Ended(self.end()),
            }
        }
        let Then::Idle(body) = &steps.then else { return StepResult::Nothing };
        if !self.has_begun && status(&self.received) == Some(200) && self.received.ends_with(body) {
            self.has_begun = true;
            self.received = Vec::new();
            return StepResult::Answered;
        }
        StepResult::Nothing
    }

    /// Reads the last bytes of a server that has closed.
    fn closed(&mut self) -> StepResult {
        while self.received.len() < READ_SIZE && self.read_some().is_ok_and(|count| count > 0) {}
        StepResult::Ended(self.end())
    }

    fn read_some(&mut self) -> io::Result<usize> {
        let mut bytes = [0; READ_SIZE];
        let count = self.socket.read(&mut bytes)?;
        self.keep(&bytes[..count]);
        Ok(count)
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
