//! `sequential`: one thread, one connection at a time. The baseline for all other servers.
//!
//! ```text
//!  poll: listener, shutdown, silent connections
//!    -> take one connection that has sent something
//!       -> drive: recv, service, send, until it closes
//!    -> again
//! ```
//!
//! While a connection is served, others wait. If others wait when an answer is written, the answer says
//! `Connection: close`; an idle connection is closed then. A connection that has not sent a byte does not hold the server:
//! it is set aside and waits in `poll` with the listener. A request that stalls holds the server until its timeout.
//!
//! Invariant: a connection is served only by the worker thread, and only after its first byte has come.
//!
//! Cost: a poll, a read and a write for each request. Each poll also covers the silent connections. No queue, no contended
//! lock, no thread switch.
//!
//! *Wins when* requests are short, arrive on connections of their own and come from one client at a time: no thread is
//! woken. *Loses when* anything waits for anything else.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, PipeReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use polyserve_core::answer::{AnswerFuture, park_until, promise};
use polyserve_core::http1::Phase;
use polyserve_core::serving::blocking::{Read, Transport, drive};
use polyserve_core::serving::{
    ACCEPT_BACKOFF, Backlog, Bound, LingeringSet, LogThrottle, SHUTDOWN_SLACK, ServerState, ThreadBuffers, Waiting,
    bind, drain_backlog, wait,
};
use polyserve_core::sync::lock;
use polyserve_core::{ConfigError, Connections, Drain, Running, Server, ServerConfig, Service, net};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

/// The server of one connection at a time.
#[derive(Clone, Debug)]
pub struct Sequential {
    config: ServerConfig,
}

impl Sequential {
    /// Creates a server within the limits of `config`.
    ///
    /// # Errors
    ///
    /// Returns an error if a limit is zero or out of range, or if `workers` is more than 1.
    pub fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        config.refuse_queue("sequential")?;
        match config.workers {
            None | Some(1) => Ok(Self { config }),
            Some(workers) => {
                Err(ConfigError::unsupported("workers", format!("workers must be 1 for sequential, not {workers}")))
            }
        }
    }
}

impl Server for Sequential {
    fn connections(&self) -> Connections {
        Connections::One
    }

    fn serve(&self, addr: SocketAddr, service: Arc<dyn Service>) -> io::Result<Running> {
        let Bound { listener, local_addr, server } = bind(addr, &self.config, service)?;
        let wake = server.wake_pipe()?;
        let server = Arc::new(server);
        let shared = Arc::new(SequentialState { listener: Mutex::new(Some(listener)), current: Mutex::default() });
        let (ended, end) = promise(());
        let worker = Worker {
            server: Arc::clone(&server),
            wake,
            shared: Arc::clone(&shared),
            log_throttle: LogThrottle::new(),
            silent: RefCell::default(),
        };
        let worker = thread::Builder::new().name("sequential".into()).spawn(move || {
            let _ended = ended; // completes when the thread ends, however it does
            worker.run();
        })?;
        let (shutdown, grace) = (server.shutdown.clone(), self.config.drain_grace);
        Running::start("sequential-main", local_addr, grace, shutdown, move || {
            supervise(&server, &shared, worker, &mut end.into_future())
        })
    }
}

/// The sockets that the supervisor must close even if the worker is stuck. Their locks are free while the service runs.
struct SequentialState {
    listener: Mutex<Option<TcpListener>>,
    /// The connection that is being served.
    current: Mutex<Option<Arc<TcpStream>>>,
}

