//! A job: it takes connections from the ready list and serves each for a turn. If none is ready, it polls.
//!
//! A connection's way, in this file and `connection.rs`:
//!
//! 1. `accept` accepts it, gives it a slot and adds it to the ready list. If no job runs, `ReadyList::dispatch` submits one.
//! 2. `work` takes it from the ready list, and `run` makes this thread its owner.
//! 3. `PoolConnection::serve` serves a turn: it reads, calls the service and writes.
//! 4. `settle` parks it, adds it to the ready list again, or closes it. A connection that lingers is parked.
//! 5. `poll` finds that bytes have arrived for a parked connection, and `handle_event` adds it to the ready list again.

use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Context;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use polyserve_core::Executor;
use polyserve_core::sync::lock;
use polyserve_serving::{
    ACCEPT_BACKOFF, Connection, DeadlineClock, EventListener, FoundConnections, IdleQueue, ServerState, TurnEnd,
    WaitOutcome, millis, nanos, net, reject, wait_for_answer, with_buffers,
};

use super::super::executor_server::{ServerJob, submit};
use super::connection::{PoolConnection, Slot, Slots};
use super::ready_list::{Actions, Next, ReadyEntry, ReadyList};
use super::slot_state::{PARKED, QUEUED, RUNNING};

/// The token under which the listener is registered.
const LISTENER: Token = Token(usize::MAX - 1);

/// The token under which the waker is registered.
const WAKE: Token = Token(usize::MAX - 2);

/// Max connections that are accepted in one poll, so that the others are served soon.
const ACCEPT_BATCH: usize = 64;

/// Turns in a row of a connection for which events come during its turns.
const MAX_WAKE_UPS: usize = 2;

/// On a shared executor, a job serves at most this number of connections. Then the executor's other jobs have their turn.
const MAX_SHARED_TURNS: usize = 4;

/// The state that all threads of one run share.
#[derive(Debug)]
pub(super) struct PoolServerState {
    pub(super) server: ServerState,
    pub(super) slots: Slots,
    pub(super) ready: ReadyList,
    /// Locked by the thread that has the poll role.
    pub(super) poller: Mutex<Poller>,
    pub(super) registry: Registry,
    pub(super) executor: Arc<dyn Executor>,
    pub(super) is_shared: bool,
    pub(super) wakeups: Wakeups,
    pub(super) clock: DeadlineClock,
    /// The connections that are closed next at the limit. Locked by the thread that has the poll role.
    idle: Mutex<IdleQueue<usize>>,
    this: Weak<PoolServerState>,
}

/// The parts that only the thread with the poll role uses.
#[derive(Debug)]
pub(super) struct Poller {
    poll: Poll,
    events: Events,
    pub(super) acceptor: EventListener,
    /// The connections that the last poll reported.
    pub(super) batch: Vec<ReadyEntry>,
}

/// A time, and the same time of the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    instant: Instant,
    time: Duration,
}

/// The result of [`PoolServerState::settle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// It is closed, or another thread has taken it.
    Closed,
    /// It is parked, since this time of the clock.
    Parked(Moment),
    /// An event came meanwhile: the caller still owns it, and has to serve it again.
    Again,
    /// It is in the ready list again.
    Requeued,
}

