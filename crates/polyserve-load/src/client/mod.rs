//! The loop of a client thread over its connections, for every pace and every usage.
//!
//! Invariant: a free connection is in the queue `free` exactly once. A request is taken from the stream only if a
//! connection is free and the request is due. A failed connection is counted, pauses, and is replaced.
//!
//! Every wait is bounded. The loop ends with the measured period, or later, when each request has its answer or has waited for the
//! client's timeout. A load that is stopped waits at most 2 s, and so long an open loop sends due requests after the end.
//!
//! Cost of a batch of requests on a kept connection: one `send`, one `recv`, a share of one `epoll_wait`, one clock
//! reading. Sockets are registered once, edge-triggered. A timer descriptor ends the waits to the nanosecond, with at most
//! one system call a wait: the timeout of `epoll_wait` has a resolution of milliseconds, and would set a timer each time.

mod connection;
mod failing;
mod receiving;
mod retrying;
mod schedule;
mod tally;
mod worker_state;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::clock::{self, Meter, Reading};
use crate::encoded_requests::EncodedRequests;
use crate::error::LoadError;
use crate::load::{Load, Pace, Usage};
use connection::{ClientConnection, EndHint, State, read_token};
use retrying::Retrying;
pub(crate) use schedule::{Schedule, Times, share};
pub(crate) use tally::Tally;
use worker_state::WorkerState;

/// The counters of a running thread, and its stop time.
#[derive(Debug)]
#[repr(align(128))] // no other data in its cache line and in the line that is prefetched with it
pub(crate) struct ThreadCounters {
    /// Right answers so far.
    pub(crate) answered: AtomicU64,
    /// Failures so far.
    pub(crate) failed: AtomicU64,
    /// The stop time, in nanoseconds of the monotonic clock.
    stop: AtomicU64,
}

impl Default for ThreadCounters {
    fn default() -> Self {
        Self { answered: AtomicU64::new(0), failed: AtomicU64::new(0), stop: AtomicU64::new(u64::MAX) }
    }
}

impl ThreadCounters {
    /// Ends the load at `time`. The thread notices it at its next wake-up, at most 0.5 s later.
    pub(crate) fn stop_at(&self, time: u64) {
        self.stop.store(time, Ordering::Relaxed);
    }
}

/// The place of a thread in the load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadContext<'a> {
    /// The number of the thread.
    pub(crate) thread: usize,
    pub(crate) counters: &'a ThreadCounters,
    /// The source of the server's processor time, if this thread reads it.
    pub(crate) meter: Option<Meter>,
}

/// A client thread and its connections.
pub(crate) struct ClientThread {
    connections: Vec<ClientConnection>,
    worker: WorkerState,
    timer: OwnedFd,
    /// The time to which the timer is set.
    armed: u64,
    next_check: u64,
    /// The time before a due request in which the thread stays awake.
    awake_before_due: u64,
    /// Open loop: the last poll that left no event unread.
    polled_at: u64,
    events: Vec<epoll::Event>,
}

/// A client thread after its loop.
#[derive(Debug)]
pub(crate) struct FinishedClient {
    pub(crate) tally: Tally,
    _connections: Vec<ClientConnection>,
}

/// The max number of connections that are being opened at a time before the load.
const MAX_OPENING: usize = 128;
const MAX_EVENTS: usize = 512;
const TIMER_TOKEN: u64 = u64::MAX;
/// The time before a due request in which a pinned thread stays awake.
const AWAKE_BEFORE_DUE: u64 = 50_000;
/// The min and max time between two checks for requests without an answer: an eighth of the timeout.
const CHECK_INTERVAL: (u64, u64) = (1_000_000, 500_000_000);

