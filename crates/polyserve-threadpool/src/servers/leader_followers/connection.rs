//! One connection on its thread: blocking reads and writes, with the timeouts of the socket.
//!
//! Before the thread waits in `recv` or `send`, it passes on the leader role. It keeps the role while it waits for the first
//! byte of a new connection. Cost: a `recv` and a `send` for each request, and a few
//! stores; after a pause of 50 ms a second `recv` and a `setsockopt` or two.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::ServerConfig;
use polyserve_serving::blocking::{Read, Transport, drive};
use polyserve_serving::http1::Phase;
use polyserve_serving::net;
use polyserve_serving::{EVICTION_GRACE, READ_RETRY, ServerState, ThreadBuffers};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::connection_slot::ConnectionSlot;

/// How long a leader waits for the first byte of a new connection before it makes another thread the leader. The kernel
/// may round it up to a tick.
const FIRST_WAIT: Duration = Duration::from_millis(1);

/// Whether connections inherit the timeouts of their listener.
const INHERITED: bool = cfg!(target_os = "linux");

/// Sets the timeouts of new connections on `listener`. They inherit them, which saves two system calls for each.
pub(super) fn set_first_timeouts(listener: &TcpListener, config: &ServerConfig) -> io::Result<()> {
    let socket = socket2::SockRef::from(listener);
    socket.set_read_timeout(Some(FIRST_WAIT))?;
    socket.set_write_timeout(Some(config.write_timeout))
}

/// The leader role of the thread that serves a connection.
pub(super) trait LeaderRole {
    /// Whether this thread is the leader.
    fn leads(&self) -> bool;

    /// If this thread is the leader, makes another thread the leader. Called before this thread waits for its connection.
    fn promote_new_leader(&self);
}

/// What the leader is doing.
#[derive(Clone, Copy)]
pub(super) enum Leader {
    /// It accepts, serves, or does not exist.
    Busy,
    /// It waits for the listener.
    Polling,
    /// It waits, at most for [`FIRST_WAIT`], for the first byte of a new connection.
    AwaitingFirstByte,
}

/// The shared status of the leader and of new connections.
pub(super) struct LeaderStatus {
    /// A [`Leader`], as a number.
    leader: AtomicU8,
    /// The last new connection sent nothing within [`FIRST_WAIT`].
    silent_starts: AtomicBool,
}

impl LeaderStatus {
    pub(super) const fn new() -> Self {
        Self { leader: AtomicU8::new(Leader::Busy as u8), silent_starts: AtomicBool::new(false) }
    }

    pub(super) fn set(&self, leader: Leader) {
        self.leader.store(leader as u8, Ordering::SeqCst);
    }

    pub(super) fn is(&self, leader: Leader) -> bool {
        self.leader.load(Ordering::SeqCst) == leader as u8
    }

    fn set_silent_starts(&self, silent: bool) {
        if silent != self.silent_starts() {
            self.silent_starts.store(silent, Ordering::Relaxed);
        }
    }

    fn silent_starts(&self) -> bool {
        self.silent_starts.load(Ordering::Relaxed)
    }
}

/// A connection that a thread serves with blocking reads and writes.
pub(super) struct BlockingIo<'a> {
    role: &'a dyn LeaderRole,
    status: &'a LeaderStatus,
    server: &'a ServerState,
    slot: &'a ConnectionSlot,
    stream: &'a TcpStream,
    /// The thread has not waited for the connection yet.
    is_new: bool,
    /// The timeouts that are set on the socket. A timeout is set again only if it changes.
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
}

impl<'a> BlockingIo<'a> {
    pub(super) fn new(
        role: &'a dyn LeaderRole,
        status: &'a LeaderStatus,
        server: &'a ServerState,
        slot: &'a ConnectionSlot,
        stream: &'a TcpStream,
    ) -> Self {
        let read_timeout = INHERITED.then_some(FIRST_WAIT);
        let write_timeout = INHERITED.then_some(server.config.write_timeout);
        Self { role, status, server, slot, stream, is_new: true, read_timeout, write_timeout }
    }

    /// Serves the connection to its end. Returns whether it must linger.
    pub(super) fn run(mut self, buffers: &mut ThreadBuffers) -> bool {
        let server = self.server;
        drive(&mut self, server, buffers, Instant::now())
    }

