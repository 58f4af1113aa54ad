//! The server's main thread: accepts, keeps silent connections in the lobby, sees off those that leave, and ends the run.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use futures_executor::{ThreadPool, ThreadPoolBuilder};
use polyserve_core::serving::{
    ACCEPT_BACKOFF, Bound, LingeringSet, LogThrottle, SHUTDOWN_SLACK, ServerState, bind, drain_backlog, wait,
};
use polyserve_core::{Drain, ServerConfig, Service, Shutdown, net};
use rustix::event::PollFlags;

use super::dispatcher::Dispatcher;
use super::task::serve_next;

/// Accepted in a row before those in the lobby are looked at.
const BATCH: usize = 256;

pub(super) struct MainLoop {
    dispatcher: Arc<Dispatcher>,
    pool: ThreadPool,
    threads: usize,
    /// Disconnected once every thread of the pool has ended.
    gone: Receiver<()>,
    /// None once the drain has begun.
    listener: Option<TcpListener>,
    /// The listener is left alone until then, for the system has no descriptor or memory left.
    rests_until: Option<Instant>,
    bell: UnixStream,
    /// Connections that have not sent a byte, and when they came; the oldest first.
    lobby: VecDeque<(TcpStream, Instant)>,
    lingering: LingeringSet,
    log_throttle: LogThrottle,
}

impl MainLoop {
    pub(super) fn new(
        addr: SocketAddr,
        config: &ServerConfig,
        service: Arc<dyn Service>,
    ) -> io::Result<(Self, SocketAddr, Shutdown)> {
        let Bound { listener, local_addr, server } = bind(addr, config, service)?;
        let threads = super::threads(config);
        let (dispatcher, bell) = Dispatcher::new(server, threads)?;
        let shutdown = dispatcher.server.shutdown.clone();
        let (aboard, gone) = mpsc::channel::<()>();
        // Each thread holds the hook, and with it the sender, until it ends.
        let hook = move |_| {
            let _held = &aboard;
        };
        let pool = ThreadPoolBuilder::new().pool_size(threads).name_prefix("futures-").before_stop(hook).create()?;
        let lingering = LingeringSet::new(config.linger_timeout);
        let (lobby, rests_until, log_throttle) = (VecDeque::new(), None, LogThrottle::new());
        let listener = Some(listener);
        let main_loop =
            Self { dispatcher, pool, threads, gone, listener, rests_until, bell, lobby, lingering, log_throttle };
        Ok((main_loop, local_addr, shutdown))
    }

    /// Runs until the shutdown and through it.
    pub(super) fn run(mut self) -> Drain {
        while !self.server().shutdown.is_begun() {
            self.wait(None);
            self.accept();
        }
        self.drain()
    }

    fn server(&self) -> &ServerState {
        &self.dispatcher.server
    }

    /// Waits until somebody comes, speaks, leaves or is late, or for so long; does what is to be done for those that were
    /// here.
    fn wait(&mut self, until: Option<Instant>) {
        let now = Instant::now();
        self.rests_until = self.rests_until.filter(|until| *until > now);
        let idle_timeout = self.server().config.idle_timeout;
        let silent = self.lobby.front().map(|(_, since)| *since + idle_timeout);
        let deadline = [until, self.rests_until, silent, self.lingering.deadline()].into_iter().flatten().min();
        let listener = self.listener.as_ref().filter(|_| self.rests_until.is_none()).map(AsFd::as_fd);
        let others = usize::from(listener.is_some()) + 1;
        let sockets = [self.bell.as_fd()].into_iter().chain(listener);
        let sockets = sockets.chain(self.lobby.iter().map(|(stream, _)| stream.as_fd()));
        let mut ready = Vec::new();
        if let Err(error) = wait(sockets.map(|fd| (fd, PollFlags::IN)), deadline, &mut ready) {
            self.complain("cannot wait for connections", &error);
            return thread::park_timeout(ACCEPT_BACKOFF);
        }
        if ready.first() == Some(&true) {
            self.dispatcher.answer_bell(&self.bell);
        }
        self.add();
        let spoken = ready.get(others..).unwrap_or_default();
        let late = Instant::now().checked_sub(idle_timeout);
        if spoken.contains(&true) || silent.is_some_and(|silent| silent <= Instant::now()) {
            for ((stream, since), spoken) in std::mem::take(&mut self.lobby).into_iter().zip(spoken) {
                if *spoken {
                    self.greet(stream, since);
                } else if late.is_none_or(|late| since > late) {
                    self.lobby.push_back((stream, since));
                }
            }
        }
    }

