//! `sequential`: one thread, one connection at a time. The baseline for all other servers.
//!
//! ```text
//!  poll: listener, shutdown, silent connections
//!    -> accept, into the queue
//!       -> take the connection that has waited for longest
//!          -> drive: recv, service, send, until it closes
//!             while it waits: accept, into the queue
//!    -> again
//! ```
//!
//! It is a pool of one thread ([`PoolConnections`]), which also accepts. A connection goes from accept to close in two files:
//! this one, and [`serving::blocking`](polyserve_serving::blocking), which reads, calls the service and writes.
//!
//! While a connection is served, others wait. If others wait when an answer is written, or several did in the last 100 ms, the
//! answer says `Connection: close`; a connection that has been idle for 50 ms is closed when others wait. A connection that has not
//! sent a byte holds the server for a millisecond, and not at all if others wait: it is set aside and waits in `poll` with the
//! listener.
//!
//! A head that stalls holds the server until its timeout. Meanwhile the server accepts, and the time of each connection in
//! the queue counts towards its head timeout. So heads that stall at the same time end at the same time, and a connection
//! waits at most one head timeout for them. Each body that stalls holds the server for its own timeout, and so does each
//! answer that is deferred.
//!
//! Invariant: a connection is served only by the worker thread. At most `max_connections` are open, those in the queue and the
//! silent ones included; others wait in the kernel's backlog.
//!
//! At `max_connections`, a new connection is accepted only if one that is silent or idle may be closed for it. If that one sends a request
//! at this moment, it stays, and the new connection is answered 503, as on every other server.
//!
//! Cost: a poll, a read and a write for each request; for a silent connection three more system calls. No contended lock, no
//! thread switch.
//!
//! Source: the iterative server of W. R. Stevens, *UNIX Network Programming*, volume 1.
//!
//! *Wins when* the code must be short and connections have one request each: it ties with `pool_server`
//! (`servers-close`). *Loses when* connections are kept by several clients, because each of them is closed for the next
//! one: it answers by far fewer requests than `tokio_tcp` (`servers-kept`). Records: `docs/results`.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use polyserve_core::sync::lock;
use polyserve_core::{
    ConfigError, Drain, ListenOn, Running, Server, ServerConfig, Service, Shape, Supports, park_until,
};
use polyserve_serving::blocking::{PoolConnections, PoolEntry, PoolRole, Served};
use polyserve_serving::{ACCEPT_BACKOFF, Bound, EVICTION_GRACE, Incoming, ServerState, bind, net};
use rustix::event::PollFlags;

use super::silent_connections::{FIRST_BYTE_WAIT, SilentConnections};

/// The server of one connection at a time.
///
/// ```
/// use polyserve_core::{Reply, Request, ServerConfig, ServerExt};
/// use polyserve_threadpool::Sequential;
///
/// let server = Sequential::new(ServerConfig::default())?;
/// let running = server.serve("127.0.0.1:0", |_: Request<'_>| Reply::text("hello"))?;
/// assert_eq!(running.shutdown()?.answered, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sequential {
    config: ServerConfig,
}

const SUPPORTS: Supports = Supports::new("sequential").one_worker();

impl Sequential {
    /// Creates a server within the limits of `config`.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range, or if `workers` is more than 1.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        SUPPORTS.check(&config)?;
        Ok(Self { config })
    }
}

impl Server for Sequential {
    fn shape(&self) -> Shape {
        Shape::One
    }

    fn start(&self, on: ListenOn, service: Arc<dyn Service>) -> io::Result<Running> {
        let Bound { listener, local_addr, server } = bind(on, &self.config, service)?;
        let (shutdown, server) = (server.shutdown.clone(), Arc::new(server));
        let incoming = Mutex::new(Incoming::new(listener, Arc::clone(&server))?);
        let pool = PoolConnections::new(server, 1);
        let counters = pool.table.counters();
        pool.table.accept_loop_started();
        let shared = Arc::new(SequentialState { incoming, silent: SilentConnections::new()?, pool });
        let state = Arc::clone(&shared);
        let worker = thread::Builder::new().name("sequential".into()).spawn(move || state.run())?;
        let grace = self.config.drain_grace;
        Running::start("sequential-main", local_addr, grace, shutdown, counters, move || shared.supervise(worker))
    }
}

