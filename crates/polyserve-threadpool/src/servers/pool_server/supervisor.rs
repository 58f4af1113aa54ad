//! The supervisor: it enforces timeouts, polls while no worker can, rejects, and drains.
//!
//! It is the server's main thread. It never calls the service and never waits for a client. So the server still accepts,
//! rejects and enforces timeouts if all workers are blocked in the service.
//!
//! Invariant: a timeout is checked after the bytes that have arrived are read. A parked connection with unread bytes goes to
//! a worker instead.
//!
//! Cost: none while a worker polls and no deadline is due. While workers serve, it checks their progress every 5 ms. It
//! sweeps all slots if the earliest deadline may have passed, but waits at least an eighth of the shortest timeout between
//! two sweeps.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use polyserve_core::Drain;
use polyserve_core::sync::lock;
use polyserve_serving::{Connection, SHUTDOWN_SLACK, TurnEnd, net};

use super::connection::{PoolConnection, Slot};
use super::ready_list::{ReadyEntry, SupervisorAction, WATCH_INTERVAL};
use super::slot_state::{AGAIN, FREE, PARKED, QUEUED, RUNNING};
use super::worker::{Poller, PoolServerState, Settled};

/// The timeout of a connection that waits for a worker is checked this many milliseconds after its deadline: a worker may be
/// about to take it.
const QUEUE_SLACK: u64 = 100;

/// If the supervisor wakes this much later than planned, the process was stopped. Workers then read what has arrived before
/// timeouts are checked.
const MIN_PAUSE: Duration = Duration::from_millis(500);

pub(super) struct Supervisor {
    shared: Arc<PoolServerState>,
    /// The minimum time between two sweeps.
    tick: Duration,
    last_sweep: Instant,
    /// The time of the last check whether workers make progress.
    last_check: Instant,
    /// The planned end of the last sleep.
    wake_at: Option<Instant>,
}

impl Supervisor {
    pub(super) fn new(shared: Arc<PoolServerState>) -> Self {
        let config = &shared.server.config;
        let timeouts = [config.first_byte_timeout, config.head_timeout, config.body_timeout, config.answer_timeout];
        let others = [config.idle_timeout, config.write_timeout, config.linger_timeout];
        let shortest = timeouts.into_iter().chain(others).min().unwrap_or_default();
        let tick = (shortest / 8).clamp(Duration::from_millis(5), Duration::from_millis(250));
        let now = Instant::now();
        Self { shared, tick, last_sweep: now, last_check: now, wake_at: None }
    }

    pub(super) fn run(mut self) -> Drain {
        let shared = Arc::clone(&self.shared);
        shared.wakeups.set_supervisor();
        loop {
            let draining = shared.server.shutdown.is_begun();
            if draining {
                shared.ready.drain();
            }
            let now = Instant::now();
            let is_due = now.saturating_duration_since(self.last_check) >= WATCH_INTERVAL;
            if is_due {
                self.last_check = now;
            }
            let (action, actions) = shared.ready.supervise(is_due);
            shared.carry_out(actions);
            let limit = match action {
                SupervisorAction::Watch | SupervisorAction::Poll { check_again: true } => Some(WATCH_INTERVAL),
                _ if draining => Some(WATCH_INTERVAL),
                _ => None,
            };
            let timeout = self.timeout(now, limit);
            self.wake_at = timeout.map(|timeout| now + timeout);
            match action {
                SupervisorAction::Poll { .. } => {
                    let mut poller = lock(&shared.poller);
                    if draining && self.drain_step(&mut poller) {
                        break;
                    }
                    shared.wakeups.poll_as_supervisor(timeout, |timeout| {
                        shared.poll(&mut poller, timeout, true);
                    });
                    let actions = shared.ready.dispatch(&mut poller.batch);
                    drop(poller);
                    shared.carry_out(actions);
                }
                SupervisorAction::Watch | SupervisorAction::Sleep => {
                    if draining {
                        shared.wakeups.wake_poller();
                    }
                    shared.wakeups.park_supervisor(timeout);
                }
            }
            self.sweep();
        }
        self.end()
    }

    /// Returns how long the supervisor may sleep: until the earliest deadline, and at most for `limit`.
    fn timeout(&self, now: Instant, limit: Option<Duration>) -> Option<Duration> {
        let sweep = self.shared.clock.earliest().map(|earliest| earliest.max(self.last_sweep + self.tick));
        // A deadline counts as passed only in the millisecond after it.
        let sweep = sweep.map(|sweep| sweep.saturating_duration_since(now) + Duration::from_millis(1));
        sweep.into_iter().chain(limit).min()
    }

