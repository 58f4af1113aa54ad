//! A crowd: many connections on one thread.
//!
//! Invariant: never more connections than were asked for, each in the hands of this thread alone; the thread ends with
//! its [`Crowd`]. Turns are spread evenly over the interval; turns that it has no time for are left out. Cost: a
//! descriptor and about 200 bytes a member, and a system call a turn. A crowd without turns sleeps.

use std::collections::VecDeque;
use std::io::{self, PipeReader, PipeWriter};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polyserve::Shutdown;
use polyserve::sync::lock;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use serde::{Deserialize, Serialize};

use super::Kind;
use super::member::{End, Member, Step};
use super::script::{Script, Then};
use crate::machine::cores::Cores;

/// A crowd that is to come.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What its members do.
    pub kind: Kind,
    /// The server.
    pub target: SocketAddr,
    /// What the server answers to who rests: the body of the entity 0.
    pub body: String,
    /// How many there are.
    pub connections: usize,
    /// How many of them can have one address: beyond it come from the next ones, 127.0.0.2 and so on.
    pub ports: usize,
    /// The time between two turns of a member.
    pub interval: Duration,
    /// After which time a member leaves and comes back, if it does: one that cannot tell whether it was cut off.
    pub stay: Option<Duration>,
    /// The cores of its thread.
    pub cores: Cores,
}

/// How a crowd fares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Members.
    pub connections: usize,
    /// Connections that were begun: more than there are members where those who were cut off came back.
    pub opened: u64,
    /// Connections that are open now and have said what they say first; of the idle, that have had their answer.
    pub held: u64,
    /// Connections that were answered rightly and then rested.
    pub answered: u64,
    /// Connections that were answered 503.
    pub refused: u64,
    /// Connections that were answered 408.
    pub timed_out: u64,
    /// Connections that the server ended otherwise.
    pub cut: u64,
    /// Connections that their members left, to come back.
    pub left: u64,
    /// Connections that could not be had.
    pub unreachable: u64,
}

/// A crowd that has come. Dropping it disperses it.
#[derive(Debug)]
pub struct Crowd {
    counts: Arc<Mutex<Counts>>,
    settled: Receiver<()>,
    wake: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

/// Members that are on their way at once: fewer than any queue of connections holds.
const AT_ONCE: usize = 64;
/// Readinesses of one round.
const ROUND: usize = 256;
/// The shortest sleep between turns.
const SHORTEST: Duration = Duration::from_millis(5);
/// How often a stop is looked for.
const LOOK: Duration = Duration::from_millis(50);
/// What an event is about: this, or else a member.
const WAKE: u64 = u64::MAX;

impl Crowd {
    /// Sends a crowd; it goes on coming on a thread of its own.
    ///
    /// # Errors
    ///
    /// Where the system has no thread or descriptor for it. That single members do not arrive is in the [`Counts`].
    pub fn gather(plan: Plan) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let (sleeping, wake) = io::pipe()?;
        epoll::add(&epoll, &sleeping, EventData::new_u64(WAKE), EventFlags::IN)?;
        let counts = Arc::new(Mutex::new(Counts { connections: plan.connections, ..Counts::default() }));
        let (sender, settled) = channel();
        let gathering = Gathering::new(plan, epoll, sleeping, Arc::clone(&counts), sender);
        let thread = thread::Builder::new().name("crowd".into()).spawn(|| gathering.run())?;
        Ok(Self { counts, settled, wake: Some(wake), thread: Some(thread) })
    }

    /// Waits until every member has come as far as it gets: it has begun, or was answered where it rests, or has failed.
    /// False where that takes longer than `patience`, or `stop` begins.
    pub fn settles(&self, patience: Duration, stop: &Shutdown) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.settled.recv_timeout(left.min(LOOK)) {
                Ok(()) => return true,
                Err(RecvTimeoutError::Timeout) if !left.is_zero() && !stop.is_begun() => {}
                Err(_) => return false,
            }
        }
    }

    /// How it fares now.
    pub fn counts(&self) -> Counts {
        *lock(&self.counts)
    }

    /// Ends it, and all its connections.
    pub fn disperse(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.wake.take());
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.end();
    }
}

enum Slot {
    /// It is to connect.
    Waiting,
    /// It has a socket; since when it has begun.
    Open(Member, Option<Instant>),
    /// It has ended. One that has turns comes back in its next one.
    Gone,
}

struct Gathering {
    plan: Plan,
    script: Script,
    epoll: OwnedFd,
    _sleeping: PipeReader,
    slots: Vec<Slot>,
    /// By slot: how often it was opened, so that an event of the last socket is told apart.
    lives: Vec<u32>,
    waiting: VecDeque<usize>,
    /// Members with a socket that have not begun.
    on_their_way: usize,
    /// By slot: whether it has come as far as it gets, once.
    has_arrived: Vec<bool>,
    /// How many have not.
    missing: usize,
    counts: Counts,
    shown: Arc<Mutex<Counts>>,
    settled: Option<Sender<()>>,
    start: Instant,
    turns: u64,
}

impl Gathering {
    fn new(plan: Plan, epoll: OwnedFd, sleeping: PipeReader, shown: Arc<Mutex<Counts>>, settled: Sender<()>) -> Self {
        let count = plan.connections;
        Self {
            script: Script::of(plan.kind, &plan.target.to_string(), &plan.body),
            epoll,
            _sleeping: sleeping,
            slots: (0..count).map(|_| Slot::Waiting).collect(),
            lives: vec![0; count],
            waiting: (0..count).collect(),
            on_their_way: 0,
            has_arrived: vec![false; count],
            missing: count,
            counts: Counts { connections: count, ..Counts::default() },
            shown,
            settled: Some(settled),
            start: Instant::now(),
            turns: 0,
            plan,
        }
    }