/// The state that the worker and its supervisor share. The locks are free while the service runs.
struct SequentialState {
    /// The listener, and the connections that linger.
    incoming: Mutex<Incoming>,
    /// The connections that have not sent a byte.
    silent: SilentConnections,
    pool: PoolConnections,
}

/// Notes the end of the worker in its `drop`. A panic of the server's own code ends the server, and is its error.
struct EndGuard<'a>(&'a SequentialState);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        let table = &self.0.pool.table;
        table.accept_loop_ended();
        if thread::panicking() {
            table.server.shutdown.begin(Instant::now());
        }
    }
}

impl SequentialState {
    /// Runs on the worker thread until the end of a drain.
    fn run(&self) {
        let _end_guard = EndGuard(self);
        while !self.is_draining() {
            if self.serve_next() {
                continue;
            }
            if let Err(error) = self.wait_for(&[], false, None) {
                polyserve_core::throttled!(warn, %error, "cannot wait for connections");
                thread::park_timeout(ACCEPT_BACKOFF);
            }
            self.accept(false);
        }
        loop {
            self.silent.drain(&self.pool, |entry| self.queue(entry));
            self.queue_waiting();
            if self.serve_next() {
                continue;
            }
            let next = lock(&self.incoming).accept_waiting();
            match next {
                Some(stream) => drop(self.admit(stream, &mut lock(&self.incoming))),
                None if self.pool.waiting() > 0 => {} // the supervisor has queued it meanwhile
                None if self.silent.await_first_bytes(&self.pool, |entry| self.queue(entry)) => {}
                None => break,
            }
        }
    }

    fn server(&self) -> &ServerState {
        &self.pool.table.server
    }

    fn is_draining(&self) -> bool {
        self.server().shutdown.is_begun()
    }

    /// When the oldest silent connection may be closed: at the limit for a new connection, and at the timeout of its first byte.
    fn silent_deadline(&self) -> Option<Instant> {
        let since = self.silent.oldest()?;
        let is_young = self.pool.table.is_full() && since.elapsed() < EVICTION_GRACE;
        Some(since + if is_young { EVICTION_GRACE } else { self.pool.table.server.config.first_byte_timeout })
    }

    /// Serves the connection that has waited for longest, until it closes or turns out to be silent. Returns false if none waits.
    fn serve_next(&self) -> bool {
        match self.pool.serve_next(FIRST_BYTE_WAIT, self) {
            Some(Served::Closed) => {}
            Some(Served::Lingering(entry)) => {
                if let Some(stream) = self.pool.take_out(entry) {
                    lock(&self.incoming).linger(stream);
                    if self.is_draining() {
                        self.pool.table.wake_main(); // the supervisor reads from it
                    }
                }
            }
            Some(Served::Silent(entry, since)) => {
                if self.silent.add(Arc::clone(&entry), since).is_err() {
                    self.pool.table.remove(&entry);
                }
            }
            None => return false,
        }
        true
    }

    fn queue(&self, entry: PoolEntry) {
        self.pool.queue(entry, Instant::now());
    }

    /// In a drain, queues the connections that wait in the backlog, for which there is room, and then closes the listener. To be called
    /// by the supervisor too, because the worker may be busy with a connection: a client that comes later is refused, and one that
    /// stays in the backlog is reset in the end.
    fn queue_waiting(&self) {
        let mut incoming = lock(&self.incoming);
        while self.has_room(false)
            && let Some(stream) = incoming.try_accept()
        {
            self.admit(stream, &mut incoming);
        }
    }

