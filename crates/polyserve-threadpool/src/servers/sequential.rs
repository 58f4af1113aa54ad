//! `sequential`: one thread, one connection at a time. The baseline for all other servers.
//!
//! ```text
//!  poll: listener, shutdown, silent connections
//!    -> take the connection that has waited for longest
//!       -> drive: recv, service, send, until it closes
//!          while it stalls: accept, into the queue
//!    -> again
//! ```
//!
//! While a connection is served, others wait. If others wait when an answer is written, or waited in the last 100 ms, the
//! answer says `Connection: close`; an idle connection is closed when others wait. A connection that has not sent a byte does
//! not hold the server: it is set aside and waits in `poll` with the listener.
//!
//! A head that stalls holds the server until its timeout. Meanwhile the server accepts, and the time of each connection in
//! the queue counts towards its head timeout. So heads that stall at the same time end at the same time, and a connection
//! waits at most one head timeout for them. Each body that stalls holds the server for its own timeout, and so does each
//! answer that is deferred.
//!
//! Invariant: a connection is served only by the worker thread, and only after its first byte has come. The queue and the
//! silent connections are together at most `max_connections`; others wait in the kernel's backlog.
//!
//! Cost: a poll, a read and a write for each request; for a silent connection two more system calls. No contended lock, no
//! thread switch.
//!
//! Source: the iterative server of W. R. Stevens, *UNIX Network Programming*, volume 1.
//!
//! *Wins when* the code must be short and connections have one request each: it ties with `pool_server`
//! (`servers-close`). *Loses when* connections are kept by several clients, because each of them is closed for the next
//! one: it answers by far fewer requests than `tokio_tcp` (`servers-kept`). Records: `docs/results/2026-11-25`.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, PipeReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polyserve_core::sync::lock;
use polyserve_core::{
    AnswerFuture, ConfigError, Drain, ListenOn, Running, Server, ServerConfig, Service, Shape, Supports, park_until,
    promise,
};
use polyserve_serving::blocking::{Read, Transport, drive, write_waiting};
use polyserve_serving::http1::Phase;
use polyserve_serving::{
    ACCEPT_BACKOFF, Backlog, BacklogNext, Bound, CROWDED_AFTER, EVICTION_GRACE, LingeringSet, SHUTDOWN_SLACK,
    ServerState, ThreadBuffers, bind, drain_backlog, net, wait,
};
use rustix::event::PollFlags;

use super::silent_connections::SilentConnections;

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
        let wake = server.wake_pipe()?;
        let server = Arc::new(server);
        let shared = Arc::new(SequentialState {
            listener: Mutex::new(Some(listener)),
            queue: Mutex::default(),
            current: Mutex::default(),
            silent: SilentConnections::new()?,
        });
        let (completer, end) = promise(());
        let worker = SequentialWorker {
            server: Arc::clone(&server),
            wake,
            shared: Arc::clone(&shared),
            last_crowded: Cell::new(None),
        };
        let worker = thread::Builder::new().name("sequential".into()).spawn(move || {
            let _completer = completer; // completes when the thread ends, however it does
            worker.run();
        })?;
        let (shutdown, grace) = (server.shutdown.clone(), self.config.drain_grace);
        let (counted_server, counted_state) = (Arc::clone(&server), Arc::clone(&shared));
        let counters = move || counted_server.counters(counted_state.count());
        Running::start("sequential-main", local_addr, grace, shutdown, counters, move || {
            supervise(&server, &shared, worker, &mut end.into_future())
        })
    }
}

/// The sockets that the supervisor must close even if the worker is stuck. Their locks are free while the service runs.
struct SequentialState {
    listener: Mutex<Option<TcpListener>>,
    /// The connections that wait to be served, and when they began to wait.
    queue: Mutex<VecDeque<(TcpStream, Instant)>>,
    /// The connection that is being served.
    current: Mutex<Option<Arc<TcpStream>>>,
    /// The connections that have not sent a byte.
    silent: SilentConnections,
}