impl ClientThread {
    pub(crate) fn new(load: &Load, requests: EncodedRequests, thread: usize) -> Result<Self, LoadError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(LoadError::system("epoll"))?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)
            .map_err(LoadError::system("timer"))?;
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIMER_TOKEN), edges)
            .map_err(LoadError::system("timer"))?;
        let count = share(load.connections as u64, thread as u64, load.threads as u64) as usize;
        Ok(Self {
            connections: std::iter::repeat_with(ClientConnection::new).take(count).collect(),
            worker: WorkerState::new(load, requests, thread, epoll),
            timer,
            armed: 0,
            next_check: 0,
            awake_before_due: if load.cores.is_empty() || load.pace == Pace::Closed { 0 } else { AWAKE_BEFORE_DUE },
            polled_at: 0,
            events: Vec::with_capacity(MAX_EVENTS),
        })
    }

    /// Opens the kept connections. A failed one is opened again at its first use.
    pub(crate) fn ramp_up(&mut self, load: &Load) -> Result<(), LoadError> {
        let count = if load.usage == Usage::Close { 0 } else { self.connections.len() };
        self.worker.now = clock::now();
        let deadline = self.worker.now.saturating_add(clock::nanos(load.timeout));
        let mut next = 0;
        while next < count || self.worker.opening > 0 {
            while next < count && self.worker.opening < MAX_OPENING {
                self.worker.open_idle(&mut self.connections[next], next);
                next += 1;
            }
            if self.worker.now >= deadline || load.stop.is_begun() {
                break;
            }
            if self.worker.opening > 0 {
                self.wait(deadline.min(self.worker.now + CHECK_INTERVAL.1))?;
            }
        }
        for connection in &mut self.connections {
            if connection.state == State::Opening {
                connection.close(true);
                connection.state = State::Free;
            }
        }
        self.worker.opening = 0;
        self.worker.free.extend(0..self.connections.len() as u32);
        Ok(())
    }

    /// Runs the load.
    ///
    /// The connections stay open until the returned value is dropped, so that closing them is not measured.
    pub(crate) fn run(
        mut self,
        load: &Load,
        context: ThreadContext<'_>,
        times: Times,
    ) -> Result<FinishedClient, LoadError> {
        self.worker.start(Schedule::new(load, context.thread, times));
        self.polled_at = self.worker.now;
        let mut cpu = Cpu { meter: context.meter, ..Cpu::default() };
        cpu.sample(&self.worker); // without a warm-up the first requests, of all connections at once, count
        loop {
            self.worker.dispatch(&mut self.connections);
            while let Some((index, generation)) = self.worker.write_failed.pop() {
                if let Some(connection) = self.connections.get_mut(index).filter(|one| one.generation == generation) {
                    self.worker.receive(connection, index, EndHint::WriteFailed);
                }
            }
            self.publish(context.counters);
            cpu.sample(&self.worker);
            if self.is_over() {
                break;
            }
            let wake = self.next_wake();
            self.wait(wake)?;
            if self.worker.now >= self.next_check {
                self.check_timeouts();
            }
        }
        let now = clock::now();
        let worker = &mut self.worker;
        worker.set_now(now);
        self.connections.iter().for_each(|connection| worker.expect_closed(connection));
        (worker.tally.cpu, worker.tally.server) = (cpu.end(), cpu.server);
        self.connections.iter().for_each(|connection| worker.abandon(connection));
        worker.abandon_unsent();
        let unsent = worker.tally.unsent;
        worker.tally.retry = worker.retrying.take().map(|retrying| retrying.into_report(unsent));
        Ok(FinishedClient { tally: self.worker.tally, _connections: self.connections })
    }

    fn publish(&mut self, counters: &ThreadCounters) {
        counters.answered.store(self.worker.right, Ordering::Relaxed);
        counters.failed.store(self.worker.wrong, Ordering::Relaxed);
        let stop = counters.stop.load(Ordering::Relaxed);
        if stop < self.worker.schedule.times.end {
            self.worker.schedule.stop(stop);
        }
    }

    fn is_over(&self) -> bool {
        let worker = &self.worker;
        let is_sent = worker.schedule.is_over(worker.now);
        is_sent && (worker.now >= worker.schedule.abandons_at() || (worker.busy == 0 && !self.expects_a_close()))
    }

    /// Whether a server still has time to close a connection that it announced to close.
    fn expects_a_close(&self) -> bool {
        let may_close = |connection: &ClientConnection| {
            connection.state == State::Closing && !self.worker.is_late_to_close(connection)
        };
        self.connections.iter().any(may_close)
    }

    /// Returns the next time at which the thread must act without an event.
    fn next_wake(&self) -> u64 {
        let (worker, Times { counted, end, .. }) = (&self.worker, self.worker.schedule.times);
        let mut wake = self.next_check;
        if let Some(std::cmp::Reverse((until, _))) = worker.backing_off.peek() {
            wake = wake.min(*until);
        }
        if !worker.free.is_empty()
            && !worker.schedule.is_over(worker.now)
            && let Some(due) = worker.schedule.due()
        {
            wake = wake.min(due);
        }
        if let Some(due) = worker.retrying.as_ref().filter(|_| !worker.free.is_empty()).and_then(Retrying::due) {
            wake = wake.min(due);
        }
        for phase in [counted, end, worker.schedule.abandons_at()] {
            if worker.now < phase {
                wake = wake.min(phase);
            }
        }
        wake
    }

    /// Waits for events until `wake`, and handles them.
    fn wait(&mut self, wake: u64) -> Result<(), LoadError> {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        if self.worker.is_open_loop {
            self.poll_before_sleep(&mut events)?;
        }
        let asleep_until = wake.saturating_sub(self.awake_before_due);
        let stays_awake = self.awake_before_due > 0 && asleep_until <= self.worker.now;
        self.worker.idle_from = (stays_awake && events.is_empty()).then(|| self.worker.now.min(self.worker.dispatched));
        if events.is_empty() && !stays_awake {
            if asleep_until < self.armed || self.armed <= self.worker.now {
                self.armed = asleep_until;
                set_timer(&self.timer, asleep_until)?;
            }
            poll(&self.worker.epoll, &mut events, None)?;
            if self.worker.is_open_loop {
                self.worker.set_now(clock::now());
                (self.worker.arrived, self.polled_at) = (self.worker.now, self.worker.now);
            }
        }
        for event in &events {
            match event.data.u64() {
                TIMER_TOKEN => {
                    self.worker.set_now(clock::now());
                    self.armed = 0;
                }
                token => {
                    let (index, generation) = read_token(token);
                    let Some(connection) = self.connections.get_mut(index) else { continue };
                    if connection.generation == generation {
                        self.worker.ready(connection, index, event.flags);
                    }
                }
            }
        }
        self.events = events;
        Ok(())
    }

    /// Polls before the thread sleeps. The poll bounds the time for which an event may have waited, which separates the
    /// client's delay from the server's: the event arrived after the previous poll. Later events wake the thread.
    fn poll_before_sleep(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), LoadError> {
        self.worker.set_now(clock::now());
        poll(&self.worker.epoll, events, Some(&ZERO_TIMEOUT))?;
        self.worker.arrived = self.polled_at;
        // If the buffer was full, the next poll returns the remaining events.
        if events.len() < MAX_EVENTS {
            self.polled_at = self.worker.now;
        }
        Ok(())
    }

    /// Handles timeouts.
    fn check_timeouts(&mut self) {
        let (shortest, longest) = CHECK_INTERVAL;
        self.next_check = self.worker.now + (self.worker.timeout / 8).clamp(shortest, longest);
        for (index, connection) in self.connections.iter_mut().enumerate() {
            if self.worker.now.saturating_sub(connection.since) > self.worker.timeout {
                self.worker.time_out(connection, index);
            }
        }
        self.worker.stop_if_hopeless();
    }
}

