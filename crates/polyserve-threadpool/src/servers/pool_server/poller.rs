//! The one thread that polls, watches the clock, accepts where no worker does, and drains.
//!
//! It never runs the service and never waits for a client, so that a pool whose workers are all held up still accepts,
//! refuses and times out.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use mio::net::TcpListener;
use mio::{Events, Poll, Token, Waker};
use polyserve_core::config::cores;
use polyserve_core::http1::{Phase, Session, Want};
use polyserve_core::serving::{ACCEPT_BACKOFF, LogThrottle, SHUTDOWN_SLACK, ServerState, ThreadBuffers, discard};
use polyserve_core::sync::lock;
use polyserve_core::{Drain, Executor};

use super::intake::{Accepted, Intake};
use super::lending::{LOOK, Lending};
use super::slots::{Connection, Slot};
use super::word::{AGAIN, Event, FREE, LINGERING, PARKED, QUEUED, RUNNING};
use super::worker::{Flushed, Jobs, Outcome, Shared, flush};

pub(super) const LISTENER: Token = Token(usize::MAX - 1);
const WAKE: Token = Token(usize::MAX - 2);

/// So many connections are accepted before the others are looked at again.
const ACCEPT_BATCH: usize = 256;

/// So many refused connections may linger beyond the limit.
const REFUSED: usize = 8192;

/// How often a drain looks at what is left, and a full queue is tried again.
const LOOK_AGAIN: Duration = LOOK;

pub(super) struct Poller {
    poll: Poll,
    shared: Arc<Shared>,
    /// Keeps the jobs' function alive.
    _jobs: Arc<Jobs>,
    executor_is_own: bool,
    buffers: ThreadBuffers,
    /// The listener may have more, and this thread is to accept it.
    accepting: bool,
    lending: Lending,
    /// Accepting rests until then: the system had nothing left.
    resting: Option<Instant>,
    log_throttle: LogThrottle,
    /// Connections that could not be queued and cannot be refused: an answer of theirs is half written.
    retry: Vec<usize>,
    tick: Duration,
    next_tick: Instant,
}

impl Poller {
    pub(super) fn new(
        listener: TcpListener,
        server: ServerState,
        executor: Arc<dyn Executor>,
        executor_is_own: bool,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let workers = executor.workers().unwrap_or_else(cores);
        let intake = Intake::new(listener, poll.registry(), workers, !executor_is_own)?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        server.shutdown.on_begin(move || {
            let _ = waker.wake();
        });
        let config = &server.config;
        let timeouts = [config.head_timeout, config.body_timeout, config.idle_timeout, config.write_timeout];
        let shortest = timeouts.into_iter().chain([config.linger_timeout]).min().unwrap_or_default();
        let tick = (shortest / 8).clamp(Duration::from_millis(5), Duration::from_millis(250));
        let most = server.config.max_connections + REFUSED;
        let shared = Arc::new(Shared::new(server, intake, poll.registry().try_clone()?, executor, most));
        let jobs = shared.jobs();
        let lending = Lending::new(workers);
        Ok(Self {
            poll,
            shared,
            _jobs: jobs,
            executor_is_own,
            buffers: ThreadBuffers::new(),
            accepting: false,
            lending,
            resting: None,
            log_throttle: LogThrottle::new(),
            retry: Vec::new(),
            tick,
            next_tick: Instant::now(),
        })
    }