impl PoolServerState {
    /// Creates the state of a run, without a job. `is_shared`: the executor may have other work too.
    pub(super) fn new(
        server: ServerState,
        listener: TcpListener,
        executor: Arc<dyn Executor>,
        is_shared: bool,
    ) -> io::Result<Arc<Self>> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let waker = Waker::new(&registry, WAKE)?;
        registry.register(&mut SourceFd(&listener.as_raw_fd()), LISTENER, Interest::READABLE)?;
        let acceptor = EventListener::new(Arc::new(listener), server.config.backlog);
        let poller = Poller { poll, events: Events::with_capacity(1024), acceptor, batch: Vec::new() };
        let cores = polyserve_core::cores();
        let workers = executor.workers().unwrap_or(cores);
        let config = &server.config;
        let slots = Slots::new(config.max_connections);
        let ready = ReadyList::new(workers, cores, config.queue_or_default(), is_shared);
        Ok(Arc::new_cyclic(|this| Self {
            server,
            slots,
            ready,
            poller: Mutex::new(poller),
            registry,
            executor,
            is_shared,
            wakeups: Wakeups::new(waker),
            clock: DeadlineClock::default(),
            idle: Mutex::default(),
            this: this.clone(),
        }))
    }

    /// The work of a job.
    pub(super) fn work(&self) {
        let (mut next, mut actions) = self.ready.begin();
        let mut turns = 0;
        let mut now = self.now();
        loop {
            self.carry_out(actions);
            (next, actions) = match next {
                Next::End => return,
                Next::Poll { wait } => {
                    let mut poller = lock(&self.poller);
                    let polled = self.poll(&mut poller, if wait { None } else { Some(Duration::ZERO) }, false);
                    let next = self.ready.polled(&mut poller.batch);
                    drop(poller);
                    now = polled.unwrap_or_else(|| self.now());
                    next
                }
                Next::Run(id) => {
                    let settled = self.run(id, Some(now.instant));
                    let end = match settled {
                        Settled::Parked(end) if end.time > now.time => end, // the clock was read for its wait
                        _ => self.now(),
                    };
                    self.ready.note_turn(end.time.saturating_sub(now.time));
                    now = end;
                    turns += 1;
                    if self.is_shared && turns == MAX_SHARED_TURNS {
                        return self.carry_out(self.ready.end_turn());
                    }
                    self.ready.next(settled == Settled::Requeued)
                }
            }
        }
    }

    fn now(&self) -> Moment {
        let instant = Instant::now();
        Moment { instant, time: self.clock.time_at(instant) }
    }

    /// Carries out the actions that the ready list returned: submits jobs, and wakes threads. Most turns need none.
    #[inline]
    pub(super) fn carry_out(&self, actions: Actions) {
        if actions != Actions::default() {
            self.carry_out_some(actions);
        }
    }

    #[inline(never)]
    fn carry_out_some(&self, actions: Actions) {
        for _ in 0..actions.submit_jobs {
            submit(&*self.executor, self.this.clone()); // the ready list counts it already
        }
        if actions.wake_supervisor {
            self.wakeups.wake_supervisor();
        }
        if actions.wake_poller {
            self.wakeups.wake_poller();
        }
    }

    /// Waits for events, accepts, and leaves the connections that are ready in `poller.batch`. If the ready list has no
    /// place for a new connection, the connection is rejected if `rejects` is true; otherwise it stays in the backlog.
    ///
    /// Returns the time of the events, unless there are none, or it has accepted since.
    pub(super) fn poll(&self, poller: &mut Poller, timeout: Option<Duration>, rejects: bool) -> Option<Moment> {
        let Poller { poll, events, acceptor, batch } = poller;
        let attempt = acceptor.until_attempt();
        let timeout = timeout.into_iter().chain(attempt).min();
        if let Err(error) = poll.poll(events, timeout)
            && error.kind() != ErrorKind::Interrupted
        {
            polyserve_core::throttled!(error, %error, "cannot poll");
            thread::park_timeout(ACCEPT_BACKOFF);
        }
        let mut event_time = None;
        for event in &*events {
            match event.token() {
                LISTENER => acceptor.notify(),
                WAKE => {}
                Token(id) => {
                    let now = *event_time.get_or_insert_with(|| self.now());
                    if self.handle_event(id, event.is_read_closed() || event.is_error(), now.time, batch) {
                        event_time = None; // time has passed
                    }
                }
            }
        }
        events.clear();
        if acceptor.until_attempt().is_some() {
            self.accept(acceptor, batch, rejects, ACCEPT_BATCH);
            return None;
        }
        event_time
    }

    /// Accepts at most `max` connections into `batch`. `rejects`: as in [`poll`](Self::poll).
    pub(super) fn accept(&self, acceptor: &mut EventListener, batch: &mut Vec<ReadyEntry>, rejects: bool, max: usize) {
        let time = self.clock.time_at(Instant::now());
        let now = millis(time);
        let deadline = self.queue_deadline(now);
        let free = self.ready.free_places();
        let mut accepted = 0;
        for index in 0..max {
            let is_full = index >= free;
            if is_full && !rejects {
                break;
            }
            let Some(stream) = acceptor.accept(&self.server) else { break };
            accepted += 1;
            let Some(place) = self.server.peers.admit(|| Some(net::peer(&stream)?.ip())) else {
                self.reject(stream);
                continue;
            };
            let admit = |(stream, place)| self.slots.admit(stream, place, nanos(time), deadline);
            let accepted = (stream, Some(place));
            let admitted = match if is_full { Err(accepted) } else { admit(accepted) } {
                Err(accepted) if !is_full && self.evict_one(now) => admit(accepted),
                admitted => admitted,
            };
            match admitted {
                Ok(id) => batch.push(ReadyEntry { id, is_new: true }),
                Err((stream, _)) => {
                    if is_full {
                        self.server.count_full_queue();
                    }
                    self.reject(stream);
                }
            }
        }
        if accepted > 0 {
            self.note_deadline(deadline);
        }
    }

    /// Closes the connection that has been idle for longest. Returns false if none is idle.
    fn evict_one(&self, now: u64) -> bool {
        let search = |found: &mut FoundConnections<usize>| {
            for (id, slot) in self.slots.iter() {
                if let Some(since) = slot.idle_since() {
                    found.offer(since, || id);
                }
            }
        };
        lock(&self.idle).evict_one(now, search, |since, id| {
            let mut is_closed = false;
            self.take(*id, PARKED, 1, |slot, open| {
                if slot.idle_since.load(Ordering::Relaxed) != since.bits() {
                    return TurnEnd::Wait; // it was served meanwhile
                }
                if net::has_input(&*open.stream) {
                    return TurnEnd::Yield; // a worker serves the request
                }
                is_closed = true;
                open.end(self, slot, |connection, turn| connection.leave(turn, true))
            });
            is_closed
        })
    }

    /// Rejects a connection, which then lingers in a slot that does not count towards `max_connections`. If too many linger, it is
    /// closed.
    fn reject(&self, stream: TcpStream) {
        if reject(&self.server, &stream).is_ok()
            && let Ok(id) = self.slots.admit(stream, None, 0, u64::MAX)
        {
            self.run(id, None);
        }
    }

    /// Handles an event of connection `id`. `ended`: the client has closed its writing side. A connection that lingers needs no
    /// worker, and has its turn at once. Returns whether it had one.
    fn handle_event(&self, id: usize, ended: bool, now: Duration, batch: &mut Vec<ReadyEntry>) -> bool {
        let Some(slot) = self.slots.get(id) else { return false };
        if ended {
            slot.ended.store(true, Ordering::Relaxed);
        }
        if slot.state.event() {
            self.begin_queue_wait(slot, now);
            if slot.lingers() {
                self.run(id, None);
                return true;
            }
            batch.push(ReadyEntry { id, is_new: false });
        }
        false
    }

    /// Records that a connection waits for a worker from `now` on. The timeout of its head or body is checked after a worker
    /// has read what arrived. Until then the connection has the answer timeout.
    pub(super) fn begin_queue_wait(&self, slot: &Slot, now: Duration) {
        slot.queued_at.store(nanos(now), Ordering::Relaxed);
        if !slot.keeps_deadline.load(Ordering::Relaxed) {
            self.set_deadline(slot, self.queue_deadline(millis(now)));
        }
    }

    /// Serves a turn of connection `id`, which begins at `now` if that is known. Its wait, if it is parked, began at the end of the turn,
    /// unless it goes on.
    fn run(&self, id: usize, mut now: Option<Instant>) -> Settled {
        let serve = |slot: &Slot, open: &mut PoolConnection| {
            with_buffers(|buffers| {
                if let Some(now) = now.take() {
                    buffers.begin_round(now);
                }
                open.serve(self, slot, buffers)
            })
        };
        let taken = catch_unwind(AssertUnwindSafe(|| self.take(id, QUEUED, MAX_WAKE_UPS, serve)));
        taken.unwrap_or_else(|_| {
            polyserve_core::throttled!(error, "a connection's job panicked; the connection is closed");
            if let Some(slot) = self.slots.get(id) {
                self.slots.release(id, &mut lock(&slot.connection));
            }
            Settled::Closed
        })
    }

    /// Takes a connection that no worker owns, does `work` with it, and settles it. If an event comes meanwhile, does `work` again,
    /// at most `max` times. The result is never [`Settled::Again`].
    #[inline]
    pub(super) fn take(
        &self,
        id: usize,
        from: u8,
        max: usize,
        mut work: impl FnMut(&Slot, &mut PoolConnection) -> TurnEnd,
    ) -> Settled {
        let Some(slot) = self.slots.get(id) else { return Settled::Closed };
        if !slot.state.advance(from, RUNNING) {
            return Settled::Closed;
        }
        let mut connection = lock(&slot.connection);
        for _ in 0..max {
            let Some(open) = connection.as_mut() else { return Settled::Closed };
            let end = work(slot, open);
            match self.settle(id, slot, &mut connection, end) {
                Settled::Again => {
                    slot.queued_at.store(nanos(self.clock.time_at(Instant::now())), Ordering::Relaxed);
                }
                settled => return settled,
            }
        }
        self.settle(id, slot, &mut connection, TurnEnd::Yield)
    }

    /// Parks, queues, or closes a connection after a turn, as `end` requires.
    fn settle(&self, id: usize, slot: &Slot, connection: &mut Option<PoolConnection>, end: TurnEnd) -> Settled {
        let Some(open) = connection.as_mut() else { return Settled::Closed };
        if open.connection.take_cut() {
            self.server.count_cut();
        }
        let keeps_deadline = open.keeps_deadline();
        slot.keeps_deadline.store(keeps_deadline, Ordering::Relaxed);
        let times = open.connection.wait_times(&self.clock);
        if keeps_deadline || end == TurnEnd::Wait {
            self.set_deadline(slot, times.deadline);
        }
        match end {
            TurnEnd::Yield => {
                self.begin_queue_wait(slot, self.clock.time_at(Instant::now()));
                slot.state.requeue();
                self.ready.requeue(id);
                return Settled::Requeued;
            }
            TurnEnd::Wait => {
                slot.idle_since.store(open.idle_since(times.since), Ordering::Relaxed);
                if open.watch(&self.registry, Token(id)).is_ok() {
                    let is_parked = slot.state.leave_running(PARKED);
                    let began = Moment { instant: times.instant, time: times.began };
                    return if is_parked { Settled::Parked(began) } else { Settled::Again };
                }
                let _ = open.connection.abandon(&self.server);
            }
            TurnEnd::Close => {}
        }
        self.slots.release(id, connection);
        Settled::Closed
    }

    fn queue_deadline(&self, now: u64) -> u64 {
        now.saturating_add(millis(self.server.config.answer_timeout))
    }

    /// Stores the deadline of a connection that waits. No sweep misses it: see [`DeadlineClock`].
    ///
    /// A sweep skips free slots. For a new connection, [`accept`](Self::accept) stores the deadline, then the state (which
    /// is no longer free), and then loads the bound. The state is sequentially consistent too. So either the sweep sees the new
    /// state, and with it the deadline, or `accept` sees the reset.
    fn set_deadline(&self, slot: &Slot, deadline: u64) {
        slot.deadline.store(deadline, Ordering::SeqCst);
        self.note_deadline(deadline);
    }

    /// Wakes the supervisor if `deadline` is the earliest.
    fn note_deadline(&self, deadline: u64) {
        if self.clock.note(deadline) {
            self.wakeups.wake_supervisor();
        }
    }

    /// Waits for the deferred answer of `connection`.
    pub(super) fn wait_for_answer(&self, connection: &mut Connection) -> WaitOutcome {
        if connection.poll_answer(&mut Context::from_waker(std::task::Waker::noop())).is_ready() {
            return WaitOutcome::Here;
        }
        self.carry_out(self.ready.begin_wait());
        let outcome = wait_for_answer(&self.server, |cx| connection.poll_answer(cx));
        self.ready.end_wait();
        outcome
    }
}

