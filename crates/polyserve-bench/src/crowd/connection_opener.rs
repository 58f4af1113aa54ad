//! A crowd: many connections on one thread.
//!
//! Invariant: at most the requested number of connections is open, and only this thread uses them; the thread ends with its
//! [`Crowd`]. Turns are spread evenly over the interval; late turns are skipped. Cost: a descriptor and about 200 bytes for
//! each connection, and a system call for each turn. A crowd without turns sleeps.

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

use super::CrowdKind;
use super::connection::{ConnectionEnd, CrowdConnection, StepResult};
use super::steps::{ConnectionSteps, Then};
use crate::machine::cores::Cores;

/// The settings of a crowd.
#[derive(Clone, Debug)]
pub struct CrowdPlan {
    /// The behaviour of its connections.
    pub kind: CrowdKind,
    /// The server.
    pub target: SocketAddr,
    /// The body of entity 0, as the server answers it to an idle connection.
    pub body: String,
    /// The number of connections.
    pub connections: usize,
    /// The max number of connections from one address. Further connections use the next addresses, 127.0.0.2 and so on.
    pub ports: usize,
    /// The time between two turns of a connection.
    pub interval: Duration,
    /// The time after which a connection is closed and opened again; `None` for never. It is for connections that cannot
    /// notice that the server has closed them.
    pub stay: Option<Duration>,
    /// The cores of its thread.
    pub cores: Cores,
}

/// The state of a crowd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrowdCounts {
    /// The number of connections that the crowd keeps open.
    pub connections: usize,
    /// Connections that were opened, with those that were opened again.
    pub opened: u64,
    /// Open connections that have begun: they have sent their first bytes; idle connections have received their answer.
    pub held: u64,
    /// Connections that have had a right answer and stayed idle.
    pub answered: u64,
    /// Connections that were answered 503.
    pub refused: u64,
    /// Connections that were answered 408.
    pub timed_out: u64,
    /// Connections that the server closed otherwise.
    pub cut: u64,
    /// Connections that the crowd closed, to open them again.
    pub left: u64,
    /// Connections that could not be established.
    pub unreachable: u64,
}

/// A running crowd. Dropping it closes all its connections.
#[derive(Debug)]
pub struct Crowd {
    counts: Arc<Mutex<CrowdCounts>>,
    settled: Receiver<()>,
    wake: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

/// The max number of connections that are being opened: less than any accept queue.
const MAX_OPENING: usize = 64;
/// The max number of events of one wait.
const MAX_EVENTS: usize = 256;
/// The shortest sleep between turns.
const MIN_SLEEP: Duration = Duration::from_millis(5);
/// The time between two checks of the stop signal.
const STOP_CHECK: Duration = Duration::from_millis(50);
/// The data of the wake event. All other events carry the number of a connection.
const WAKE: u64 = u64::MAX;

impl Crowd {
    /// Starts a crowd. Its thread opens the connections.
    ///
    /// # Errors
    ///
    /// Returns an error if the system has no thread or descriptor for the crowd. Connections that cannot be established are in
    /// the [`CrowdCounts`].
    pub fn open(plan: CrowdPlan) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let (sleeping, wake) = io::pipe()?;
        epoll::add(&epoll, &sleeping, EventData::new_u64(WAKE), EventFlags::IN)?;
        let counts = Arc::new(Mutex::new(CrowdCounts { connections: plan.connections, ..CrowdCounts::default() }));
        let (sender, settled) = channel();
        let opener = ConnectionOpener::new(plan, epoll, sleeping, Arc::clone(&counts), sender);
        let thread = thread::Builder::new().name("crowd".into()).spawn(|| opener.run())?;
        Ok(Self { counts, settled, wake: Some(wake), thread: Some(thread) })
    }

    /// Waits until every connection has begun, is idle with its answer, or has failed. Returns false if that takes longer than
    /// `patience`, or `stop` begins.
    pub fn wait_settled(&self, patience: Duration, stop: &Shutdown) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.settled.recv_timeout(left.min(STOP_CHECK)) {
                Ok(()) => return true,
                Err(RecvTimeoutError::Timeout) if !left.is_zero() && !stop.is_begun() => {}
                Err(_) => return false,
            }
        }
    }

    /// The current state.
    pub fn counts(&self) -> CrowdCounts {
        *lock(&self.counts)
    }

    /// Closes all connections and ends the thread.
    pub fn close(mut self) {
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
    /// To be opened.
    Waiting,
    /// Open, with the time at which it has begun.
    Open(CrowdConnection, Option<Instant>),
    /// Ended. A connection with turns is opened again at its next turn.
    Closed,
}

struct ConnectionOpener {
    plan: CrowdPlan,
    steps: ConnectionSteps,
    epoll: OwnedFd,
    _sleeping: PipeReader,
    slots: Vec<Slot>,
    /// The number of openings, by slot. It identifies events of earlier sockets.
    generations: Vec<u32>,
    waiting: VecDeque<usize>,
    /// The number of open connections that have not begun.
    opening: usize,
    /// By slot: whether it has begun or ended at least once.
    has_settled: Vec<bool>,
    /// The number of slots that have not.
    unsettled: usize,
    counts: CrowdCounts,
    published: Arc<Mutex<CrowdCounts>>,
    settled: Option<Sender<()>>,
    start: Instant,
    turns: u64,
}

impl ConnectionOpener {
    fn new(
        plan: CrowdPlan,
        epoll: OwnedFd,
        sleeping: PipeReader,
        published: Arc<Mutex<CrowdCounts>>,
        settled: Sender<()>,
    ) -> Self {
        let count = plan.connections;
        Self {
            steps: ConnectionSteps::of(plan.kind, &plan.target.to_string(), &plan.body),
            epoll,
            _sleeping: sleeping,
            slots: (0..count).map(|_| Slot::Waiting).collect(),
            generations: vec![0; count],
            waiting: (0..count).collect(),
            opening: 0,
            has_settled: vec![false; count],
            unsettled: count,
            counts: CrowdCounts { connections: count, ..CrowdCounts::default() },
            published,
            settled: Some(settled),
            start: Instant::now(),
            turns: 0,
            plan,
        }
    }