const ZERO_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Waits for events; without a `limit`, for any time. A signal ends the wait without an event.
fn poll(epoll: &OwnedFd, events: &mut Vec<epoll::Event>, limit: Option<&Timespec>) -> Result<(), LoadError> {
    match epoll::wait(epoll, rustix::buffer::spare_capacity(events), limit) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(LoadError::system("epoll")(error)),
    }
}

/// Sets the timer to `wake` of the monotonic clock.
fn set_timer(timer: &OwnedFd, wake: u64) -> Result<(), LoadError> {
    let at = wake.max(1); // 0 would disable the timer
    let it_value = Timespec { tv_sec: (at / 1_000_000_000) as i64, tv_nsec: (at % 1_000_000_000) as _ };
    let once = Itimerspec { it_interval: Timespec::default(), it_value };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once).map(drop).map_err(LoadError::system("timer"))
}

/// The readings of the thread's and the server's processor time at the ends of the measured period.
#[derive(Debug, Default)]
struct Cpu {
    from: Option<u64>,
    to: Option<u64>,
    meter: Option<Meter>,
    server: [Option<Reading>; 2],
}

impl Cpu {
    #[inline]
    fn sample(&mut self, worker: &WorkerState) {
        let Times { counted, end, .. } = worker.schedule.times;
        if self.from.is_none() && worker.now >= counted {
            self.from = Some(clock::thread_cpu());
            self.server[0] = self.meter.map(Meter::read);
        }
        if self.to.is_none() && worker.now >= end {
            self.to = Some(clock::thread_cpu());
            self.server[1] = self.meter.map(Meter::read);
        }
    }

    fn end(&self) -> u64 {
        let to = self.to.unwrap_or_else(clock::thread_cpu);
        self.from.map_or(0, |from| to.saturating_sub(from))
    }
}

#[cfg(test)]
mod tests;
