//! What a connection's thread does, and how it waits: in the kernel, with the kernel's own timeouts.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::ServerConfig;
use polyserve_core::http1::Phase;
use polyserve_core::net;
use polyserve_core::serving::{ServerState, ThreadBuffers, discard, wait};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::shared::Leader;
use super::worker::Worker;
use polyserve_core::serving::blocking::{Read, Transport, drive};

/// How long a new connection's first byte is waited for before a leader steps back. The kernel may make it a tick.
const FIRST_WAIT: Duration = Duration::from_millis(1);

/// Whether connections inherit the timeouts of their listener.
const INHERITED: bool = cfg!(target_os = "linux");

/// Gives `listener` the timeouts that its connections begin with: one system call less for each, twice.
pub(super) fn set_first_timeouts(listener: &TcpListener, config: &ServerConfig) -> io::Result<()> {
    let socket = socket2::SockRef::from(listener);
    socket.set_read_timeout(Some(FIRST_WAIT))?;
    socket.set_write_timeout(Some(config.write_timeout))
}

/// A connection, from its first byte to its end.
pub(super) struct BlockingIo<'a> {
    worker: &'a Worker,
    server: &'a ServerState,
    stream: &'a TcpStream,
    /// Nothing has been waited for yet.
    fresh: bool,
    /// What is set on the socket, so that it is set again only to change it.
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
}

/// How long to rest between looks at a socket whose reading side we closed while a request was coming in.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

impl<'a> BlockingIo<'a> {
    pub(super) fn new(worker: &'a Worker, stream: &'a TcpStream) -> Self {
        let server = &*worker.shared.server;
        let read_timeout = INHERITED.then_some(FIRST_WAIT);
        let write_timeout = INHERITED.then_some(server.config.write_timeout);
        Self { worker, server, stream, fresh: true, read_timeout, write_timeout }
    }

    pub(super) fn run(mut self, buffers: &mut ThreadBuffers) {
        let server = self.server;
        if drive(&mut self, server, buffers, Instant::now()) {
            self.worker.step_back();
            self.linger(buffers);
        }
    }

    /// Closes the writing side and reads on until the client closes or the time is up.
    fn linger(&self, buffers: &mut ThreadBuffers) {
        let deadline = self.server.within(Instant::now() + self.server.config.linger_timeout);
        if self.stream.shutdown(Shutdown::Write).is_err() || self.stream.set_nonblocking(true).is_err() {
            return;
        }
        while discard(self.stream, &mut buffers.input) && Instant::now() < deadline {
            let socket = (self.stream.as_fd(), PollFlags::IN);
            if wait([socket], Some(self.server.within(deadline)), &mut Vec::new()).is_err() {
                return;
            }
        }
    }

    /// Reads what is there, without waiting.
    fn read_now(&self, buffer: &mut [u8]) -> io::Result<Read> {
        match rustix::net::recv(self.stream, buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Ok(Read::End),
            Ok((count, _)) => Ok(Read::Bytes(count)),
            Err(Errno::AGAIN) => Ok(Read::Leave),
            Err(error) => Err(error.into()),
        }
    }

    /// Has the kernel wait for what is left of `whole` before `deadline`; false where nothing is. A new connection is
    /// waited for shortly, for its first byte is on its way as a rule, but not while newcomers are silent: they would be
    /// accepted one after the other; and before a longer wait, a leader steps back.
    fn prepare_read(&mut self, deadline: Instant, whole: Duration) -> io::Result<bool> {
        let left = self.server.within(deadline).saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let is_expected = std::mem::take(&mut self.fresh) && !self.worker.shared.newcomers_are_silent();
        let timeout = if is_expected && left > FIRST_WAIT {
            FIRST_WAIT
        } else {
            self.worker.step_back();
            in_steps(left, whole)
        };
        if self.read_timeout != Some(timeout) {
            self.stream.set_read_timeout(Some(timeout))?;
            self.read_timeout = Some(timeout);
        }
        Ok(true)
    }

