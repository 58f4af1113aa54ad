//! A job: it takes connections from the ready list and serves each for a turn. If none is ready, it polls.
//!
//! A connection's way, in this file and `connection.rs`:
//!
//! 1. `accept` accepts it, gives it a slot and adds it to the ready list.
//! 2. `work` takes it from the ready list, and `run` makes this thread its owner.
//! 3. `PoolConnection::serve` serves a turn: it reads, calls the service and writes.
//! 4. `settle` parks it, adds it to the ready list again, lets it linger, or closes it.
//! 5. `poll` finds that bytes have arrived for a parked connection, and `handle_event` adds it to the ready list again.

use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::task::Context;
use std::thread;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use polyserve_core::Executor;
use polyserve_core::sync::lock;
use polyserve_serving::{
    ACCEPT_BACKOFF, Connection, Discarded, EventListener, FoundConnections, IdleQueue, IdleSince, ServerState,
    WaitOutcome, discard, millis, wait_for_answer, with_buffers,
};

use super::connection::{PoolConnection, TurnResult};
use super::ready_list::{Actions, Next, ReadyEntry, ReadyList};
use super::slot_state::{Event, LINGERING, PARKED, QUEUED, RUNNING};
use super::slots::{Slot, Slots};
use super::submission::submit;
use super::timing::{Clock, TurnTime};
use super::wakeups::Wakeups;

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
    is_shared: bool,
    pub(super) wakeups: Wakeups,
    pub(super) clock: Clock,
    pub(super) turn_time: TurnTime,
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

/// The result of [`PoolServerState::settle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// It is parked, lingers or is closed.
    Done,
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
            clock: Clock::new(),
            turn_time: TurnTime::default(),
            idle: Mutex::default(),
            this: this.clone(),
        }))
    }
}

impl PoolServerState {
    /// The work of a job.
    pub(super) fn work(&self) {
        let (mut next, mut actions) = self.ready.begin(self.turn_time.policy());
        let mut turns = 0;
        let mut now = Instant::now();
        loop {
            self.carry_out(actions);
            (next, actions) = match next {
                Next::End => return,
                Next::Poll { wait } => {
                    let mut poller = lock(&self.poller);
                    self.poll(&mut poller, if wait { None } else { Some(Duration::ZERO) }, false);
                    let next = self.ready.polled(&mut poller.batch, self.turn_time.policy());
                    drop(poller);
                    now = Instant::now();
                    next
                }
                Next::Run(id) => {
                    let requeued = self.run(id);
                    let end = Instant::now();
                    self.turn_time.note(end.saturating_duration_since(now));
                    now = end;
                    turns += 1;
                    if self.is_shared && turns == MAX_SHARED_TURNS {
                        return self.carry_out(self.ready.end_turn());
                    }
                    self.ready.next(requeued, self.turn_time.policy())
                }
            }
        }
    }

    /// A job did not begin: the executor rejected it, dropped it, or called it inside [`submit`].
    pub(super) fn job_lost(&self) {
        self.ready.job_lost();
        self.wakeups.wake_supervisor();
    }

