//! Crowds: many connections that do nothing useful, next to a good client.
//!
//! An idle crowd behaves like browsers; a slow crowd behaves like attackers. The mode `hold` of a
//! [definition](crate::bench) measures servers with them.
//!
//! Invariant: at most the requested number of connections is open, and they end with their `Crowd`. Turns are spread evenly over
//! the interval; late turns are skipped. Cost: a descriptor, a port and a task for each connection, all on one thread, and a
//! system call for each turn. A crowd without turns sleeps.
//!
//! # Layout
//!
//! * `connection`: one connection, and what it sends.

mod connection;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use polyserve::Shutdown;
use polyserve::sync::lock;
use serde::{Deserialize, Serialize};
use tokio::runtime;
use tokio::sync::{Semaphore, oneshot};

use self::connection::{ConnectionEnd, ConnectionSteps, Then};
use crate::machine::cores::Cores;

pub(crate) use connection::{LARGE_ID, SMALL_ID};

/// The behaviour of a crowd's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CrowdKind {
    /// Send one request, read its answer, and stay idle.
    #[default]
    Idle,
    /// Send a request head byte by byte, without an end.
    SlowHeads,
    /// Send the body of a PUT byte by byte, without an end.
    SlowBodies,
    /// Pipeline requests for large answers, and read a few bytes at each turn.
    SlowReaders,
}

/// Its name in definitions.
impl fmt::Display for CrowdKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The settings of a crowd.
#[derive(Clone, Debug)]
pub(crate) struct CrowdPlan {
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
pub(crate) struct CrowdCounts {
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
pub(crate) struct Crowd {
    shared: Arc<CrowdShared>,
    settled: Receiver<()>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The max number of connections that are being opened: less than any accept queue.
const MAX_OPENING: usize = 64;
/// The time between two checks of the stop signal.
const STOP_CHECK: Duration = Duration::from_millis(50);

impl Crowd {
    /// Starts a crowd. Its thread opens the connections. Returns an error if the system has no thread or descriptor for the
    /// crowd. Connections that cannot be established are in the [`CrowdCounts`].
    pub(crate) fn open(plan: CrowdPlan) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (sender, settled) = channel();
        let (end, ended) = oneshot::channel();
        let shared = Arc::new(CrowdShared::new(plan, sender));
        let own = Arc::clone(&shared);
        let run = move || {
            let _ = own.plan.cores.pin(); // without the pin it may take the server's time
            for place in 0..own.plan.connections {
                let own = Arc::clone(&own);
                runtime.spawn(async move { connection::hold(&own, place).await });
            }
            let _ = runtime.block_on(ended); // the crowd is dropped; the runtime then drops the connections
        };
        let thread = thread::Builder::new().name("crowd".into()).spawn(run)?;
        Ok(Self { shared, settled, end: Some(end), thread: Some(thread) })
    }

    /// Waits until every connection has begun, is idle with its answer, or has failed. Returns false if that takes longer than
    /// `timeout`, or `stop` begins.
    pub(crate) fn wait_settled(&self, timeout: Duration, stop: &Shutdown) -> bool {
        let deadline = Instant::now() + timeout;
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
    pub(crate) fn counts(&self) -> CrowdCounts {
        lock(&self.shared.state).counts
    }

    /// Closes all connections and ends the thread.
    pub(crate) fn close(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.end.take());
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

/// What all connections of a crowd share.
#[derive(Debug)]
struct CrowdShared {
    plan: CrowdPlan,
    steps: ConnectionSteps,
    opening: Semaphore,
    state: Mutex<CrowdState>,
}

#[derive(Debug)]
struct CrowdState {
    counts: CrowdCounts,
    /// By place: whether its connection has begun, and has not ended.
    is_held: Vec<bool>,
    /// By place: whether a connection has begun or ended at least once.
    has_settled: Vec<bool>,
    /// The number of places without such a connection so far.
    unsettled: usize,
    settled: Sender<()>,
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug)]
enum Event {
    Opened,
    Begun,
    Ended(ConnectionEnd),
}

impl CrowdShared {
    fn new(plan: CrowdPlan, settled: Sender<()>) -> Self {
        let unsettled = plan.connections;
        let state = CrowdState {
            counts: CrowdCounts { connections: unsettled, ..CrowdCounts::default() },
            is_held: vec![false; unsettled],
            has_settled: vec![false; unsettled],
            unsettled,
            settled,
        };
        let steps = ConnectionSteps::of(plan.kind, &plan.target.to_string(), &plan.body);
        Self { plan, steps, opening: Semaphore::new(MAX_OPENING), state: Mutex::new(state) }
    }

    fn note(&self, place: usize, event: Event) {
        let mut state = lock(&self.state);
        let CrowdState { counts, is_held, .. } = &mut *state;
        let was_held = is_held[place];
        match event {
            Event::Opened => {
                counts.opened += 1;
                return;
            }
            Event::Begun => {
                counts.held += 1;
                counts.answered += u64::from(matches!(self.steps.then, Then::Idle(_)));
            }
            Event::Ended(end) => {
                counts.held -= u64::from(was_held);
                *match end {
                    ConnectionEnd::Refused => &mut counts.refused,
                    ConnectionEnd::TimedOut => &mut counts.timed_out,
                    ConnectionEnd::Cut => &mut counts.cut,
                    ConnectionEnd::Left => &mut counts.left,
                    ConnectionEnd::Unreachable => &mut counts.unreachable,
                } += 1;
            }
        }
        is_held[place] = matches!(event, Event::Begun);
        if !std::mem::replace(&mut state.has_settled[place], true) {
            state.unsettled -= 1;
            if state.unsettled == 0 {
                let _ = state.settled.send(()); // the receiver may be gone
            }
        }
    }
}
