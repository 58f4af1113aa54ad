//! One thread's loop over its connections: every pace and every usage is this loop.
//!
//! Invariant: a free connection stands in the queue `free`, once; a request is drawn only when one is there and the
//! schedule says that it is time. Whatever fails is counted, its connection rests and is replaced, and every wait has an
//! end: the loop ends with its span, or when the client gives up after it: its patience later and at most 2 s, or twice
//! that where something was due and is sent after the end.
//!
//! Cost of a batch of requests on a kept connection: one `send`, one `recv`, its share of one `epoll_wait`, one reading
//! of the clock. Sockets are registered once, for edges. Waits are a timer descriptor's, to the nanosecond and at most
//! one setting a wait: `epoll_wait` itself rounds to milliseconds, and would cost a timer each time.

mod connection;
mod desk;
mod failing;
mod receiving;
mod schedule;
mod tally;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::clock::{self, Meter, Reading};
use crate::error::LoadError;
use crate::load::{Load, Pace, Usage};
use crate::script::Script;
use connection::{Connection, State, read_token};
use desk::Desk;
use receiving::Ending;
pub(crate) use schedule::{Schedule, Times, share};
pub(crate) use tally::Tally;

/// What a thread shows while it runs, and what it is told.
#[derive(Debug)]
#[repr(align(128))] // a cache line of its own, and the one that is fetched with it
pub(crate) struct Shown {
    /// Right answers so far.
    pub(crate) answered: AtomicU64,
    /// Failures so far.
    pub(crate) failed: AtomicU64,
    /// When to stop, in nanoseconds of the monotonic clock.
    stop: AtomicU64,
}

impl Default for Shown {
    fn default() -> Self {
        Self { answered: AtomicU64::new(0), failed: AtomicU64::new(0), stop: AtomicU64::new(u64::MAX) }
    }
}

impl Shown {
    /// Ends the load at `time`; the thread hears of it when it wakes next, half a second later at most.
    pub(crate) fn stop_at(&self, time: u64) {
        self.stop.store(time, Ordering::Relaxed);
    }
}

/// What a thread is, of a load's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat<'a> {
    /// Which one.
    pub(crate) thread: usize,
    pub(crate) shown: &'a Shown,
    /// Whose clock it reads beside its own.
    pub(crate) meter: Option<Meter>,
}

/// A thread's connections.
pub(crate) struct Client {
    connections: Vec<Connection>,
    desk: Desk,
    timer: OwnedFd,
    /// What the timer is set to.
    armed: u64,
    next_look: u64,
    /// How long it stays awake before it has something to do.
    awake: u64,
    /// Open loop: before which look nothing was there that is not read yet.
    looked: u64,
    events: Vec<epoll::Event>,
}

/// What is left of a client.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) tally: Tally,
    _connections: Vec<Connection>,
}

/// Connections that are being opened at a time, before the load.
const MOST_OPENING: usize = 128;
const MOST_EVENTS: usize = 512;
const TIMER: u64 = u64::MAX;
/// How long before a request is due a thread with a core of its own stays awake.
const AWAKE: u64 = 50_000;
/// Bounds of the time between two looks at what takes too long: an eighth of the patience within these.
const LOOKS: (u64, u64) = (1_000_000, 500_000_000);