    fn run(mut self) {
        let _ = self.plan.cores.pin(); // without the pin it may take the server's time
        let mut events: Vec<Event> = Vec::with_capacity(MAX_EVENTS);
        loop {
            while self.opening < MAX_OPENING
                && let Some(slot) = self.waiting.pop_front()
            {
                self.open(slot);
            }
            *lock(&self.published) = self.counts;
            if self.unsettled == 0
                && let Some(settled) = self.settled.take()
            {
                let _ = settled.send(()); // the receiver may be gone
            }
            events.clear();
            // An interrupted wait has no events, as a timeout.
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

    fn open(&mut self, slot: usize) {
        self.counts.opened += 1;
        self.generations[slot] = self.generations[slot].wrapping_add(1);
        let data = EventData::new_u64(u64::from(self.generations[slot]) << 32 | slot as u64);
        let source = source(slot / self.plan.ports.max(1), self.plan.target.ip());
        match CrowdConnection::open(self.plan.target, source, &self.steps, &self.epoll, data) {
            Ok(connection) => {
                self.slots[slot] = Slot::Open(connection, None);
                self.opening += 1;
            }
            Err(error) => {
                tracing::debug!(%error, "a connection of the crowd cannot be opened");
                self.mark_ended(slot, ConnectionEnd::Unreachable);
            }
        }
    }

    fn ready(&mut self, slot: usize, generation: u32, flags: EventFlags) {
        if self.generations.get(slot) != Some(&generation) {
            return;
        }
        let Slot::Open(connection, _) = &mut self.slots[slot] else { return };
        let step = connection.ready(flags, &self.steps);
        self.step(slot, step);
    }

    fn step(&mut self, slot: usize, step: StepResult) {
        match step {
            StepResult::Nothing => {}
            StepResult::Begun => self.mark_begun(slot),
            StepResult::Answered => {
                self.counts.answered += 1;
                self.mark_begun(slot);
            }
            StepResult::Ended(end) => self.mark_ended(slot, end),
        }
    }

    fn mark_begun(&mut self, slot: usize) {
        if let Slot::Open(_, started @ None) = &mut self.slots[slot] {
            *started = Some(Instant::now());
            self.opening -= 1;
            self.counts.held += 1;
            self.settle(slot);
        }
    }

    fn mark_ended(&mut self, slot: usize, end: ConnectionEnd) {
        match std::mem::replace(&mut self.slots[slot], Slot::Closed) {
            Slot::Open(_, Some(_)) => self.counts.held -= 1,
            Slot::Open(_, None) => self.opening -= 1,
            Slot::Waiting | Slot::Closed => {}
        }
        let count = match end {
            ConnectionEnd::Refused => &mut self.counts.refused,
            ConnectionEnd::TimedOut => &mut self.counts.timed_out,
            ConnectionEnd::Cut => &mut self.counts.cut,
            ConnectionEnd::Unreachable => &mut self.counts.unreachable,
        };
        *count += 1;
        self.settle(slot);
    }

    /// Counts the first time that a slot has begun or ended.
    fn settle(&mut self, slot: usize) {
        if !std::mem::replace(&mut self.has_settled[slot], true) {
            self.unsettled -= 1;
        }
    }

    /// The time until the next turn; `None` without turns.
    fn sleep(&self) -> Option<Timespec> {
        if matches!(self.steps.then, Then::Idle(_)) {
            return None;
        }
        let next = self.spacing().saturating_mul(u32::try_from(self.turns + 1).unwrap_or(u32::MAX));
        let left = next.saturating_sub(self.start.elapsed()).max(MIN_SLEEP);
        Some(Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() })
    }

    fn spacing(&self) -> Duration {
        self.plan.interval / u32::try_from(self.slots.len()).unwrap_or(u32::MAX).max(1)
    }

    fn take_turns(&mut self) {
        let count = self.slots.len() as u64;
        if matches!(self.steps.then, Then::Idle(_)) || count == 0 {
            return;
        }
        let due = (self.start.elapsed().as_nanos() / self.spacing().as_nanos().max(1)) as u64;
        // At most one turn for each connection.
        self.turns = self.turns.max(due.saturating_sub(count));
        while self.turns < due {
            let slot = (self.turns % count) as usize;
            self.turns += 1;
            match &mut self.slots[slot] {
                Slot::Open(_, Some(started)) if self.plan.stay.is_some_and(|stay| started.elapsed() >= stay) => {
                    self.slots[slot] = Slot::Closed;
                    self.counts.held -= 1;
                    self.counts.left += 1;
                }
                Slot::Open(connection, Some(_)) => {
                    let step = connection.turn(&self.steps);
                    self.step(slot, step);
                }
                Slot::Closed => {
                    self.slots[slot] = Slot::Waiting;
                    self.waiting.push_back(slot);
                }
                Slot::Open(_, None) | Slot::Waiting => {}
            }
        }
    }
}

/// The `nth` source address; the loopback has many. `None` is the default address.
fn source(nth: usize, target: IpAddr) -> Option<IpAddr> {
    match target {
        IpAddr::V4(target) if target.is_loopback() && nth > 0 => {
            let first = u32::from(Ipv4Addr::LOCALHOST);
            Some(Ipv4Addr::from(first + u32::try_from(nth).ok().filter(|nth| *nth < 1 << 16)?).into())
        }
        _ => None,
    }
}