    /// Reads the bytes that have arrived, without waiting. Returns [`Read::Leave`] if the read would block.
    fn read_now(&self, buffer: &mut [u8]) -> io::Result<Read> {
        match rustix::net::recv(self.stream, buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Ok(Read::End),
            Ok((count, _)) => {
                self.slot.set_busy();
                self.slot.set_received();
                Ok(Read::Bytes(count))
            }
            Err(Errno::AGAIN) => Ok(Read::Leave),
            Err(error) => Err(error.into()),
        }
    }

    /// Sets the read timeout to what is left before `deadline`. Returns false if nothing is left.
    ///
    /// `is_first`: this is the first wait of a read. It ends after [`EVICTION_GRACE`], so that the thread looks for an
    /// eviction. A connection that is rarely idle for so long keeps this timeout.
    ///
    /// The first wait for a new connection is short, because its first byte usually follows. It is not short while new
    /// connections are silent: a leader would wait for each of them before it accepts the next. Before a longer wait, the
    /// leader makes another thread the leader.
    fn prepare_read(&mut self, deadline: Instant, is_first: bool) -> io::Result<bool> {
        let remaining = self.server.within(deadline).saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Ok(false);
        }
        let is_expected = std::mem::take(&mut self.is_new) && !self.status.silent_starts();
        let timeout = if is_expected && remaining > FIRST_WAIT {
            FIRST_WAIT
        } else {
            self.role.promote_new_leader();
            let timeout = round_up(remaining);
            if is_first { timeout.min(EVICTION_GRACE) } else { timeout }
        };
        if self.read_timeout != Some(timeout) {
            self.stream.set_read_timeout(Some(timeout))?;
            self.read_timeout = Some(timeout);
        }
        Ok(true)
    }

    /// Reads, and waits at most for the timeout of the socket.
    fn wait_and_read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let read = || rustix::net::recv(self.stream, buffer, RecvFlags::empty()).map(|(count, _)| count);
        if !self.role.leads() {
            return read();
        }
        // Before any other wait, this thread has made another thread the leader.
        self.status.set(Leader::AwaitingFirstByte);
        let result = read();
        self.status.set(Leader::Busy);
        result
    }

    fn send(&self, bytes: &[u8], flags: SendFlags) -> Result<usize, Errno> {
        rustix::net::send(self.stream, bytes, flags)
    }
}

/// Rounds `remaining` up by at most an eighth, so that a slow connection seldom sets its timeout again.
fn round_up(remaining: Duration) -> Duration {
    let millis = u64::try_from(remaining.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX / 2);
    let step = (millis.next_power_of_two() / 16).max(1);
    Duration::from_millis(millis.div_ceil(step).saturating_mul(step))
}