    pub(super) fn run(mut self) -> Drain {
        let mut events = Events::with_capacity(1024);
        loop {
            if self.shared.server.shutdown.is_begun() && self.drain_step() {
                break;
            }
            if let Err(error) = self.poll.poll(&mut events, self.timeout())
                && error.kind() != ErrorKind::Interrupted
            {
                tracing::error!(%error, "cannot poll");
                thread::park_timeout(ACCEPT_BACKOFF);
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accepting |= !self.lending.lend(&self.shared),
                    WAKE => {}
                    Token(name) => self.ready(name, event.is_read_closed() || event.is_error()),
                }
            }
            if self.lending.look(&self.shared) {
                self.accepting = true;
                self.retry.extend(self.shared.park_lobby());
            }
            for stream in self.shared.intake.take_surplus() {
                self.welcome(stream);
            }
            self.accept(ACCEPT_BATCH);
            self.retry_rejected();
            self.look_at_the_clock();
        }
        self.end()
    }

    fn timeout(&self) -> Option<Duration> {
        if self.accepting && self.resting.is_none() {
            return Some(Duration::ZERO);
        }
        if !self.retry.is_empty() || self.shared.server.shutdown.is_begun() || self.shared.intake.is_lent() {
            return Some(LOOK_AGAIN);
        }
        if self.shared.intake.has_surplus() {
            return Some(Duration::ZERO); // left by the last one that had a seat
        }
        (self.resting.is_some() || self.shared.slots.used() > 0).then_some(self.tick)
    }

    fn accept(&mut self, most: usize) {
        if self.resting.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.resting = None;
        for _ in 0..most {
            if !self.accepting {
                return;
            }
            match self.shared.intake.accept() {
                Accepted::Connection(stream) => self.welcome(stream),
                Accepted::Gone => {}
                Accepted::Nothing => self.accepting = false,
                Accepted::Failed(error) => {
                    if self.log_throttle.is_due() {
                        tracing::warn!(%error, "cannot accept");
                    }
                    self.resting = Some(Instant::now() + ACCEPT_BACKOFF);
                    return;
                }
            }
        }
    }

    fn welcome(&mut self, stream: mio::net::TcpStream) {
        let most = self.shared.server.config.max_connections;
        match self.shared.slots.admit(stream, most) {
            Ok(name) => self.queue(name),
            Err(stream) => {
                // Full. It is told so, and lingers in a slot beyond the limit.
                match self.shared.slots.admit(stream, most + REFUSED) {
                    Ok(name) => self.take(name, QUEUED, Self::reject),
                    Err(stream) => self.turn_away_at_once(&stream),
                }
            }
        }
    }

    fn queue(&mut self, name: usize) {
        if self.shared.queue(name) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let Some(slot) = shared.slots.get(name) else { return };
        let writing = lock(&slot.connection).as_ref().is_some_and(|open| !open.session.unsent().is_empty());
        if writing || self.shared.server.shutdown.is_begun() {
            self.retry.push(name);
        } else {
            self.take(name, QUEUED, Self::reject);
        }
    }

    fn retry_rejected(&mut self) {
        self.retry.retain(|name| !self.shared.queue(*name));
    }

    /// Bytes, or an end, have come.
    fn ready(&mut self, name: usize, ended: bool) {
        let shared = Arc::clone(&self.shared);
        let Some(slot) = shared.slots.get(name) else { return };
        if ended {
            slot.ended.store(true, Ordering::Relaxed);
        }
        match slot.word.event() {
            Event::Job => self.queue(name),
            Event::Waste => self.take(name, LINGERING, |poller, _, open| match poller.shared.waste(open) {
                true => Outcome::Park,
                false => Outcome::Close(false),
            }),
            Event::Nothing => {}
        }
    }

    /// Takes a connection that no worker has, does `work` with it and moves it on.
    fn take(&mut self, name: usize, from: u8, work: impl FnOnce(&mut Self, &Slot, &mut Connection) -> Outcome) {
        let shared = Arc::clone(&self.shared);
        let Some(slot) = shared.slots.get(name) else { return };
        if !slot.word.move_on(from, RUNNING) {
            return;
        }
        let mut connection = lock(&slot.connection);
        let Some(open) = connection.as_mut() else { return };
        match work(self, slot, open) {
            Outcome::Park => while !slot.word.move_on(RUNNING, from) && !slot.word.move_on(AGAIN, from) {},
            outcome => drop(shared.settle(name, slot, &mut connection, outcome, 0)),
        }
    }

    /// Past the last slot: the answer is written, what has come is thrown away, and there is no lingering.
    fn turn_away_at_once(&mut self, stream: &mio::net::TcpStream) {
        let (server, mut session) = (&self.shared.server, Session::new());
        self.buffers.refresh(server);
        let _ = session.reject(&server.env, &mut self.buffers.scratch);
        flush(stream, &mut session, true, &mut self.buffers);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        discard(stream, &mut self.buffers.input);
        session.abandon();
        server.count(&mut session);
    }

    fn reject(&mut self, slot: &Slot, open: &mut Connection) -> Outcome {
        let idle = open.session.want() == Want::Read(Phase::Idle);
        if idle && slot.ended.load(Ordering::Relaxed) && open.stream.peek(&mut [0]).is_ok_and(|count| count == 0) {
            return Outcome::Close(false); // it asks nothing: it has only closed
        }
        let server = &self.shared.server;
        self.buffers.refresh(server);
        let want = open.session.reject(&server.env, &mut self.buffers.scratch);
        self.say_last(open, want)
    }

    /// Writes a last answer as far as the socket takes it at once.
    fn say_last(&mut self, open: &mut Connection, want: Want) -> Outcome {
        let said = flush(&open.stream, &mut open.session, true, &mut self.buffers) == Flushed::All;
        if !said {
            open.session.abandon();
        }
        Outcome::Close(said && want == Want::Close { linger: true })
    }

    fn look_at_the_clock(&mut self) {
        let now = Instant::now();
        if now < self.next_tick {
            return;
        }
        self.next_tick = now + self.tick;
        let shared = Arc::clone(&self.shared);
        let now = shared.millis_at(now);
        for (name, slot) in shared.slots.iter() {
            if slot.deadline.load(Ordering::Relaxed) >= now {
                continue;
            }
            match slot.word.get() {
                PARKED => self.take(name, PARKED, Self::time_out),
                LINGERING => self.take(name, LINGERING, |poller, slot, _| {
                    let late = slot.deadline.load(Ordering::Relaxed) < poller.shared.millis_at(Instant::now());
                    if late { Outcome::Close(false) } else { Outcome::Park } // it may have begun to linger just now
                }),
                _ => {}
            }
        }
    }

    fn time_out(&mut self, slot: &Slot, open: &mut Connection) -> Outcome {
        let shared = Arc::clone(&self.shared);
        if slot.deadline.load(Ordering::Relaxed) >= shared.millis_at(Instant::now()) {
            return Outcome::Park; // it was served meanwhile, and waits anew
        }
        if !open.session.unsent().is_empty() {
            shared.server.abandon(&mut open.session); // it reads too slowly
            return Outcome::Close(false);
        }
        self.buffers.refresh(&shared.server);
        let want = open.session.time_out(&shared.server.env, &mut self.buffers.scratch);
        self.say_last(open, want)
    }

    /// One step of the drain; true at its end.
    fn drain_step(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        if shared.intake.listener().is_some() {
            // Clients that connect again and again cannot draw it out: no more are taken than could wait at once.
            self.accepting = true;
            self.accept(shared.server.config.backlog as usize);
            shared.intake.close(&shared.registry);
        }
        self.retry.extend(shared.park_lobby());
        for stream in shared.intake.take_surplus() {
            self.welcome(stream);
        }
        for (name, slot) in shared.slots.iter() {
            // A worker looks once more whether something has come, and closes it if not.
            if slot.idle.load(Ordering::Relaxed) && slot.word.move_on(PARKED, QUEUED) {
                self.queue(name);
            }
        }
        !self.is_somebody_there() || shared.server.is_over()
    }

    /// Whether there is a connection, or a worker that may be about to accept one.
    fn is_somebody_there(&self) -> bool {
        self.shared.intake.accepting.load(Ordering::SeqCst) > 0 || self.shared.slots.used() > 0
    }

    /// Cuts what is left, ends the workers, counts.
    fn end(self) -> Drain {
        self.cut_all();
        let shared = &self.shared;
        let deadline = Instant::now() + SHUTDOWN_SLACK;
        let stuck = if self.executor_is_own {
            shared.executor.close(Some(deadline))
        } else {
            while self.is_somebody_there() && Instant::now() < deadline {
                thread::park_timeout(LOOK_AGAIN);
                self.cut_all(); // who has just parked was running before
            }
            shared.slots.used()
        };
        shared.server.drained(stuck)
    }

    /// Cuts every connection: those that run lose their socket, the others end.
    fn cut_all(&self) {
        let shared = &self.shared;
        let mut waste = [0; 1];
        for (name, slot) in shared.slots.iter() {
            let queued = slot.word.move_on(QUEUED, RUNNING);
            if queued || slot.word.move_on(PARKED, RUNNING) || slot.word.move_on(LINGERING, RUNNING) {
                let mut connection = lock(&slot.connection);
                if let Some(open) = connection.as_mut() {
                    let unread = queued && open.stream.peek(&mut waste).is_ok_and(|count| count > 0);
                    if unread && !open.session.is_busy() {
                        shared.server.count_cut();
                    }
                    shared.server.abandon(&mut open.session);
                }
                shared.slots.release(name, &mut connection);
            } else if slot.word.get() != FREE {
                slot.cut_socket();
            }
        }
    }
}
