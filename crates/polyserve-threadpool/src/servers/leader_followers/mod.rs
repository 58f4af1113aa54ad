//! `leader_followers`: each connection has a thread, and one thread at a time, the leader, accepts.
//!
//! ```text
//!  leader:     poll(listener) -> accept -> read, service, write -> close -> poll(listener) -> ...
//!                                  |  before it has to wait for its connection, it promotes a follower
//!                                  v
//!  followers:  idle threads; the one that is promoted polls the listener
//!  the rest:   wait in recv or poll for the next request of a kept connection; after its close they become followers
//!  supervisor: hands waiting connections to other threads if the leader is held up; drains
//! ```
//!
//! A connection goes from accept to close in `threads.rs`, which accepts and closes it, and in
//! [`serving::blocking`](polyserve_serving::blocking), which reads, calls the service and writes. The table of connections is
//! [`ConnectionTable`](polyserve_serving::ConnectionTable). This file has the supervisor.
//!
//! A connection that lingers after its last answer does not count towards `max_connections`, and holds no thread.
//!
//! # Which thread accepts
//!
//! The leader waits for the listener, accepts, and serves the connection itself. It stays the leader until its connection
//! makes it wait. The wait for the first byte of a new connection is an exception: the byte usually follows, so the leader
//! waits for at most a millisecond. Before any other wait (for a further request, a slow reader, a deferred answer) it
//! promotes an idle thread, or starts a new one. So a connection with one request wakes no other thread.
//!
//! Another thread that has closed its connection takes the next connection that waits. If none waits, the thread is idle
//! for at most a second, and then ends. At most 128 threads are idle.
//!
//! The supervisor acts if the service holds the leader up. Every 5 ms it checks whether connections wait, and hands them to
//! other threads: all of them if nothing was accepted for two checks; one for each core at each check if the leader is
//! slow; if it is fast, only enough to keep each core busy. If nothing happens for 100 ms, it sleeps.
//!
//! # No lost wake-up
//!
//! *There is always a leader, or a thread that sees that there is none.* `has_leader` is changed only under the lock of the
//! threads. A leader gives the role away in the same step in which another thread gets its assignment. If no thread
//! can be started, `has_leader` is false. Then the next thread that would become idle leads, and the supervisor, which goes
//! on checking, hands over the connections that wait. A thread that panics gives the role away when it is dropped.
//!
//! *An idle thread gets its assignment.* It is added to the idle threads, and removed, under the same lock. The thread
//! that removes it sends the assignment under this lock. A thread that is about to end removes itself under this lock, and
//! then looks for an assignment once more.
//!
//! *The supervisor does not sleep while a leader serves.* It stores that it sleeps, then loads whether the leader waits for
//! the listener and whether anything was accepted. A thread that has accepted counts that and then loads whether the
//! supervisor sleeps. All four are sequentially consistent: one of the two sees the other.
//!
//! *The drain reaches every thread.* A leader that waits is woken by a pipe that stays readable. Idle threads are woken
//! by the supervisor under the lock of the threads, which also keeps others from becoming idle after it.
//!
//! Cost: for a connection an accept, a read, a write and a close, two uncontended locks and a few shared counts; a read
//! and a write for each request; a `poll` and a second read after a pause of 100 ms; for a thread at most 16 KiB
//! of buffers at rest and 512 KiB of address space for a stack.
//!
//! Source: D. C. Schmidt and others, *Leader/Followers*, 2000.
//!
//! *Wins when* connections have one request each: it ties with `pool_server` (`servers-close`). *Loses when*
//! connections are kept, because each request then costs a switch of threads: it answers fewer requests than
//! `tokio_tcp` (`servers-kept`); and when a service blocks, because other connections wait until the supervisor has
//! checked twice. Records: `docs/results`.

mod threads;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::sync::{lock, write};
use polyserve_core::{ConfigError, Drain, ListenOn, Running, Server, ServerConfig, Service, Shape, Supports, cores};
use polyserve_serving::{AfterAccept, EventListener, bind};
use threads::{Leader, RunState};

/// How often the supervisor checks whether connections wait for a leader that is held up.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// The supervisor sleeps after this number of checks without a new connection.
const QUIET_CHECKS: u32 = 20;

/// The supervisor hands over all connections that wait after this number of checks without a new connection.
const STALLED_CHECKS: u32 = 2;

/// A leader that accepts this number of connections between two checks is fast: the service does not block.
const MIN_FAST_ACCEPTS: u64 = 32;

