//! Closed connections that are still read from, so that the client sees the last answer and not a reset.
//!
//! A connection that is closed with unread bytes is reset by the kernel, and the reset may overtake the answer. So the
//! writing side is closed, and what comes is thrown away until the client closes or the time is up. Bounded: the
//! oldest departure makes room for a new one.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant, SystemTime};

use super::ServerState;
use crate::http1::{Scratch, Session};

/// Connections that depart. It waits for nothing itself: who has it polls its [`sockets`](Self::sockets), and then
/// [sweeps](Self::sweep).
#[derive(Debug)]
pub struct LingeringSet {
    list: VecDeque<(TcpStream, Instant)>,
    timeout: Duration,
}

/// More than this depart at once only in a flood.
const MOST: usize = 256;

impl LingeringSet {
    /// None yet; each is given `timeout`.
    pub fn new(timeout: Duration) -> Self {
        Self { list: VecDeque::new(), timeout }
    }

    /// Sees `stream` off.
    pub fn add(&mut self, stream: TcpStream) {
        if stream.shutdown(Shutdown::Write).is_err() || stream.set_nonblocking(true).is_err() {
            return;
        }
        if self.list.len() == MOST {
            self.list.pop_front();
        }
        self.list.push_back((stream, Instant::now() + self.timeout));
        self.sweep();
    }

    /// Tells a newcomer that there is no room, and sees it off.
    pub fn reject(&mut self, stream: TcpStream, server: &ServerState) {
        let (mut session, mut scratch) = (Session::new(), Scratch::new());
        scratch.refresh(SystemTime::now(), true);
        let _ = session.reject(&server.env, &mut scratch);
        if stream.set_nonblocking(true).is_ok()
            && let Ok(written) = (&stream).write(scratch.out())
        {
            session.written(written, &mut scratch);
            server.abandon(&mut session);
            self.add(stream);
        }
    }

    /// Throws away what has come; forgets who is gone or late.
    pub fn sweep(&mut self) {
        let now = Instant::now();
        let mut waste = [0; 16 * 1024];
        self.list.retain_mut(|(stream, deadline)| *deadline > now && discard(stream, &mut waste));
    }

    /// Their sockets; one that becomes readable is to be swept.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.list.iter().map(|(stream, _)| stream.as_fd())
    }

    /// When the next one is late.
    pub fn deadline(&self) -> Option<Instant> {
        self.list.iter().map(|(_, deadline)| *deadline).min()
    }
}

/// Reads and forgets, within bounds. False where nothing more will come.
pub fn discard(mut stream: impl Read, waste: &mut [u8]) -> bool {
    for _ in 0..64 {
        match stream.read(waste) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
    true
}
