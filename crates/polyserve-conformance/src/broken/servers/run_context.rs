//! The state that the threads of a run share.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use polyserve_core::sync::lock;
use polyserve_core::{Counters, ETag, ServerConfig, Service, Shutdown};
use polyserve_serving::memory::MemoryBudget;

use super::Flaw;
use crate::client::imf_fixdate;

/// The interval at which a thread checks whether its connection must end.
pub(super) const TICK: Duration = Duration::from_millis(20);

/// The state that all threads of a run share.
pub(super) struct RunContext {
    pub(super) config: ServerConfig,
    pub(super) flaw: Option<Flaw>,
    pub(super) memory: MemoryBudget,
    pub(super) service: Arc<dyn Service>,
    pub(super) shutdown: Shutdown,
    pub(super) answered: AtomicU64,
    pub(super) panics: AtomicU64,
    /// Set when unfinished work is to be cut.
    pub(super) over: AtomicBool,
    /// For a flaw: set when no further connection is accepted.
    pub(super) stopped: AtomicBool,
    /// The number of refused connections.
    pub(super) refused: AtomicU64,
    /// For a flaw: locked by the connection that is served.
    pub(super) one_at_a_time: Mutex<()>,
    /// For a flaw: the tag that a GET of each target showed last.
    pub(super) tags: Mutex<HashMap<String, ETag>>,
    pub(super) started: SystemTime,
    pub(super) connections: Mutex<HashMap<u64, Arc<TrackedConnection>>>,
    /// Notified when a connection ends, or lingers.
    pub(super) ended: Condvar,
}

/// A connection, as other threads see it.
pub(super) struct TrackedConnection {
    pub(super) stream: TcpStream,
    pub(super) state: Mutex<TrackedState>,
    /// When the connection was accepted, or became idle.
    pub(super) idle_since: Mutex<Instant>,
    pub(super) must_close: AtomicBool,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrackedState {
    /// Accepted. No byte has arrived.
    New,
    /// Waits for the next request.
    Idle,
    /// Has a request.
    Busy,
    /// Its thread is in the service's own code.
    InService,
    /// Has sent its last answer.
    Leaving,
}

impl RunContext {
    pub(super) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    pub(super) fn counters(&self) -> Counters {
        let closed = |connection: &&Arc<TrackedConnection>| *lock(&connection.state) == TrackedState::Leaving;
        let mut counters = Counters::default();
        counters.open = if self.has(Flaw::CountsNoOpenConnections) {
            0
        } else {
            lock(&self.connections).values().filter(|connection| !closed(connection)).count() as u64
        };
        counters.answered = self.answered.load(Ordering::SeqCst);
        counters.rejected = self.refused.load(Ordering::SeqCst);
        counters.panics = self.panics.load(Ordering::SeqCst);
        counters
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    pub(super) fn date(&self) -> String {
        let time = if self.has(Flaw::StaleDate) { self.started } else { SystemTime::now() };
        imf_fixdate(time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
    }
}

/// Whether a read or a write ended without effect because its timeout passed.
pub(super) fn is_tick(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