    fn add(&mut self) {
        for stream in self.dispatcher.take_departing() {
            self.lingering.add(stream);
        }
        self.lingering.sweep();
    }

    fn accept(&mut self) {
        for _ in 0..BATCH {
            let Some(listener) = self.listener.as_ref().filter(|_| self.rests_until.is_none()) else { return };
            match net::accept(listener) {
                Ok(stream) => self.receive(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if net::is_connection_error(&error) => {}
                Err(error) => {
                    self.complain("cannot accept", &error);
                    self.rests_until = Some(Instant::now() + ACCEPT_BACKOFF);
                    break;
                }
            }
        }
    }

    fn receive(&mut self, stream: TcpStream) {
        if net::prepare(&stream).is_err() {
            return; // gone already
        }
        let open = self.lobby.len() + self.dispatcher.places();
        if open < self.server().config.max_connections || self.make_room() {
            self.greet(stream, Instant::now());
        } else {
            self.lingering.reject(stream, &self.dispatcher.server);
        }
    }

    /// Closes a connection that has been silent for so long that its first byte cannot be on its way, or an idle one.
    fn make_room(&mut self) -> bool {
        let head_timeout = self.server().config.head_timeout;
        if self.lobby.front().is_some_and(|(_, since)| since.elapsed() > head_timeout) {
            return self.lobby.pop_front().is_some();
        }
        self.dispatcher.make_room()
    }

    /// Has a connection served if its first byte is there; otherwise it is to wait for that.
    fn greet(&mut self, stream: TcpStream, since: Instant) {
        match stream.peek(&mut [0]) {
            Ok(0) => {} // it went without a word
            Ok(_) => match self.dispatcher.enter(stream) {
                Ok(()) => {
                    let dispatcher = Arc::clone(&self.dispatcher);
                    self.pool.spawn_ok(async move { serve_next(&dispatcher) });
                }
                Err(stream) => self.lingering.reject(stream, &self.dispatcher.server),
            },
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                self.lobby.push_back((stream, since));
            }
            Err(_) => {}
        }
    }

    fn drain(mut self) -> Drain {
        self.dispatcher.dismiss_idle();
        if let Some(listener) = self.listener.take() {
            let dispatcher = Arc::clone(&self.dispatcher);
            drain_backlog(listener, &dispatcher.server, |guest| {
                if guest.set_nonblocking(true).is_ok() {
                    self.receive(guest);
                }
            });
        }
        for (stream, since) in std::mem::take(&mut self.lobby) {
            self.greet(stream, since);
        }
        self.lobby.clear(); // still silent
        self.dispatcher.dismiss_idle();
        while self.anybody_left() && !self.server().is_over() {
            self.wait(self.server().shutdown.deadline());
        }
        if self.dispatcher.inside() > 0 {
            self.dispatcher.cut();
        }
        let last = Instant::now() + SHUTDOWN_SLACK;
        while self.dispatcher.inside() > 0 && Instant::now() < last {
            self.wait(Some(last));
        }
        self.end()
    }

    /// Whoever is no longer inside has been handed over to be seen off before that, so this looks for them afterwards.
    fn anybody_left(&mut self) -> bool {
        let inside = self.dispatcher.inside();
        self.add();
        inside > 0 || self.lingering.deadline().is_some()
    }

    /// Ends the threads; those that still have a connection are stuck.
    fn end(self) -> Drain {
        let stuck = self.dispatcher.inside();
        if stuck > 0 {
            for _ in stuck..self.threads {
                self.pool.spawn_ok(async { resume_unwind(Box::new(())) });
            }
        }
        drop(self.pool);
        let _ = self.gone.recv_timeout(if stuck > 0 { Duration::ZERO } else { SHUTDOWN_SLACK });
        self.dispatcher.server.drained(stuck)
    }

    fn complain(&self, what: &str, error: &io::Error) {
        if self.log_throttle.is_due() {
            tracing::warn!(%error, "{what}");
        }
    }
}