impl Transport for BlockingIo<'_> {
    fn peer(&self) -> Option<SocketAddr> {
        net::peer(self.stream)
    }

    fn read(&mut self, buffer: &mut [u8], phase: Phase, deadline: Instant) -> io::Result<Read> {
        let (server, slot) = (self.server, self.slot);
        let idle = phase.may_close();
        let mut is_first = true;
        loop {
            if idle {
                slot.set_idle();
                if !is_first {
                    slot.must_be_woken();
                }
                // The checks come after the stores: either the drain sees that this connection is idle, or this thread sees
                // the drain. The same holds for an eviction.
                if server.shutdown.is_begun() {
                    return self.read_now(buffer);
                }
                if !is_first && slot.is_evicted() && !slot.is_read_closed() {
                    return Ok(match self.read_now(buffer)? {
                        Read::Leave => Read::Evicted,
                        read => read,
                    });
                }
            }
            let first_wait = self.is_new.then(Instant::now);
            if !self.prepare_read(deadline, is_first)? {
                return Ok(match self.read_now(buffer)? {
                    Read::Leave => Read::TimedOut,
                    read => read,
                });
            }
            let result = self.wait_and_read(buffer);
            is_first = false;
            if let Some(since) = first_wait {
                self.status.set_silent_starts(result.is_err() || since.elapsed() > FIRST_WAIT);
            }
            match result {
                Ok(0) if slot.is_read_closed() => {
                    if idle {
                        return Ok(Read::Leave);
                    }
                    // A request had begun to arrive before the reading side was closed. The rest can still be read.
                    self.role.promote_new_leader();
                    thread::park_timeout(READ_RETRY);
                }
                Ok(0) => return Ok(Read::End),
                Ok(count) => {
                    slot.set_received();
                    slot.set_busy();
                    return Ok(Read::Bytes(count));
                }
                // The read timed out or was interrupted: the next round checks the deadline.
                Err(Errno::INTR | Errno::AGAIN | Errno::TIMEDOUT) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn write(&mut self, bytes: &[u8], last: bool, deadline: &dyn Fn(usize) -> Instant) -> usize {
        let mut written = self.send(bytes, net::send_flags(last) | SendFlags::DONTWAIT).unwrap_or(0);
        if written == bytes.len() {
            return written;
        }
        self.role.promote_new_leader();
        let deadline = deadline(bytes.len() - written);
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                break;
            }
            if self.write_timeout != Some(remaining) {
                if self.stream.set_write_timeout(Some(remaining.max(Duration::from_millis(1)))).is_err() {
                    break;
                }
                self.write_timeout = Some(remaining);
            }
            match self.send(rest, net::send_flags(last)) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => break,
            }
        }
        written
    }

    fn others_wait(&self) -> bool {
        self.slot.must_announce_close()
    }

    fn about_to_wait(&mut self) {
        self.role.promote_new_leader();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::sync::Arc;

    use polyserve_core::service::Echo;
    use polyserve_serving::{Bound, bind, linger};

    use super::super::connection_slot::IdleClock;
    use super::*;

    /// The role of a thread that does not lead.
    struct Follower;

    impl LeaderRole for Follower {
        fn leads(&self) -> bool {
            false
        }

        fn promote_new_leader(&self) {}
    }

    /// Regression test: an evicted connection, which does not count any more, was served for as long as its client
    /// pipelined. It was then closed without an announcement.
    #[test]
    #[cfg_attr(
        not(target_os = "linux"),
        ignore = "only Linux keeps bytes that have arrived when the reading side is closed"
    )]
    fn an_evicted_connection_that_pipelines_ends_with_its_next_answer() {
        const REQUESTS: usize = 1000;
        let addr = std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into();
        let Bound { listener, local_addr, server } = bind(addr, &ServerConfig::default(), Arc::new(Echo)).unwrap();
        listener.set_nonblocking(false).unwrap();
        set_first_timeouts(&listener, &server.config).unwrap();
        let mut client = TcpStream::connect(local_addr).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let clock = Arc::new(IdleClock::new());
        let slot = ConnectionSlot::new(Arc::clone(&clock));
        let stream = slot.attach(stream);
        // The connection has been served before. Its requests arrive as it is evicted: more than one read takes.
        slot.set_received();
        slot.set_idle();
        slot.must_be_woken();
        assert!(slot.idle_since().is_some_and(|since| slot.evict(since)));
        client.write_all("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(REQUESTS).as_bytes()).unwrap();
        let status = LeaderStatus::new();
        assert!(BlockingIo::new(&Follower, &status, &server, &slot, &stream).run(&mut ThreadBuffers::new()));
        linger(&stream, &server, &mut [0; 4096]);
        assert!(!slot.detach(), "the evicted connection counts as open");
        drop(stream);
        let mut bytes = Vec::new();
        let _ = client.read_to_end(&mut bytes); // an error: the connection was reset after the last answer
        let text = String::from_utf8(bytes).unwrap();
        let answers: Vec<&str> = text.split_inclusive("\r\n\r\n").collect();
        assert!(answers.iter().all(|answer| answer.starts_with("HTTP/1.1 200 ")), "{text}");
        assert!(answers.len() < REQUESTS, "the evicted connection is served on");
        assert!(answers.last().is_some_and(|last| last.contains("\r\nConnection: close\r\n")), "{:?}", answers.last());
    }

    /// Regression test: each connection cost two system calls for timeouts that it can inherit from its listener.
    #[test]
    #[cfg_attr(not(target_os = "linux"), ignore = "only Linux hands a listener's timeouts on")]
    fn connections_inherit_the_timeouts() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = ServerConfig::default();
        set_first_timeouts(&listener, &config).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let read_timeout = stream.read_timeout().unwrap().unwrap();
        assert!(read_timeout >= FIRST_WAIT && read_timeout <= Duration::from_millis(20), "{read_timeout:?}");
        assert_eq!(stream.write_timeout().unwrap(), Some(config.write_timeout));
    }

    #[test]
    fn what_is_left_is_rounded_up() {
        let millis = Duration::from_millis;
        assert_eq!(round_up(millis(512)), millis(512));
        assert_eq!(round_up(millis(513)), millis(576));
        assert_eq!(round_up(millis(1025)), millis(1152));
        assert_eq!(round_up(Duration::from_nanos(1)), millis(1));
    }
}
