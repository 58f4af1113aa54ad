//! The server itself: one connection at a time, on one thread. `http1::Session` speaks HTTP, this file moves the bytes.
//!
//! It looks up from whatever it waits for every few milliseconds, to see whether a shutdown has begun; a better one
//! would be woken.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{self as std_net, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use polyserve::answer::park_until;
use polyserve::http1::{Env, Phase, Scratch, Session, Want};
use polyserve::prelude::*;
use polyserve::sync::lock;
use polyserve::{ConfigError, Shutdown, net};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// One connection at a time.
#[derive(Debug)]
pub(crate) struct OneByOne {
    config: ServerConfig,
}

impl OneByOne {
    /// One within the limits of `config`, or what of it cannot be honoured.
    pub(crate) fn new(config: ServerConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        // What a server cannot honour it refuses here.
        match config.workers {
            None | Some(1) => Ok(Self { config }),
            Some(workers) => Err(ConfigError::new(format!("workers must be 1 for this server, not {workers}"))),
        }
    }
}

impl Server for OneByOne {
    fn connections(&self) -> Connections {
        Connections::One // promises: an idle connection is closed as soon as another waits
    }

    fn serve(&self, addr: SocketAddr, service: Arc<dyn Service>) -> io::Result<Running> {
        let listener = net::listen(addr, &self.config)?;
        listener.set_nonblocking(true)?;
        let local_addr = listener.local_addr()?;
        let shutdown = Shutdown::new();
        let server = Arc::new(ServerState {
            env: Env::new(service, &self.config),
            config: self.config.clone(),
            shutdown: shutdown.clone(),
            listener: Mutex::new(Some(listener)),
            waiting: Mutex::default(),
            current: Mutex::new(None),
            answered: AtomicU64::new(0),
            cut: AtomicU64::new(0),
        });
        let (scratch, input, leaving) = (Scratch::new(), vec![0; 16 * 1024], Vec::new());
        let worker = Worker { server: Arc::clone(&server), scratch, input, leaving };
        let worker = thread::Builder::new().name("one-by-one".into()).spawn(move || worker.run())?;
        // The main thread does nothing but see to the end: the worker may be stuck in the service.
        let main = move || server.see_to_the_end(worker);
        Running::start("one-by-one-main", local_addr, self.config.drain_grace, shutdown, main)
    }
}

/// How often the threads look up.
const LOOK: Duration = Duration::from_millis(5);

/// What the worker and the main thread share.
struct ServerState {
    env: Env,
    config: ServerConfig,
    shutdown: Shutdown,
    /// `None` once it is closed. Like the rest below, not locked while the service runs: the worker may be stuck there.
    listener: Mutex<Option<TcpListener>>,
    /// Who waited when the drain began.
    waiting: Mutex<VecDeque<TcpStream>>,
    current: Mutex<Option<Arc<TcpStream>>>,
    answered: AtomicU64,
    cut: AtomicU64,
}

impl ServerState {
    /// Whether the shutdown's deadline has passed, and `more`.
    fn is_over(&self, more: Duration) -> bool {
        self.shutdown.deadline().is_some_and(|deadline| Instant::now() >= deadline + more)
    }