impl Client {
    pub(crate) fn new(load: &Load, script: Script, thread: usize) -> Result<Self, LoadError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(LoadError::system("epoll"))?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)
            .map_err(LoadError::system("timer"))?;
        let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIMER), edges).map_err(LoadError::system("timer"))?;
        let count = share(load.connections as u64, thread as u64, load.threads as u64) as usize;
        Ok(Self {
            connections: std::iter::repeat_with(Connection::new).take(count).collect(),
            desk: Desk::new(load, script, thread, epoll),
            timer,
            armed: 0,
            next_look: 0,
            awake: if load.cores.is_empty() || load.pace == Pace::Closed { 0 } else { AWAKE },
            looked: 0,
            events: Vec::with_capacity(MOST_EVENTS),
        })
    }

    /// Opens the connections that will be kept. One that cannot be opened is tried again when it is to be used.
    pub(crate) fn ramp_up(&mut self, load: &Load) -> Result<(), LoadError> {
        let count = if load.usage == Usage::Close { 0 } else { self.connections.len() };
        self.desk.now = clock::now();
        let deadline = self.desk.now.saturating_add(clock::of(load.patience));
        let mut next = 0;
        while next < count || self.desk.opening > 0 {
            while next < count && self.desk.opening < MOST_OPENING {
                self.desk.open_idle(&mut self.connections[next], next);
                next += 1;
            }
            if self.desk.now >= deadline || load.stop.is_begun() {
                break;
            }
            if self.desk.opening > 0 {
                self.wait(deadline.min(self.desk.now + LOOKS.1))?;
            }
        }
        for connection in &mut self.connections {
            if connection.state == State::Opening {
                connection.close(true);
                connection.state = State::Free;
            }
        }
        self.desk.opening = 0;
        self.desk.free.extend(0..self.connections.len() as u32);
        Ok(())
    }

    /// The load itself.
    ///
    /// The connections stay open until they are dropped: their end is no part of what is measured.
    pub(crate) fn run(mut self, load: &Load, seat: Seat<'_>, times: Times) -> Result<Ended, LoadError> {
        self.desk.start(Schedule::new(load, seat.thread, times));
        self.looked = self.desk.now;
        let mut cpu = Cpu { meter: seat.meter, ..Cpu::default() };
        cpu.look(&self.desk); // without a warm-up the first requests, of all connections at once, count
        loop {
            self.desk.dispatch(&mut self.connections);
            while let Some((index, generation)) = self.desk.suspects.pop() {
                if let Some(connection) = self.connections.get_mut(index).filter(|one| one.generation == generation) {
                    self.desk.receive(connection, index, Ending::Suspected);
                }
            }
            self.show(seat.shown);
            cpu.look(&self.desk);
            if self.is_over() {
                break;
            }
            let wake = self.next_wake();
            self.wait(wake)?;
            if self.desk.now >= self.next_look {
                self.look();
            }
        }
        let now = clock::now();
        let desk = &mut self.desk;
        desk.set_now(now);
        self.connections.iter().for_each(|connection| desk.expect_closed(connection));
        (desk.tally.cpu, desk.tally.server) = (cpu.end(), cpu.server);
        self.connections.iter().for_each(|connection| desk.give_up(connection));
        desk.give_up_unsent();
        Ok(Ended { tally: self.desk.tally, _connections: self.connections })
    }

    fn show(&mut self, shown: &Shown) {
        shown.answered.store(self.desk.right, Ordering::Relaxed);
        shown.failed.store(self.desk.wrong, Ordering::Relaxed);
        let stop = shown.stop.load(Ordering::Relaxed);
        if stop < self.desk.schedule.times.end {
            self.desk.schedule.stop(stop);
        }
    }

    fn is_over(&self) -> bool {
        let desk = &self.desk;
        let is_sent = desk.schedule.is_over(desk.now);
        is_sent && (desk.now >= desk.schedule.gives_up() || (desk.busy == 0 && !self.expects_a_close()))
    }

    /// Whether a server may close yet what it said that it closes.
    fn expects_a_close(&self) -> bool {
        let may_close = |one: &Connection| one.state == State::Closing && !self.desk.is_late_to_close(one);
        self.connections.iter().any(may_close)
    }

    /// When something is to be done though nothing arrives.
    fn next_wake(&self) -> u64 {
        let (desk, Times { counted, end, .. }) = (&self.desk, self.desk.schedule.times);
        let mut wake = self.next_look;
        if let Some(std::cmp::Reverse((until, _))) = desk.resting.peek() {
            wake = wake.min(*until);
        }
        if !desk.free.is_empty()
            && !desk.schedule.is_over(desk.now)
            && let Some(due) = desk.schedule.due()
        {
            wake = wake.min(due);
        }
        for phase in [counted, end, desk.schedule.gives_up()] {
            if desk.now < phase {
                wake = wake.min(phase);
            }
        }
        wake
    }

    /// Waits until something arrives or it is `wake`, and does what is to be done.
    fn wait(&mut self, wake: u64) -> Result<(), LoadError> {
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        if self.desk.is_open_loop {
            self.look_ahead(&mut events)?;
        }
        let asleep_until = wake.saturating_sub(self.awake);
        let stays_awake = self.awake > 0 && asleep_until <= self.desk.now;
        self.desk.idle_from = (stays_awake && events.is_empty()).then(|| self.desk.now.min(self.desk.dispatched));
        if events.is_empty() && !stays_awake {
            if asleep_until < self.armed || self.armed <= self.desk.now {
                self.armed = asleep_until;
                set_timer(&self.timer, asleep_until)?;
            }
            poll(&self.desk.epoll, &mut events, None)?;
            if self.desk.is_open_loop {
                self.desk.set_now(clock::now());
                (self.desk.arrived, self.looked) = (self.desk.now, self.desk.now);
            }
        }
        for event in &events {
            match event.data.u64() {
                TIMER => {
                    self.desk.set_now(clock::now());
                    self.armed = 0;
                }
                token => {
                    let (index, generation) = read_token(token);
                    let Some(connection) = self.connections.get_mut(index) else { continue };
                    if connection.generation == generation {
                        self.desk.ready(connection, index, event.flags);
                    }
                }
            }
        }
        self.events = events;
        Ok(())
    }

    /// Takes what is there, before this thread sleeps: how long it may have been there tells the client's lateness from the
    /// server's. It came after the look before this one; what comes while the thread sleeps wakes it.
    fn look_ahead(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), LoadError> {
        self.desk.set_now(clock::now());
        poll(&self.desk.epoll, events, Some(&NO_TIME))?;
        self.desk.arrived = self.looked;
        // Where there was no room for all of them, the next look finds what this one has left.
        if events.len() < MOST_EVENTS {
            self.looked = self.desk.now;
        }
        Ok(())
    }

    /// Looks at what has taken too long, and at what has rested.
    fn look(&mut self) {
        let (shortest, longest) = LOOKS;
        self.next_look = self.desk.now + (self.desk.patience / 8).clamp(shortest, longest);
        for (index, connection) in self.connections.iter_mut().enumerate() {
            if self.desk.now.saturating_sub(connection.since) > self.desk.patience {
                self.desk.time_out(connection, index);
            }
        }
        self.desk.despair();
    }
}