/// A job of the server, which exists only while the server runs.
impl ServerJob for Weak<PoolServerState> {
    fn run(self) {
        if let Some(server) = self.upgrade() {
            server.work();
        }
    }

    fn lost(self, _: bool) {
        if let Some(server) = self.upgrade() {
            server.ready.job_lost();
            server.wakeups.wake_supervisor();
        }
    }
}

/// How threads wake each other: the supervisor, which parks or polls, and the worker that polls.
///
/// Invariant: a wake-up of the supervisor is never lost. The caller stores `is_woken`, and then loads whether the
/// supervisor polls. The supervisor stores that it polls, and then loads `is_woken`. All four are sequentially consistent:
/// one of the two sees the other. A park cannot miss it either: an unpark that comes first makes the park return.
#[derive(Debug)]
pub(super) struct Wakeups {
    /// Ends the poll, whichever thread polls.
    waker: Waker,
    /// The supervisor's thread.
    supervisor: OnceLock<Thread>,
    /// The supervisor must read the ready list before it waits again.
    is_woken: AtomicBool,
    /// The supervisor polls, or is about to.
    supervisor_polls: AtomicBool,
}

impl Wakeups {
    pub(super) fn new(waker: Waker) -> Self {
        let [is_woken, supervisor_polls] = [const { AtomicBool::new(false) }; 2];
        Self { waker, supervisor: OnceLock::new(), is_woken, supervisor_polls }
    }