impl SequentialState {
    fn accept(&self) -> io::Result<TcpStream> {
        match &*lock(&self.listener) {
            Some(listener) => net::accept(listener),
            None => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// In a drain, accepts what has waited; `None` once the listener is closed.
    fn accept_waiting(&self, backlog: &mut Backlog) -> Option<BacklogNext> {
        lock(&self.listener).as_ref().map(|listener| backlog.accept(listener))
    }

    /// The number of accepted connections that are not closed and do not linger.
    fn count(&self) -> usize {
        let waiting = lock(&self.queue).len();
        waiting + self.silent.len() + usize::from(lock(&self.current).is_some())
    }

    /// Closes the listener.
    fn close(&self) {
        drop(lock(&self.listener).take());
    }

    /// Cuts the connection that is being served, and those that wait.
    fn cut(&self, server: &ServerState) {
        let count_cut = |stream: TcpStream| {
            let peeked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
            if peeked.is_ok_and(|count| count > 0) {
                server.count_cut();
            }
        };
        std::mem::take(&mut *lock(&self.queue)).into_iter().for_each(|(stream, _)| count_cut(stream));
        if let Some(listener) = lock(&self.listener).take() {
            drain_backlog(listener, server, count_cut);
        }
        if let Some(stream) = &*lock(&self.current) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// Waits for the worker's end, and cuts its connection at the shutdown's deadline.
fn supervise(
    server: &ServerState,
    shared: &SequentialState,
    worker: JoinHandle<()>,
    end: &mut AnswerFuture<()>,
) -> Drain {
    let mut begun = server.shutdown.begun();
    let mut ended = false;
    park_until(None, |cx| {
        ended = Pin::new(&mut *end).poll(cx).is_ready();
        if ended { Poll::Ready(()) } else { Pin::new(&mut begun).poll(cx) }
    });
    let mut ends_by = |deadline| ended || park_until(Some(deadline), |cx| Pin::new(&mut *end).poll(cx)).is_some();
    let deadline = server.shutdown.deadline().unwrap_or_else(Instant::now);
    let mut stuck = 0;
    if !ends_by(deadline) {
        shared.cut(server);
        stuck = usize::from(!ends_by(deadline + SHUTDOWN_SLACK));
    }
    if stuck == 0
        && let Err(panic) = worker.join()
    {
        std::panic::resume_unwind(panic);
    }
    server.drained(stuck)
}

struct SequentialWorker {
    server: Arc<ServerState>,
    wake: PipeReader,
    shared: Arc<SequentialState>,
    /// The last time at which others waited for the connection in service.
    last_crowded: Cell<Option<Instant>>,
}

/// Connections served in a row before the silent and the lingering ones are checked.
const MAX_IN_A_ROW: u32 = 16;

impl SequentialWorker {
    fn run(&self) {
        let mut buffers = ThreadBuffers::new();
        let mut lingering = LingeringSet::new(self.server.config.linger_timeout);
        let mut in_a_row = 0;
        while !self.server.shutdown.is_begun() {
            let (listen, deadline) = match self.next() {
                Ok(Some((stream, since))) => {
                    self.serve(stream, since, &mut buffers, &mut lingering);
                    in_a_row += 1;
                    if in_a_row < MAX_IN_A_ROW || self.shared.silent.len() == 0 && lingering.is_empty() {
                        continue;
                    }
                    (false, Some(Instant::now()))
                }
                Ok(None) => (true, None),
                Err(error) => {
                    polyserve_core::throttled!(warn, %error, "cannot accept");
                    (false, Some(Instant::now() + ACCEPT_BACKOFF))
                }
            };
            in_a_row = 0;
            let deadline = [deadline, lingering.deadline()].into_iter().flatten().min();
            self.wait_for_input(listen, deadline);
            lingering.sweep();
        }
        self.drain(&mut buffers, &mut lingering);
    }

    /// Takes the connection that has waited for longest: from the queue, or from the kernel's.
    fn next(&self) -> io::Result<Option<(TcpStream, Instant)>> {
        if let Some(waiting) = lock(&self.shared.queue).pop_front() {
            return Ok(Some(waiting));
        }
        loop {
            match self.shared.accept() {
                Ok(stream) => return Ok(Some((stream, Instant::now()))),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if net::is_connection_error(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Accepts connections into the queue, up to the limit on connections. At the limit, silent connections are closed for
    /// them. Returns whether more can be accepted later.
    fn fill_queue(&self) -> bool {
        let max = self.server.config.max_connections;
        loop {
            let mut queue = lock(&self.shared.queue);
            if queue.len() + self.shared.silent.len() >= max {
                match self.shared.silent.take_older(EVICTION_GRACE) {
                    Some(oldest) if net::has_input(&oldest) => queue.push_back((oldest, Instant::now())),
                    Some(_) => {} // its client has sent nothing that a reset could overtake
                    None => return false,
                }
                continue;
            }
            match self.shared.accept() {
                Ok(stream) => queue.push_back((stream, Instant::now())),
                Err(error) if net::is_connection_error(&error) => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    /// Queues the silent connections that have sent something. Closes those that have been silent for the first byte's timeout.
    fn take_silent(&self) {
        let now = Instant::now();
        lock(&self.shared.queue).extend(self.shared.silent.take_ready().into_iter().map(|stream| (stream, now)));
        while self.shared.silent.take_older(self.server.config.first_byte_timeout).is_some() {}
    }

    /// Serves the connections in the queue and in the backlog, and closes the silent ones.
    fn drain(&self, buffers: &mut ThreadBuffers, lingering: &mut LingeringSet) {
        self.take_silent();
        while let Some(stream) = self.shared.silent.take_older(Duration::ZERO) {
            self.serve(stream, Instant::now(), buffers, lingering); // a byte may have arrived just now
        }
        let mut backlog = Backlog::new(&self.server.config);
        loop {
            let queued = lock(&self.shared.queue).pop_front();
            if let Some((stream, since)) = queued {
                self.serve(stream, since, buffers, lingering);
                continue;
            }
            match self.shared.accept_waiting(&mut backlog) {
                Some(BacklogNext::Connection(stream)) => self.serve(stream, Instant::now(), buffers, lingering),
                Some(BacklogNext::Exhausted) if !self.server.is_over() => thread::park_timeout(ACCEPT_BACKOFF),
                Some(BacklogNext::Exhausted | BacklogNext::None) | None => break,
            }
            lingering.sweep();
        }
        self.shared.close();
        lingering.finish(&self.server);
    }

    /// Waits for the shutdown, the first byte of a silent connection, or `deadline`. If `listen`, waits for the listener
    /// too.
    fn wait_for_input(&self, listen: bool, deadline: Option<Instant>) {
        let oldest = self.shared.silent.oldest().map(|since| since + self.server.config.first_byte_timeout);
        let deadline = [deadline, oldest].into_iter().flatten().min();
        {
            let guard = listen.then(|| lock(&self.shared.listener));
            let listener = guard.as_ref().and_then(|guard| guard.as_ref()).map(AsFd::as_fd);
            let sockets = [self.wake.as_fd(), self.shared.silent.as_fd()].into_iter().chain(listener);
            if let Err(error) = wait(sockets.map(|fd| (fd, PollFlags::IN)), deadline, &mut Vec::new()) {
                polyserve_core::throttled!(warn, %error, "cannot wait for connections");
                thread::park_timeout(ACCEPT_BACKOFF);
            }
        }
        self.take_silent();
    }

    /// Serves a connection until it closes. Sets it aside if it has not sent a byte.
    fn serve(&self, stream: TcpStream, since: Instant, buffers: &mut ThreadBuffers, lingering: &mut LingeringSet) {
        if net::prepare(&stream).is_err() {
            return; // the client is gone
        }
        let stream = Arc::new(stream);
        *lock(&self.shared.current) = Some(Arc::clone(&stream));
        let mut socket = SequentialSocket::new(&stream, self);
        let linger = drive(&mut socket, &self.server, buffers, since);
        let is_silent = socket.is_silent;
        *lock(&self.shared.current) = None;
        // If the supervisor still has a handle, the shutdown's deadline has passed.
        let Some(stream) = Arc::into_inner(stream) else { return };
        if is_silent {
            if self.shared.silent.len() >= self.server.config.max_connections {
                match self.shared.silent.take_older(EVICTION_GRACE) {
                    Some(oldest) if net::has_input(&oldest) => {
                        lock(&self.shared.queue).push_back((oldest, Instant::now()));
                    }
                    Some(oldest) => lingering.add(oldest),
                    None => return lingering.reject(stream, &self.server),
                }
            }
            let _ = self.shared.silent.add(stream, since); // an error: no memory, and the connection is closed
        } else if linger {
            lingering.add(stream);
        }
    }
}

/// The connection that is served. It waits together with the shutdown and the listener and, while it is idle, with the silent
/// connections.
struct SequentialSocket<'a> {
    stream: &'a TcpStream,
    worker: &'a SequentialWorker,
    /// Nothing has been read yet.
    is_new: bool,
    /// The connection has not sent a byte, and is to be set aside.
    is_silent: bool,
    /// Connections that come while this one stalls are accepted into the queue.
    fills_queue: bool,
    /// Whether others waited at the last poll; `None` if it is not known for the next answer.
    others_wait: Cell<Option<bool>>,
}

/// What a [`SequentialSocket`] waits for, together with its own socket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    /// The listener and the silent connections.
    All,
    Listener,
    None,
}

/// What became ready during a wait, apart from the connection's own socket.
struct Ready {
    others: bool,
    wake: bool,
}

impl<'a> SequentialSocket<'a> {
    fn new(stream: &'a TcpStream, worker: &'a SequentialWorker) -> Self {
        Self { stream, worker, is_new: true, is_silent: false, fills_queue: true, others_wait: Cell::new(None) }
    }

    /// Waits until the socket is ready, one of `others` is ready, the shutdown begins, or `deadline` has passed.
    ///
    /// `ignores_shutdown`: the shutdown does not end the wait, because it has begun already, or because the call only polls.
    fn wait(&self, flags: PollFlags, others: Others, ignores_shutdown: bool, deadline: Instant) -> io::Result<Ready> {
        let wake = (!ignores_shutdown).then(|| self.worker.wake.as_fd());
        let guard = (others != Others::None).then(|| lock(&self.worker.shared.listener));
        let listener = guard.as_ref().and_then(|guard| guard.as_ref()).map(AsFd::as_fd);
        let silent = (others == Others::All).then(|| self.worker.shared.silent.as_fd());
        let sockets = wake.into_iter().chain(listener).chain(silent).map(|fd| (fd, PollFlags::IN));
        let mut ready = Vec::with_capacity(4);
        wait([(self.stream.as_fd(), flags)].into_iter().chain(sockets), Some(deadline), &mut ready)?;
        let first_other = 1 + usize::from(!ignores_shutdown);
        let others = ready.get(first_other..).unwrap_or_default().contains(&true);
        Ok(Ready { others, wake: !ignores_shutdown && ready.get(1) == Some(&true) })
    }
}

impl Transport for SequentialSocket<'_> {
    fn peer(&self) -> Option<SocketAddr> {
        net::peer(self.stream)
    }

    fn read(&mut self, buffer: &mut [u8], phase: Phase, deadline: Instant) -> io::Result<Read> {
        let server = &self.worker.server;
        let idle = phase.may_close();
        let mut leave = false;
        // A client that waited for an answer has sent nothing since, so a read right after the answer would find nothing.
        let mut waits_first = idle && !self.is_new;
        loop {
            let draining = server.shutdown.is_begun();
            if draining || !std::mem::take(&mut waits_first) {
                match net::receive(self.stream, buffer) {
                    Ok(0) => return Ok(Read::End),
                    Ok(count) => {
                        self.is_new = false;
                        return Ok(Read::Bytes(count));
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
                // Set only after the socket was found empty, so that bytes that have arrived are served first.
                self.is_silent = self.is_new && !draining;
                if self.is_silent || (idle && draining) {
                    return Ok(Read::Leave);
                }
                if leave {
                    return Ok(Read::Evicted);
                }
                if Instant::now() >= deadline {
                    return Ok(Read::TimedOut);
                }
            }
            let others = match idle {
                true => Others::All,
                false if self.fills_queue && !draining => Others::Listener,
                false => Others::None,
            };
            let ready = self.wait(PollFlags::IN, others, draining, deadline)?;
            if ready.wake && !idle {
                return Ok(Read::Again);
            }
            if idle {
                leave = ready.others || !lock(&self.worker.shared.queue).is_empty();
                self.others_wait.set(Some(leave));
            } else if ready.others {
                self.fills_queue = self.worker.fill_queue();
            }
        }
    }

    fn write(&mut self, bytes: &[u8], last: bool, deadline: &dyn Fn(usize) -> Instant) -> usize {
        let server = &self.worker.server;
        let wait = |deadline| self.wait(PollFlags::OUT, Others::None, server.shutdown.is_begun(), deadline).map(drop);
        write_waiting(self.stream, server, bytes, last, deadline, wait)
    }

    fn others_wait(&self) -> bool {
        let now = Instant::now();
        let last_polled = self.others_wait.take();
        let waiting_now = !lock(&self.worker.shared.queue).is_empty()
            || last_polled.unwrap_or_else(|| {
                self.wait(PollFlags::empty(), Others::All, true, now).is_ok_and(|ready| ready.others)
            });
        if waiting_now {
            self.worker.last_crowded.set(Some(now));
        }
        waiting_now || self.worker.last_crowded.get().is_some_and(|at| now - at < CROWDED_AFTER)
    }
}
