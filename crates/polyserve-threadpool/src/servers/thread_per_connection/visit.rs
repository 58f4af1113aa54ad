//! What a connection's thread does, and how it waits: in the kernel, with the kernel's own timeouts.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::http1::Phase;
use rustix::event::PollFlags;

use super::guests::{Guest, millis_since};
use crate::servers::blocking::{Read, Transport, drive};
use crate::servers::departures::discard;
use crate::servers::desk::{Desk, House};
use crate::servers::waiting::wait;

/// What a connection's thread has.
pub(super) struct Visit {
    pub(super) name: u64,
    pub(super) guest: Arc<Guest>,
    pub(super) house: Arc<House>,
    pub(super) start: Instant,
}

impl Visit {
    pub(super) fn run(self) {
        let mut desk = Desk::new();
        let mut socket = Blocking { visit: &self, read_timeout: None, write_timeout: None };
        if drive(&mut socket, &self.house, &mut desk) {
            self.linger(&mut desk);
        }
        tracing::trace!(connection = self.name, "closed");
    }

    /// Closes the writing side and reads on until the client closes or the time is up.
    fn linger(&self, desk: &mut Desk) {
        let deadline = self.house.within(Instant::now() + self.house.config.linger_timeout);
        if self.guest.stream.shutdown(Shutdown::Write).is_err() || self.guest.stream.set_nonblocking(true).is_err() {
            return;
        }
        while discard(&self.guest.stream, &mut desk.input) && Instant::now() < deadline {
            let socket = (self.guest.stream.as_fd(), PollFlags::IN);
            if wait([socket], Some(self.house.within(deadline)), &mut Vec::new()).is_err() {
                return;
            }
        }
    }
}

/// A socket that blocks, with the kernel's own timeouts.
struct Blocking<'a> {
    visit: &'a Visit,
    /// What is set on the socket, so that it is set again only to change it.
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
}

/// How long to rest between looks at a socket whose reading side we closed while a request was coming in.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

impl Blocking<'_> {
    /// Reads what is there, without waiting.
    fn read_now(&self, buffer: &mut [u8]) -> io::Result<Read> {
        let stream = &self.visit.guest.stream;
        stream.set_nonblocking(true)?;
        let read = (&mut &*stream).read(buffer);
        stream.set_nonblocking(false)?;
        match read {
            Ok(0) => Ok(Read::End),
            Ok(count) => Ok(Read::Bytes(count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Read::Leave),
            Err(error) => Err(error),
        }
    }

    /// Lets the kernel wait for `left`, rounded up to a sixteenth of `whole`, so that a busy connection, which always
    /// has nearly the whole, keeps what is set.
    fn set_read_timeout(&mut self, left: Duration, whole: Duration) -> io::Result<()> {
        let step = (whole / 16).max(Duration::from_millis(1));
        let steps = left.as_nanos().div_ceil(step.as_nanos());
        let rounded = step * u32::try_from(steps).unwrap_or(u32::MAX);
        if self.read_timeout != Some(rounded) {
            self.visit.guest.stream.set_read_timeout(Some(rounded))?;
            self.read_timeout = Some(rounded);
        }
        Ok(())
    }

    fn set_idle(&self, idle: bool) {
        let since = if idle { millis_since(self.visit.start) + 1 } else { 0 };
        self.visit.guest.idle_since.store(since, Ordering::SeqCst);
    }
}

impl Transport for Blocking<'_> {
    fn read(&mut self, buffer: &mut [u8], phase: Phase, deadline: Instant) -> io::Result<Read> {
        let (house, guest) = (&self.visit.house, &self.visit.guest);
        let idle = phase == Phase::Idle;
        loop {
            if idle {
                self.set_idle(true);
                // In this order: either the drain sees that this connection is idle, or this thread sees the drain.
                if house.shutdown.is_begun() {
                    return self.read_now(buffer);
                }
            }
            let left = house.within(deadline).saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Read::TimedOut);
            }
            self.set_read_timeout(left, phase.timeout(&house.config))?;
            let result = (&mut &guest.stream).read(buffer);
            self.set_idle(false);
            match result {
                Ok(0) if guest.told_to_leave.load(Ordering::SeqCst) => {
                    if idle {
                        return Ok(Read::Leave);
                    }
                    // A request had begun to come in just then; the rest of it can still be read.
                    thread::park_timeout(LOOK_AGAIN);
                }
                Ok(0) => return Ok(Read::End),
                Ok(count) => {
                    guest.spoken.store(true, Ordering::SeqCst);
                    return Ok(Read::Bytes(count));
                }
                Err(error) => match error.kind() {
                    // Late or interrupted: the loop looks at the clock.
                    ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
                    _ => return Err(error),
                },
            }
        }
    }

    fn write(&mut self, bytes: &[u8], deadline: Instant) -> usize {
        let stream = &self.visit.guest.stream;
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = self.visit.house.config.write_timeout;
            // The whole timeout is set once; only a write that came back short needs what is left of it.
            let timeout = if written == 0 { timeout } else { left };
            if left.is_zero() {
                break;
            }
            if self.write_timeout != Some(timeout) {
                if stream.set_write_timeout(Some(timeout.max(Duration::from_millis(1)))).is_err() {
                    break;
                }
                self.write_timeout = Some(timeout);
            }
            match (&mut &*stream).write(rest) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        written
    }
}