/// The server in which each connection has a thread, and the threads take turns to accept.
///
/// ```
/// use polyserve_core::{Reply, Request, ServerConfig, ServerExt};
/// use polyserve_threadpool::LeaderFollowers;
///
/// let server = LeaderFollowers::new(ServerConfig::default().max_connections(100))?;
/// let running = server.serve("127.0.0.1:0", |_: Request<'_>| Reply::text("hello"))?;
/// assert_eq!(running.shutdown()?.answered, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct LeaderFollowers {
    config: ServerConfig,
}

const SUPPORTS: Supports =
    Supports::new("leader_followers").no_workers("one thread for each connection: set max_connections");

impl LeaderFollowers {
    /// Creates a server within the limits of `config`.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range, or if `workers` is set: each connection has a thread.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        SUPPORTS.check(&config)?;
        Ok(Self { config })
    }
}

impl Server for LeaderFollowers {
    fn shape(&self) -> Shape {
        Shape::OnePerThread
    }

    fn max_concurrent(&self) -> Option<usize> {
        Some(self.config.max_connections)
    }

    fn start(&self, on: ListenOn, service: Arc<dyn Service>) -> io::Result<Running> {
        let bound = bind(on, &self.config, service)?;
        let (local_addr, shutdown) = (bound.local_addr, bound.server.shutdown.clone());
        let shared = Arc::new(RunState::new(bound)?);
        let supervisor = LeaderSupervisor::new(Arc::clone(&shared));
        let (grace, counters) = (self.config.drain_grace, shared.connections.counters());
        Running::start("leader-followers", local_addr, grace, shutdown, counters, move || supervisor.run())
    }
}

/// The server's own thread: hands over connections that wait too long, sweeps those that linger, and drains.
struct LeaderSupervisor {
    shared: Arc<RunState>,
    /// The number of connections accepted before the last check.
    accepted: u64,
    /// The number of checks since that number changed.
    unchanged_checks: u32,
}

impl LeaderSupervisor {
    fn new(shared: Arc<RunState>) -> Self {
        Self { shared, accepted: 0, unchanged_checks: 0 }
    }

    /// Runs until the end of the drain.
    fn run(mut self) -> Drain {
        let this_thread = self.shared.supervisor.get_or_init(thread::current).clone();
        self.shared.server.shutdown.on_begin(move || this_thread.unpark());
        self.shared.promote();
        while !self.shared.server.shutdown.is_begun() {
            self.sweep();
            self.check();
            self.pause();
        }
        self.drain()
    }

    /// Hands over the connections that wait for a leader that is held up.
    fn check(&mut self) {
        let accepted = self.shared.accepted.load(Ordering::SeqCst);
        self.unchanged_checks = if accepted == self.accepted { self.unchanged_checks.saturating_add(1) } else { 0 };
        for _ in 0..self.max_to_hand_over(accepted - self.accepted) {
            let AfterAccept::Serve(connection) = self.shared.accept() else { break }; // the next check tries again
            self.shared.hand_over(connection);
        }
        self.accepted = self.shared.accepted.load(Ordering::SeqCst);
    }

    /// Returns the max number of connections to hand over now: all if no connection was accepted for a while, one for each
    /// core if the leader is slow, and the number of cores without a running thread if the leader is fast.
    ///
    /// `accepted`: the number of connections accepted since the last check.
    fn max_to_hand_over(&self, accepted: u64) -> usize {
        if self.shared.leader_is(Leader::Polling) {
            return 0;
        }
        if self.unchanged_checks >= STALLED_CHECKS || !lock(&self.shared.threads).has_leader {
            return self.shared.server.config.backlog as usize;
        }
        if self.shared.leader_is(Leader::AwaitingFirstByte) {
            return 0; // it makes another thread the leader after the wait
        }
        let unblocked = self.shared.unblocked.load(Ordering::Relaxed);
        if accepted < MIN_FAST_ACCEPTS { cores() } else { cores().saturating_sub(unblocked) }
    }

    /// Waits until the next check. If the leader waits for the listener and there is nothing else to do, sleeps until it is
    /// woken.
    fn pause(&self) {
        let shared = &self.shared;
        if self.unchanged_checks < QUIET_CHECKS {
            return thread::park_timeout(CHECK_INTERVAL);
        }
        // This store comes before the loads below. If they miss a change, the thread that made it sees `asleep` and wakes
        // this one.
        shared.asleep.store(true, Ordering::SeqCst);
        let quiet = shared.leader_is(Leader::Polling)
            && shared.accepted.load(Ordering::SeqCst) == self.accepted
            && lock(&shared.lingering).deadline().is_none()
            && !shared.server.shutdown.is_begun();
        if quiet {
            thread::park();
        } else {
            thread::park_timeout(CHECK_INTERVAL);
        }
        shared.asleep.store(false, Ordering::SeqCst);
    }

    /// Reads from connections that linger. Returns when that is to be done again; `None` if none lingers.
    fn sweep(&self) -> Option<Instant> {
        let mut lingering = lock(&self.shared.lingering);
        lingering.sweep();
        lingering.deadline()
    }