    /// Ends the waits that have lasted too long.
    fn sweep(&mut self) {
        let shared = Arc::clone(&self.shared);
        let instant = Instant::now();
        let now = shared.clock.millis_at(instant);
        if shared.clock.earliest().is_none_or(|earliest| earliest >= instant) || instant < self.last_sweep + self.tick {
            return;
        }
        self.last_sweep = instant;
        let has_paused = self.wake_at.is_some_and(|wake_at| instant > wake_at + MIN_PAUSE);
        shared.clock.begin_sweep();
        let (mut earliest, mut requeued) = (u64::MAX, false);
        for (id, slot) in shared.slots.iter() {
            let (state, deadline) = (slot.state.get(), slot.deadline.load(Ordering::SeqCst));
            match state {
                FREE => {}
                // It may be parked with this deadline in a moment.
                RUNNING | AGAIN => earliest = earliest.min(deadline.max(now)),
                _ if deadline >= now => earliest = earliest.min(deadline),
                QUEUED if has_paused || deadline.saturating_add(QUEUE_SLACK) >= now => earliest = now,
                PARKED => {
                    let settled = shared.take(id, PARKED, 1, |slot, open| time_out_parked(&shared, slot, open));
                    requeued |= settled == Settled::Requeued;
                }
                _ => {
                    let settled = shared.take(id, QUEUED, 1, |slot, open| time_out_queued(&shared, id, slot, open));
                    requeued |= settled == Settled::Requeued;
                }
            }
        }
        let _ = shared.clock.note(earliest);
        if requeued {
            shared.carry_out(shared.ready.requeued());
        }
    }

    /// One step of the drain. Returns true at its end.
    fn drain_step(&self, poller: &mut Poller) -> bool {
        let shared = &self.shared;
        if poller.acceptor.is_open() {
            shared.accept(&mut poller.acceptor, &mut poller.batch, false, usize::MAX);
        }
        let now = shared.clock.time_at(Instant::now());
        let closes_silent = |since: u64| shared.clock.instant(since).is_some_and(|at| shared.server.closes_silent(at));
        for (id, slot) in shared.slots.iter() {
            // A worker reads once more, and closes the connection if nothing has arrived.
            let closes = slot.idle_since().is_some_and(|since| since.has_sent() || closes_silent(since.millis()));
            if closes && slot.state.advance(PARKED, QUEUED) {
                shared.begin_queue_wait(slot, now);
                poller.batch.push(ReadyEntry { id, is_new: false });
            }
        }
        let actions = shared.ready.dispatch(&mut poller.batch);
        shared.carry_out(actions);
        let is_done = !poller.acceptor.is_open() && shared.slots.used() == 0;
        is_done || shared.server.is_over()
    }

    /// Cuts what is left, ends the workers, and counts.
    fn end(self) -> Drain {
        let shared = &self.shared;
        lock(&shared.poller).acceptor.close();
        self.cut_all();
        let now = Instant::now();
        // A drain that ends early leaves the workers its whole grace.
        let deadline = shared.server.shutdown.deadline().map_or(now, |deadline| deadline.max(now)) + SHUTDOWN_SLACK;
        let stuck = if shared.is_shared {
            while shared.slots.used() > 0 && Instant::now() < deadline {
                thread::park_timeout(WATCH_INTERVAL);
                self.cut_all(); // a connection that was running may be parked now
            }
            shared.slots.used()
        } else {
            shared.executor.close(Some(deadline))
        };
        shared.server.drained(stuck)
    }

    /// Cuts every connection. A connection that a worker serves has its socket shut down. The others are closed.
    fn cut_all(&self) {
        let shared = &self.shared;
        for (id, slot) in shared.slots.iter() {
            let queued = slot.state.advance(QUEUED, RUNNING);
            if queued || slot.state.advance(PARKED, RUNNING) {
                let mut connection = lock(&slot.connection);
                if let Some(open) = connection.as_mut() {
                    let is_unread = queued && open.connection.idle().is_some() && net::has_input(&*open.stream);
                    let _ = open.connection.abandon(&shared.server);
                    if is_unread || open.connection.take_cut() {
                        shared.server.count_cut();
                    }
                }
                shared.slots.release(id, &mut connection);
            } else if slot.state.get() != FREE {
                slot.cut_socket();
            }
        }
    }
}

fn is_late(shared: &PoolServerState, slot: &Slot) -> bool {
    slot.deadline.load(Ordering::SeqCst) < shared.clock.now()
}

/// Ends a wait that has lasted too long, unless a worker must read first.
fn time_out_parked(shared: &PoolServerState, slot: &Slot, open: &mut PoolConnection) -> TurnEnd {
    if !is_late(shared, slot) {
        return TurnEnd::Wait; // it was served meanwhile
    }
    let reads_first = !open.keeps_deadline() && net::has_input(&*open.stream);
    if reads_first { TurnEnd::Yield } else { time_out(shared, slot, open) }
}

/// Ends a connection that no worker has taken from the queue in time. If it lies in the batch of the thread that polls, and not yet in
/// the list, it may get two entries. That is harmless: a worker takes it only in the state `QUEUED`, and skips the entry that is left.
fn time_out_queued(shared: &PoolServerState, id: usize, slot: &Slot, open: &mut PoolConnection) -> TurnEnd {
    shared.ready.remove(id);
    if !is_late(shared, slot) {
        return TurnEnd::Yield; // it was served meanwhile, and waits again
    }
    let waits_for_worker = !open.keeps_deadline() && !open.connection.awaits_answer();
    if waits_for_worker { open.end(shared, slot, Connection::reject) } else { time_out(shared, slot, open) }
}

/// Ends a wait that has lasted too long: with a 408, a 503, or no answer.
fn time_out(shared: &PoolServerState, slot: &Slot, open: &mut PoolConnection) -> TurnEnd {
    if open.is_writing() { open.end_write(shared) } else { open.end(shared, slot, Connection::on_deadline) }
}