impl SequentialState {
    fn accept(&self) -> io::Result<TcpStream> {
        match &*lock(&self.listener) {
            Some(listener) => listener.accept().map(|(stream, _)| stream),
            None => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// In a drain, accepts what has waited; `None` once the listener is closed.
    fn accept_waiting(&self, backlog: &mut Backlog) -> Option<Waiting> {
        lock(&self.listener).as_ref().map(|listener| backlog.accept(listener))
    }

    /// Closes the listener.
    fn close(&self) {
        drop(lock(&self.listener).take());
    }

    /// Cuts the connection that is being served, and those that still wait to be accepted.
    fn cut(&self, server: &ServerState) {
        if let Some(listener) = lock(&self.listener).take() {
            drain_backlog(listener, server, |stream| {
                let peeked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
                if peeked.is_ok_and(|count| count > 0) {
                    server.count_cut();
                }
            });
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
    let mut until = |deadline| ended || park_until(Some(deadline), |cx| Pin::new(&mut *end).poll(cx)).is_some();
    let deadline = server.shutdown.deadline().unwrap_or_else(Instant::now);
    let mut stuck = 0;
    if !until(deadline) {
        shared.cut(server);
        stuck = usize::from(!until(deadline + SHUTDOWN_SLACK));
    }
    if stuck == 0
        && let Err(panic) = worker.join()
    {
        std::panic::resume_unwind(panic);
    }
    server.drained(stuck)
}

struct Worker {
    server: Arc<ServerState>,
    wake: PipeReader,
    shared: Arc<SequentialState>,
    log_throttle: LogThrottle,
    /// Connections that have not sent a byte, and when they were accepted, the oldest first.
    silent: RefCell<VecDeque<(TcpStream, Instant)>>,
}

/// Connections accepted and served in a row before the silent ones are looked at.
const BATCH: u32 = 16;

impl Worker {
    fn run(&self) {
        let mut buffers = ThreadBuffers::new();
        let mut lingering = LingeringSet::new(self.server.config.linger_timeout);
        let mut in_a_row = 0;
        while !self.server.shutdown.is_begun() {
            let (listen, deadline) = match self.shared.accept() {
                Ok(stream) => {
                    self.serve(stream, Instant::now(), &mut buffers, &mut lingering);
                    in_a_row += 1;
                    if in_a_row < BATCH || self.silent.borrow().is_empty() {
                        continue;
                    }
                    (false, Some(Instant::now()))
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => (true, None),
                Err(error) if net::is_connection_error(&error) => continue,
                Err(error) => {
                    if self.log_throttle.is_due() {
                        tracing::warn!(%error, "cannot accept");
                    }
                    (false, Some(Instant::now() + ACCEPT_BACKOFF))
                }
            };
            in_a_row = 0;
            let deadline = [deadline, lingering.deadline()].into_iter().flatten().min();
            for (stream, accepted) in self.wait_for_input(listen, deadline) {
                self.serve(stream, accepted, &mut buffers, &mut lingering);
            }
            lingering.sweep();
        }
        self.drain(&mut buffers, &mut lingering);
    }

    /// Serves the silent connections that have sent something by now and the connections that wait to be accepted.
    fn drain(&self, buffers: &mut ThreadBuffers, lingering: &mut LingeringSet) {
        for (stream, accepted) in self.silent.take() {
            self.serve(stream, accepted, buffers, lingering);
        }
        let mut backlog = Backlog::new(&self.server.config);
        while let Some(next) = self.shared.accept_waiting(&mut backlog) {
            match next {
                Waiting::Connection(stream) => self.serve(stream, Instant::now(), buffers, lingering),
                Waiting::Exhausted if !self.server.is_over() => thread::park_timeout(ACCEPT_BACKOFF),
                Waiting::Exhausted | Waiting::None => break,
            }
            lingering.sweep();
        }
        self.shared.close();
        lingering.finish(&self.server);
    }

    /// Waits for the listener if `listen`, the shutdown, the first byte of a silent connection, or `deadline`. Returns the
    /// silent connections that have sent something. Closes those that have been silent for the idle timeout.
    fn wait_for_input(&self, listen: bool, deadline: Option<Instant>) -> Vec<(TcpStream, Instant)> {
        let idle_timeout = self.server.config.idle_timeout;
        let mut silent = self.silent.borrow_mut();
        let oldest = silent.front().map(|(_, accepted)| *accepted + idle_timeout);
        let deadline = [deadline, oldest].into_iter().flatten().min();
        let mut ready = Vec::new();
        let first_silent = 1 + usize::from(listen);
        {
            let guard = listen.then(|| lock(&self.shared.listener));
            let listener = guard.as_ref().and_then(|guard| guard.as_ref());
            let sockets = [self.wake.as_fd()].into_iter().chain(listener.map(AsFd::as_fd));
            let sockets = sockets.chain(silent.iter().map(|(stream, _)| stream.as_fd()));
            if let Err(error) = wait(sockets.map(|fd| (fd, PollFlags::IN)), deadline, &mut ready) {
                tracing::warn!(%error, "cannot wait for connections");
                thread::park_timeout(ACCEPT_BACKOFF);
            }
        }
        let ready = ready.get(first_silent..).unwrap_or_default();
        let mut spoken = Vec::new();
        if ready.contains(&true) {
            for (entry, ready) in std::mem::take(&mut *silent).into_iter().zip(ready) {
                if *ready { spoken.push(entry) } else { silent.push_back(entry) }
            }
        }
        while silent.front().is_some_and(|(_, accepted)| accepted.elapsed() >= idle_timeout) {
            silent.pop_front();
        }
        spoken
    }

    /// Serves a connection until it closes. Sets it aside if it has not sent a byte.
    fn serve(&self, stream: TcpStream, accepted: Instant, buffers: &mut ThreadBuffers, lingering: &mut LingeringSet) {
        if net::prepare(&stream).is_err() {
            return; // the client is gone
        }
        let stream = Arc::new(stream);
        *lock(&self.shared.current) = Some(Arc::clone(&stream));
        let mut transport =
            Polled { stream: &stream, worker: self, fresh: true, is_silent: false, others_wait: Cell::new(None) };
        let linger = drive(&mut transport, &self.server, buffers, Instant::now());
        let is_silent = transport.is_silent;
        *lock(&self.shared.current) = None;
        // If the supervisor still has a handle, the shutdown's deadline has passed.
        let Some(stream) = Arc::into_inner(stream) else { return };
        if linger {
            lingering.add(stream);
        } else if is_silent {
            let mut silent = self.silent.borrow_mut();
            if silent.len() >= self.server.config.max_connections {
                silent.pop_front();
            }
            silent.push_back((stream, accepted));
        }
    }
}

/// The connection that is served. Its socket blocks, so each call asks not to. It waits together with the shutdown and, while
/// it is idle, with the listener and the silent connections.
struct Polled<'a> {
    stream: &'a TcpStream,
    worker: &'a Worker,
    /// Nothing has been read yet.
    fresh: bool,
    /// The connection has not sent a byte, and is to be set aside.
    is_silent: bool,
    /// Whether others waited at the last poll; `None` if it is not known for the next answer.
    others_wait: Cell<Option<bool>>,
}

/// The sockets that were ready, other than the connection's own.
struct Ready {
    others: bool,
    wake: bool,
}

impl Polled<'_> {
    /// Waits until the socket is ready, another connection waits if `others`, the shutdown begins, or `deadline` has passed.
    /// `draining`: the shutdown has begun, and need not be waited for.
    fn wait(&self, flags: PollFlags, others: bool, draining: bool, deadline: Instant) -> io::Result<Ready> {
        let wake = (!draining).then(|| (self.worker.wake.as_fd(), PollFlags::IN));
        let guard = others.then(|| lock(&self.worker.shared.listener));
        let listener =
            guard.as_ref().and_then(|guard| guard.as_ref()).map(|listener| (listener.as_fd(), PollFlags::IN));
        let silent = self.worker.silent.borrow();
        let silent = silent.iter().filter(|_| others).map(|(stream, _)| (stream.as_fd(), PollFlags::IN));
        let sockets = [(self.stream.as_fd(), flags)].into_iter().chain(wake).chain(listener).chain(silent);
        let mut ready = Vec::with_capacity(4);
        wait(sockets, Some(deadline), &mut ready)?;
        let first_other = 1 + usize::from(!draining);
        let others = ready.get(first_other..).unwrap_or_default().contains(&true);
        Ok(Ready { others, wake: !draining && ready.get(1) == Some(&true) })
    }
}

impl Transport for Polled<'_> {
    fn read(&mut self, buffer: &mut [u8], phase: Phase, deadline: Instant) -> io::Result<Read> {
        let server = &self.worker.server;
        let idle = phase.may_close();
        let mut leave = false;
        // After an answer, a client that waits for it has sent nothing: a read would find nothing.
        let mut waits_first = idle && !self.fresh;
        loop {
            let draining = server.shutdown.is_begun();
            if draining || !std::mem::take(&mut waits_first) {
                match rustix::net::recv(self.stream, &mut *buffer, RecvFlags::DONTWAIT) {
                    Ok((0, _)) => return Ok(Read::End),
                    Ok((count, _)) => {
                        self.fresh = false;
                        return Ok(Read::Bytes(count));
                    }
                    Err(Errno::INTR) => continue,
                    Err(Errno::AGAIN) => {}
                    Err(error) => return Err(error.into()),
                }
                // Only after the socket was found empty: what had arrived is served first.
                self.is_silent = self.fresh && !draining;
                if self.is_silent || leave || (idle && draining) {
                    return Ok(Read::Leave);
                }
                if Instant::now() >= deadline {
                    return Ok(Read::TimedOut);
                }
            }
            let ready = self.wait(PollFlags::IN, idle, draining, deadline)?;
            if ready.wake && !idle {
                return Ok(Read::Again);
            }
            if idle {
                self.others_wait.set(Some(ready.others));
                leave = ready.others;
            }
        }
    }

    fn write(&mut self, bytes: &[u8], last: bool, deadline: Instant) -> usize {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match rustix::net::send(self.stream, rest, SendFlags::DONTWAIT | net::send_flags(last)) {
                Ok(0) => break,
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let draining = self.worker.server.shutdown.is_begun();
                    let deadline = self.worker.server.within(deadline);
                    if Instant::now() >= deadline || self.wait(PollFlags::OUT, false, draining, deadline).is_err() {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        written
    }

    fn others_wait(&self) -> bool {
        let known = self.others_wait.take();
        known.unwrap_or_else(|| {
            let now = Instant::now();
            self.wait(PollFlags::empty(), true, true, now).is_ok_and(|ready| ready.others)
        })
    }
}
