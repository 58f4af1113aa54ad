//! A connection with a thread that waits in `poll(2)`.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use super::{Read, Transport};
use crate::http1::Phase;
use crate::net;
use crate::serving::{EVICTION_GRACE, OpenConnection, OpenConnections, ServerState, wait};

/// The pause between two reads of a socket if its reading side was closed while a request was arriving.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// A connection of [`OpenConnections`]. Its thread waits in `poll(2)`.
///
/// It is evicted if others wait for a thread while it is idle or skips a body. A drain wakes its thread by
/// [`OpenConnections::evict_idle`]. On a thread of a pool, a connection that has not sent a byte gives its thread up.
#[derive(Debug)]
pub struct PolledSocket<'a> {
    connection: &'a Arc<OpenConnection>,
    connections: &'a OpenConnections,
    server: &'a ServerState,
    /// Nothing was read yet; the connection counts as idle from this time on.
    silent_until: Option<Instant>,
    /// The connection has a thread of a pool.
    is_pooled: bool,
    is_silent: bool,
}

impl<'a> PolledSocket<'a> {
    /// Creates a connection from which nothing was read yet. It cannot be evicted for `grace`, because its first bytes
    /// usually follow.
    pub fn new(
        connection: &'a Arc<OpenConnection>,
        connections: &'a OpenConnections,
        server: &'a ServerState,
        grace: Duration,
    ) -> Self {
        let silent_until = Some(Instant::now() + grace);
        Self { connection, connections, server, silent_until, is_pooled: false, is_silent: false }
    }

    /// Creates a connection on a thread of a pool, from which nothing was read yet. If its first byte does not arrive within
    /// `first_byte`, or if others wait for a thread, the connection [is silent](Self::is_silent), and leaves.
    pub fn pooled(
        connection: &'a Arc<OpenConnection>,
        connections: &'a OpenConnections,
        server: &'a ServerState,
        first_byte: Duration,
    ) -> Self {
        Self { is_pooled: true, ..Self::new(connection, connections, server, first_byte) }
    }

    /// Whether the connection has left its thread without having sent a byte. It can be served again.
    pub fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Waits for the socket, and for an eviction if `is_idle`.
    fn wait(&self, flags: PollFlags, is_idle: bool, deadline: Instant) -> io::Result<()> {
        let eviction = self.connection.eviction().filter(|_| is_idle).map(|fd| (fd, PollFlags::IN));
        let sockets = [(self.connection.stream().as_fd(), flags)].into_iter().chain(eviction);
        wait(sockets, Some(deadline), &mut Vec::new())
    }

    /// Whether the connection may be evicted while it waits for a request. In a pool it cannot be before its first byte,
    /// but a drain closes it.
    fn may_be_evicted(&self) -> bool {
        let is_over = |until| Instant::now() >= until;
        self.silent_until.is_none_or(|until| if self.is_pooled { self.is_draining() } else { is_over(until) })
    }

    /// Whether the connection gives its thread up, because its first byte is not there.
    fn gives_up(&self) -> bool {
        let is_late = |until| Instant::now() >= until || self.connections.is_short();
        self.is_pooled && self.silent_until.is_some_and(is_late) && !self.is_draining()
    }

    fn is_draining(&self) -> bool {
        self.server.shutdown.is_begun()
    }
}

impl Transport for PolledSocket<'_> {
    fn read(&mut self, buffer: &mut [u8], phase: Phase, deadline: Instant) -> io::Result<Read> {
        let mut is_idle = false; // whether the connection is noted as idle, so that it may be evicted
        let mut grace_until = None;
        // A client that waited for an answer has sent nothing since, so a read right after the answer would find nothing.
        let mut waits_first = phase.may_close() && self.silent_until.is_none();
        loop {
            if phase.may_close() && !is_idle && self.may_be_evicted() {
                self.connections.set_idle(self.connection);
                is_idle = true;
                grace_until = Some(Instant::now() + EVICTION_GRACE);
            }
            let grace = grace_until.filter(|until| !self.is_draining() && Instant::now() < *until);
            if is_idle && grace.is_none() {
                self.connection.must_be_woken();
            }
            // The checks come after the stores: either the drain sees that this connection is idle, or this thread sees the
            // drain. The same holds for an eviction.
            let is_evicted = is_idle && self.connection.is_evicted();
            let leaves = is_idle && (self.is_draining() || is_evicted) && grace.is_none();
            if leaves || !std::mem::take(&mut waits_first) {
                match net::receive(self.connection.stream(), buffer) {
                    Ok(0) if self.connection.is_read_closed() && phase.may_close() => return Ok(Read::Leave),
                    Ok(0) if self.connection.is_read_closed() && Instant::now() < self.server.within(deadline) => {
                        // A request began to arrive at the same time. Its rest can still be read.
                        thread::park_timeout(LOOK_AGAIN);
                        continue;
                    }
                    Ok(0) => return Ok(Read::End),
                    Ok(count) => {
                        if is_idle {
                            self.connections.set_busy(self.connection);
                        }
                        self.silent_until = None;
                        return Ok(Read::Bytes(count));
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                    Err(_) if leaves && self.is_draining() => return Ok(Read::Leave),
                    Err(_) if leaves => return Ok(Read::Evicted),
                    Err(_) => {}
                }
                if self.gives_up() {
                    self.is_silent = true;
                    return Ok(Read::Leave);
                }
                if Instant::now() >= deadline {
                    return Ok(Read::TimedOut);
                }
            }
            // Without a descriptor, this thread looks for an eviction at the end of the grace.
            let grace = grace.filter(|_| is_evicted || self.connection.eviction().is_none());
            let until = grace.or(self.silent_until.filter(|_| phase == Phase::Idle && !is_idle));
            self.wait(PollFlags::IN, is_idle && !is_evicted, until.map_or(deadline, |until| until.min(deadline)))?;
        }
    }

    fn write(&mut self, bytes: &[u8], last: bool, deadline: Instant) -> usize {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match net::send(self.connection.stream(), rest, last) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let deadline = self.server.within(deadline);
                    if Instant::now() >= deadline || self.wait(PollFlags::OUT, false, deadline).is_err() {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        written
    }

    fn others_wait(&self) -> bool {
        self.connections.is_wanted(self.connection)
    }
}