    /// Carries out the actions that the ready list returned: submits jobs, and wakes threads.
    pub(super) fn carry_out(&self, actions: Actions) {
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
    pub(super) fn poll(&self, poller: &mut Poller, timeout: Option<Duration>, rejects: bool) {
        let Poller { poll, events, acceptor, batch } = poller;
        let now = Instant::now();
        let until_attempt = acceptor.next_attempt(now).map(|attempt| attempt.saturating_duration_since(now));
        let timeout = timeout.into_iter().chain(until_attempt).min();
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
                    let now = *event_time.get_or_insert_with(|| self.clock.now());
                    self.handle_event(id, event.is_read_closed() || event.is_error(), now, batch);
                }
            }
        }
        events.clear();
        if acceptor.next_attempt(now).is_some() {
            self.accept(acceptor, batch, rejects, ACCEPT_BATCH);
        }
    }

    /// Accepts at most `max` connections into `batch`. `rejects`: as in [`poll`](Self::poll).
    pub(super) fn accept(&self, acceptor: &mut EventListener, batch: &mut Vec<ReadyEntry>, rejects: bool, max: usize) {
        let now = self.clock.now();
        let deadline = self.queue_deadline(now);
        let free = self.ready.free_places();
        let mut accepted = 0;
        for index in 0..max {
            let is_full = index >= free;
            if is_full && !rejects {
                break;
            }
            let Some(stream) = acceptor.accept(&self.server) else { break };
            let stream = TcpStream::from_std(stream);
            accepted += 1;
            let admit = |stream| self.slots.admit(stream, now, deadline);
            let admitted = match if is_full { Err(stream) } else { admit(stream) } {
                Err(stream) if !is_full && self.evict_one(now) => admit(stream),
                admitted => admitted,
            };
            match admitted {
                Ok(id) => batch.push(ReadyEntry { id, is_new: true }),
                Err(stream) => self.reject(stream),
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
            self.take(*id, PARKED, |_, open| {
                if open.idle_since(self) != Some(since) {
                    return TurnResult::Park; // it was served meanwhile
                }
                if open.has_input() {
                    return TurnResult::Yield; // a worker serves the request
                }
                is_closed = true;
                TurnResult::Close { linger: true }
            });
            is_closed
        })
    }

    /// Answers 503. The connection then lingers, in a slot that does not count towards `max_connections`. If too many linger,
    /// it is closed at once.
    fn reject(&self, stream: TcpStream) {
        match self.slots.admit_rejected(stream) {
            Ok(id) => {
                self.take(id, QUEUED, |_, open| with_buffers(|buffers| open.reject(&self.server, buffers)));
            }
            Err(stream) => with_buffers(|buffers| {
                let mut open = PoolConnection::new(Arc::new(stream));
                if open.reject(&self.server, buffers) == (TurnResult::Close { linger: true }) {
                    let _ = open.stream.shutdown(std::net::Shutdown::Write);
                    discard(&*open.stream, &mut buffers.input);
                }
            }),
        }
    }

    /// Handles an event of connection `id`. `ended`: the client has closed its writing side.
    fn handle_event(&self, id: usize, ended: bool, now: u64, batch: &mut Vec<ReadyEntry>) {
        let Some(slot) = self.slots.get(id) else { return };
        if ended {
            slot.ended.store(true, Ordering::Relaxed);
        }
        match slot.state.event() {
            Event::Ready => {
                self.begin_queue_wait(slot, now);
                batch.push(ReadyEntry { id, is_new: false });
            }
            Event::Discard => self.discard(id, slot),
            Event::Nothing => {}
        }
    }

    /// Records that a connection waits for a worker from `now` on. The timeout of its head or body is checked after a worker
    /// has read what arrived. Until then the connection has the answer timeout.
    pub(super) fn begin_queue_wait(&self, slot: &Slot, now: u64) {
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
        let requeued = catch_unwind(AssertUnwindSafe(|| {
            with_buffers(|buffers| {
                for wake_ups in 1.. {
                    let Some(open) = connection.as_mut() else { break };
                    let outcome = open.serve(self, slot, buffers);
                    match self.settle(id, slot, &mut connection, outcome) {
                        Settled::Done => break,
                        Settled::Requeued => return true,
                        Settled::Again if wake_ups < MAX_WAKE_UPS => {
                            slot.queued_at.store(self.clock.now(), Ordering::Relaxed);
                        }
                        Settled::Again => {
                            return self.settle(id, slot, &mut connection, TurnResult::Yield) == Settled::Requeued;
                        }
                    }
                }
                false
            })
        }));
        requeued.unwrap_or_else(|_| {
            polyserve_core::throttled!(error, "a connection's job panicked; the connection is closed");
            self.slots.release(id, &mut connection);
            false
        })
    }

    /// Parks, queues, or closes a connection after a turn, or lets it linger, as `outcome` requires. Sets its deadline
    /// if it is parked.
    pub(super) fn settle(
        &self,
        id: usize,
        slot: &Slot,
        connection: &mut Option<PoolConnection>,
        outcome: TurnResult,
    ) -> Settled {
        let Some(open) = connection.as_mut() else { return Settled::Done };
        if open.connection.take_cut() {
            self.server.count_cut();
        }
        match outcome {
            TurnResult::Close { linger: true } if self.linger(id, slot, open) => Settled::Done,
            TurnResult::Close { .. } => {
                self.slots.release(id, connection);
                Settled::Done
            }
            TurnResult::Yield => {
                slot.writing.store(false, Ordering::Relaxed);
                self.begin_queue_wait(slot, self.clock.now());
                slot.state.requeue();
                self.ready.requeue(id);
                Settled::Requeued
            }
            TurnResult::Park => {
                let writing = open.is_writing;
                slot.idle_since.store(open.idle_since(self).map_or(0, IdleSince::bits), Ordering::Relaxed);
                slot.writing.store(writing, Ordering::Relaxed);
                self.set_deadline(slot, open.deadline);
                if open.register(&self.registry, Token(id), writing).is_err() {
                    let _ = open.connection.abandon(&self.server);
                    self.slots.release(id, connection);
                    return Settled::Done;
                }
                if slot.state.leave_running(PARKED) { Settled::Done } else { Settled::Again }
            }
        }
    }

    /// Takes a connection that no worker owns, does `work` with it, and settles it. Returns whether it is in the ready
    /// list again. For the poller and the supervisor: `work` must not call the service.
    pub(super) fn take(
        &self,
        id: usize,
        from: u8,
        work: impl FnOnce(&Slot, &mut PoolConnection) -> TurnResult,
    ) -> bool {
        let Some(slot) = self.slots.get(id) else { return false };
        if !slot.state.advance(from, RUNNING) {
            return false;
        }
        let mut connection = lock(&slot.connection);
        let Some(open) = connection.as_mut() else { return false };
        let outcome = work(slot, open);
        if outcome != TurnResult::Park {
            return self.settle(id, slot, &mut connection, outcome) == Settled::Requeued;
        }
        if slot.state.advance(RUNNING, from) {
            return false;
        }
        // An event came meanwhile.
        if from == LINGERING {
            let Some(open) = connection.as_mut() else { return false };
            if !self.keep_lingering(id, slot, open) {
                self.slots.release(id, &mut connection);
            }
            return false;
        }
        self.settle(id, slot, &mut connection, TurnResult::Yield) == Settled::Requeued
    }

    /// Closes the writing side and leaves the reading to the poller. Returns false if the connection can be closed at
    /// once.
    fn linger(&self, id: usize, slot: &Slot, open: &mut PoolConnection) -> bool {
        let timeout = self.server.config.linger_timeout;
        if timeout.is_zero()
            || !self.slots.begin_linger(slot)
            || open.stream.shutdown(std::net::Shutdown::Write).is_err()
        {
            return false;
        }
        self.set_deadline(slot, self.clock.now().saturating_add(millis(timeout)));
        self.keep_lingering(id, slot, open)
    }

    /// Discards what a lingering connection has sent, or closes it if nothing more will come.
    fn discard(&self, id: usize, slot: &Slot) {
        if slot.state.advance(LINGERING, RUNNING) {
            let mut connection = lock(&slot.connection);
            if let Some(open) = connection.as_mut()
                && !self.keep_lingering(id, slot, open)
            {
                self.slots.release(id, &mut connection);
            }
        }
    }

    /// Discards input of a connection that this thread owns, and leaves the rest to the poller. Returns false if nothing more will
    /// come, or the connection cannot be polled: this thread still owns it then.
    fn keep_lingering(&self, id: usize, slot: &Slot, open: &mut PoolConnection) -> bool {
        match with_buffers(|buffers| discard(&*open.stream, &mut buffers.input)) {
            Discarded::End => return false,
            Discarded::Empty if open.register(&self.registry, Token(id), false).is_err() => return false,
            Discarded::Empty if slot.state.leave_running(LINGERING) => return true,
            Discarded::Empty | Discarded::More => {}
        }
        // More may have arrived, and its event may be over. The event is made again after the state has changed. Without it, the
        // connection lingers until its deadline.
        slot.state.set(LINGERING);
        let _ = open.rearm(&self.registry, Token(id));
        true
    }

    fn queue_deadline(&self, now: u64) -> u64 {
        now.saturating_add(millis(self.server.config.answer_timeout))
    }

    /// Stores the deadline of a connection that waits. No sweep misses it. The supervisor first resets the earliest
    /// deadline, and then reads the slots. This thread first stores the slot's deadline, and then reads the earliest
    /// deadline. All four operations are sequentially consistent, so at least one of the two threads sees the store of the
    /// other.
    ///
    /// A sweep skips free slots. For a new connection, [`accept`](Self::accept) stores the deadline, then the state (which
    /// is no longer free), and then reads the earliest deadline. The state is sequentially consistent too. So either the
    /// sweep sees the new state, and with it the deadline, or `accept` sees the reset.
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
}

impl PoolServerState {
    /// Waits for the deferred answer of `connection`.
    pub(super) fn wait_for_answer(&self, connection: &mut Connection) -> WaitOutcome {
        if connection.poll_answer(&mut Context::from_waker(std::task::Waker::noop())).is_ready() {
            return WaitOutcome::Here;
        }
        self.carry_out(self.ready.begin_wait());
        let outcome = wait_for_answer(&self.server, |cx| connection.poll_answer(cx));
        self.ready.end_wait();
        self.turn_time.note(Duration::MAX);
        outcome
    }
}