    fn drain(self) -> Drain {
        let shared = &self.shared;
        shared.asleep.store(true, Ordering::SeqCst); // each connection that lingers wakes the supervisor
        // The shutdown has woken the leader, and no thread holds this lock while it serves. So the lock is free soon.
        let listener = write(&shared.listener).take();
        shared.connections.wake_idle();
        if let Some(listener) = listener {
            let mut listener = EventListener::new(Arc::new(listener), shared.server.config.backlog);
            while let Some(stream) = listener.accept_waiting(&shared.server, || {
                self.sweep(); // that frees descriptors
            }) {
                // The threads of this server wait in system calls.
                if stream.set_nonblocking(false).is_ok()
                    && let Some(connection) = shared.admit(stream)
                {
                    shared.hand_over(connection);
                }
            }
        }
        lock(&shared.threads).close();
        shared.connections.wake_idle();
        let stuck = shared.connections.finish(|| self.sweep());
        // A thread that is stuck in the service is left behind. The others end within a few instructions.
        let threads = std::mem::take(&mut lock(&shared.threads).handles);
        let ended = threads.into_iter().filter(|thread| stuck == 0 || thread.is_finished());
        shared.server.join(ended.collect()); // panics of the service were caught and logged
        lock(&shared.lingering).finish(&shared.server);
        shared.server.drained(stuck)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::Barrier;
    use std::thread::JoinHandle;

    use polyserve_core::http::StatusCode;
    use polyserve_core::{Answer, Echo, Reply, Request};

    use super::*;

    const MAX_WAIT: Duration = Duration::from_secs(30);

    /// A service that blocks each request until a second request has arrived.
    struct Meeting(Barrier);

    impl Service for Meeting {
        fn call(&self, _: Request<'_>, _: &mut Vec<u8>) -> Answer<Reply> {
            self.0.wait();
            Answer::Now(Reply::empty(StatusCode::OK))
        }
    }

    fn ask(addr: SocketAddr) -> io::Result<String> {
        let mut stream = TcpStream::connect(addr)?;
        stream.set_read_timeout(Some(MAX_WAIT))?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    fn run(service: Arc<dyn Service>) -> (Arc<RunState>, SocketAddr, JoinHandle<Drain>) {
        let addr = SocketAddr::from(([127, 0, 0, 1], 0)).into();
        let bound = bind(addr, &ServerConfig::default(), service).unwrap();
        let addr = bound.local_addr;
        let shared = Arc::new(RunState::new(bound).unwrap());
        let supervisor = LeaderSupervisor::new(Arc::clone(&shared));
        (shared, addr, thread::spawn(move || supervisor.run()))
    }

    fn wait_until(holds: impl Fn() -> bool) {
        let deadline = Instant::now() + MAX_WAIT;
        while !holds() {
            assert!(Instant::now() < deadline, "the condition never holds");
            thread::yield_now();
        }
    }

    /// A supervisor that checked every 5 ms kept an idle machine awake. So the supervisor sleeps. A shutdown must wake it,
    /// and so must the next connection, because the leader may be blocked.
    #[test]
    fn the_supervisor_sleeps_when_idle_and_is_woken() {
        let (shared, addr, supervisor) = run(Arc::new(Meeting(Barrier::new(2))));
        let is_asleep = || shared.asleep.load(Ordering::SeqCst);
        for _ in 0..3 {
            wait_until(is_asleep);
            for client in [(); 2].map(|()| thread::spawn(move || ask(addr))) {
                let answer = client.join().unwrap().unwrap();
                assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
            }
        }
        wait_until(is_asleep);
        shared.server.shutdown.begin(Instant::now() + MAX_WAIT);
        assert_eq!(supervisor.join().unwrap().answered, 6);
    }

    /// A leader that waits for the next request of its connection leaves new connections to the supervisor, which is slow.
    /// While connections are kept, silent or not, a thread must wait for the listener.
    #[test]
    fn there_is_a_leader_while_connections_are_kept() {
        let (shared, addr, supervisor) = run(Arc::new(Echo));
        let mut clients = Vec::new();
        for round in 0..8 {
            let mut stream = TcpStream::connect(addr).unwrap();
            if round % 2 == 0 {
                stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
                stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
                stream.read_exact(&mut [0; 12]).unwrap();
            }
            clients.push(stream);
            wait_until(|| shared.accepted.load(Ordering::SeqCst) == round + 1 && shared.leader_is(Leader::Polling));
        }
        shared.server.shutdown.begin(Instant::now() + MAX_WAIT);
        assert_eq!(supervisor.join().unwrap().answered, 4);
    }
}