    fn run(mut self) {
        let _ = self.plan.cores.pin(); // at worst it takes the server's time
        let mut events: Vec<Event> = Vec::with_capacity(ROUND);
        loop {
            while self.on_their_way < AT_ONCE
                && let Some(at) = self.waiting.pop_front()
            {
                self.open(at);
            }
            *lock(&self.shown) = self.counts;
            if self.missing == 0
                && let Some(settled) = self.settled.take()
            {
                let _ = settled.send(()); // nobody may wait for it
            }
            events.clear();
            // An interrupted wait, like an empty one, is a round without events.
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), self.sleep().as_ref());
            for event in &events {
                let data = event.data.u64();
                if data == WAKE {
                    return;
                }
                self.ready(data as u32 as usize, (data >> 32) as u32, event.flags);
            }
            self.take_turns();
        }
    }

    fn open(&mut self, at: usize) {
        self.counts.opened += 1;
        self.lives[at] = self.lives[at].wrapping_add(1);
        let data = EventData::new_u64(u64::from(self.lives[at]) << 32 | at as u64);
        let source = source(at / self.plan.ports.max(1), self.plan.target.ip());
        match Member::open(self.plan.target, source, &self.script, &self.epoll, data) {
            Ok(member) => {
                self.slots[at] = Slot::Open(member, None);
                self.on_their_way += 1;
            }
            Err(error) => {
                tracing::debug!(%error, "a member of the crowd has no connection");
                self.ended(at, End::Unreachable);
            }
        }
    }

    fn ready(&mut self, at: usize, life: u32, flags: EventFlags) {
        if self.lives.get(at) != Some(&life) {
            return;
        }
        let Slot::Open(member, _) = &mut self.slots[at] else { return };
        let step = member.ready(flags, &self.script);
        self.step(at, step);
    }

    fn step(&mut self, at: usize, step: Step) {
        match step {
            Step::Nothing => {}
            Step::Begun => self.begun(at),
            Step::Answered => {
                self.counts.answered += 1;
                self.begun(at);
            }
            Step::Ended(end) => self.ended(at, end),
        }
    }

    fn begun(&mut self, at: usize) {
        if let Slot::Open(_, begun @ None) = &mut self.slots[at] {
            *begun = Some(Instant::now());
            self.on_their_way -= 1;
            self.counts.held += 1;
            self.arrived(at);
        }
    }

    fn ended(&mut self, at: usize, end: End) {
        match std::mem::replace(&mut self.slots[at], Slot::Gone) {
            Slot::Open(_, Some(_)) => self.counts.held -= 1,
            Slot::Open(_, None) => self.on_their_way -= 1,
            Slot::Waiting | Slot::Gone => {}
        }
        let count = match end {
            End::Refused => &mut self.counts.refused,
            End::TimedOut => &mut self.counts.timed_out,
            End::Cut => &mut self.counts.cut,
            End::Unreachable => &mut self.counts.unreachable,
        };
        *count += 1;
        self.arrived(at);
    }

    /// It has come as far as it gets; only the first time counts.
    fn arrived(&mut self, at: usize) {
        if !std::mem::replace(&mut self.has_arrived[at], true) {
            self.missing -= 1;
        }
    }

    /// Until the next turn is due; `None` where there are no turns.
    fn sleep(&self) -> Option<Timespec> {
        if matches!(self.script.then, Then::Rest(_)) {
            return None;
        }
        let next = self.spacing().saturating_mul(u32::try_from(self.turns + 1).unwrap_or(u32::MAX));
        let left = next.saturating_sub(self.start.elapsed()).max(SHORTEST);
        Some(Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() })
    }

    fn spacing(&self) -> Duration {
        self.plan.interval / u32::try_from(self.slots.len()).unwrap_or(u32::MAX).max(1)
    }

    fn take_turns(&mut self) {
        let count = self.slots.len() as u64;
        if matches!(self.script.then, Then::Rest(_)) || count == 0 {
            return;
        }
        let due = (self.start.elapsed().as_nanos() / self.spacing().as_nanos().max(1)) as u64;
        // At most one turn each.
        self.turns = self.turns.max(due.saturating_sub(count));
        while self.turns < due {
            let at = (self.turns % count) as usize;
            self.turns += 1;
            match &mut self.slots[at] {
                Slot::Open(_, Some(begun)) if self.plan.stay.is_some_and(|stay| begun.elapsed() >= stay) => {
                    self.slots[at] = Slot::Gone;
                    self.counts.held -= 1;
                    self.counts.left += 1;
                }
                Slot::Open(member, Some(_)) => {
                    let step = member.turn(&self.script);
                    self.step(at, step);
                }
                Slot::Gone => {
                    self.slots[at] = Slot::Waiting;
                    self.waiting.push_back(at);
                }
                Slot::Open(_, None) | Slot::Waiting => {}
            }
        }
    }
}

/// Where the members of the `nth` address come from: on the loopback there are many.
fn source(nth: usize, target: IpAddr) -> Option<IpAddr> {
    match target {
        IpAddr::V4(target) if target.is_loopback() && nth > 0 => {
            let first = u32::from(Ipv4Addr::LOCALHOST);
            Some(Ipv4Addr::from(first + u32::try_from(nth).ok().filter(|nth| *nth < 1 << 16)?).into())
        }
        _ => None,
    }
}