    /// Queues the connection, or rejects it. At the limit, it takes the place of one that is silent or idle. Returns whether it is
    /// queued.
    fn admit(&self, stream: TcpStream, incoming: &mut Incoming) -> bool {
        let make_room = || {
            let evicted = self.silent.make_room(&self.pool, |entry| self.queue(entry));
            evicted.into_iter().for_each(|stream| incoming.linger(stream));
            !self.pool.table.is_full()
        };
        match self.pool.admit(stream, make_room) {
            Ok(entry) => {
                self.queue(entry);
                true
            }
            Err(stream) => {
                incoming.reject(stream);
                false
            }
        }
    }

    /// Whether there is room for a new connection, or a connection may be closed for it. `is_old`: the connection of this thread may.
    fn has_room(&self, is_old: bool) -> bool {
        let is_old_silent = || self.silent.oldest().is_some_and(|since| since.elapsed() >= EVICTION_GRACE);
        !self.pool.table.is_full() || is_old || is_old_silent()
    }

    /// Waits for one of `sockets`, the shutdown, the silent connections and their deadline, and, if there can be room for it, a new
    /// connection.
    fn wait_for(
        &self,
        sockets: &[(BorrowedFd<'_>, PollFlags)],
        is_old: bool,
        deadline: Option<Instant>,
    ) -> io::Result<Option<bool>> {
        let accepts = self.has_room(is_old);
        let sockets = sockets.iter().copied().chain([(self.silent.as_fd(), PollFlags::IN)]);
        let silent_until = self.silent_deadline();
        let until = [deadline, silent_until].into_iter().flatten().min();
        let mut ready = Vec::with_capacity(5);
        let is_due = lock(&self.incoming).wait(sockets, accepts, until, &mut ready)?;
        let is_silent_due = || silent_until.is_some_and(|until| Instant::now() >= until);
        let must_accept = is_due || ready.last() == Some(&true) || is_silent_due();
        Ok((accepts || must_accept).then_some(must_accept))
    }

    /// Waits for the end of the worker, and cuts its connection at the shutdown's deadline.
    fn supervise(&self, worker: JoinHandle<()>) -> Drain {
        let table = &self.pool.table;
        let mut begun = table.server.shutdown.begun();
        park_until(None, |cx| Pin::new(&mut begun).poll(cx));
        self.queue_waiting();
        table.wake_idle();
        let stuck = table.finish(|| {
            let mut incoming = lock(&self.incoming);
            if table.server.is_over() {
                // The worker may be stuck.
                self.silent.drain(&self.pool, drop);
                while let Some(stream) = incoming.accept_waiting() {
                    if net::has_input(&stream) {
                        table.server.count_cut();
                    }
                }
            }
            incoming.sweep()
        });
        if stuck == 0
            && let Some(Err(panic)) = table.server.join(vec![worker]).pop()
        {
            std::panic::resume_unwind(panic);
        }
        lock(&self.incoming).finish();
        table.server.drained(stuck)
    }
}

/// While the worker waits for its connection, it accepts others into the queue. In a drain it does not.
impl PoolRole for SequentialState {
    fn wait(
        &self,
        sockets: &[(BorrowedFd<'_>, PollFlags)],
        is_old: bool,
        deadline: Instant,
    ) -> io::Result<Option<bool>> {
        match self.is_draining() {
            true => ().wait(sockets, is_old, deadline),
            false => self.wait_for(sockets, is_old, Some(deadline)),
        }
    }

    fn accept(&self, is_old: bool) -> bool {
        let mut incoming = lock(&self.incoming);
        incoming.sweep();
        if self.silent.oldest().is_some() {
            self.silent.queue_ready(&self.pool, |entry| self.queue(entry));
        }
        while !self.is_draining() {
            if !self.has_room(is_old) {
                return incoming.has_waiting();
            }
            let Some(stream) = incoming.try_accept() else { return false };
            // One for each look: an attempt that finds none costs more than the next look.
            if self.admit(stream, &mut incoming) {
                return false;
            }
        }
        false
    }
}
