//! `sequential`: one thread, one connection at a time. The baseline that everything else is to be better than.
//!
//! While a connection is being served, others wait in the kernel's queue. An idle connection is closed as soon as
//! another waits; one that stalls in mid-request holds up the rest until its timeout, so a client waits for at most that
//! times the connections ahead of it. One that has not said a word yet is given the head's timeout then, for its first
//! byte may be on its way.
//!
//! Cost: a read and a write for each request, a poll for each wait; no queue, no lock, no switch.
//!
//! *Wins when* requests are short, arrive on connections of their own and come from one client at a time: no thread is
//! woken for anything. *Loses when* anybody waits for anything.

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
use polyserve_core::serving::{
    ACCEPT_BACKOFF, Backlog, Bound, LingeringSet, LogThrottle, SHUTDOWN_SLACK, ServerState, ThreadBuffers, Waiting,
    bind, drain_backlog, wait,
};
use polyserve_core::sync::lock;
use polyserve_core::{ConfigError, Connections, Drain, Running, Server, ServerConfig, Service, net};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use polyserve_core::serving::blocking::{Read, Transport, drive};

/// The server of one connection at a time.
#[derive(Clone, Debug)]
pub struct Sequential {
    config: ServerConfig,
}

impl Sequential {
    /// A server within the limits of `config`.
    ///
    /// # Errors
    ///
    /// Where a limit is none, or more than one worker is asked for.
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
        let door = Arc::new(Door { listener: Mutex::new(Some(listener)), current: Mutex::default() });
        let (ended, end) = promise(());
        let worker =
            Worker { server: Arc::clone(&server), wake, door: Arc::clone(&door), log_throttle: LogThrottle::new() };
        let worker = thread::Builder::new().name("sequential".into()).spawn(move || {
            let _ended = ended; // completes when the thread ends, however it does
            worker.run();
        })?;
        let (shutdown, grace) = (server.shutdown.clone(), self.config.drain_grace);
        Running::start("sequential-main", local_addr, grace, shutdown, move || {
            supervise(&server, &door, worker, &mut end.into_future())
        })
    }
}

/// What the supervisor must close even where the worker is stuck: behind locks that are free while the service runs.
struct Door {
    listener: Mutex<Option<TcpListener>>,
    /// The connection that is being served.
    current: Mutex<Option<Arc<TcpStream>>>,
}

impl Door {
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
fn supervise(server: &ServerState, door: &Door, worker: JoinHandle<()>, end: &mut AnswerFuture<()>) -> Drain {
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
        door.cut(server);
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
    door: Arc<Door>,
    log_throttle: LogThrottle,
}

impl Worker {
    fn run(&self) {
        let mut buffers = ThreadBuffers::new();
        let mut lingering = LingeringSet::new(self.server.config.linger_timeout);
        while !self.server.shutdown.is_begun() {
            match self.door.accept() {
                Ok(stream) => self.serve(stream, &mut buffers, &mut lingering),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.rest(true, &mut lingering, None),
                Err(error) if net::is_connection_error(&error) => {}
                Err(error) => {
                    if self.log_throttle.is_due() {
                        tracing::warn!(%error, "cannot accept");
                    }
                    self.rest(false, &mut lingering, Some(Instant::now() + ACCEPT_BACKOFF));
                }
            }
        }
        let mut backlog = Backlog::new(&self.server.config);
        while let Some(next) = self.door.accept_waiting(&mut backlog) {
            match next {
                Waiting::Connection(stream) => self.serve(stream, &mut buffers, &mut lingering),
                Waiting::Exhausted if !self.server.is_over() => thread::park_timeout(ACCEPT_BACKOFF),
                Waiting::Exhausted | Waiting::None => break,
            }
            lingering.sweep();
        }
        self.door.close();
        lingering.finish(&self.server);
    }

    /// Waits for the listener, a departure, the deadline, or a shutdown that the caller does not know of yet.
    fn rest(&self, listen: bool, lingering: &mut LingeringSet, deadline: Option<Instant>) {
        let door = listen.then(|| lock(&self.door.listener));
        let listener = door.as_ref().and_then(|listener| listener.as_ref());
        let deadline = [deadline, lingering.deadline()].into_iter().flatten().min();
        let sockets = [self.wake.as_fd()].into_iter().chain(listener.map(AsFd::as_fd));
        if let Err(error) = wait(sockets.map(|fd| (fd, PollFlags::IN)), deadline, &mut Vec::new()) {
            tracing::warn!(%error, "cannot wait for connections");
            thread::park_timeout(ACCEPT_BACKOFF);
        }
        lingering.sweep();
    }

    fn serve(&self, stream: TcpStream, buffers: &mut ThreadBuffers, lingering: &mut LingeringSet) {
        if net::prepare(&stream).is_err() {
            return;
        }
        let stream = Arc::new(stream);
        *lock(&self.door.current) = Some(Arc::clone(&stream));
        let mut transport = Polled { stream: &stream, worker: self, fresh: true };
        let linger = drive(&mut transport, &self.server, buffers, Instant::now());
        *lock(&self.door.current) = None;
        // The supervisor may still be looking at it; then there is no time left to linger.
        if linger && let Some(stream) = Arc::into_inner(stream) {
            lingering.add(stream);
        }
    }
}

/// A socket that is asked not to block at each call, which saves setting it; waited for together with the listener and the shutdown.
struct Polled<'a> {
    stream: &'a TcpStream,
    worker: &'a Worker,
    /// Nothing has been read yet.
    fresh: bool,
}

impl Polled<'_> {
    /// Waits until the socket is ready, something else calls, or `deadline`. `draining` is what the caller knows: a
    /// shutdown that begins after it looked wakes it.
    fn wait(&self, flags: PollFlags, listen: bool, draining: bool, deadline: Instant) -> io::Result<Ready> {
        let wake = (!draining).then(|| (self.worker.wake.as_fd(), PollFlags::IN));
        let door = listen.then(|| lock(&self.worker.door.listener));
        let listener = door.as_ref().and_then(|door| door.as_ref()).map(|listener| (listener.as_fd(), PollFlags::IN));
        let sockets = [(self.stream.as_fd(), flags)].into_iter().chain(wake).chain(listener);
        let mut ready = Vec::with_capacity(3);
        wait(sockets, Some(deadline), &mut ready)?;
        let at = |index: usize| ready.get(index).copied().unwrap_or(false);
        Ok(Ready { listener: at(usize::from(!draining) + 1), wake: !draining && at(1) })
    }
}

/// What called, beside the socket.
struct Ready {
    listener: bool,
    wake: bool,
}

impl Transport for Polled<'_> {
    fn read(&mut self, buffer: &mut [u8], phase: Phase, deadline: Instant) -> io::Result<Read> {
        let server = &self.worker.server;
        let idle = phase == Phase::Idle;
        let (mut leave, mut listen, mut deadline) = (false, idle, deadline);
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
                // Only now, after the socket was found empty: what had arrived is served first.
                if leave || (idle && draining) {
                    return Ok(Read::Leave);
                }
                if Instant::now() >= deadline {
                    return Ok(Read::TimedOut);
                }
            }
            let ready = self.wait(PollFlags::IN, listen, draining, deadline)?;
            if ready.wake && !idle {
                return Ok(Read::Again);
            }
            if ready.listener && self.fresh {
                listen = false;
                deadline = deadline.min(Instant::now() + server.config.head_timeout);
            } else {
                leave = ready.listener;
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
}
