//! How loops hand new connections to each other, so that each has as many as the others. Without it, the kernel selects the loop by the
//! client's address and port: with few connections, one loop may have most of them.
//!
//! Invariant: a connection is counted for one loop, from the time that it was accepted until it is closed. A loop that has ended gets
//! none: then the one that has accepted the connection serves it.
//!
//! Cost: for each connection a look at the count of each loop; for one that is handed over, a lock and a wake-up. Nothing for a request.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use polyserve_core::sync::{Mutex, lock};
use polyserve_serving::WokenList;

/// The number in the [`WokenList`] of a loop that has been given connections.
pub(crate) const GIVEN: usize = usize::MAX - 2;

/// A connection, with the address of its other end.
pub(crate) type NewConnection = (TcpStream, Option<SocketAddr>);

/// What the loops of a run know about each other.
#[derive(Debug)]
pub(crate) struct Spread {
    loops: Vec<Inbox>,
}

/// What a loop is given.
#[derive(Debug, Default)]
struct Inbox {
    /// The number of its connections, with those that it is given.
    open: AtomicUsize,
    /// `None`: the loop has ended.
    given: Mutex<Option<Vec<NewConnection>>>,
    /// Wakes the loop. Set before it runs.
    woken: OnceLock<WokenList>,
}

/// The part of one loop. If the run does not spread its connections, a loop keeps those that it accepts.
#[derive(Debug)]
pub(crate) struct LoopShare {
    /// The number of the loop.
    pub(crate) shard: usize,
    spread: Option<Arc<Spread>>,
}

impl Spread {
    pub(crate) fn new(loops: usize) -> Self {
        Self { loops: (0..loops).map(|_| Inbox::default()).collect() }
    }
}

impl LoopShare {
    pub(crate) fn new(shard: usize, spread: Option<Arc<Spread>>) -> Self {
        Self { shard, spread }
    }

    fn inbox(&self) -> Option<&Inbox> {
        self.spread.as_ref()?.loops.get(self.shard)
    }

    /// The loop begins: it can be given connections.
    pub(crate) fn begin(&self, woken: &WokenList) {
        if let Some(inbox) = self.inbox() {
            let _ = inbox.woken.set(woken.clone());
            *lock(&inbox.given) = Some(Vec::new());
        }
    }

    /// Counts a connection that the loop has accepted, and returns it unless a loop with fewer connections gets it.
    pub(crate) fn keep(&self, accepted: NewConnection) -> Option<NewConnection> {
        let (Some(spread), Some(own)) = (&self.spread, self.inbox()) else { return Some(accepted) };
        let (other, open) =
            spread.loops.iter().map(|inbox| (inbox, inbox.open.load(Ordering::Relaxed))).min_by_key(|it| it.1)?;
        if open < own.open.load(Ordering::Relaxed)
            && let Some(given) = lock(&other.given).as_mut()
            && let Some(woken) = other.woken.get()
        {
            other.open.fetch_add(1, Ordering::Relaxed);
            given.push(accepted);
            woken.wake(GIVEN);
            return None;
        }
        own.open.fetch_add(1, Ordering::Relaxed);
        Some(accepted)
    }

    /// The connections that the loop was given since the last call.
    pub(crate) fn take(&self) -> Vec<NewConnection> {
        self.inbox().and_then(|inbox| lock(&inbox.given).as_mut().map(std::mem::take)).unwrap_or_default()
    }

    /// A connection of the loop has ended, or was not added.
    pub(crate) fn close(&self) {
        if let Some(inbox) = self.inbox() {
            inbox.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether the loop was given connections that it has not taken. If not, it is given none any more.
    pub(crate) fn has_given(&self) -> bool {
        let Some(inbox) = self.inbox() else { return false };
        let mut given = lock(&inbox.given);
        let has_given = given.as_ref().is_some_and(|given| !given.is_empty());
        if !has_given {
            *given = None;
        }
        has_given
    }
}
