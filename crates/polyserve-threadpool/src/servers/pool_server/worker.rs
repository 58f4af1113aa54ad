//! What a job does: it takes connections from the ready list and serves each for a turn; if none is ready, it polls.
//!
//! A connection's way: `poll` accepts it, `next` takes it from the ready list, `run` serves a turn (`connection.rs`), and
//! `settle` parks, requeues or closes it. An event puts a parked connection back into the ready list.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Context;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use polyserve_core::http1::{Phase, Session};
use polyserve_core::serving::{ACCEPT_BACKOFF, ServerState, WaitOutcome, discard, wait_for_answer, with_buffers};
use polyserve_core::sync::lock;
use polyserve_core::{Executor, Job};

use super::acceptor::{Acceptor, LISTENER};
use super::connection::{Connection, FULL_READS, Outcome, Turn};
use super::ready_list::{Calls, Entry, Next, Pace, ReadyList};
use super::slot_state::{AGAIN, Event, LINGERING, PARKED, QUEUED, RUNNING};
use super::slots::{Slot, Slots};

/// The token under which the waker is registered.
const WAKE: Token = Token(usize::MAX - 2);

/// At most this many connections are accepted before the others are served.
const ACCEPT_BATCH: usize = 64;

/// At most this many refused connections linger beyond the limit; further ones are closed at once.
pub(super) const REFUSED: usize = 8192;

/// The service is slow if turns take longer than this on average, in microseconds.
const SLOW: u64 = 200;

/// A longer turn counts as this many microseconds: its thread may only have been kept from running.
const MAX_SAMPLE: u64 = 1_000;

/// A worker asks another for help if its queue takes longer than this, in microseconds.
const HELP_AFTER: u64 = 100;

/// On a shared executor, a job serves this many connections before the executor's other jobs have their turn.
const SHARED_TURN: usize = 4;

/// What all threads of one run share.
#[derive(Debug)]
pub(super) struct PoolServerState {
    pub(super) server: ServerState,
    pub(super) slots: Slots,
    pub(super) ready: ReadyList,
    /// Locked by the thread that has the poll role.
    pub(super) poller: Mutex<Poller>,
    pub(super) registry: Registry,
    pub(super) executor: Arc<dyn Executor>,
    is_shared: bool,
    waker: Waker,
    /// The supervisor's thread.
    supervisor: OnceLock<Thread>,
    /// The supervisor has been asked to look.
    alerted: AtomicBool,
    /// The supervisor is about to poll.
    supervisor_polls: AtomicBool,
    start: Instant,
    /// No deadline of a connection at rest is earlier, in milliseconds since the start.
    pub(super) earliest_deadline: AtomicU64,
    /// How long turns took of late, in microseconds: a moving average over about eight.
    turn_time: AtomicU64,
    this: Weak<PoolServerState>,
}

/// What the poll role owns.
#[derive(Debug)]
pub(super) struct Poller {
    poll: Poll,
    events: Events,
    pub(super) acceptor: Acceptor,
    /// What the last poll has brought.
    pub(super) batch: Vec<Entry>,
}

/// What became of a connection that was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// It is parked, lingers or is closed.
    Done,
    /// An event came meanwhile: it is still the caller's, and has to run on.
    Again,
    /// It is in the ready list again.
    Requeued,
}