    /// Reads, and waits for as long as is set.
    fn wait_and_read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let read = || rustix::net::recv(self.stream, buffer, RecvFlags::empty()).map(|(count, _)| count);
        if !self.worker.leads() {
            return read();
        }
        let shared = &self.worker.shared;
        shared.set_leader(Leader::Expects); // who has waited for more does not lead
        let result = read();
        shared.set_leader(Leader::Busy);
        result
    }

    fn send(&self, bytes: &[u8], flags: SendFlags) -> Result<usize, Errno> {
        rustix::net::send(self.stream, bytes, flags)
    }
}

/// `left`, rounded up to a sixteenth of `whole`, so that a busy connection, which always has nearly the whole, keeps
/// what is set.
fn in_steps(left: Duration, whole: Duration) -> Duration {
    let step = (whole / 16).max(Duration::from_millis(1));
    let steps = left.as_nanos().div_ceil(step.as_nanos());
    step * u32::try_from(steps).unwrap_or(u32::MAX)
}

impl Transport for BlockingIo<'_> {
    fn read(&mut self, buffer: &mut [u8], phase: Phase, deadline: Instant) -> io::Result<Read> {
        let (server, slot) = (self.server, &self.worker.slot);
        let idle = phase == Phase::Idle;
        loop {
            if idle {
                slot.set_idle(true);
                // In this order: either the drain sees that this connection is idle, or this thread sees the drain.
                if server.shutdown.is_begun() {
                    return self.read_now(buffer);
                }
            }
            let first = self.fresh.then(Instant::now);
            if !self.prepare_read(deadline, phase.timeout(&server.config))? {
                return Ok(match self.read_now(buffer)? {
                    Read::Leave => Read::TimedOut,
                    read => read,
                });
            }
            let result = self.wait_and_read(buffer);
            if let Some(since) = first {
                self.worker.shared.note_newcomer(result.is_err() || since.elapsed() > FIRST_WAIT);
            }
            if idle {
                slot.set_idle(false);
            }
            match result {
                Ok(0) if slot.is_told_to_leave() => {
                    if idle {
                        return Ok(Read::Leave);
                    }
                    // A request had begun to come in just then; the rest of it can still be read.
                    self.worker.step_back();
                    thread::park_timeout(LOOK_AGAIN);
                }
                Ok(0) => return Ok(Read::End),
                Ok(count) => {
                    slot.set_spoken();
                    return Ok(Read::Bytes(count));
                }
                // Late or interrupted: the loop looks at the clock.
                Err(Errno::INTR | Errno::AGAIN | Errno::TIMEDOUT) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn write(&mut self, bytes: &[u8], last: bool, deadline: Instant) -> usize {
        let mut written = 0;
        if self.worker.leads() {
            written = self.send(bytes, net::send_flags(last) | SendFlags::DONTWAIT).unwrap_or(0);
            if written < bytes.len() {
                self.worker.step_back();
            }
        }
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = self.server.config.write_timeout;
            // The whole timeout is set once; only a write that came back short needs what is left of it.
            let timeout = if written == 0 { timeout } else { left };
            if left.is_zero() {
                break;
            }
            if self.write_timeout != Some(timeout) {
                if self.stream.set_write_timeout(Some(timeout.max(Duration::from_millis(1)))).is_err() {
                    break;
                }
                self.write_timeout = Some(timeout);
            }
            match self.send(rest, net::send_flags(last)) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        written
    }

    fn about_to_wait(&mut self) {
        self.worker.step_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each connection cost two system calls to set what its listener could have given it.
    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "only Linux hands a listener's timeouts on")]
    fn connections_inherit_the_timeouts() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = ServerConfig::default();
        set_first_timeouts(&listener, &config).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let first = stream.read_timeout().unwrap().unwrap();
        assert!(first >= FIRST_WAIT && first <= Duration::from_millis(20), "{first:?}");
        assert_eq!(stream.write_timeout().unwrap(), Some(config.write_timeout));
    }

    #[test]
    fn what_is_left_is_rounded_up() {
        let second = Duration::from_secs(1);
        assert_eq!(in_steps(60 * second, 64 * second), 60 * second);
        assert_eq!(in_steps(61 * second, 64 * second), 64 * second);
        assert_eq!(in_steps(Duration::from_nanos(1), 2 * Duration::from_millis(1)), Duration::from_millis(1));
    }
}
