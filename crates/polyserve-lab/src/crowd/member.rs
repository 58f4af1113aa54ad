//! One connection of a crowd: a socket that never blocks, and how far its script is.
//!
//! Invariant: it is closed by a reset, so that it leaves no port behind; and what it has heard is kept to the first few
//! hundred bytes. Cost: a system call a step.

use std::io::{self, ErrorKind, Read as _};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use super::script::{Script, Then};

/// A member that has a socket.
#[derive(Debug)]
pub(super) struct Member {
    socket: Socket,
    is_connected: bool,
    /// Bytes that it has dripped.
    dripped: usize,
    /// What it has heard, up to [`KEPT`] bytes.
    heard: Vec<u8>,
    /// Whether it has told that it has begun, or that it rests.
    has_told: bool,
}

/// What has become of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing yet.
    Nothing,
    /// It has sent its first, or has something to read, and goes on.
    Begun,
    /// It has its answer, and rests.
    Answered,
    /// It is over.
    Ended(End),
}

/// How a member has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Answered 503.
    Refused,
    /// Answered 408.
    TimedOut,
    /// Closed by the server without a word, or with another one.
    Cut,
    /// It was never connected.
    Unreachable,
}

/// What is kept of an answer.
const KEPT: usize = 512;

/// What a slow reader reads at a time, and what its system keeps for it, at most. The system may take more.
const SIP: usize = 16;
const WINDOW: usize = 4096;

/// The largest segment that a slow reader takes, as far away as clients are. By that of the loopback, 64 KiB, the server's
/// system would keep megabytes for each connection, and the server never notice that nobody reads.
const SEGMENT: u32 = 1460;

impl Member {
    /// Begins to connect, from `source` where one is given; its events are told to `epoll` with `data`.
    pub(super) fn open(
        target: SocketAddr,
        source: Option<IpAddr>,
        script: &Script,
        epoll: impl std::os::fd::AsFd,
        data: EventData,
    ) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(target), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_linger(Some(Duration::ZERO))?;
        socket.set_tcp_nodelay(true)?;
        if matches!(script.then, Then::Read) {
            socket.set_recv_buffer_size(WINDOW)?;
            socket.set_tcp_mss(SEGMENT)?;
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
        Ok(Self { socket, is_connected: false, dripped: 0, heard: Vec::new(), has_told: false })
    }

    /// What an event of these flags brings.
    pub(super) fn ready(&mut self, flags: EventFlags, script: &Script) -> Step {
        let mut step = Step::Nothing;
        if !self.is_connected {
            if flags.intersects(EventFlags::ERR | EventFlags::HUP) {
                return Step::Ended(End::Unreachable);
            }
            if !flags.contains(EventFlags::OUT) {
                return Step::Nothing;
            }
            self.is_connected = true;
            match self.socket.send(&script.first) {
                Ok(sent) if sent == script.first.len() => {
                    if matches!(script.then, Then::Write(_)) {
                        step = Step::Begun;
                    }
                }
                // No system has so small a buffer; and an error says that the server has closed already.
                Ok(_) => return Step::Ended(End::Cut),
                Err(_) => return self.over(),
            }
        }
        let is_over = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        match &script.then {
            Then::Read if is_over => self.over(),
            // With the first bytes the server has come to it.
            Then::Read if flags.contains(EventFlags::IN) && !self.has_told => {
                self.has_told = true;
                Step::Begun
            }
            Then::Read => step,
            Then::Rest(_) | Then::Write(_) if flags.contains(EventFlags::IN) || is_over => {
                let heard = self.hear(script);
                if heard == Step::Nothing { step } else { heard }
            }
            Then::Rest(_) | Then::Write(_) => step,
        }
    }

    /// Its turn. Only for one that has begun.
    pub(super) fn turn(&mut self, script: &Script) -> Step {
        let done = match &script.then {
            Then::Rest(_) => return Step::Nothing,
            Then::Write(text) => {
                let at = self.dripped.min(text.len().saturating_sub(1));
                self.socket.send(&text[at..(at + 1).min(text.len())]).inspect(|sent| self.dripped += sent)
            }
            Then::Read => match self.sip() {
                Ok(0) => return Step::Ended(self.end()),
                done => done,
            },
        };
        match done {
            Err(error) if !is_passing(&error) => self.over(),
            _ => Step::Nothing,
        }
    }

    /// Reads all there is.
    fn hear(&mut self, script: &Script) -> Step {
        let mut bytes = [0; KEPT];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => return Step::Ended(self.end()),
                Ok(count) => self.keep(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_passing(&error) => break,
                Err(_) => return Step::Ended(self.end()),
            }
        }
        let Then::Rest(body) = &script.then else { return Step::Nothing };
        if !self.has_told && status(&self.heard) == Some(200) && self.heard.ends_with(body) {
            self.has_told = true;
            self.heard = Vec::new();
            return Step::Answered;
        }
        Step::Nothing
    }

    /// The server is gone: what it has said at last.
    fn over(&mut self) -> Step {
        while self.heard.len() < SIP && self.sip().is_ok_and(|count| count > 0) {}
        Step::Ended(self.end())
    }

    fn sip(&mut self) -> io::Result<usize> {
        let mut bytes = [0; SIP];
        let count = self.socket.read(&mut bytes)?;
        self.keep(&bytes[..count]);
        Ok(count)
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.heard.extend_from_slice(&bytes[..bytes.len().min(KEPT.saturating_sub(self.heard.len()))]);
    }

    fn end(&self) -> End {
        match status(&self.heard) {
            Some(503) => End::Refused,
            Some(408) => End::TimedOut,
            _ => End::Cut,
        }
    }
}

fn status(heard: &[u8]) -> Option<u16> {
    let digits = heard.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Whether it may be tried again.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses() {
        for (heard, number) in [
            (&b"HTTP/1.1 503 Service Unavailable\r\n"[..], Some(503)),
            (b"HTTP/1.1 408", Some(408)),
            (b"HTTP/1.1 40", None),
            (b"HTTP/1.0 200 OK", None),
            (b"", None),
        ] {
            assert_eq!(status(heard), number);
        }
    }
}