const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Waits for events, for ever where there is no `limit`; a signal ends it without any.
fn poll(epoll: &OwnedFd, events: &mut Vec<epoll::Event>, limit: Option<&Timespec>) -> Result<(), LoadError> {
    match epoll::wait(epoll, rustix::buffer::spare_capacity(events), limit) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(LoadError::system("epoll")(error)),
    }
}

/// The timer at `wake` of the monotonic clock.
fn set_timer(timer: &OwnedFd, wake: u64) -> Result<(), LoadError> {
    let at = wake.max(1); // zero would switch it off
    let it_value = Timespec { tv_sec: (at / 1_000_000_000) as i64, tv_nsec: (at % 1_000_000_000) as _ };
    let once = Itimerspec { it_interval: Timespec::default(), it_value };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once).map(drop).map_err(LoadError::system("timer"))
}

/// The thread's processor time in the counted span, and at its ends the server's.
#[derive(Debug, Default)]
struct Cpu {
    from: Option<u64>,
    to: Option<u64>,
    meter: Option<Meter>,
    server: [Option<Reading>; 2],
}

impl Cpu {
    #[inline]
    fn look(&mut self, desk: &Desk) {
        let Times { counted, end, .. } = desk.schedule.times;
        if self.from.is_none() && desk.now >= counted {
            self.from = Some(clock::thread_cpu());
            self.server[0] = self.meter.map(Meter::read);
        }
        if self.to.is_none() && desk.now >= end {
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