    fn accept(&self) -> io::Result<TcpStream> {
        match &*lock(&self.listener) {
            Some(listener) => listener.accept().map(|(stream, _)| stream),
            None => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// Who waits is still let in, but nobody after that.
    fn close(&self) {
        if let Some(listener) = lock(&self.listener).take() {
            lock(&self.waiting).extend(std::iter::from_fn(|| next_waiting(&listener)));
        }
    }

    fn next_waiting(&self) -> Option<TcpStream> {
        lock(&self.waiting).pop_front()
    }

    fn see_to_the_end(&self, worker: JoinHandle<()>) -> Drain {
        // Past the deadline the worker cuts what it does, and ends; unless it is stuck in the service's own code.
        const SHUTDOWN_SLACK: Duration = Duration::from_millis(500);
        while !worker.is_finished() && !self.is_over(SHUTDOWN_SLACK) {
            thread::park_timeout(LOOK);
        }
        let stuck = !worker.is_finished();
        if stuck {
            drop(lock(&self.listener).take());
            lock(&self.waiting).clear();
            if let Some(stream) = &*lock(&self.current) {
                let _ = stream.shutdown(std_net::Shutdown::Both);
            }
        } else if let Err(panic) = worker.join() {
            std::panic::resume_unwind(panic);
        }
        let (answered, cut) = (self.answered.load(Ordering::Relaxed), self.cut.load(Ordering::Relaxed));
        Drain { answered, cut, stuck: u64::from(stuck) }
    }
}

struct Worker {
    server: Arc<ServerState>,
    scratch: Scratch,
    input: Vec<u8>,
    /// Connections after their last answer.
    leaving: Vec<(Arc<TcpStream>, Instant)>,
}

/// More of them are not seen off.
const MOST_LEAVING: usize = 100;

impl Worker {
    fn run(mut self) {
        let server = Arc::clone(&self.server);
        while !server.shutdown.is_begun() {
            self.see_off();
            match server.accept() {
                Ok(stream) => self.serve(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if let Some(listener) = &*lock(&server.listener) {
                        ready(&[(listener, PollFlags::IN)], LOOK);
                    }
                }
                Err(error) if net::is_connection_error(&error) => {}
                Err(_) => thread::park_timeout(LOOK), // no descriptor is left, perhaps: look again soon
            }
        }
        server.close();
        while let Some(stream) = server.next_waiting() {
            self.serve(stream);
        }
        while !self.leaving.is_empty() && !self.server.is_over(Duration::ZERO) {
            self.see_off();
            thread::park_timeout(LOOK);
        }
    }

    /// Serves a connection to its end.
    fn serve(&mut self, stream: TcpStream) {
        if net::prepare(&stream).and_then(|()| stream.set_nonblocking(true)).is_err() {
            return;
        }
        let stream = Arc::new(stream);
        *lock(&self.server.current) = Some(Arc::clone(&stream));
        let mut session = Session::new();
        let linger = self.converse(&stream, &mut session);
        self.count(&mut session);
        *lock(&self.server.current) = None;
        if linger && stream.shutdown(std_net::Shutdown::Write).is_ok() && self.leaving.len() < MOST_LEAVING {
            self.leaving.push((stream, Instant::now() + self.server.config.linger_timeout));
        }
    }

    /// Reads on after last answers, for a while: a close with unread bytes would reset them away.
    fn see_off(&mut self) {
        self.leaving.retain(|(stream, until)| {
            let mut stream: &TcpStream = stream;
            match stream.read(&mut self.input) {
                Ok(0) => false,
                Ok(_) => Instant::now() < *until,
                Err(error) => error.kind() == ErrorKind::WouldBlock && Instant::now() < *until,
            }
        });
    }

    /// Does what the session wants, until it wants to close. Says whether to linger.
    fn converse(&mut self, stream: &TcpStream, session: &mut Session) -> bool {
        let server = Arc::clone(&self.server);
        let (mut stage, mut since) = (session.stage(), Instant::now());
        let mut want = session.want();
        loop {
            if !self.scratch.out().is_empty() {
                let (written, whole) = (self.write(stream), self.scratch.out().len());
                session.written(written, &mut self.scratch);
                if written < whole {
                    return self.abandon(session);
                }
            }
            self.count(session);
            // While the stage stays the same, so does its deadline.
            if session.stage() != stage {
                (stage, since) = (session.stage(), Instant::now());
            }
            let deadline = since + stage.1.timeout(&server.config);
            let event = match want {
                Want::Close { linger } => return linger,
                Want::Write => Event::Ready,
                Want::Answer => self.wait_for_answer(session, deadline),
                Want::Read(phase) => {
                    let is_new = session.stage() == (0, Phase::Idle);
                    self.read(stream, phase, is_new, deadline)
                }
            };
            // The session has no clock: it is told the time, and whether the server is draining.
            self.scratch.refresh(SystemTime::now(), server.shutdown.is_begun());
            want = match event {
                Event::Ready => session.resume(&server.env, &mut self.scratch),
                Event::Bytes(count) => session.receive(&self.input[..count], &server.env, &mut self.scratch),
                Event::End => session.end_of_input(),
                Event::TimedOut => session.time_out(&server.env, &mut self.scratch),
                Event::Leave => return false,
                Event::Gone => return self.abandon(session),
            };
        }
    }

    /// Waits for bytes. An idle connection leaves when the server drains or another client waits.
    fn read(&mut self, mut stream: &TcpStream, phase: Phase, is_new: bool, mut deadline: Instant) -> Event {
        let (idle, mut leave, mut patient) = (phase == Phase::Idle, false, false);
        loop {
            match stream.read(&mut self.input) {
                Ok(0) => return Event::End,
                Ok(count) => return Event::Bytes(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Event::Gone,
            }
            // Only now that nothing was found: what has arrived is served first.
            if leave || (idle && self.server.shutdown.is_begun()) {
                return Event::Leave;
            } else if self.server.is_over(Duration::ZERO) {
                return Event::Gone;
            } else if Instant::now() >= deadline {
                return Event::TimedOut;
            }
            let door = (idle && !patient).then(|| lock(&self.server.listener));
            let listener = door.as_ref().and_then(|door| door.as_ref()).map(|open| (open.as_fd(), PollFlags::IN));
            let waited_for: Vec<_> = [(stream.as_fd(), PollFlags::IN)].into_iter().chain(listener).collect();
            let another_waits = ready(&waited_for, LOOK).get(1) == Some(&true);
            if another_waits && is_new {
                // Its first byte may be on its way: it has as long for it as for a head.
                patient = true;
                deadline = deadline.min(Instant::now() + self.server.config.head_timeout);
            } else {
                leave = another_waits;
            }
        }
    }

    fn wait_for_answer(&self, session: &mut Session, deadline: Instant) -> Event {
        loop {
            let look = deadline.min(Instant::now() + LOOK);
            if park_until(Some(look), |cx| session.poll_answer(cx)).is_some() {
                return Event::Ready;
            } else if self.server.is_over(Duration::ZERO) {
                return Event::Gone;
            } else if Instant::now() >= deadline {
                return Event::TimedOut;
            }
        }
    }

    /// Writes what is in the scratch, for as long as the client may take. Says how much was written.
    fn write(&self, mut stream: &TcpStream) -> usize {
        let deadline = Instant::now() + self.server.config.write_timeout;
        let (bytes, mut written) = (self.scratch.out(), 0);
        while written < bytes.len() {
            match stream.write(&bytes[written..]) {
                Ok(count) if count > 0 => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if Instant::now() >= deadline || self.server.is_over(Duration::ZERO) {
                        break;
                    }
                    ready(&[(stream, PollFlags::OUT)], LOOK);
                }
                _ => break,
            }
        }
        written
    }

    /// The connection is lost, or cut; then a request in it counts.
    fn abandon(&self, session: &mut Session) -> bool {
        if session.is_busy() && self.server.is_over(Duration::ZERO) {
            self.server.cut.fetch_add(1, Ordering::Relaxed);
        }
        session.abandon();
        false
    }

    fn count(&self, session: &mut Session) {
        self.server.answered.fetch_add(session.take_answered(), Ordering::Relaxed);
    }
}

/// What a wait has brought.
enum Event {
    Ready,
    Bytes(usize),
    /// The client sends no more.
    End,
    TimedOut,
    /// The connection is idle, and its thread wanted elsewhere.
    Leave,
    /// The client is gone, or the shutdown's deadline has passed.
    Gone,
}

/// A connection that waits to be accepted, if there is one.
fn next_waiting(listener: &TcpListener) -> Option<TcpStream> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Some(stream),
            Err(error) if net::is_connection_error(&error) => {}
            Err(_) => return None,
        }
    }
}

/// Which of the sockets are ready for what is asked, after `timeout` at the latest.
fn ready(sockets: &[(impl AsFd, PollFlags)], timeout: Duration) -> Vec<bool> {
    let mut polled: Vec<_> = sockets.iter().map(|(socket, flags)| PollFd::new(socket, *flags)).collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() };
    let _ = poll(&mut polled, Some(&timeout)); // an error is as good as a timeout: all is looked at again
    polled.iter().map(|fd| !fd.revents().is_empty()).collect()
}