    /// Notes that the calling thread is the supervisor.
    pub(super) fn set_supervisor(&self) {
        let _ = self.supervisor.set(thread::current());
    }

    pub(super) fn wake_supervisor(&self) {
        self.is_woken.store(true, Ordering::SeqCst);
        if self.supervisor_polls.load(Ordering::SeqCst) {
            let _ = self.waker.wake();
        }
        if let Some(thread) = self.supervisor.get() {
            thread.unpark();
        }
    }

    /// Wakes the thread that polls.
    pub(super) fn wake_poller(&self) {
        let _ = self.waker.wake();
    }

    /// Parks the supervisor for at most `timeout`, unless it was woken since its last wait.
    pub(super) fn park_supervisor(&self, timeout: Option<Duration>) {
        if !self.is_woken.swap(false, Ordering::SeqCst) {
            match timeout {
                Some(timeout) => thread::park_timeout(timeout),
                None => thread::park(),
            }
            self.is_woken.store(false, Ordering::SeqCst);
        }
    }

    /// Calls `poll` for the supervisor, with `timeout`. The timeout is zero if the supervisor was woken since its last wait.
    pub(super) fn poll_as_supervisor(&self, timeout: Option<Duration>, poll: impl FnOnce(Option<Duration>)) {
        self.supervisor_polls.store(true, Ordering::SeqCst);
        let is_woken = self.is_woken.swap(false, Ordering::SeqCst);
        poll(if is_woken { Some(Duration::ZERO) } else { timeout });
        self.supervisor_polls.store(false, Ordering::SeqCst);
    }
}
