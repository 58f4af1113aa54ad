//! A task: one connection from its first byte to its close, on a thread of the pool that waits in `poll(2)`.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::http1::Phase;
use polyserve_core::net;
use polyserve_core::panics::isolate;
use polyserve_core::serving::blocking::{Read, Transport, drive};
use polyserve_core::serving::{wait, with_buffers};
use rustix::event::PollFlags;

use super::dispatcher::{Dispatcher, Seat};

/// How long to rest between looks at a socket whose reading side we closed while a request was coming in.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Serves the connection that has waited for longest, if there is one.
pub(super) fn serve_next(dispatcher: &Dispatcher) {
    let Some(seat) = dispatcher.sit() else { return };
    let mut visit = Visit { dispatcher, seat: Arc::clone(&seat), fresh: true };
    // A service's panics are the session's; whatever else panics, the thread is the pool's and must go on.
    let served = isolate(|| with_buffers(|buffers| drive(&mut visit, &dispatcher.server, buffers, Instant::now())));
    drop(visit);
    dispatcher.rise(seat, served.unwrap_or(false));
}

struct Visit<'a> {
    dispatcher: &'a Dispatcher,
    seat: Arc<Seat>,
    /// Nothing has been read yet; something is there.
    fresh: bool,
}

impl Visit<'_> {
    fn wait(&self, flags: PollFlags, deadline: Instant) -> io::Result<()> {
        wait([(self.seat.stream.as_fd(), flags)], Some(deadline), &mut Vec::new())
    }
}

impl Transport for Visit<'_> {
    fn read(&mut self, buffer: &mut [u8], phase: Phase, deadline: Instant) -> io::Result<Read> {
        let (dispatcher, seat) = (self.dispatcher, &*self.seat);
        let idle = phase == Phase::Idle && !std::mem::take(&mut self.fresh);
        if idle {
            dispatcher.idle(seat);
        }
        // After that: either the drain sees that this connection is idle, or this thread sees the drain.
        let leaves = phase == Phase::Idle && dispatcher.server.shutdown.is_begun();
        // After an answer, a client that waits for it has sent nothing: a read would find nothing.
        let mut waits_first = idle && !leaves;
        loop {
            if !std::mem::take(&mut waits_first) {
                match net::receive(&seat.stream, buffer) {
                    Ok(0) if seat.is_shut() && idle => return Ok(Read::Leave),
                    Ok(0) if seat.is_shut() && Instant::now() < dispatcher.server.within(deadline) => {
                        // A request had begun to come in just then; the rest of it can still be read.
                        thread::park_timeout(LOOK_AGAIN);
                        continue;
                    }
                    Ok(0) => return Ok(Read::End),
                    Ok(count) => {
                        if idle {
                            dispatcher.resume(seat);
                        }
                        return Ok(Read::Bytes(count));
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                    Err(_) if leaves => return Ok(Read::Leave),
                    Err(_) => {}
                }
            }
            if Instant::now() >= deadline {
                return Ok(Read::TimedOut);
            }
            self.wait(PollFlags::IN, deadline)?;
        }
    }

    fn write(&mut self, bytes: &[u8], last: bool, deadline: Instant) -> usize {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match net::send(&self.seat.stream, rest, last) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let deadline = self.dispatcher.server.within(deadline);
                    if Instant::now() >= deadline || self.wait(PollFlags::OUT, deadline).is_err() {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        written
    }
}