impl PoolServerState {
    /// `workers`: the number of jobs that the executor runs at a time. `is_shared`: it may have jobs of others.
    pub(super) fn new(
        server: ServerState,
        listener: mio::net::TcpListener,
        executor: Arc<dyn Executor>,
        is_shared: bool,
    ) -> io::Result<Arc<Self>> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let waker = Waker::new(&registry, WAKE)?;
        let acceptor = Acceptor::new(listener, &registry)?;
        let poller = Poller { poll, events: Events::with_capacity(1024), acceptor, batch: Vec::new() };
        let cores = polyserve_core::config::cores();
        let workers = executor.workers().unwrap_or(cores);
        let config = &server.config;
        let slots = Slots::new(config.max_connections.saturating_add(REFUSED));
        let ready = ReadyList::new(workers, cores, config.queue_or_default(), is_shared);
        Ok(Arc::new_cyclic(|this| Self {
            server,
            slots,
            ready,
            poller: Mutex::new(poller),
            registry,
            executor,
            is_shared,
            waker,
            supervisor: OnceLock::new(),
            alerted: AtomicBool::new(false),
            supervisor_polls: AtomicBool::new(false),
            start: Instant::now(),
            earliest_deadline: AtomicU64::new(u64::MAX),
            turn_time: AtomicU64::new(0),
            this: this.clone(),
        }))
    }

    /// The body of a job.
    fn work(&self) {
        let (mut next, mut calls) = self.ready.begin(self.pace());
        let mut turns = 0;
        let mut now = Instant::now();
        loop {
            self.answer(calls);
            (next, calls) = match next {
                Next::End => return,
                Next::Poll { wait } => {
                    let mut poller = lock(&self.poller);
                    self.poll(&mut poller, if wait { None } else { Some(Duration::ZERO) }, false);
                    let next = self.ready.polled(&mut poller.batch, self.pace());
                    drop(poller);
                    now = Instant::now();
                    next
                }
                Next::Run(id) => {
                    let requeued = self.run(id);
                    let end = Instant::now();
                    self.note_turn(end.saturating_duration_since(now));
                    now = end;
                    turns += 1;
                    if self.is_shared && turns == SHARED_TURN {
                        return self.answer(self.ready.end_turn());
                    }
                    self.ready.next(requeued, self.pace())
                }
            }
        }
    }

    /// Does what the ready list asks for: submits jobs, wakes threads.
    pub(super) fn answer(&self, calls: Calls) {
        for _ in 0..calls.jobs {
            self.submit();
        }
        if calls.supervisor {
            self.alert();
        }
        if calls.poller {
            let _ = self.waker.wake();
        }
    }

    /// Submits a job that the ready list counts already. If the executor does not take it, or drops it unrun, or would
    /// run it on this thread, it counts as lost, and the supervisor tries again.
    fn submit(&self) {
        let mut job = SubmittedJob { shared: self.this.clone(), has_begun: false };
        let outer = IS_SUBMITTING.replace(true);
        let _ = self.executor.execute(Job::new(move || job.run()));
        IS_SUBMITTING.set(outer);
    }

    /// Wakes the supervisor.
    pub(super) fn alert(&self) {
        self.alerted.store(true, Ordering::SeqCst);
        if self.supervisor_polls.load(Ordering::SeqCst) {
            let _ = self.waker.wake();
        }
        if let Some(thread) = self.supervisor.get() {
            thread.unpark();
        }
    }

    /// Says that this thread is the supervisor.
    pub(super) fn set_supervisor(&self) {
        let _ = self.supervisor.set(thread::current());
    }

    /// Wakes the worker that polls.
    pub(super) fn wake_poller(&self) {
        let _ = self.waker.wake();
    }

    /// Parks the supervisor for as long as `timeout`, unless it has been alerted since the last call.
    pub(super) fn rest(&self, timeout: Option<Duration>) {
        if !self.alerted.swap(false, Ordering::SeqCst) {
            match timeout {
                Some(timeout) => thread::park_timeout(timeout),
                None => thread::park(),
            }
            self.alerted.store(false, Ordering::SeqCst);
        }
    }

    /// Polls, for the supervisor.
    pub(super) fn poll_as_supervisor(&self, poller: &mut Poller, timeout: Option<Duration>) {
        self.supervisor_polls.store(true, Ordering::SeqCst);
        let alerted = self.alerted.swap(false, Ordering::SeqCst);
        self.poll(poller, if alerted { Some(Duration::ZERO) } else { timeout }, true);
        self.supervisor_polls.store(false, Ordering::SeqCst);
    }

    /// Waits for events, accepts, and leaves in `poller.batch` the connections that are ready. If `refuse` is true, new
    /// connections that find the queue full are refused; else they stay in the backlog until it has room.
    fn poll(&self, poller: &mut Poller, timeout: Option<Duration>, refuse: bool) {
        let Poller { poll, events, acceptor, batch } = poller;
        let now = Instant::now();
        let due = acceptor.due(now).map(|due| due.saturating_duration_since(now));
        let timeout = timeout.into_iter().chain(due).min();
        if let Err(error) = poll.poll(events, timeout)
            && error.kind() != ErrorKind::Interrupted
        {
            tracing::error!(%error, "cannot poll");
            thread::park_timeout(ACCEPT_BACKOFF);
        }
        let mut millis = None;
        for event in &*events {
            match event.token() {
                LISTENER => acceptor.notify(),
                WAKE => {}
                Token(id) => {
                    let now = *millis.get_or_insert_with(|| self.millis_at(Instant::now()));
                    self.event(id, event.is_read_closed() || event.is_error(), now, batch);
                }
            }
        }
        events.clear();
        if acceptor.is_pending() {
            self.accept(acceptor, batch, refuse, ACCEPT_BATCH);
        }
    }

    /// Accepts at most `max` connections into `batch`. Returns the number of connections that came, refused ones included.
    pub(super) fn accept(&self, acceptor: &mut Acceptor, batch: &mut Vec<Entry>, refuse: bool, max: usize) -> usize {
        let now = self.millis_at(Instant::now());
        let deadline = self.queue_deadline(now);
        let max_connections = self.server.config.max_connections;
        let free = self.ready.free_places();
        let mut came = 0;
        for place in 0..max {
            let is_full = place >= free;
            if is_full && !refuse {
                break;
            }
            let Some(stream) = acceptor.accept() else { break };
            came += 1;
            match if is_full { Err(stream) } else { self.slots.admit(stream, max_connections, now, deadline) } {
                Ok(id) => batch.push(Entry { id, is_new: true }),
                Err(stream) => self.refuse(stream),
            }
        }
        if came > 0 {
            self.note_deadline(deadline);
        }
        came
    }

    /// Answers 503. The connection lingers in a slot beyond the limit. If there is none either, it is closed at once.
    fn refuse(&self, stream: TcpStream) {
        let max = self.server.config.max_connections.saturating_add(REFUSED);
        match self.slots.admit(stream, max, 0, u64::MAX) {
            Ok(id) => {
                self.take(id, QUEUED, |_, open| with_buffers(|buffers| open.reject(&self.server, buffers)));
            }
            Err(stream) => with_buffers(|buffers| {
                let mut open = Connection::new(Arc::new(stream));
                if open.reject(&self.server, buffers) == (Outcome::Close { linger: true }) {
                    let _ = open.stream.shutdown(std::net::Shutdown::Write);
                    discard(&*open.stream, &mut buffers.input);
                }
                self.server.count(&mut open.session);
            }),
        }
    }

    /// Notes an event of connection `id`. `ended`: the client has closed its writing side.
    fn event(&self, id: usize, ended: bool, now: u64, batch: &mut Vec<Entry>) {
        let Some(slot) = self.slots.get(id) else { return };
        if ended {
            slot.ended.store(true, Ordering::Relaxed);
        }
        match slot.state.event() {
            Event::Ready => {
                self.wait_in_queue(slot, now);
                batch.push(Entry { id, is_new: false });
            }
            Event::Discard => drop(self.take(id, LINGERING, |_, open| match self.discard(open) {
                true => Outcome::Park,
                false => Outcome::Close { linger: false },
            })),
            Event::Nothing => {}
        }
    }

    /// Notes that a connection waits for a worker from `now` on, in milliseconds. Bytes that it has sent are read before
    /// the timeout of its head or body is judged; so until then it has the timeout of an answer.
    pub(super) fn wait_in_queue(&self, slot: &Slot, now: u64) {
        slot.queued_at.store(now, Ordering::Relaxed);
        if !slot.writing.load(Ordering::Relaxed) {
            self.set_deadline(slot, self.queue_deadline(now));
        }
    }

    /// Serves a turn of connection `id`. Returns whether it is in the ready list again.
    fn run(&self, id: usize) -> bool {
        let Some(slot) = self.slots.get(id) else { return false };
        if !slot.state.advance(QUEUED, RUNNING) {
            return false; // a timeout took it
        }
        let mut connection = lock(&slot.connection);
        let ran = catch_unwind(AssertUnwindSafe(|| {
            with_buffers(|buffers| {
                for wake_ups in 1.. {
                    let Some(open) = connection.as_mut() else { break };
                    let mut outcome = open.serve(self, &slot.ended, buffers);
                    if outcome == Outcome::Park && self.is_late(slot, open) {
                        outcome = open.time_out(&self.server, buffers);
                    }
                    match self.settle(id, slot, &mut connection, outcome) {
                        Settled::Done => break,
                        Settled::Requeued => return true,
                        Settled::Again if wake_ups < FULL_READS => {}
                        Settled::Again => {
                            return self.settle(id, slot, &mut connection, Outcome::Yield) == Settled::Requeued;
                        }
                    }
                }
                false
            })
        }));
        ran.unwrap_or_else(|_| {
            tracing::error!("a connection's job panicked; the connection is closed");
            self.slots.release(id, &mut connection);
            false
        })
    }

    /// Moves a connection that was run to the state that `outcome` calls for. Its deadline is set if it is parked.
    pub(super) fn settle(
        &self,
        id: usize,
        slot: &Slot,
        connection: &mut Option<Connection>,
        outcome: Outcome,
    ) -> Settled {
        let Some(open) = connection.as_mut() else { return Settled::Done };
        self.server.count(&mut open.session);
        match outcome {
            Outcome::Close { linger: true } if self.linger(id, slot, open) => Settled::Done,
            Outcome::Close { .. } => {
                self.slots.release(id, connection);
                Settled::Done
            }
            Outcome::Yield => {
                slot.writing.store(false, Ordering::Relaxed);
                self.wait_in_queue(slot, self.millis_at(Instant::now()));
                slot.state.requeue();
                self.ready.requeue(id);
                Settled::Requeued
            }
            Outcome::Park => {
                let writing = open.is_writing();
                slot.idle.store(!open.session.is_busy(), Ordering::Relaxed);
                slot.writing.store(writing, Ordering::Relaxed);
                self.set_deadline(slot, open.deadline);
                if self.register(id, open, writing).is_err() {
                    self.server.abandon(&mut open.session);
                    self.slots.release(id, connection);
                    return Settled::Done;
                }
                if slot.state.rest(PARKED) { Settled::Done } else { Settled::Again }
            }
        }
    }

    /// Takes a connection that no worker owns, does `work` with it, and settles it. Returns whether it is in the ready
    /// list again. For the poller and the supervisor: `work` must not call the service.
    pub(super) fn take(&self, id: usize, from: u8, work: impl FnOnce(&Slot, &mut Connection) -> Outcome) -> bool {
        let Some(slot) = self.slots.get(id) else { return false };
        if !slot.state.advance(from, RUNNING) {
            return false;
        }
        let mut connection = lock(&slot.connection);
        let Some(open) = connection.as_mut() else { return false };
        let outcome = work(slot, open);
        if outcome != Outcome::Park {
            return self.settle(id, slot, &mut connection, outcome) == Settled::Requeued;
        }
        if slot.state.advance(RUNNING, from) {
            return false;
        }
        // An event came meanwhile.
        if from == LINGERING {
            let Some(open) = connection.as_mut() else { return false };
            let alive = self.discard(open);
            if alive && (slot.state.advance(AGAIN, LINGERING) || slot.state.advance(RUNNING, LINGERING)) {
                return false;
            }
            self.slots.release(id, &mut connection);
            return false;
        }
        self.settle(id, slot, &mut connection, Outcome::Yield) == Settled::Requeued
    }

    /// Registers a connection with the poller, once; and once more when it first has to wait to write.
    fn register(&self, id: usize, open: &mut Connection, writing: bool) -> io::Result<()> {
        let fd = open.stream.as_raw_fd();
        let interest = if writing { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        if !open.registered {
            self.registry.register(&mut SourceFd(&fd), Token(id), interest)?;
        } else if writing && !open.writable {
            self.registry.reregister(&mut SourceFd(&fd), Token(id), interest)?;
        }
        open.registered = true;
        open.writable |= writing;
        Ok(())
    }

    /// Closes the writing side and leaves the reading to the poller. Returns false if the connection can be closed at
    /// once.
    fn linger(&self, id: usize, slot: &Slot, open: &mut Connection) -> bool {
        let timeout = self.server.config.linger_timeout;
        if timeout.is_zero() || open.stream.shutdown(std::net::Shutdown::Write).is_err() {
            return false;
        }
        self.set_deadline(slot, self.millis_at(Instant::now()).saturating_add(millis(timeout)));
        loop {
            if !self.discard(open) || self.register(id, open, false).is_err() {
                return false;
            }
            if slot.state.rest(LINGERING) {
                return true;
            }
        }
    }

    /// Discards what a lingering connection still sends. Returns false if nothing more will come.
    fn discard(&self, open: &Connection) -> bool {
        with_buffers(|buffers| discard(&*open.stream, &mut buffers.input))
    }

    /// Milliseconds from the server's start to `instant`, rounded up.
    pub(super) fn millis_at(&self, instant: Instant) -> u64 {
        let nanos = instant.saturating_duration_since(self.start).as_nanos();
        u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    /// The inverse of [`millis_at`](Self::millis_at).
    pub(super) fn instant_at(&self, millis: u64) -> Option<Instant> {
        (millis < u64::MAX).then(|| self.start.checked_add(Duration::from_millis(millis)))?
    }

    fn queue_deadline(&self, now: u64) -> u64 {
        now.saturating_add(millis(self.server.config.answer_timeout))
    }

    /// Sets the deadline of the wait that a connection is in, and returns whether it has passed. The deadline is kept for
    /// as long as the wait is the same. The time that the connection has waited for a worker counts towards the timeout of
    /// its head.
    fn is_late(&self, slot: &Slot, open: &mut Connection) -> bool {
        let ((request, phase), writing) = (open.session.stage(), open.is_writing());
        let now = self.millis_at(Instant::now());
        if open.stage.replace((request, phase, writing)) != Some((request, phase, writing)) {
            let config = &self.server.config;
            let timeout = if writing { config.write_timeout } else { phase.timeout(config) };
            let waited = phase == Phase::Head && request == open.requests;
            let began = if waited { slot.queued_at.load(Ordering::Relaxed) } else { now };
            open.deadline = began.saturating_add(millis(timeout));
        }
        open.deadline < now
    }

    /// Sets the deadline of a connection at rest. Sequentially consistent with the supervisor's sweep: it reads the slot's
    /// deadline, or this thread reads that the earliest deadline was reset.
    fn set_deadline(&self, slot: &Slot, deadline: u64) {
        slot.deadline.store(deadline, Ordering::SeqCst);
        self.note_deadline(deadline);
    }

    /// Wakes the supervisor earlier if `deadline` is the earliest.
    pub(super) fn note_deadline(&self, deadline: u64) {
        if deadline < self.earliest_deadline.load(Ordering::SeqCst)
            && deadline < self.earliest_deadline.fetch_min(deadline, Ordering::SeqCst)
        {
            self.alert();
        }
    }

    fn note_turn(&self, time: Duration) {
        let time = u64::try_from(time.as_micros()).unwrap_or(MAX_SAMPLE).min(MAX_SAMPLE);
        let before = self.turn_time.load(Ordering::Relaxed);
        self.turn_time.store((before * 7 + time) / 8, Ordering::Relaxed);
    }

    pub(super) fn pace(&self) -> Pace {
        let time = self.turn_time.load(Ordering::Relaxed).max(1);
        Pace { dispatch: time > SLOW, help_beyond: usize::try_from(HELP_AFTER / time).unwrap_or(0) }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Turn for PoolServerState {
    fn server(&self) -> &ServerState {
        &self.server
    }

    fn others_wait(&self) -> bool {
        !self.ready.is_empty()
    }

    fn wait_for_answer(&self, session: &mut Session) -> WaitOutcome {
        if session.poll_answer(&mut Context::from_waker(std::task::Waker::noop())).is_ready() {
            return WaitOutcome::Here;
        }
        let calls = self.ready.begin_wait();
        self.answer(calls);
        let outcome = wait_for_answer(session, &self.server);
        self.ready.end_wait();
        self.note_turn(Duration::MAX);
        outcome
    }
}

/// A submitted job. Dropped before it has begun, it counts as lost.
struct SubmittedJob {
    shared: Weak<PoolServerState>,
    has_begun: bool,
}

impl SubmittedJob {
    fn run(&mut self) {
        // A job that the executor runs inside `submit` finds a thread that owns a connection, or must not serve one.
        if IS_SUBMITTING.get() {
            return;
        }
        if let Some(shared) = self.shared.upgrade() {
            self.has_begun = true;
            shared.work();
        }
    }
}

impl Drop for SubmittedJob {
    fn drop(&mut self) {
        if !self.has_begun
            && let Some(shared) = self.shared.upgrade()
        {
            shared.ready.job_lost();
            shared.alert();
        }
    }
}

thread_local! {
    static IS_SUBMITTING: Cell<bool> = const { Cell::new(false) };
}
